//! Refuses a mount point that already has a mount of tidegate: for root it would be stacked silently, and an ordinary user
//! would get a misleading permission error.
//!
//! A mount of another file system is a valid mount point. A dead mount of tidegate is refused later with its own message,
//! with or without `--over`.

use std::path::Path;

use crate::document::{self, ReadError};
use crate::{MountedError, table};

/// Refuses `mountpoint`, an absolute path without symbolic links, if a mount of tidegate is there.
///
/// # Errors
/// [`MountedError::Taken`].
pub fn refuse_if_taken(mountpoint: &Path) -> Result<(), MountedError> {
    let Some(mount) = table::at(mountpoint)?.filter(table::Mount::is_fuse) else {
        return Ok(());
    };
    let answer = document::read(mountpoint);
    // A tidegate mount with another subtype is recognised only by its statistics.
    let is_ours = mount.is_tidegate() || answer.is_ok();
    if !is_ours || matches!(answer, Err(ReadError::Dead)) {
        return Ok(());
    }
    let process = answer
        .ok()
        .filter(|document| document.pid_namespace == document::own_pid_namespace())
        .map(|document| format!(" (process {})", document.pid))
        .unwrap_or_default();
    Err(MountedError::Taken {
        mountpoint: mountpoint.to_owned(),
        source_folder: mount.source.into(),
        process,
    })
}
