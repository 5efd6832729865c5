//! Flags of inodes (chattr) that forbid changes: the kernel, which has them for a file system of its own, is not told of them
//! here. Who may set them it does check.

use vfs::{FsError, FsResult, Ino, IoctlReply};

use super::super::attributes::CHANGEABLE_FLAGS;
use super::super::reading::number;
use super::MountedWriter;
use super::changes::changed;
use crate::format::{EntryKind, INODE_APPEND, INODE_DIRSYNC, INODE_IMMUTABLE, INODE_SYNC, Inode};

/// Whether anything of an inode may change.
pub(super) const fn check_changeable(inode: &Inode) -> FsResult<()> {
    match inode.flags & INODE_IMMUTABLE {
        0 => Ok(()),
        _ => Err(FsError::NotPermitted),
    }
}

/// Whether what an inode has may go, too.
pub(super) const fn check_removable(inode: &Inode) -> FsResult<()> {
    match inode.flags & (INODE_IMMUTABLE | INODE_APPEND) {
        0 => Ok(()),
        _ => Err(FsError::NotPermitted),
    }
}

/// Whether the length may change for who has it open.
pub(super) const fn check_not_append(inode: &Inode) -> FsResult<()> {
    match inode.flags & INODE_APPEND {
        0 => Ok(()),
        _ => Err(FsError::NotPermitted),
    }
}

impl MountedWriter {
    /// Sets the flags that users may set, all at once.
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
