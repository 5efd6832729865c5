//! Outputs that are written directly: devices, FIFOs, sockets and the standard streams.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::waiting;

/// Opens a path for writing if it is not a regular file; `None` if it is one, or does not exist.
pub fn open(path: &Path) -> io::Result<Option<File>> {
    if let Some(stream) = standard_stream(path)? {
        return Ok(Some(File::from(stream)));
    }
    let found = match stat(path, AtFlags::SYMLINK_NOFOLLOW)? {
        None => return Ok(None),
        Some(found) => found,
    };
    let (target, no_follow) = match kind(&found) {
        FileType::Symlink => match stat(path, AtFlags::empty())? {
            Some(target) if is_special(&target) => (target, OFlags::empty()),
            // The link itself is replaced.
            _ => return Ok(None),
        },
        _ if is_special(&found) => (found, OFlags::NOFOLLOW),
        _ => return Ok(None),
    };
    if no_follow.is_empty() && !is_own_or_root_s(&found) {
        return refused("it is another user's symbolic link to a device, FIFO or socket");
    }
    if is_trap(&target, path)? {
        return refused("it is another user's FIFO or socket in a folder that anybody may write to");
    }
    if kind(&target) == FileType::Socket {
        return Ok(Some(File::from(OwnedFd::from(UnixStream::connect(path)?))));
    }
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC | no_follow;
    let file = match kind(&target) {
        FileType::Fifo => waiting::open(path, flags)?,
        _ => rustix::fs::openat(CWD, path, flags, Mode::empty())?,
    };
    // The name may lead elsewhere by now: to a file, or to another device than the one that was checked.
    let opened = rustix::fs::fstat(&file)?;
    match (opened.st_dev, opened.st_ino) == (target.st_dev, target.st_ino) {
        true => Ok(Some(File::from(file))),
        false => refused("it was exchanged for something else while it was opened"),
    }
}

/// The descriptor that a path like `/dev/stdout` stands for, whatever its type.
fn standard_stream(path: &Path) -> io::Result<Option<OwnedFd>> {
    let duplicate = if path == Path::new("/dev/stdout") {
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0)
    } else if path == Path::new("/dev/stderr") {
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0)
    } else if is_descriptor_path(path) {
        // The link leads to the open file itself, whose type doesn't matter.
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
    } else {
        return Ok(None);
    };
    Ok(Some(duplicate?))
}

/// `/dev/fd/N` and `/proc/self/fd/N`, which a shell's `>(...)` passes to a command.
fn is_descriptor_path(path: &Path) -> bool {
    let folders = [Path::new("/dev/fd"), Path::new("/proc/self/fd")];
    path.parent().is_some_and(|folder| folders.contains(&folder))
}

fn stat(path: &Path, flags: AtFlags) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(CWD, path, flags) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn is_special(found: &Stat) -> bool {
    !matches!(
        kind(found),
        FileType::RegularFile | FileType::Directory | FileType::Symlink
    )
}

pub fn is_own_or_root_s(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == rustix::process::geteuid().as_raw()
}

/// Whether the file at `path` is one that another user may have put there to read along, or to make its writer wait.
pub fn is_trap(found: &Stat, path: &Path) -> io::Result<bool> {
    let can_be_made_by_all = matches!(kind(found), FileType::Fifo | FileType::Socket);
    if !can_be_made_by_all || is_own_or_root_s(found) {
        return Ok(false);
    }
    let folder = rustix::fs::statat(CWD, folder_of(path), AtFlags::empty())?;
    Ok(folder.st_mode & 0o1002 == 0o1002)
}

pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn refused(why: &str) -> io::Result<Option<File>> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
