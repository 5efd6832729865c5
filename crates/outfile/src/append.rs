//! Logs that are appended to.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Opens a log to be appended to. What is made is its owner's alone. A symbolic link is followed if it belongs to root or the caller:
/// somebody else's could lead to any file.
///
/// # Errors
/// What the system says; `PermissionDenied` for another user's link.
pub fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR);
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
