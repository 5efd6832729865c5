//! Operations on files. Each is one group of nodes, but for the content of files, whose blocks come one by one before the inode.

use super::buffers::HeadKind;
use super::journal::NewNode;
use super::{WriteError, Writer};
use crate::file_system::UbifsError;
use crate::format::{
    BLOCK_BYTES, Compression, Data, DirectoryEntry, EntryKind, INODE_COMPRESS, INODE_DATA_BYTES_MAX,
    INODE_XATTR, Inode, InodeNumber, Key, NAME_BYTES_MAX, NodeKind, Truncation,
};
use crate::mkfs::Time;
use crate::scan::to_usize;

/// A file that is to be made.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Type and permissions as `st_mode` has them.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// A symbolic link's target, a device's number; otherwise nothing.
    pub data: Vec<u8>,
}

/// The space of an entry, as the size of its directory counts it.
fn entry_bytes(name: &[u8]) -> u64 {
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

/// Sets the times of a change.
fn touch(inode: &mut Inode, now: Time, content: bool) {
    (inode.changed_seconds, inode.changed_nanoseconds) = (now.seconds.cast_unsigned(), now.nanoseconds);
    if content {
        (inode.modified_seconds, inode.modified_nanoseconds) = (now.seconds.cast_unsigned(), now.nanoseconds);
    }
}

impl Writer {
    /// Makes a file, a directory, a link or a device. Returns its number.
    pub fn create(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        file: &NewFile,
        now: Time,
    ) -> Result<InodeNumber, WriteError> {
        let mut host = self.directory(directory)?;
        self.check_free(directory, name)?;
        let kind = EntryKind::from_mode(file.mode).ok_or(WriteError::Invalid("the mode has no type"))?;
        let inode = self.new_inode(file, now)?;
        let number = inode.key.inode_number();
        host.size_bytes += entry_bytes(name);
        host.links += u32::from(kind == EntryKind::Directory);
        touch(&mut host, now, true);
        let entry = self.entry(directory, name, number, kind)?;
        self.operation(&[entry, NewNode::Inode(inode), NewNode::Inode(host)])?;
        Ok(number)
    }

    /// Gives a file another name.
    pub fn link(
        &mut self,
        inode: InodeNumber,
        directory: InodeNumber,
        name: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        let mut host = self.directory(directory)?;
        self.check_free(directory, name)?;
        let mut file = self.ubifs.inode(inode)?;
        let kind = file.kind().ok_or(WriteError::Invalid("the file has no type"))?;
        if kind == EntryKind::Directory {
            return Err(WriteError::IsDirectory { inode });
        }
        file.links += 1;
        touch(&mut file, now, false);
        host.size_bytes += entry_bytes(name);
        touch(&mut host, now, true);
        let entry = self.entry(directory, name, inode, kind)?;
        self.orphans.remove(&inode.0);
        self.operation(&[entry, NewNode::Inode(file), NewNode::Inode(host)])
    }

    /// Removes a name that is no directory's. The file goes with its last name, once nobody holds it.
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
        let file = self.without_a_name(file, now);
        touch(&mut host, now, true);
        self.operation(&[removed, NewNode::Inode(file), NewNode::Inode(host)])
    }

    /// The entry that removes a name, and what the directory shrinks by.
    fn removal(&self, host: &mut Inode, name: &[u8]) -> Result<NewNode, WriteError> {
        host.size_bytes = host.size_bytes.saturating_sub(entry_bytes(name));
        self.entry(host.key.inode_number(), name, InodeNumber(0), EntryKind::File)
    }

    /// A file that loses a name. One that is held without a name is an orphan until it is let go.
    fn without_a_name(&mut self, mut file: Inode, now: Time) -> Inode {
        file.links = match file.kind() {
            Some(EntryKind::Directory) => 0,
            _ => file.links.saturating_sub(1),
        };
        touch(&mut file, now, false);
        let number = file.key.inode_number().0;
        if file.links == 0 {
            if self.held.contains_key(&number) {
                self.orphans.insert(number);
            } else {
                file.data = Vec::new();
            }
        }
        file
    }

    /// Renames; what has the new name, if anything, is replaced in the same step.
    pub fn rename(
        &mut self,
        (from, old): (InodeNumber, &[u8]),
        (to, new): (InodeNumber, &[u8]),
        now: Time,
    ) -> Result<(), WriteError> {
        let found = self.ubifs.lookup(from, old)?;
        let mut file = self.ubifs.inode(found.inode)?;
        let kind = file.kind().ok_or(WriteError::Invalid("the file has no type"))?;
        let is_directory = kind == EntryKind::Directory;
        let replaced = match self.ubifs.lookup(to, new) {
            Ok(entry) if entry.inode == found.inode => return Ok(()),
            Ok(entry) => Some(self.ubifs.inode(entry.inode)?),
            Err(UbifsError::NoName { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if is_directory && self.is_below(to, found.inode)? {
            return Err(WriteError::Invalid("a directory can't be moved below itself"));
        }
        if let Some(replaced) = &replaced {
            let number = replaced.key.inode_number();
            match (is_directory, replaced.kind() == Some(EntryKind::Directory)) {
                (true, false) => return Err(WriteError::NotDirectory { inode: number }),
                (false, true) => return Err(WriteError::IsDirectory { inode: number }),
                (true, true) => self.check_empty(number)?,
                (false, false) => {}
            }
        }
        let mut source = self.directory(from)?;
        let mut target = if from == to {
            None
        } else {
            Some(self.directory(to)?)
        };
        let entry = self.entry(to, new, found.inode, kind)?;
        let removal = self.removal(&mut source, old)?;
        touch(&mut file, now, false);
        touch(&mut source, now, true);
        if is_directory {
            source.links = source.links.saturating_sub(1);
        }
        let host = target.as_mut().unwrap_or(&mut source);
        touch(host, now, true);
        match &replaced {
            None => host.size_bytes += entry_bytes(new),
            Some(replaced) if replaced.kind() == Some(EntryKind::Directory) => {
                host.links = host.links.saturating_sub(1);
            }
            Some(_) => {}
        }
        if is_directory {
            host.links += 1;
        }
        let mut nodes = vec![entry, removal];
        if let Some(replaced) = replaced {
            nodes.push(NewNode::Inode(self.without_a_name(replaced, now)));
        }
        nodes.push(NewNode::Inode(file));
        nodes.push(NewNode::Inode(source));
        nodes.extend(target.map(NewNode::Inode));
        self.operation(&nodes)
    }

    /// Writes content at an offset. It is safe once [`Writer::fsync`] returned.
    pub fn write(
        &mut self,
        inode: InodeNumber,
        offset: u64,
        content: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        self.check_usable()?;
        let mut file = self.regular(inode)?;
        let mut at = offset;
        let mut rest = content;
        while !rest.is_empty() {
            let in_block = to_usize(u32::try_from(at % u64::from(BLOCK_BYTES)).expect("less than a block"));
            let (part, others) = rest.split_at(rest.len().min(to_usize(BLOCK_BYTES) - in_block));
            rest = others;
            let result = self.write_part(&mut file, at, in_block, part);
            if let Err(error) = self.guard(result) {
                // What was written so far counts.
                touch(&mut file, now, true);
                let _ = self.operation(&[NewNode::Inode(file)]);
                return Err(error);
            }
            at += u64::try_from(part.len()).expect("less than a block");
            file.size_bytes = file.size_bytes.max(at);
        }
        touch(&mut file, now, true);
        self.operation(&[NewNode::Inode(file)])
    }

    fn write_part(
        &mut self,
        file: &mut Inode,
        at: u64,
        in_block: usize,
        part: &[u8],
    ) -> Result<(), WriteError> {
        let number = u32::try_from(at / u64::from(BLOCK_BYTES)).unwrap_or(u32::MAX);
        if number > Key::LOW_MAX {
            return Err(WriteError::Invalid("a file has 2 TiB at most"));
        }
        let start = u64::from(number) * u64::from(BLOCK_BYTES);
        let mut block = part.to_vec();
        if in_block > 0 || start + u64::try_from(part.len()).unwrap_or(0) < file.size_bytes {
            let mut whole = vec![0; to_usize(BLOCK_BYTES)];
            let known = self.ubifs.read(file, start, &mut whole)?;
            whole.truncate(known.max(in_block + part.len()));
            whole[in_block..in_block + part.len()].copy_from_slice(part);
            block = whole;
        }
        self.make_room_for(HeadKind::Data)?;
        let data = self.block(file, number, &block);
        self.write_block(data)
    }

    fn block(&mut self, file: &Inode, number: u32, block: &[u8]) -> Data {
        let (compression, stored) = match file.flags & INODE_COMPRESS {
            0 => (Compression::None, block.to_vec()),
            _ => self.packer.pack(block),
        };
        Data {
            key: Key::data(file.key.inode_number(), number),
            size_bytes: u32::try_from(block.len()).expect("at most a block"),
            compression: compression.number(),
            compressed_bytes: 0,
            stored,
        }
    }

    /// Makes a file shorter or longer.
    pub fn truncate(&mut self, inode: InodeNumber, bytes: u64, now: Time) -> Result<(), WriteError> {
        let mut file = self.regular(inode)?;
        let old_bytes = file.size_bytes;
        let in_block = to_usize(u32::try_from(bytes % u64::from(BLOCK_BYTES)).expect("less than a block"));
        let number = u32::try_from(bytes / u64::from(BLOCK_BYTES)).unwrap_or(u32::MAX);
        if number > Key::LOW_MAX {
            return Err(WriteError::Invalid("a file has 2 TiB at most"));
        }
        let mut last = None;
        if bytes < old_bytes && in_block > 0 && self.plain_place(Key::data(inode, number))?.is_some() {
            let mut block = vec![0; in_block];
            self.ubifs
                .read(&file, u64::from(number) * u64::from(BLOCK_BYTES), &mut block)?;
            last = Some(self.block(&file, number, &block));
        }
        file.size_bytes = bytes;
        touch(&mut file, now, true);
        let mut nodes = vec![NewNode::Inode(file)];
        if bytes < old_bytes {
            nodes.push(NewNode::Truncation(Truncation {
                inode: inode.0,
                old_bytes,
                new_bytes: bytes,
            }));
            nodes.extend(last.map(NewNode::Data));
        }
        self.operation(&nodes)
    }

    /// Changes attributes: `change` gets the inode.
    pub fn set_attributes(
        &mut self,
        inode: InodeNumber,
        change: &dyn Fn(&mut Inode),
    ) -> Result<(), WriteError> {
        let mut file = self.ubifs.inode(inode)?;
        let before = file.clone();
        change(&mut file);
        let fixed = |inode: &Inode| {
            (
                inode.key,
                inode.size_bytes,
                inode.links,
                inode.mode >> 12,
                inode.data.clone(),
            )
        };
        if fixed(&before) != fixed(&file) {
            return Err(WriteError::Invalid("these attributes follow from the content"));
        }
        self.operation(&[NewNode::Inode(file)])
    }

    /// Sets an extended attribute, name with prefix.
    pub fn set_xattr(
        &mut self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        let name_bytes = check_name(name)?;
        let bytes = u32::try_from(value.len())
            .ok()
            .filter(|bytes| *bytes <= INODE_DATA_BYTES_MAX);
        let Some(bytes) = bytes else {
            return Err(WriteError::Length {
                what: "an extended attribute",
                bytes: value.len(),
                largest: INODE_DATA_BYTES_MAX,
            });
        };
        let mut host = self.ubifs.inode(inode)?;
        touch(&mut host, now, false);
        let space = |bytes: u32| (161 + bytes).next_multiple_of(8);
        let existing = self.ubifs.xattr_inode(inode, name)?;
        if let Some(number) = existing {
            let mut holder = self.ubifs.inode(number)?;
            host.xattr_bytes = host.xattr_bytes.saturating_sub(space(holder.data_bytes)) + space(bytes);
            (holder.data, holder.data_bytes, holder.size_bytes) = (value.to_vec(), bytes, bytes.into());
            touch(&mut holder, now, true);
            return self.operation(&[NewNode::Inode(holder), NewNode::Inode(host)]);
        }
        let file = NewFile {
            mode: 0o100_777,
            user: host.user,
            group: host.group,
            data: value.to_vec(),
        };
        let mut holder = self.new_inode(&file, now)?;
        holder.flags = INODE_XATTR;
        holder.size_bytes = bytes.into();
        host.xattr_count += 1;
        host.xattr_names_bytes += u32::from(name_bytes);
        host.xattr_bytes += space(bytes) + u32::try_from(entry_bytes(name)).unwrap_or(0);
        let entry = DirectoryEntry {
            key: Key::xattr(inode, self.ubifs.name_hash(name)),
            inode: holder.key.inode_number().0.into(),
            kind: EntryKind::File.number(),
            name_bytes,
            cookie: 0,
            name: name.to_vec(),
        };
        let entry = NewNode::Entry(NodeKind::XattrEntry, entry);
        self.operation(&[entry, NewNode::Inode(holder), NewNode::Inode(host)])
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, inode: InodeNumber, name: &[u8], now: Time) -> Result<(), WriteError> {
        let name_bytes = check_name(name)?;
        let Some(number) = self.ubifs.xattr_inode(inode, name)? else {
            return Err(UbifsError::NoName {
                volume: self.name(),
                inode,
                name: name.to_vec(),
            }
            .into());
        };
        let mut host = self.ubifs.inode(inode)?;
        let mut holder = self.ubifs.inode(number)?;
        touch(&mut host, now, false);
        host.xattr_count = host.xattr_count.saturating_sub(1);
        host.xattr_names_bytes = host.xattr_names_bytes.saturating_sub(name_bytes.into());
        let space =
            (161 + holder.data_bytes).next_multiple_of(8) + u32::try_from(entry_bytes(name)).unwrap_or(0);
        host.xattr_bytes = host.xattr_bytes.saturating_sub(space);
        holder.links = 0;
        holder.data = Vec::new();
        let entry = DirectoryEntry {
            key: Key::xattr(inode, self.ubifs.name_hash(name)),
            inode: 0,
            kind: EntryKind::File.number(),
            name_bytes,
            cookie: 0,
            name: name.to_vec(),
        };
        let entry = NewNode::Entry(NodeKind::XattrEntry, entry);
        self.operation(&[entry, NewNode::Inode(holder), NewNode::Inode(host)])
    }

    /// Writes what is buffered: all operations that returned are there after a power cut.
    pub fn fsync(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let result = self.sync_heads();
        self.guard(result)?;
        Ok(self.volume.sync()?)
    }

    /// Holds a file: it outlives its last name until it is let go as often.
    pub fn hold(&mut self, inode: InodeNumber) {
        *self.held.entry(inode.0).or_default() += 1;
    }

    /// Lets a file go; without a name it is removed.
    pub fn let_go(&mut self, inode: InodeNumber) -> Result<(), WriteError> {
        match self.held.get_mut(&inode.0) {
            Some(count) if *count > 1 => {
                *count -= 1;
                return Ok(());
            }
            _ => self.held.remove(&inode.0),
        };
        if !self.orphans.contains(&inode.0) {
            return Ok(());
        }
        let mut file = self.ubifs.inode(inode)?;
        self.orphans.remove(&inode.0);
        file.data = Vec::new();
        self.operation(&[NewNode::Inode(file)])
    }

    /// Writes a group, after making room for it.
    fn operation(&mut self, nodes: &[NewNode]) -> Result<(), WriteError> {
        self.check_usable()?;
        let result = self
            .make_room_for(HeadKind::Base)
            .and_then(|()| self.write_group(nodes));
        self.guard(result)
    }

    /// A LEB for the head, unless the one that it has takes any group; another for the head of a collection.
    fn make_room_for(&mut self, head: HeadKind) -> Result<(), WriteError> {
        const LARGEST_GROUP: u32 = 10 << 10;
        match self.has_room(head, LARGEST_GROUP) {
            true => Ok(()),
            false => self.make_room(2),
        }
    }

    fn new_inode(&mut self, file: &NewFile, now: Time) -> Result<Inode, WriteError> {
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
        let is_directory = file.mode >> 12 == 0o04;
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
            flags: if compression == Compression::None {
                0
            } else {
                INODE_COMPRESS
            },
            data_bytes,
            xattr_count: 0,
            xattr_bytes: 0,
            xattr_names_bytes: 0,
            compression: compression.number(),
            data: file.data.clone(),
        })
    }

    fn entry(
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

    fn directory(&self, inode: InodeNumber) -> Result<Inode, WriteError> {
        let found = self.ubifs.inode(inode)?;
        match found.kind() {
            Some(EntryKind::Directory) => Ok(found),
            _ => Err(WriteError::NotDirectory { inode }),
        }
    }

    fn regular(&self, inode: InodeNumber) -> Result<Inode, WriteError> {
        let found = self.ubifs.inode(inode)?;
        match found.kind() {
            Some(EntryKind::File) => Ok(found),
            Some(EntryKind::Directory) => Err(WriteError::IsDirectory { inode }),
            _ => Err(WriteError::Invalid("the file has no content")),
        }
    }

    fn check_free(&self, directory: InodeNumber, name: &[u8]) -> Result<(), WriteError> {
        match self.ubifs.lookup(directory, name) {
            Ok(_) => Err(WriteError::Exists { directory }),
            Err(UbifsError::NoName { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn check_empty(&self, directory: InodeNumber) -> Result<(), WriteError> {
        match self.ubifs.read_directory(directory)?.is_empty() {
            true => Ok(()),
            false => Err(WriteError::NotEmpty { directory }),
        }
    }

    /// Whether a directory is `above` or below it.
    fn is_below(&self, directory: InodeNumber, above: InodeNumber) -> Result<bool, WriteError> {
        // There is no way up: all that is below is looked at.
        let mut pending = vec![above];
        while let Some(next) = pending.pop() {
            if next == directory {
                return Ok(true);
            }
            let entries = self.ubifs.read_directory(next)?;
            let below = entries
                .into_iter()
                .filter(|entry| entry.kind == Some(EntryKind::Directory));
            pending.extend(below.map(|entry| entry.inode));
        }
        Ok(false)
    }
}
