//! Calls that create, rename and remove names.

use vfs::{
    Caller, Entry, FileKind, FsError, FsResult, Ino, NewNode, OpenFlags, Opened, Privileges, RenameFlags,
};

use super::super::attributes::errno;
use super::super::reading::number;
use super::MountedWriter;
use super::flags::{check_changeable, check_removable};
use crate::file_system::UbifsError;
use crate::format::{EntryKind, Inode, InodeNumber};
use crate::write::{NameIn, NewFile, WriteError, Writer};

/// Permission bits of a mode, including setuid, setgid and sticky.
pub(super) const PERMISSIONS: u32 = 0o7777;

impl MountedWriter {
    pub(super) fn make_node(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
    ) -> FsResult<Entry> {
        let data = match FileKind::of_mode(node.mode) {
            FileKind::Regular | FileKind::Fifo | FileKind::Socket => Vec::new(),
            // The kernel's encoding is that of the medium.
            FileKind::CharDevice | FileKind::BlockDevice => node.rdev.to_le_bytes().to_vec(),
            FileKind::Directory => return Err(FsError::NotPermitted),
            FileKind::Symlink | FileKind::Unknown => return Err(FsError::Invalid),
        };
        self.make(caller, parent, name, node, data)
    }

    pub(super) fn make_directory(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
    ) -> FsResult<Entry> {
        let mode = EntryKind::Directory.mode() | node.mode & PERMISSIONS;
        self.make(caller, parent, name, NewNode { mode, ..node }, Vec::new())
    }

    pub(super) fn make_link(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        let node = NewNode {
            mode: EntryKind::Symlink.mode() | 0o777,
            umask: 0,
            rdev: 0,
        };
        self.make(caller, parent, name, node, target.to_vec())
    }

    fn make(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        data: Vec<u8>,
    ) -> FsResult<Entry> {
        self.change_names(&[parent], |writer, now| {
            let directory = number(parent)?;
            let file = self.new_file(writer, caller, parent, node, data)?;
            let made = writer.create(directory, name, &file, now);
            let made = made.map_err(|error| self.fail(&error))?;
            self.hand_out(writer, made)
        })
    }

    /// The new file, with owner and group from the caller and the directory's setgid bit.
    fn new_file(
        &self,
        writer: &mut Writer,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        data: Vec<u8>,
    ) -> FsResult<NewFile> {
        let host = self.reading(writer).inode(parent)?;
        check_changeable(&host)?;
        writer.act_for(writer.space_user(caller.uid, caller.gid));
        let inherits_group = host.mode & libc::S_ISGID != 0;
        let is_directory = FileKind::of_mode(node.mode) == FileKind::Directory;
        let setgid = match inherits_group && is_directory {
            true => libc::S_ISGID,
            false => 0,
        };
        Ok(NewFile {
            mode: node.mode & !(node.umask & 0o777) | setgid,
            user: caller.uid,
            group: if inherits_group { host.group } else { caller.gid },
            data,
        })
    }

    pub(super) fn create_file(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let mode = EntryKind::File.mode() | node.mode & PERMISSIONS;
        let made = self.make(caller, parent, name, NewNode { mode, ..node }, Vec::new());
        let entry = made.map_err(|error| match error {
            FsError::Exists if !flags.has(libc::O_EXCL) => FsError::Stale,
            error => error,
        })?;
        let opened = self.open_file(entry.ino, flags, Privileges::Keep);
        let opened = opened.inspect_err(|_| vfs::FileSystem::forget(self, entry.ino, 1))?;
        Ok((entry, opened))
    }

