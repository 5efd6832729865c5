//! From the nodes of an operation to a journal head, and what follows for the journal in memory and the space of LEBs.

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::gc_leb::GcLeb;
use super::held::Orphan;
use super::log::Bud;
use super::{WriteError, Writer};
use crate::finding::Place;
use crate::format::{
    Data, DirectoryEntry, Group, Inode, InodeNumber, Key, KeyKind, NodeKind, Superblock, SuperblockFlags,
    Truncation, crc,
};
use crate::journal::JournalName;
use crate::scan::to_usize;

/// A node to be written.
#[derive(Clone, Debug)]
pub(super) enum NewNode {
    Inode(Inode),
    Data(Data),
    Entry(NodeKind, DirectoryEntry),
    Truncation(Truncation),
}

impl NewNode {
    fn encode(&self, sequence: u64, group: Group, cookies: Cookies) -> Vec<u8> {
        match self {
            Self::Inode(inode) => inode.encode(sequence, group),
            Self::Data(data) => data.encode(sequence, group),
            Self::Entry(kind, entry) => {
                let cookie = cookies.of(sequence);
                DirectoryEntry {
                    cookie,
                    ..entry.clone()
                }
                .encode(*kind, sequence, group)
            }
            Self::Truncation(truncation) => truncation.encode(sequence, group),
        }
    }

    fn bytes(&self) -> u32 {
        let bytes = match self {
            Self::Inode(inode) => Inode::BYTES + inode.data.len(),
            Self::Data(data) => Data::BYTES + data.stored.len(),
            Self::Entry(_, entry) => DirectoryEntry::BYTES + entry.name.len() + 1,
            Self::Truncation(_) => Truncation::BYTES,
        };
        u32::try_from(bytes).expect("less than a LEB")
    }
}

/// Whether entries get a cookie (superblock flag `DOUBLE_HASH`, which Linux sets in file systems that it makes itself). Linux tells
/// encrypted names of one hash apart by it, which it shows without their key; any number does that the others do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cookies {
    None,
    PerEntry,
}

impl Cookies {
    const fn in_file_system(superblock: &Superblock) -> Self {
        match SuperblockFlags(superblock.flags).has(SuperblockFlags::DOUBLE_HASH) {
            true => Self::PerEntry,
            false => Self::None,
        }
    }

    fn of(self, sequence: u64) -> u32 {
        match self {
            Self::None => 0,
            Self::PerEntry => crc(&sequence.to_le_bytes()),
        }
    }
}

/// What nodes take together.
pub(super) fn group_bytes(nodes: &[NewNode]) -> u32 {
    nodes.iter().map(|node| node.bytes().next_multiple_of(8)).sum()
}

impl Writer {
    /// Writes nodes that a power cut leaves all of or none of. What was there for their keys is dirty afterwards.
    pub(super) fn write_group(&mut self, nodes: &[NewNode]) -> Result<(), WriteError> {
        let bytes = group_bytes(nodes);
        self.reserve(HeadKind::Base, bytes)?;
        let (leb, start) = self.buffers.position(HeadKind::Base).expect("it is reserved");
        let cookies = Cookies::in_file_system(&self.ubifs.superblock);
        let mut raw = Vec::new();
        let mut places = Vec::new();
        for (number, node) in (1..).zip(nodes) {
            let group = match number == nodes.len() {
                true if nodes.len() == 1 => Group::None,
                true => Group::Last,
                false => Group::Inside,
            };
            let sequence = self.next_sequence();
            let encoded = node.encode(sequence, group, cookies);
            places.push(Place {
                leb,
                offset: start + u32::try_from(raw.len()).expect("less than a LEB"),
                bytes: u32::try_from(encoded.len()).expect("less than a LEB"),
            });
            raw.extend_from_slice(&encoded);
            raw.resize(raw.len().next_multiple_of(8), 0);
        }
        self.buffers.append(HeadKind::Base, &raw)?;
        self.space.fill(leb, bytes, 0);
        for (node, place) in nodes.iter().zip(places) {
            self.apply(node, place)?;
        }
        Ok(())
    }

    /// Writes a block of a file.
    pub(super) fn write_block(&mut self, data: Data) -> Result<(), WriteError> {
        let node = NewNode::Data(data);
        // The room first: a commit in between takes sequence numbers.
        self.reserve(HeadKind::Data, node.bytes().next_multiple_of(8))?;
        let sequence = self.next_sequence();
        let place = self.append_raw(HeadKind::Data, node.encode(sequence, Group::None, Cookies::None))?;
        self.apply(&node, place)
    }

