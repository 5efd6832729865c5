//! Refuses a mount point inside the source of the mount.
//!
//! Without its own mount tree (see `passfs`) a daemon would meet its own mount on the way through the source. The check
//! compares directories, not names: symbolic links and bind mounts lead to the same directories.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

use crate::mount_table;

/// Maximum number of parents that are followed towards the root.
const DEPTH_MAX: usize = 4096;

/// Fails if `mountpoint` is `source` or a folder in it.
pub fn refuse(source: &Path, mountpoint: &Path) -> Result<()> {
    let open = |path: &Path| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
            .with_context(|| format!("{} can't be opened", path.display()))
    };
    let (outer, inner) = (open(source)?, open(mountpoint)?);
    if is_above(&outer, inner.try_clone()?) || shows(&outer, &inner) {
        bail!(
            "{} lies inside of the source {}: without CAP_SYS_ADMIN the mount would lead into itself; \
             choose a mountpoint outside of the source, or mount as root",
            mountpoint.display(),
            source.display()
        );
    }
    Ok(())
}

/// Returns true if `outer` is `inner` or one of its parents. A parent that can't be opened ends the search.
fn is_above(outer: &OwnedFd, inner: OwnedFd) -> bool {
    let Some(wanted) = identity(outer) else {
        return false;
    };
    let mut directory = inner;
    let mut below = None;
    for _ in 0..DEPTH_MAX {
        let found = identity(&directory);
        if found == Some(wanted) {
            return true;
        }
        if found == below || found.is_none() {
            return false;
        }
        below = found;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&directory, "..", flags, Mode::empty()) {
            Ok(parent) => directory = parent,
            Err(_) => return false,
        }
    }
    false
}

/// Returns true if `inner` is in `outer` by the paths within their file system: a bind mount may show it elsewhere, and a
/// mount made there appears here too if the two propagate to each other.
fn shows(outer: &OwnedFd, inner: &OwnedFd) -> bool {
    match (mount_table::place_of(outer), mount_table::place_of(inner)) {
        (Some((device, outer)), Some((other, inner))) => device == other && inner.starts_with(outer),
        _ => false,
    }
}

/// Device and inode, from the cache: never asks a file system that may not answer.
fn identity(directory: &OwnedFd) -> Option<(u32, u32, u64)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(directory, "", flags, StatxFlags::INO).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}
