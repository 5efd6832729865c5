//! The parts of a record that are known before its run.

use std::io;
use std::path::{Path, PathBuf};

use results::RunIdentity;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use thiserror::Error;

use crate::environment;

/// Reasons why a folder can't be measured.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// Files can't be made on a read-only file system.
    #[error("{} is on a read-only file system; name a writable folder", .0.display())]
    ReadOnly(PathBuf),
    /// The permissions refuse files of this user.
    #[error("{}: this user may not make files here; name a writable folder", .0.display())]
    NotPermitted(PathBuf),
    /// The file system can't be examined.
    #[error("{} can't be used", path.display())]
    Unusable {
        /// The folder or device.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Identifies a run of `command` in `directory`, which must be writable if it is a folder.
///
/// # Errors
/// [`IdentityError`] when nothing can be measured there.
pub fn identity(
    command: Vec<String>,
    label: &str,
    directory: &Path,
    round: u32,
) -> Result<RunIdentity, IdentityError> {
    if directory.is_dir() {
        match access(directory, Access::WRITE_OK) {
            Err(Errno::ROFS) => return Err(IdentityError::ReadOnly(directory.to_owned())),
            Err(Errno::ACCESS) => return Err(IdentityError::NotPermitted(directory.to_owned())),
            _ => {}
        }
    }
    let target = environment::target(directory).map_err(|source| IdentityError::Unusable {
        path: directory.to_owned(),
        source,
    })?;
    Ok(RunIdentity {
        command,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        label: label.to_owned(),
        round,
        host: environment::host(),
        target,
    })
}
