//! The journal in memory: the result of its replay, laid over the index.
//!
//! Entries come in the order of their sequence numbers. A key that the journal has hides the index's; a removed inode hides
//! all keys of it, a truncation its blocks from one on. Names are told apart by themselves, not by their hashes.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Place;
use crate::format::{InodeNumber, Key, KeyKind};

/// A name of the journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalName {
    pub(crate) name: Vec<u8>,
    /// Where its node is; `None`: the name is removed.
    pub(crate) place: Option<Place>,
    /// What the index has of the name.
    pub(crate) indexed: Indexed,
}

/// State of a journal name in the index, which the next commit changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indexed {
    /// Not known, after a replay. The node may be gone: its LEB is unmapped once nothing in it is in use.
    Unknown,
    /// It has no such name.
    Nothing,
    /// It leads to this place, which is obsolete.
    At(Place),
}

/// The journal, replayed.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    plain: BTreeMap<Key, Place>,
    names: BTreeMap<Key, Vec<JournalName>>,
    removed_inodes: BTreeSet<InodeNumber>,
    blocks_end: BTreeMap<InodeNumber, u32>,
    /// Sizes of files of which a power cut lost the inode that went with the data.
    pub(crate) sizes: BTreeMap<InodeNumber, u64>,
    /// Entries of extended attributes that went with their inodes; the inodes of their values are to go, too.
    pub(crate) dropped_xattrs: Vec<Place>,
}

impl Journal {
    /// A node for a key of an inode or a block.
    pub(crate) fn put(&mut self, key: Key, place: Place) {
        self.plain.insert(key, place);
    }

    /// A name, or its removal. What is known of its place in the index stays.
    pub(crate) fn put_name(&mut self, key: Key, mut name: JournalName) {
        let names = self.names.entry(key).or_default();
        if let Some(known) = names.iter().position(|other| other.name == name.name) {
            name.indexed = names.remove(known).indexed;
        }
        names.push(name);
    }

    /// An inode is removed with all it has.
    pub(crate) fn remove_inode(&mut self, inode: InodeNumber) {
        let (first, last) = (Key::inode(inode), Key::last(inode, KeyKind::XattrEntry));
        let (low, high) = (Key::first(inode, KeyKind::XattrEntry), last);
        let dropped = self
            .names
            .range(low..=high)
            .flat_map(|(_, names)| names)
            .filter_map(|name| name.place);
        self.dropped_xattrs.extend(dropped);
        remove_range(&mut self.plain, first, last);
        remove_range(&mut self.names, first, last);
        self.blocks_end.remove(&inode);
        self.removed_inodes.insert(inode);
    }

    /// Blocks from `end` on are removed.
    pub(crate) fn remove_blocks(&mut self, inode: InodeNumber, end: u32) {
        remove_range(
            &mut self.plain,
            Key::data(inode, end),
            Key::last(inode, KeyKind::Data),
        );
        let known = self.blocks_end.entry(inode).or_insert(end);
        *known = end.min(*known);
    }

    /// Whether the journal hides what the index says of a key.
    pub(crate) fn hides(&self, key: Key) -> bool {
        let inode = key.inode_number();
        let cut = || self.blocks_end.get(&inode).is_some_and(|end| key.low() >= *end);
        self.removed_inodes.contains(&inode)
            || self.plain.contains_key(&key)
            || (key.kind() == Some(KeyKind::Data) && cut())
    }

    /// The journal's own keys from `low` to `high`.
    pub(crate) fn range(&self, low: Key, high: Key) -> impl Iterator<Item = (Key, Place)> {
        self.plain.range(low..=high).map(|(key, place)| (*key, *place))
    }

    /// The journal's own names from `low` to `high`.
    pub(crate) fn names(&self, low: Key, high: Key) -> impl Iterator<Item = (Key, &JournalName)> {
        self.names
            .range(low..=high)
            .flat_map(|(key, names)| names.iter().map(|name| (*key, name)))
    }

    /// Inodes that are removed.
    pub(crate) fn removed_inodes(&self) -> impl Iterator<Item = InodeNumber> {
        self.removed_inodes.iter().copied()
    }

    /// Whether an inode is removed.
    pub(crate) fn is_removed(&self, inode: InodeNumber) -> bool {
        self.removed_inodes.contains(&inode)
    }

    /// From which block on the index's blocks are removed.
    pub(crate) fn block_ends(&self) -> impl Iterator<Item = (InodeNumber, u32)> {
        self.blocks_end.iter().map(|(inode, end)| (*inode, *end))
    }

    /// All keys of inodes and blocks.
    pub(crate) fn all_plain(&self) -> impl Iterator<Item = (Key, Place)> {
        self.plain.iter().map(|(key, place)| (*key, *place))
    }

    /// All names, by their keys.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = (Key, &[JournalName])> {
        self.names.iter().map(|(key, names)| (*key, names.as_slice()))
    }

    /// How many keys it has.
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.names.len()
    }

    /// How many places of the index it changes at most, ranges counted once.
    pub(crate) fn changes(&self) -> usize {
        let names: usize = self.names.values().map(Vec::len).sum();
        self.plain.len() + names + self.removed_inodes.len() + self.blocks_end.len()
    }

    /// Whether a name of the journal takes the place of what the index has there.
    pub(crate) fn replaces(&self, key: Key, place: Place) -> bool {
        let mut names = self.names.get(&key).into_iter().flatten();
        names.any(|name| name.indexed == Indexed::At(place))
    }

    /// Whether a place of the index may be one that is obsolete and has been written with something else since.
    pub(crate) fn may_replace(&self, key: Key) -> bool {
        let mut names = self.names.get(&key).into_iter().flatten();
        names.any(|name| name.indexed == Indexed::Unknown)
    }

    /// Whether the journal has the last word on a name.
    pub(crate) fn has_name(&self, key: Key, name: &[u8]) -> bool {
        self.names
            .get(&key)
            .is_some_and(|names| names.iter().any(|other| other.name == name))
    }
}

fn remove_range<V>(map: &mut BTreeMap<Key, V>, first: Key, last: Key) {
    let keys: Vec<Key> = map.range(first..=last).map(|(key, _)| *key).collect();
    for key in keys {
        map.remove(&key);
    }
}
