//! Operations on names, with the inodes created and deleted with them. Each is one group of nodes.

use super::held::OrphanChange;
use super::journal::NewNode;
use super::{WriteError, Writer};
use crate::file_system::UbifsError;
use crate::format::{
    Compression, DirectoryEntry, EntryKind, INODE_COMPRESS, INODE_DATA_BYTES_MAX, INODE_DIRSYNC, INODE_SYNC,
    Inode, InodeNumber, Key, NAME_BYTES_MAX, NodeKind,
};
use crate::mkfs::Time;

/// A file to create.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Type and permissions, encoded as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Target of a symbolic link or number of a device; otherwise empty.
    pub data: Vec<u8>,
}

/// Contribution of an entry to the size of its directory.
pub(super) fn entry_bytes(name: &[u8]) -> u64 {
    u64::try_from((57 + name.len()).next_multiple_of(8)).unwrap_or(u64::MAX)
}

fn check_name(name: &[u8]) -> Result<u16, WriteError> {
    if name == b"." || name == b".." || name.contains(&0) || name.contains(&b'/') {
        return Err(WriteError::Invalid("no file can have that name"));
    }
    u16::try_from(name.len())
        .ok()
        .filter(|bytes| (1..=NAME_BYTES_MAX).contains(&u32::from(*bytes)))
        .ok_or(WriteError::Length {
            what: "a name",
            bytes: name.len(),
            largest: NAME_BYTES_MAX,
        })
}

/// The file type of an inode, or an error if it has none.
pub(super) fn kind_of(inode: &Inode) -> Result<EntryKind, WriteError> {
    inode.kind().ok_or(WriteError::Invalid("the file has no type"))
}

/// Flags that a new inode inherits from its directory.
pub(super) fn inherited_flags(directory: &Inode, mode: u32) -> u32 {
    let of_directories = match EntryKind::from_mode(mode) {
        Some(EntryKind::Directory) => INODE_DIRSYNC,
        _ => 0,
    };
    directory.flags & (INODE_COMPRESS | INODE_SYNC | of_directories)
}

/// Sets ctime, and mtime if the content changed.
pub(super) fn touch(inode: &mut Inode, now: Time, content: bool) {
    (inode.changed_seconds, inode.changed_nanoseconds) = (now.seconds.cast_unsigned(), now.nanoseconds);
    if content {
        (inode.modified_seconds, inode.modified_nanoseconds) = (now.seconds.cast_unsigned(), now.nanoseconds);
    }
}

impl Writer {
    /// Creates a file, directory, symbolic link or device. Returns its inode number.
    pub fn create(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        file: &NewFile,
        now: Time,
    ) -> Result<InodeNumber, WriteError> {
        let mut host = self.host(directory, name)?;
        self.check_free(directory, name)?;
        let inode = self.new_inode(file, inherited_flags(&host, file.mode), now)?;
        let kind = kind_of(&inode)?;
        let number = inode.key.inode_number();
        host.size_bytes += entry_bytes(name);
        host.links += u32::from(kind == EntryKind::Directory);
        touch(&mut host, now, true);
        let entry = self.entry(directory, name, number, kind)?;
        self.operation(&[entry, NewNode::Inode(inode), NewNode::Inode(host)])?;
        Ok(number)
    }

    /// Creates an unlinked file as in a directory (`O_TMPFILE`) and pins it once. [`Writer::link`] can link it.
    pub fn create_unnamed(
        &mut self,
        directory: InodeNumber,
        file: &NewFile,
        now: Time,
    ) -> Result<InodeNumber, WriteError> {
        let host = self.directory(directory)?;
        let mut inode = self.new_inode(file, inherited_flags(&host, file.mode), now)?;
        inode.links = 0;
        let number = inode.key.inode_number();
        let orphan = self.new_orphan(number)?;
        self.operation_for(&[NewNode::Inode(inode)], self.growth(), orphan)?;
        self.hold(number);
        Ok(number)
    }

    /// Adds a hard link to a file.
    pub fn link(
        &mut self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        let mut host = self.host(directory, name)?;
        self.check_free(directory, name)?;
        let mut file = self.ubifs.inode(inode)?;
        let kind = kind_of(&file)?;
        if kind == EntryKind::Directory {
            return Err(WriteError::IsDirectory { inode });
        }
        file.links += 1;
        touch(&mut file, now, false);
        host.size_bytes += entry_bytes(name);
        touch(&mut host, now, true);
        let entry = self.entry(directory, name, inode, kind)?;
        let nodes = [entry, NewNode::Inode(file), NewNode::Inode(host)];
        self.operation_for(&nodes, self.growth(), self.named_again(inode))
    }

    /// Removes a name of a file other than a directory. The file is deleted with its last link, once it is unpinned.
    pub fn unlink(&mut self, directory: InodeNumber, name: &[u8], now: Time) -> Result<(), WriteError> {
        let host = self.directory(directory)?;
        let found = self.ubifs.lookup(directory, name)?;
        let file = self.ubifs.inode(found.inode)?;
        if file.kind() == Some(EntryKind::Directory) {
            return Err(WriteError::IsDirectory { inode: found.inode });
        }
        self.remove(host, file, name, now)
    }

