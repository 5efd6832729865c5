//! Files that commands write: whole under their names or not at all, and never through what others planted.
//!
//! A regular file is written under another name in the same folder, which is held open meanwhile. That name is made new
//! (`O_EXCL`, `O_NOFOLLOW`); it is random, or `NAME.partial` where an unfinished result is worth keeping. A finished file is
//! synced, gets its mode (that of the file that it replaces, if that was the caller's) and is renamed; then the folder is synced. What
//! has the name meanwhile stays as it is: a symbolic link is replaced, not followed.
//!
//! Devices, FIFOs, sockets, `/dev/stdout` and its like are written straight: a rename would replace `/dev/null` by a file. A link
//! to one is followed if it belongs to root or the caller. In a sticky folder that anybody may write to, a FIFO or socket of
//! another user is refused, as the kernel does with `fs.protected_fifos`.
//!
//! Logs that grow ([`append`]) and stores that are changed in place ([`change`]) are opened through no link of another user
//! either.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod append;
mod straight;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

pub use append::{Readers, append, change};

/// Policy for an output that is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It stays as `NAME.partial`, whatever ends the program; an earlier one of that name is replaced.
    Keep,
    /// It is removed. Only SIGKILL and power cuts leave it, under a name that begins with `.tidegate-`.
    Remove,
}

/// Random names that are tried before one is free, at most.
const ATTEMPTS_MAX: usize = 64;

/// An output that is being written.
#[derive(Debug)]
pub struct OutFile {
    file: File,
    /// `None` where it is written straight.
    replacement: Option<Replacement>,
    /// How messages call what is being written.
    path: PathBuf,
}

/// A new file that takes the place of `name`.
#[derive(Debug)]
struct Replacement {
    /// Without permissions of its own (`O_PATH`).
    folder: OwnedFd,
    name: OsString,
    partial: OsString,
    unfinished: Unfinished,
    is_finished: bool,
}

/// The name that an output has until it is finished, where it is kept.
#[must_use]
pub fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Writes an output of which all is there.
///
/// # Errors
/// System errors; a file of that name is unchanged then.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut output = OutFile::create(path, Unfinished::Remove)?;
    output.write_all(content)?;
    output.finish().map(drop)
}

impl OutFile {
    /// Begins the output `path`, which can be read back unless [`OutFile::is_straight`].
    ///
    /// # Errors
    /// When the folder can't be opened or the file not be made, or where another user left a trap under this name.
    pub fn create(path: &Path, unfinished: Unfinished) -> io::Result<Self> {
        if let Some(file) = straight::open(path)? {
            return Ok(Self {
                file,
                replacement: None,
                path: path.to_owned(),
            });
        }
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
        let folder = open_folder(path)?;
        let (mode, kept_mode) = match mode_to_keep(&folder, name)? {
            Some(mode) => (Mode::RUSR | Mode::WUSR, Some(mode)),
            // As the umask and the folder say.
            None => (Mode::from_raw_mode(0o666), None),
        };
        let (file, partial) = match unfinished {
            Unfinished::Keep => {
                let mut partial = name.to_owned();
                partial.push(".partial");
                remove_earlier(&folder, &partial)?;
                (make(&folder, &partial, mode)?, partial)
            }
            Unfinished::Remove => make_random(&folder, mode)?,
        };
        let path = path.with_file_name(&partial);
        let output = Self {
            file,
            replacement: Some(Replacement {
                folder,
                name: name.to_owned(),
                partial,
                unfinished,
                is_finished: false,
            }),
            path,
        };
        if let Some(mode) = kept_mode {
            rustix::fs::fchmod(&output.file, mode)?;
        }
        Ok(output)
    }

    /// Path for messages: the partial file, or the device that is written straight.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file below.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a device, a FIFO or a socket: it may not be read or seeked, and what is written is out.
    #[must_use]
    pub const fn is_straight(&self) -> bool {
        self.replacement.is_none()
    }

    /// Syncs the output and gives it its name.
    ///
    /// # Errors
    /// System errors; the output is unfinished then.
    pub fn finish(mut self) -> io::Result<File> {
        match self.file.sync_all() {
            // A terminal, a FIFO or a character device.
            Err(error) if self.is_straight() && cannot_sync(&error) => {}
            synced => synced?,
        }
        let file = self.file.try_clone()?;
        if let Some(replacement) = &mut self.replacement {
            let Replacement {
                folder,
                name,
                partial,
                ..
            } = &*replacement;
            rustix::fs::renameat(folder, partial, folder, name)?;
            replacement.is_finished = true;
            sync_folder(&replacement.folder)?;
        }
        Ok(file)
    }

    /// Syncs the output and leaves it unfinished: where [`Unfinished::Keep`] has it.
    ///
    /// # Errors
    /// System errors.
    pub fn leave(self) -> io::Result<PathBuf> {
        match self.file.sync_all() {
            Err(error) if self.is_straight() && cannot_sync(&error) => {}
            synced => synced?,
        }
        Ok(self.path.clone())
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_finished && self.unfinished == Unfinished::Remove {
            // What could not be written says more than that it could not be removed.
            let _ = rustix::fs::unlinkat(&self.folder, &self.partial, AtFlags::empty());
        }
    }
}

/// Holds the folder that a path names a file of.
fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(
        CWD,
        folder.unwrap_or(Path::new(".")),
        flags,
        Mode::empty(),
    )?)
}

/// The permissions of a file that is replaced, if it is the caller's: those of a file that somebody put there say nothing.
fn mode_to_keep(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Mode>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(found) => match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Err(Errno::ISDIR.into()),
            FileType::RegularFile if found.st_uid == rustix::process::geteuid().as_raw() => {
                Ok(Some(Mode::from_raw_mode(found.st_mode & 0o777)))
            }
            _ => Ok(None),
        },
    }
}

fn remove_earlier(folder: &OwnedFd, partial: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, partial, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => {
            let shown = partial.display();
            Err(io::Error::new(
                io::Error::from(error).kind(),
                format!("{shown} of an earlier or another's run can't be removed: {error}"),
            ))
        }
    }
}

fn make(folder: &OwnedFd, name: &OsStr, mode: Mode) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, mode).map(File::from)
}

fn make_random(folder: &OwnedFd, mode: Mode) -> io::Result<(File, OsString)> {
    for _ in 0..ATTEMPTS_MAX {
        let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(12).collect();
        let name = OsString::from(format!(".tidegate-{random}"));
        match make(folder, &name, mode) {
            Ok(file) => return Ok((file, name)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Syncs a folder. One that may be written but not read can't be synced: its new name reaches the medium with time.
fn sync_folder(folder: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, ".", flags, Mode::empty()) {
        Ok(opened) => Ok(rustix::fs::fsync(opened)?),
        Err(Errno::ACCESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn cannot_sync(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::INVAL | Errno::ROFS | Errno::NOTSUP))
}