    pub(super) fn create_unnamed(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let mode = EntryKind::File.mode() | node.mode & PERMISSIONS;
        let entry = self.change(|writer, now| {
            if self.reading(writer).inode(parent)?.kind() != Some(EntryKind::Directory) {
                return Err(FsError::NotADirectory);
            }
            let file = self.new_file(writer, caller, parent, NewNode { mode, ..node }, Vec::new())?;
            let made = writer.create_unnamed(number(parent)?, &file, now);
            let made = made.map_err(|error| self.fail(&error))?;
            let reading = self.reading(writer);
            reading.entry(&reading.inode(Ino(made.0.into()))?)
        })?;
        let opened = self.open_file(entry.ino, flags, Privileges::Keep);
        let opened = opened.inspect_err(|_| vfs::FileSystem::forget(self, entry.ino, 1))?;
        Ok((entry, opened))
    }

    pub(super) fn give_name(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.change_names(&[parent], |writer, now| {
            let (file, directory) = (number(ino)?, number(parent)?);
            let reading = self.reading(writer);
            check_changeable(&reading.inode(parent)?)?;
            check_removable(&reading.inode(ino)?)?;
            match writer.link(file, directory, name, now) {
                Ok(()) => self.hand_out(writer, file),
                Err(WriteError::IsDirectory { .. }) => Err(FsError::NotPermitted),
                Err(error) => Err(self.fail(&error)),
            }
        })
    }

    pub(super) fn remove_file(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.change_names(&[parent], |writer, now| {
            let directory = number(parent)?;
            self.named(writer, (directory, name))?;
            let removed = writer.unlink(directory, name, now);
            removed.map_err(|error| self.fail(&error))
        })
    }

    pub(super) fn remove_directory(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.change_names(&[parent], |writer, now| {
            let directory = number(parent)?;
            self.named(writer, (directory, name))?;
            let removed = writer.remove_directory(directory, name, now);
            removed.map_err(|error| self.fail(&error))
        })
    }

    pub(super) fn move_name(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        let has = |flag: u32| flags.0 & flag != 0;
        let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
        if has(!known) || (has(libc::RENAME_EXCHANGE) && flags.0 != libc::RENAME_EXCHANGE) {
            return Err(FsError::Invalid);
        }
        self.change_names(&[from.0, to.0], |writer, now| {
            let (from, to) = ((number(from.0)?, from.1), (number(to.0)?, to.1));
            self.named(writer, from)?;
            match self.named(writer, to) {
                Ok(_) if has(libc::RENAME_NOREPLACE) => return Err(FsError::Exists),
                Err(FsError::NotFound) if !has(libc::RENAME_EXCHANGE) => {
                    check_changeable(&self.reading(writer).inode(Ino(to.0.0.into()))?)?;
                }
                found => found.map(|_| ())?,
            }
            let moved = match has(libc::RENAME_WHITEOUT) {
                _ if has(libc::RENAME_EXCHANGE) => writer.exchange(from, to, now),
                true => {
                    writer.act_for(writer.space_user(caller.uid, caller.gid));
                    writer.rename_with_whiteout(from, to, (caller.uid, caller.gid), now)
                }
                false => writer.rename(from, to, now),
            };
            moved.map_err(|error| self.fail(&error))
        })
    }

    /// The inode of a name to be removed, if flags permit it.
    fn named(&self, writer: &Writer, (directory, name): NameIn<'_>) -> FsResult<Inode> {
        let reading = self.reading(writer);
        let host = reading.inode(Ino(directory.0.into()))?;
        if host.kind() != Some(EntryKind::Directory) {
            return Err(FsError::NotADirectory);
        }
        let found = self.inode_of(writer, directory, name)?;
        check_removable(&host)?;
        let inode = reading.inode(Ino(found.0.into()))?;
        check_removable(&inode)?;
        Ok(inode)
    }

    fn inode_of(&self, writer: &Writer, directory: InodeNumber, name: &[u8]) -> FsResult<InodeNumber> {
        match writer.read().lookup(directory, name) {
            Ok(found) => Ok(found.inode),
            Err(error @ UbifsError::NoName { .. }) => Err(errno(&error)),
            Err(error) => Err(self.reading(writer).fail(&error)),
        }
    }
}