    fn apply(&mut self, node: &NewNode, place: Place) -> Result<(), WriteError> {
        match node {
            NewNode::Inode(inode)
                if inode.links == 0 && !self.orphans.contains_key(&inode.key.inode_number().0) =>
            {
                self.space.add_dirty(place);
                self.forget_inode(inode.key.inode_number())
            }
            NewNode::Inode(inode) => {
                let removed = Orphan::RemovedIn(self.ubifs.master.commit);
                self.note_orphan(inode.key.inode_number(), removed);
                self.put_plain(inode.key, place)?;
                self.ubifs
                    .known_inodes
                    .remember(inode.key.inode_number(), place, inode);
                Ok(())
            }
            NewNode::Data(data) => {
                self.note_orphan(data.key.inode_number(), Orphan::Alive);
                self.put_plain(data.key, place)
            }
            NewNode::Entry(_, entry) if entry.inode == 0 => {
                self.space.add_dirty(place);
                self.put_name(entry.key, entry.name.clone(), None)
            }
            NewNode::Entry(_, entry) => self.put_name(entry.key, entry.name.clone(), Some(place)),
            NewNode::Truncation(truncation) => {
                self.note_orphan(InodeNumber(truncation.inode), Orphan::Alive);
                self.space.add_dirty(place);
                let end = truncation.new_bytes.div_ceil(4096);
                let inode = InodeNumber(truncation.inode);
                self.forget_blocks(inode, u32::try_from(end).unwrap_or(u32::MAX))
            }
        }
    }

    /// What the medium says last of an inode that has no name.
    fn note_orphan(&mut self, inode: InodeNumber, last: Orphan) {
        if let Some(orphan) = self.orphans.get_mut(&inode.0) {
            *orphan = last;
        }
    }

    /// Appends a node that is complete.
    pub(super) fn append_raw(&mut self, head: HeadKind, mut node: Vec<u8>) -> Result<Place, WriteError> {
        let bytes = u32::try_from(node.len()).expect("less than a LEB");
        let aligned = bytes.next_multiple_of(8);
        self.reserve(head, aligned)?;
        let (leb, offset) = self.buffers.position(head).expect("it is reserved");
        node.resize(to_usize(aligned), 0);
        self.buffers.append(head, &node)?;
        self.space.fill(leb, aligned, 0);
        Ok(Place { leb, offset, bytes })
    }

    /// Sees to it that the head's LEB has room for so many bytes.
    pub(super) fn reserve(&mut self, head: HeadKind, bytes: u32) -> Result<(), WriteError> {
        if self.has_room(head, bytes) {
            return Ok(());
        }
        self.flush(&[head])?;
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let journal = self.log.journal_bytes() + u64::from(leb_bytes);
        if journal > self.ubifs.superblock.journal_bytes_max || !self.log.has_room() {
            self.commit_to(super::commit::State::Mounted)?;
            if self.has_room(head, bytes) {
                return Ok(());
            }
        }
        let spare = match head {
            HeadKind::Gc => self.gc_leb.take().map(GcLeb::into_head),
            _ => None,
        };
        let leb = spare
            .or_else(|| self.space.take_empty())
            .ok_or_else(|| self.no_space())?;
        let sequence = self.next_sequence();
        let bud = Bud { leb, start: 0, head };
        self.log.add(&*self.volume, bud, sequence)?;
        self.buffers.seek(head, Some((leb, 0)));
        Ok(())
    }

    pub(super) fn has_room(&self, head: HeadKind, bytes: u32) -> bool {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        self.buffers
            .position(head)
            .is_some_and(|(_, end)| end.checked_add(bytes).is_some_and(|end| end <= leb_bytes))
    }

    fn flush(&mut self, heads: &[HeadKind]) -> Result<(), WriteError> {
        for (leb, padding) in self.buffers.flush_heads(heads, &mut self.sequence)? {
            self.space.fill(leb, padding, padding);
        }
        Ok(())
    }

    /// Writes what is buffered: all operations that returned are there after a power cut.
    pub fn fsync(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let result = self
            .sync_heads()
            .and_then(|()| self.volume.sync().map_err(WriteError::from));
        self.guard(result)?;
        self.counts.syncs += 1;
        Ok(())
    }

