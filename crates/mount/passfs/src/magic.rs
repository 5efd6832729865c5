//! Kinds of host file systems, by their `statfs` magic.

use std::os::fd::AsFd;
use std::path::Path;

pub(crate) const BTRFS: i64 = 0x9123_683e;
/// Also ext2 and ext3.
pub(crate) const EXT4: i64 = 0xef53;
pub(crate) const F2FS: i64 = 0xf2f5_2010;
/// Also with a block device.
pub(crate) const FUSE: i64 = 0x6573_5546;
pub(crate) const NILFS2: i64 = 0x3434;
pub(crate) const TMPFS: i64 = 0x0102_1994;
pub(crate) const UBIFS: i64 = 0x2405_1905;
pub(crate) const XFS: i64 = 0x5846_5342;

/// True if `file` is on a file system of one of `kinds`; false if the host does not tell.
pub(crate) fn is_on(file: impl AsFd, kinds: &[i64]) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| kinds.contains(&found.f_type))
}

/// True if a folder is on a FUSE file system, whose server works while a mount over it waits; false if the host does not tell.
#[must_use]
pub fn has_server(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|found| found.f_type == FUSE)
}

/// True unless `file` is known to be on a file system of another kind: a server may refuse to tell.
pub(crate) fn may_be_on(file: impl AsFd, kind: i64) -> bool {
    rustix::fs::fstatfs(file).map_or(true, |found| found.f_type == kind)
}
