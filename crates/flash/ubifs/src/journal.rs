//! The in-memory journal: the result of its replay, overlaid on the index.
//!
//! Changes are applied in the order of sequence numbers. A key in the journal hides the same key in the index; a
//! deleted inode hides all of its keys, a truncation the blocks behind it. Names are compared as such, not by hash.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Place;
use crate::format::{InodeNumber, Key, KeyKind};

/// A name in the journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalName {
    pub(crate) name: Vec<u8>,
    /// Location of its node; `None` if the name was removed.
    pub(crate) place: Option<Place>,
    /// State of the name in the index.
    pub(crate) indexed: Indexed,
}

/// State of a journal name in the index, which the next commit replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Indexed {
    /// Unknown, after a replay. The node may be gone, since its LEB is unmapped once it holds no live node.
    Unknown,
    /// The index has no such name.
    Nothing,
    /// The index has an obsolete node at this location.
    At(Place),
}

/// The replayed journal.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    plain: BTreeMap<Key, Place>,
    names: BTreeMap<Key, Vec<JournalName>>,
    removed_inodes: BTreeSet<InodeNumber>,
    blocks_end: BTreeMap<InodeNumber, u32>,
    /// Recovered sizes of files whose inode update was lost in a power cut.
    pub(crate) sizes: BTreeMap<InodeNumber, u64>,
    /// Extended attribute entries dropped with their inodes; the inodes of the values have to be deleted as well.
    pub(crate) dropped_xattrs: Vec<Place>,
}

impl Journal {
    /// Records the node of an inode or block.
    pub(crate) fn put(&mut self, key: Key, place: Place) {
        self.plain.insert(key, place);
    }

    /// Records a name or its removal. An earlier state in the index is kept.
    pub(crate) fn put_name(&mut self, key: Key, mut name: JournalName) {
        let names = self.names.entry(key).or_default();
        if let Some(known) = names.iter().position(|other| other.name == name.name) {
            name.indexed = names.remove(known).indexed;
        }
        names.push(name);
    }

    /// Records the deletion of an inode with all its nodes.
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

    /// Records the removal of blocks from `end` on.
    pub(crate) fn remove_blocks(&mut self, inode: InodeNumber, end: u32) {
        remove_range(
            &mut self.plain,
            Key::data(inode, end),
            Key::last(inode, KeyKind::Data),
        );
        let known = self.blocks_end.entry(inode).or_insert(end);
        *known = end.min(*known);
    }

    /// Whether the journal overrides the index for a key.
    pub(crate) fn hides(&self, key: Key) -> bool {
        let inode = key.inode_number();
        let cut = || self.blocks_end.get(&inode).is_some_and(|end| key.low() >= *end);
        self.removed_inodes.contains(&inode)
            || self.plain.contains_key(&key)
            || (key.kind() == Some(KeyKind::Data) && cut())
    }

    /// Inodes and blocks in the journal with keys from `low` to `high`.
    pub(crate) fn range(&self, low: Key, high: Key) -> impl Iterator<Item = (Key, Place)> {
        self.plain.range(low..=high).map(|(key, place)| (*key, *place))
    }

    /// Names in the journal with keys from `low` to `high`.
    pub(crate) fn names(&self, low: Key, high: Key) -> impl Iterator<Item = (Key, &JournalName)> {
        self.names
            .range(low..=high)
            .flat_map(|(key, names)| names.iter().map(|name| (*key, name)))
    }

    /// Deleted inodes.
    pub(crate) fn removed_inodes(&self) -> impl Iterator<Item = InodeNumber> {
        self.removed_inodes.iter().copied()
    }

    /// Whether an inode is deleted.
    pub(crate) fn is_removed(&self, inode: InodeNumber) -> bool {
        self.removed_inodes.contains(&inode)
    }

    /// Truncated files, each with the first block that is removed from the index.
    pub(crate) fn block_ends(&self) -> impl Iterator<Item = (InodeNumber, u32)> {
        self.blocks_end.iter().map(|(inode, end)| (*inode, *end))
    }

    /// All inodes and blocks in the journal.
    pub(crate) fn all_plain(&self) -> impl Iterator<Item = (Key, Place)> {
        self.plain.iter().map(|(key, place)| (*key, *place))
    }

    /// All names in the journal, grouped by key.
    pub(crate) fn all_names(&self) -> impl Iterator<Item = (Key, &[JournalName])> {
        self.names.iter().map(|(key, names)| (*key, names.as_slice()))
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.names.len()
    }

    /// Upper bound of the index changes it causes; a range counts once.
    pub(crate) fn changes(&self) -> usize {
        let names: usize = self.names.values().map(Vec::len).sum();
        self.plain.len() + names + self.removed_inodes.len() + self.blocks_end.len()
    }

    /// Whether a name in the journal replaces the index branch to `place`.
    pub(crate) fn replaces(&self, key: Key, place: Place) -> bool {
        let mut names = self.names.get(&key).into_iter().flatten();
        names.any(|name| name.indexed == Indexed::At(place))
    }

    /// Whether index branches with this key may be obsolete and their nodes overwritten since.
    pub(crate) fn may_replace(&self, key: Key) -> bool {
        let mut names = self.names.get(&key).into_iter().flatten();
        names.any(|name| name.indexed == Indexed::Unknown)
    }

    /// Whether the journal overrides the index for a name.
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
