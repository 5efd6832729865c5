//! Refuses a mount point that already has a mount of tidegate: for root it would be stacked silently, and an ordinary user
//! would get a misleading permission error.
//!
//! A mount of another file system is a valid mount point. A dead mount of tidegate is refused later with its own message,
//! with or without `--over`.

use std::path::Path;

use anyhow::{Result, bail};

use crate::mount_table;
use crate::stats_document::{self, ReadError};

/// Fails if a mount of tidegate is at `mountpoint`, an absolute path without symbolic links.
pub fn refuse_if_taken(mountpoint: &Path) -> Result<()> {
    let Some(mount) = mount_table::at(mountpoint)?.filter(mount_table::Mount::is_fuse) else {
        return Ok(());
    };
    let document = stats_document::read(mountpoint);
    // A tidegate mount with another subtype is recognised only by its statistics.
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
