//! Writes the nodes of an operation to a journal head.

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::effect::Effect;
use super::gc_leb::GcLeb;
use super::log::Bud;
use super::{WriteError, Writer};
use crate::finding::Place;
use crate::format::{
    Data, DirectoryEntry, Group, Inode, InodeNumber, NodeKind, Superblock, SuperblockFlags, Truncation, crc,
};
use crate::scan::to_usize;

/// A node to write.
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

    /// The inode the node belongs to; for an entry, the directory.
    pub(super) const fn inode(&self) -> InodeNumber {
        match self {
            Self::Inode(Inode { key, .. }) | Self::Data(Data { key, .. }) => key.inode_number(),
            Self::Entry(_, entry) => entry.key.inode_number(),
            Self::Truncation(truncation) => InodeNumber(truncation.inode),
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

/// Whether entries get a cookie (superblock flag `DOUBLE_HASH`, which Linux sets in file systems that it creates
/// itself). Linux uses it to distinguish encrypted names with equal hashes when it lists them without their key; any
/// unique number will do.
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

/// Size of a group of nodes in the journal.
pub(super) fn group_bytes(nodes: &[NewNode]) -> u32 {
    nodes.iter().map(|node| node.bytes().next_multiple_of(8)).sum()
}

impl Writer {
    /// Writes a group of nodes atomically: after a power cut all or none are there. The nodes they replace become
    /// dirty.
    pub(super) fn write_group(&mut self, nodes: &[NewNode]) -> Result<(), WriteError> {
        let bytes = group_bytes(nodes);
        self.reserve(HeadKind::Base, bytes)?;
        let effects = nodes.iter().map(|node| self.effect_of(node));
        let effects: Vec<Effect> = effects.collect::<Result<_, _>>()?;
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
        for ((node, effect), place) in nodes.iter().zip(effects).zip(places) {
            self.apply(node, effect, place);
        }
        Ok(())
    }

    /// Writes a block of a file.
    pub(super) fn write_block(&mut self, data: Data) -> Result<(), WriteError> {
        let node = NewNode::Data(data);
        // Reserve first: a commit in between takes sequence numbers and moves nodes of the index.
        self.reserve(HeadKind::Data, node.bytes().next_multiple_of(8))?;
        let effect = self.effect_of(&node)?;
        let sequence = self.next_sequence();
        let place = self.append_raw(HeadKind::Data, node.encode(sequence, Group::None, Cookies::None))?;
        self.apply(&node, effect, place);
        Ok(())
    }

    /// Appends an encoded node.
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

    /// Ensures that `bytes` fit in the head's LEB; otherwise moves the head to an empty LEB, after a commit if the
    /// journal or the log is full.
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

    pub(super) fn flush(&mut self, heads: &[HeadKind]) -> Result<(), WriteError> {
        for (leb, padding) in self.buffers.flush_heads(heads, &mut self.sequence)? {
            self.space.fill(leb, padding, padding);
        }
        Ok(())
    }

    /// Rewrites a torn LEB with only the `good` part.
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