    /// Writes all buffers, at the same time: what only some of them brought to the medium is what no call returned for.
    pub(super) fn sync_heads(&mut self) -> Result<(), WriteError> {
        self.flush(&HeadKind::ALL)
    }

    /// Where the node of an inode or a block is.
    pub(super) fn plain_place(&self, key: Key) -> Result<Option<Place>, WriteError> {
        let journal = &self.ubifs.journal;
        if let Some((_, place)) = journal.range(key, key).next() {
            return Ok(Some(place));
        }
        if journal.hides(key) {
            return Ok(None);
        }
        Ok(self.index_range(key, key)?.first().map(|(_, place)| *place))
    }

    /// Where the node of a name is.
    pub(super) fn name_place(&self, key: Key, name: &[u8]) -> Result<Option<Place>, WriteError> {
        let journal = &self.ubifs.journal;
        if let Some((_, known)) = journal.names(key, key).find(|(_, known)| known.name == name) {
            return Ok(known.place);
        }
        if journal.hides(key) {
            return Ok(None);
        }
        let places = self.index_range(key, key)?.into_iter().map(|(_, place)| place);
        Ok(places
            .into_iter()
            .find(|place| self.name_at(key, *place).as_deref() == Some(name)))
    }

    pub(super) fn put_plain(&mut self, key: Key, place: Place) -> Result<(), WriteError> {
        if let Some(old) = self.plain_place(key)? {
            self.space.add_dirty(old);
        }
        self.ubifs.journal.put(key, place);
        if key.kind() == Some(KeyKind::Inode) {
            self.ubifs.known_inodes.forget(key.inode_number());
        }
        Ok(())
    }

    pub(super) fn put_name(
        &mut self,
        key: Key,
        name: Vec<u8>,
        place: Option<Place>,
    ) -> Result<(), WriteError> {
        if let Some(old) = self.name_place(key, &name)? {
            self.space.add_dirty(old);
        }
        self.ubifs.journal.put_name(key, JournalName { name, place });
        Ok(())
    }

    /// All that an inode has is dirty; extended attributes go with it.
    pub(super) fn forget_inode(&mut self, inode: InodeNumber) -> Result<(), WriteError> {
        let values: Vec<InodeNumber> = self.ubifs.xattr_inodes(inode)?;
        for place in self.all_places(Key::inode(inode), Key::last(inode, KeyKind::XattrEntry))? {
            self.space.add_dirty(place);
        }
        self.ubifs.journal.remove_inode(inode);
        self.ubifs.known_inodes.forget(inode);
        for value in values {
            self.forget_inode(value)?;
        }
        Ok(())
    }

    fn forget_blocks(&mut self, inode: InodeNumber, end: u32) -> Result<(), WriteError> {
        if end > Key::LOW_MAX {
            return Ok(());
        }
        for place in self.all_places(Key::data(inode, end), Key::last(inode, KeyKind::Data))? {
            self.space.add_dirty(place);
        }
        self.ubifs.journal.remove_blocks(inode, end);
        Ok(())
    }

    /// Places of all nodes that are in use for keys of one inode.
    fn all_places(&self, low: Key, high: Key) -> Result<Vec<Place>, WriteError> {
        let journal = &self.ubifs.journal;
        let mut places: Vec<Place> = journal.range(low, high).map(|(_, place)| place).collect();
        places.extend(journal.names(low, high).filter_map(|(_, name)| name.place));
        for (key, place) in self.index_range(low, high)? {
            if journal.hides(key) {
                continue;
            }
            let is_name = matches!(key.kind(), Some(KeyKind::Entry | KeyKind::XattrEntry));
            let replaced = is_name
                && journal.names(key, key).next().is_some()
                && self
                    .name_at(key, place)
                    .is_none_or(|name| journal.has_name(key, &name));
            if !replaced {
                places.push(place);
            }
        }
        Ok(places)
    }

    /// Unmaps a LEB of the main area that is torn behind `end`, and writes it without that.
    pub(super) fn clean_leb(&self, leb: u32, good: &[u8]) -> Result<(), WriteError> {
        let mut raw = good.to_vec();
        let end = raw.len().next_multiple_of(8);
        raw.resize(
            end.next_multiple_of(to_usize(self.ubifs.superblock.min_io_bytes)),
            0,
        );
        crate::format::pad(&mut raw[end..]);
        Ok(self.volume.leb_change(Leb(leb), &raw)?)
    }
}
