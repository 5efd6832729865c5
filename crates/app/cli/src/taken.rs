//! Refuses a mountpoint at which a mount of tidegate is already: for root it would be stacked in silence, and an ordinary
//! user would be told of permissions.
//!
//! Mounts of other file systems are as good a mountpoint as any folder. A dead mount of ours is refused further down, with
//! its own message, whether or not `--over` is given.

use std::path::Path;

use anyhow::{Result, bail};

use crate::mount_table;
use crate::stats_document::{self, ReadError};

/// Fails where a mount of tidegate is at `mountpoint`, a path that is absolute and without links.
pub fn refuse_if_taken(mountpoint: &Path) -> Result<()> {
    let Some(mount) = mount_table::at(mountpoint)?.filter(mount_table::Mount::is_fuse) else {
        return Ok(());
    };
    let document = stats_document::read(mountpoint);
    // With another subtype, only its statistics tell that it is one of ours.
    let is_ours = mount.is_tidegate() || document.is_ok();
    if !is_ours || matches!(document, Err(ReadError::Dead)) {
        return Ok(());
    }
    let process = document
        .ok()
        .filter(|document| document.pid_namespace == stats_document::own_pid_namespace())
        .map(|document| format!(" (process {})", document.pid))
        .unwrap_or_default();
    bail!(
        "{0}: {1} is mounted here already{process}; unmount it first with `tidegate unmount {0}`, or mount over it with --over",
        mountpoint.display(),
        mount.source.display()
    );
}
