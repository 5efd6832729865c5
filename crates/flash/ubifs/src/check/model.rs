//! In-memory model of the files: the content of the index with the journal applied, node by node.
//!
//! The whole model is in memory: some 100 bytes for each node of the medium, which takes at least 48 bytes there.

use std::collections::{BTreeMap, BTreeSet};

use super::medium::Spot;
use crate::format::{EntryKind, Inode, InodeNumber, Key, KeyKind};

/// An inode of the model and its location.
#[derive(Clone, Debug)]
pub(super) struct InodeAt {
    pub(super) spot: Spot,
    /// `None` if its node is damaged. The data of symbolic links and attributes is dropped, only its length is kept.
    pub(super) inode: Option<Box<Inode>>,
}

/// A name of the model and its location.
#[derive(Clone, Debug)]
pub(super) struct NameAt {
    pub(super) spot: Spot,
    pub(super) inode: InodeNumber,
    pub(super) kind: Option<EntryKind>,
}

/// A block of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockAt {
    pub(super) spot: Spot,
    pub(super) is_good: bool,
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) inodes: BTreeMap<InodeNumber, InodeAt>,
    /// Directory entries and extended attributes, distinguished by the type of their key.
    pub(super) names: BTreeMap<(Key, Vec<u8>), NameAt>,
    pub(super) blocks: BTreeMap<Key, BlockAt>,
    /// Unreadable names; the key contains the directory or file.
    pub(super) damaged_names: Vec<(Key, Spot)>,
    /// Inodes with lost parts, whose counts can't be compared.
    pub(super) tainted: BTreeSet<InodeNumber>,
}

/// Parent directory and name of each inode, for building paths.
pub(super) type Parents<'a> = BTreeMap<InodeNumber, (InodeNumber, &'a [u8])>;

impl Model {
    /// Removes an inode with all its nodes, including its extended attributes.
    pub(super) fn remove_inode(&mut self, inode: InodeNumber) {
        self.inodes.remove(&inode);
        let (first, last) = (Key::inode(inode), Key::last(inode, KeyKind::XattrEntry));
        let blocks: Vec<_> = self.blocks.range(first..=last).map(|(key, _)| *key).collect();
        for key in blocks {
            self.blocks.remove(&key);
        }
        let names: Vec<_> = self
            .names_between(first, last)
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let at = self.names.remove(&name);
            if let Some(value) = at.filter(|_| name.0.kind() == Some(KeyKind::XattrEntry)) {
                self.inodes.remove(&value.inode);
            }
        }
        self.damaged_names.retain(|(key, _)| key.inode_number() != inode);
    }

    /// Removes the blocks of a file from `from` on.
    pub(super) fn remove_blocks(&mut self, inode: InodeNumber, from: u32) {
        let keys = Key::data(inode, from)..=Key::last(inode, KeyKind::Data);
        let keys: Vec<_> = self.blocks.range(keys).map(|(key, _)| *key).collect();
        for key in keys {
            self.blocks.remove(&key);
        }
    }

    /// All names with keys from `first` to `last`.
    pub(super) fn names_between(
        &self,
        first: Key,
        last: Key,
    ) -> impl Iterator<Item = (&(Key, Vec<u8>), &NameAt)> {
        self.names
            .range((first, Vec::new())..)
            .take_while(move |((key, _), _)| *key <= last)
    }

    /// One name of each inode, for paths.
    pub(super) fn parents(&self) -> Parents<'_> {
        let mut parents = Parents::new();
        for ((key, name), at) in &self.names {
            parents
                .entry(at.inode)
                .or_insert((key.inode_number(), name.as_slice()));
        }
        parents
    }
}

/// A path of an inode, if its names lead up to the root.
pub(super) fn path_of(parents: &Parents<'_>, inode: InodeNumber) -> Option<Vec<u8>> {
    let (mut at, mut names) = (inode, Vec::new());
    while at != crate::format::ROOT_INODE {
        let (parent, name) = parents.get(&at)?;
        names.push(*name);
        at = *parent;
        // Deeper than any path a kernel would follow, or a loop.
        if names.len() > 4096 {
            return None;
        }
    }
    names.reverse();
    Some(names.join(&b'/'))
}
