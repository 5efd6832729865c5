//! Inode flags (chattr) that forbid changes. They are enforced here, because the kernel, which enforces them for its
//! own file systems, does not know them. It does check who may set them.

use vfs::{FsError, FsResult, Ino, IoctlReply};

use super::super::attributes::CHANGEABLE_FLAGS;
use super::super::reading::number;
use super::MountedWriter;
use super::changes::changed;
use crate::format::{EntryKind, INODE_APPEND, INODE_DIRSYNC, INODE_IMMUTABLE, INODE_SYNC, Inode};

/// Checks that the inode may be changed: not immutable.
pub(super) const fn check_changeable(inode: &Inode) -> FsResult<()> {
    match inode.flags & INODE_IMMUTABLE {
        0 => Ok(()),
        _ => Err(FsError::NotPermitted),
    }
}

/// Checks that content or links may be removed: neither immutable nor append-only.
pub(super) const fn check_removable(inode: &Inode) -> FsResult<()> {
    match inode.flags & (INODE_IMMUTABLE | INODE_APPEND) {
        0 => Ok(()),
        _ => Err(FsError::NotPermitted),
    }
}

/// Checks that an open file may be truncated: not append-only.
pub(super) const fn check_not_append(inode: &Inode) -> FsResult<()> {
    match inode.flags & INODE_APPEND {
        0 => Ok(()),
        _ => Err(FsError::NotPermitted),
    }
}

impl MountedWriter {
    /// Sets all user-settable flags at once.
    pub(super) fn set_flags(&self, ino: Ino, flags: u32) -> FsResult<IoctlReply> {
        self.change(|writer, now| {
            let flags = match self.reading(writer).inode(ino)?.kind() {
                Some(EntryKind::Directory) => flags,
                _ => flags & !INODE_DIRSYNC,
            };
            let set = writer.set_attributes(number(ino)?, &|inode| {
                inode.flags = inode.flags & !CHANGEABLE_FLAGS | flags;
                changed(inode, now);
            });
            set.map_err(|error| self.fail(&error))?;
            self.sync_where_flagged(writer, ino, INODE_SYNC)?;
            Ok(IoctlReply::default())
        })
    }
}
