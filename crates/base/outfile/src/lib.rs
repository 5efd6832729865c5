//! Output files of commands: complete under their names or absent, and never written through a link, FIFO or socket
//! that another user planted.
//!
//! A regular file is written under another name in the same directory, which is held open meanwhile. That name is newly
//! created (`O_EXCL`, `O_NOFOLLOW`); it is random, or `NAME.partial` if an unfinished result is worth keeping. A
//! finished file is synced, gets its mode (that of the file that it replaces, if that was the caller's) and is renamed;
//! then the directory is synced. A symbolic link under the name is replaced, not followed.
//!
//! Devices, FIFOs, sockets, `/dev/stdout` and the like are written directly: a rename would replace `/dev/null` by a
//! file. A link to one is followed if it belongs to root or the caller. In a world-writable sticky directory a FIFO or
//! socket of another user is refused, as the kernel does with `fs.protected_fifos`. The open of a FIFO waits for a
//! reader, and a write for the reader to read, until the flag of [`stop_with`] is raised.
//!
//! Logs that grow ([`append`]) and stores that are changed in place ([`change`]) are not opened through another user's
//! link either.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod append;
mod straight;
mod waiting;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

pub use append::{Readers, append, change};
pub use waiting::stop_with;

/// Policy for an unfinished output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It stays as `NAME.partial`, whatever ends the program; an earlier file of that name is replaced.
    Keep,
    /// It is removed. Only SIGKILL and power cuts leave it behind, under a name that begins with `.tidegate-`.
    Remove,
}

/// Maximum number of random names to try.
const ATTEMPTS_MAX: usize = 64;

/// An output while it is written.
#[derive(Debug)]
pub struct OutFile {
    file: File,
    /// `None` if it is written directly.
    replacement: Option<Replacement>,
    /// The path for messages.
    path: PathBuf,
}

/// A new file that will replace `name`.
#[derive(Debug)]
struct Replacement {
    /// An `O_PATH` descriptor.
    folder: OwnedFd,
    name: OsString,
    partial: OsString,
    unfinished: Unfinished,
    is_finished: bool,
}

/// The name that a kept output has until it is finished: `NAME.partial`. A name that is too long for that is cut, and
/// gets a hash of the whole name.
#[must_use]
pub fn partial_name(path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) if name.len() + PARTIAL.len() > NAME_BYTES_MAX => path.with_file_name(partial_of(name)),
        _ => {
            let mut name = path.as_os_str().to_owned();
            name.push(PARTIAL);
            name.into()
        }
    }
}

const PARTIAL: &str = ".partial";
/// Bytes of a name in a folder, at most (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

fn partial_of(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    let whole = [bytes, PARTIAL.as_bytes()].concat();
    if whole.len() <= NAME_BYTES_MAX {
        return OsString::from_vec(whole);
    }
    // FNV-1a: two long names that begin alike have different partial files.
    let sum = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let end = format!("~{sum:016x}{PARTIAL}");
    let mut kept = NAME_BYTES_MAX - end.len();
    // No half of a character.
    while kept > 0 && bytes.get(kept).is_some_and(|byte| byte & 0xC0 == 0x80) {
        kept -= 1;
    }
    OsString::from_vec([&bytes[..kept], end.as_bytes()].concat())
}

/// Writes an output whose content is complete.
///
/// # Errors
/// System errors; an existing file of that name is then unchanged.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut output = OutFile::create(path, Unfinished::Remove)?;
    output.write_all(content)?;
    output.finish().map(drop)
}

impl OutFile {
    /// Begins the output `path`, which can be read back unless [`OutFile::is_straight`].
    ///
    /// # Errors
    /// If the directory can't be opened or the file can't be created, or if the name is a link, FIFO or socket planted
    /// by another user.
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
            // As the umask and the directory determine.
            None => (Mode::from_raw_mode(0o666), None),
        };
        let (file, partial) = match unfinished {
            Unfinished::Keep => {
                let partial = partial_of(name);
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

    /// Path for messages: the partial file, or the device that is written directly.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file being written.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a device, a FIFO or a socket: it may not be readable or seekable, and written data can't be taken
    /// back.
    #[must_use]
    pub const fn is_straight(&self) -> bool {
        self.replacement.is_none()
    }

    /// Syncs the output and gives it its name.
    ///
    /// # Errors
    /// System errors; the output is then unfinished.
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

    /// Syncs the output and leaves it unfinished, which [`Unfinished::Keep`] keeps.
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
        match self.file.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => waiting::write(&self.file, bytes),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_finished && self.unfinished == Unfinished::Remove {
            // The error that prevented finishing matters more than a failed removal.
            let _ = rustix::fs::unlinkat(&self.folder, &self.partial, AtFlags::empty());
        }
    }
}

/// Opens the directory of the file that a path names.
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

/// The permissions of a replaced file, if it is the caller's: those of another user's file are not trusted.
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

/// Syncs a directory. One that is writable but not readable can't be synced: its new name reaches the medium
/// eventually.
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