    /// Removes an empty directory.
    pub fn remove_directory(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        let mut host = self.directory(directory)?;
        let found = self.ubifs.lookup(directory, name)?;
        let file = self.directory(found.inode)?;
        self.check_empty(found.inode)?;
        host.links = host.links.saturating_sub(1);
        self.remove(host, file, name, now)
    }

    fn remove(&mut self, mut host: Inode, file: Inode, name: &[u8], now: Time) -> Result<(), WriteError> {
        let removed = self.removal(&mut host, name)?;
        let (file, orphan) = self.without_a_name(file, now)?;
        touch(&mut host, now, true);
        self.removal_operation(&[removed, NewNode::Inode(file), NewNode::Inode(host)], orphan)
    }

    /// The entry that removes a name; also shrinks the directory accordingly.
    pub(super) fn removal(&self, host: &mut Inode, name: &[u8]) -> Result<NewNode, WriteError> {
        host.size_bytes = host.size_bytes.saturating_sub(entry_bytes(name));
        self.entry(host.key.inode_number(), name, InodeNumber(0), EntryKind::File)
    }

    /// Removes one link of a file. If it was the last one and the file is pinned, the file becomes an orphan until it
    /// is unpinned.
    pub(super) fn without_a_name(
        &self,
        mut file: Inode,
        now: Time,
    ) -> Result<(Inode, OrphanChange), WriteError> {
        file.links = match file.kind() {
            Some(EntryKind::Directory) => 0,
            _ => file.links.saturating_sub(1),
        };
        touch(&mut file, now, false);
        let number = file.key.inode_number();
        let mut orphan = OrphanChange::None;
        if file.links == 0 {
            match self.is_held(number) {
                true => orphan = self.new_orphan(number)?,
                false => file.data = Vec::new(),
            }
        }
        Ok((file, orphan))
    }

    pub(super) fn new_inode(&mut self, file: &NewFile, flags: u32, now: Time) -> Result<Inode, WriteError> {
        let bytes = u32::try_from(file.data.len())
            .ok()
            .filter(|bytes| *bytes <= INODE_DATA_BYTES_MAX);
        let data_bytes = bytes.ok_or(WriteError::Length {
            what: "a link",
            bytes: file.data.len(),
            largest: INODE_DATA_BYTES_MAX,
        })?;
        let number = self.highest_inode.checked_add(1);
        self.highest_inode = number.ok_or_else(|| WriteError::NoInodeNumber { volume: self.name() })?;
        let compression =
            Compression::from_number(self.ubifs.superblock.compression).unwrap_or(Compression::None);
        let kind = EntryKind::from_mode(file.mode).ok_or(WriteError::Invalid("the mode has no type"))?;
        let is_directory = kind == EntryKind::Directory;
        let seconds = now.seconds.cast_unsigned();
        Ok(Inode {
            key: Key::inode(InodeNumber(self.highest_inode)),
            created_sequence: self.sequence,
            size_bytes: if is_directory { 160 } else { data_bytes.into() },
            accessed_seconds: seconds,
            changed_seconds: seconds,
            modified_seconds: seconds,
            accessed_nanoseconds: now.nanoseconds,
            changed_nanoseconds: now.nanoseconds,
            modified_nanoseconds: now.nanoseconds,
            links: if is_directory { 2 } else { 1 },
            user: file.user,
            group: file.group,
            mode: file.mode,
            flags,
            data_bytes,
            xattr_count: 0,
            xattr_bytes: 0,
            xattr_names_bytes: 0,
            compression: compression.number(),
            data: file.data.clone(),
        })
    }

    pub(super) fn entry(
        &self,
        directory: InodeNumber,
        name: &[u8],
        inode: InodeNumber,
        kind: EntryKind,
    ) -> Result<NewNode, WriteError> {
        let entry = DirectoryEntry {
            key: Key::entry(directory, self.ubifs.name_hash(name)),
            inode: inode.0.into(),
            kind: kind.number(),
            name_bytes: check_name(name)?,
            cookie: 0,
            name: name.to_vec(),
        };
        Ok(NewNode::Entry(NodeKind::Entry, entry))
    }

    pub(super) fn directory(&self, inode: InodeNumber) -> Result<Inode, WriteError> {
        let found = self.ubifs.inode(inode)?;
        match found.kind() {
            Some(EntryKind::Directory) => Ok(found),
            _ => Err(WriteError::NotDirectory { inode }),
        }
    }

    /// The directory for a new name; fails if the directory was deleted.
    pub(super) fn host(&self, inode: InodeNumber, name: &[u8]) -> Result<Inode, WriteError> {
        let found = self.directory(inode)?;
        if found.links > 0 {
            return Ok(found);
        }
        Err(UbifsError::NoName {
            volume: self.name(),
            inode,
            name: name.to_vec(),
        }
        .into())
    }

    pub(crate) fn check_free(&self, directory: InodeNumber, name: &[u8]) -> Result<(), WriteError> {
        match self.ubifs.lookup(directory, name) {
            Ok(_) => Err(WriteError::Exists { directory }),
            Err(UbifsError::NoName { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn check_empty(&self, directory: InodeNumber) -> Result<(), WriteError> {
        match self.ubifs.read_directory(directory)?.is_empty() {
            true => Ok(()),
            false => Err(WriteError::NotEmpty { directory }),
        }
    }
}
