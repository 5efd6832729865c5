//! Files that are opened and not replaced: logs that grow, and stores that are changed in place.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Permissions of a file that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner alone.
    Owner,
    /// Whoever the umask lets.
    Umask,
}

/// Opens a log to be appended to, and makes it where there is none. A symbolic link is followed if it belongs to root or the
/// caller: somebody else's could lead to any file.
///
/// # Errors
/// System errors; `PermissionDenied` for another user's link.
pub fn append(path: &Path, readers: Readers) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND, readers)
}

/// Opens a file to be read and changed in place, and makes it where there is none. Links are followed as by [`append`].
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
    let open = |flags| rustix::fs::openat(CWD, path, flags, mode);
    match open(flags | OFlags::NOFOLLOW) {
        Ok(file) => Ok(File::from(file)),
        Err(Errno::LOOP) => {
            let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
            if is_link && !crate::straight::is_own_or_root_s(&found) {
                let why = "it is another user's symbolic link";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(File::from(open(flags)?))
        }
        Err(error) => Err(error.into()),
    }
}
