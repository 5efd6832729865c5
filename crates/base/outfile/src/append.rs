//! Files that are opened and not replaced: logs that grow, and stores that are changed in place.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Permissions of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Only its owner.
    Owner,
    /// As the umask permits.
    Umask,
}

/// Opens a log for appending, and creates it if it is missing. A symbolic link is followed only if it belongs to root
/// or the caller: another user's link could lead to any file.
///
/// # Errors
/// System errors; `PermissionDenied` for another user's link.
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
