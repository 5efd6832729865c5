//! Files that are opened and not replaced: logs that grow, and stores that are changed in place.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::straight::{folder_of, is_own_or_root_s, is_trap};

/// Permissions of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Only its owner.
    Owner,
    /// As the umask permits.
    Umask,
}

/// Maximum number of links in a row, as in Linux.
const LINKS_MAX: usize = 40;

/// `PROC_SUPER_MAGIC`: links like `/proc/self/fd/1` lead to open files, not to paths.
const PROC: i64 = 0x9fa0;

/// Opens a log for appending, and creates it if it is missing. A symbolic link is followed only if it belongs to root
/// or the caller: another user's link could lead to any file. In a folder that others may write to, a FIFO or socket of
/// another user and a file with several names are refused too.
///
/// # Errors
/// System errors; `PermissionDenied` for what another user may have planted.
pub fn append(path: &Path, readers: Readers) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND, readers)
}

/// Opens a file for reading and changing it in place, and creates it if it is missing. Links are followed as by
/// [`append`].
///
/// # Errors
/// As [`append`].
pub fn change(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR, Readers::Umask)
}

fn open(path: &Path, flags: OFlags, readers: Readers) -> io::Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(match readers {
        Readers::Owner => 0o600,
        Readers::Umask => 0o666,
    });
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        // A planted FIFO has no reader, and an open would wait for one.
        match rustix::fs::openat(CWD, &path, flags | OFlags::NOFOLLOW | OFlags::NONBLOCK, mode) {
            Ok(file) => return checked(file, &path),
            Err(Errno::LOOP) => match target(&path)? {
                Target::Path(target) => path = target,
                Target::OpenFile => return Ok(File::from(rustix::fs::openat(CWD, &path, flags, mode)?)),
            },
            Err(Errno::NXIO) => return Err(io::Error::other("nothing reads from it")),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::LOOP.into())
}

enum Target {
    Path(PathBuf),
    OpenFile,
}

/// The target of a link, as it was when its owner was checked: the name may lead elsewhere at any moment.
fn target(path: &Path) -> io::Result<Target> {
    let link = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::openat(CWD, path, link, Mode::empty())?;
    if rustix::fs::fstatfs(&link)?.f_type == PROC {
        return Ok(Target::OpenFile);
    }
    let found = rustix::fs::fstat(&link)?;
    let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    if is_link && !is_own_or_root_s(&found) {
        return refused("it is another user's symbolic link");
    }
    let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
    let target = OsString::from_vec(target.into_bytes());
    Ok(Target::Path(folder_of(path).join(target)))
}

/// Refuses a file that another user may have put there, and lets writes wait.
fn checked(file: OwnedFd, path: &Path) -> io::Result<File> {
    let found = rustix::fs::fstat(&file)?;
    if is_trap(&found, path)? {
        return refused("it is another user's FIFO or socket in a folder that anybody may write to");
    }
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink > 1 {
        let folder = rustix::fs::stat(folder_of(path))?;
        if !is_own_or_root_s(&folder) || folder.st_mode & 0o022 != 0 {
            return refused("it has several names, in a folder that others may write to");
        }
    }
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(File::from(file))
}

fn refused<T>(why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
