//! Read operations, shared by read-only and read-write mounts.

use vfs::{Attr, Entry, FsError, FsResult, Ino, SeekFrom};

use super::{LossListener, attributes};
use crate::content::SeekTarget;
use crate::file_system::{Entry as Name, Ubifs, UbifsError};
use crate::format::{EntryKind, INODE_ENCRYPTED, Inode, InodeNumber, NAME_BYTES_MAX};

/// A file system for the duration of a call, with the listener for losses.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub(super) ubifs: &'a Ubifs,
    pub(super) listener: &'a LossListener,
}

/// Converts the inode number of a call.
pub(super) fn number(ino: Ino) -> FsResult<InodeNumber> {
    u32::try_from(ino.0).map(InodeNumber).map_err(|_| FsError::Stale)
}

impl Reading<'_> {
    /// Maps an error to its errno and reports losses to the listener.
    pub(super) fn fail(&self, error: &UbifsError) -> FsError {
        if let UbifsError::Damaged { finding, .. } = error {
            (self.listener)(finding);
        }
        attributes::errno(error)
    }

    pub(super) fn inode(&self, ino: Ino) -> FsResult<Inode> {
        self.ubifs.inode(number(ino)?).map_err(|error| self.fail(&error))
    }

    pub(super) fn attr(&self, inode: &Inode) -> FsResult<Attr> {
        let mut lost = Vec::new();
        let blocks = match inode.kind() {
            // The kernel would refuse a mode without a file type as well.
            None => return Err(FsError::Io),
            Some(EntryKind::File) if inode.size_bytes > 0 => {
                let blocks = self.ubifs.blocks_lossy(inode.key.inode_number(), &mut lost);
                u64::try_from(blocks.len()).unwrap_or(u64::MAX)
            }
            Some(_) => 0,
        };
        lost.iter().for_each(|finding| (self.listener)(finding));
        let mut attr = attributes::attr(inode, blocks);
        if inode.kind() == Some(EntryKind::Symlink) && inode.flags & INODE_ENCRYPTED != 0 {
            let target = self.ubifs.read_link(inode).ok();
            attr.size = target.map_or(attr.size, |target| {
                u64::try_from(target.len()).unwrap_or(u64::MAX)
            });
        }
        Ok(attr)
    }

    pub(super) fn entry(&self, inode: &Inode) -> FsResult<Entry> {
        Ok(Entry {
            ino: Ino(inode.key.inode_number().0.into()),
            generation: 0,
            attr: self.attr(inode)?,
        })
    }

    pub(super) fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        if u32::try_from(name.len()).is_ok_and(|bytes| bytes > NAME_BYTES_MAX) {
            return Err(FsError::NameTooLong);
        }
        let found = match self.ubifs.lookup(number(parent)?, name) {
            Ok(found) => found,
            // Only directories have entries.
            Err(error @ UbifsError::NoName { .. }) => {
                let missing = self.fail(&error);
                return Err(match self.inode(parent)?.kind() {
                    Some(EntryKind::Directory) => missing,
                    _ => FsError::NotADirectory,
                });
            }
            Err(error) => return Err(self.fail(&error)),
        };
        match self.ubifs.inode(found.inode) {
            Ok(inode) => self.entry(&inode),
            Err(error) => Err(attributes::behind_a_name(self.fail(&error))),
        }
    }

    pub(super) fn read_link(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let inode = self.inode(ino)?;
        self.ubifs.read_link(&inode).map_err(|error| self.fail(&error))
    }

    pub(super) fn seek(&self, file: &Inode, from: SeekFrom) -> FsResult<u64> {
        let (offset, target) = match from {
            SeekFrom::Data(offset) => (offset, SeekTarget::Data),
            SeekFrom::Hole(offset) => (offset, SeekTarget::Hole),
        };
        if offset >= file.size_bytes {
            return Err(FsError::NoSuchDevice);
        }
        let found = self.ubifs.seek(file, offset, target);
        match (found.map_err(|error| self.fail(&error))?, target) {
            (Some(found), _) => Ok(found),
            // The end of each file counts as a hole.
            (None, SeekTarget::Hole) => Ok(file.size_bytes),
            (None, SeekTarget::Data) => Err(FsError::NoSuchDevice),
        }
    }

    /// The readable entries of a directory, and whether these are all.
    pub(super) fn names(&self, ino: Ino) -> FsResult<(InodeNumber, Vec<Name>, bool)> {
        let inode = self.inode(ino)?;
        if inode.kind() != Some(EntryKind::Directory) {
            return Err(FsError::NotADirectory);
        }
        let number = inode.key.inode_number();
        let mut lost = Vec::new();
        let names = self.ubifs.read_directory_lossy(number, &mut lost);
        lost.iter().for_each(|finding| (self.listener)(finding));
        Ok((number, names, lost.is_empty()))
    }

    /// Resolves names to entries, in order; `None` for unreadable inodes.
    pub(super) fn entries(&self, names: &[Name]) -> Vec<Option<Entry>> {
        let numbers: Vec<InodeNumber> = names.iter().map(|name| name.inode).collect();
        let inodes = self.ubifs.inodes(&numbers);
        inodes
            .iter()
            .map(|inode| match inode {
                Ok(inode) => self.entry(inode).ok(),
                Err(error) => {
                    self.fail(error);
                    None
                }
            })
            .collect()
    }

    pub(super) fn xattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        // POSIX ACLs do not exist here, but a kernel with ACL support asks for them before it creates a file: must
        // not fail.
        if !name.starts_with(b"system.posix_acl_") {
            attributes::check_namespace(name)?;
        }
        match self.ubifs.xattr(number(ino)?, name) {
            Ok(value) => Ok(value),
            Err(UbifsError::NoName { .. }) => Err(FsError::NoData),
            Err(error) => Err(attributes::behind_a_name(self.fail(&error))),
        }
    }

    pub(super) fn xattr_list(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let inode = self.inode(ino)?;
        let names = self.ubifs.xattr_names(inode.key.inode_number());
        let mut list = Vec::new();
        for name in names.map_err(|error| self.fail(&error))? {
            if attributes::is_shown(&name) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }
}
