//! The result of a salvage in place of an index: for each key the location of its node, 16 bytes each, and the few
//! inodes and names that are on no medium.

use std::collections::BTreeMap;

use super::records::Units;
use crate::file_system::Entry;
use crate::finding::Place;
use crate::format::{EntryKind, Inode, InodeNumber, Key, ROOT_INODE};

/// A key and the location of its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) unit: u32,
    pub(super) bytes: u16,
    /// Chosen by its sequence number, without the index of the last commit.
    pub(super) is_guess: bool,
}

/// An inode that is on no medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeInode {
    pub(super) mode: u32,
    pub(super) size_bytes: u64,
    pub(super) links: u32,
}

/// The table; see the module.
pub(crate) struct Table {
    pub(super) rows: Vec<Row>,
    pub(super) units: Units,
    pub(super) inodes: BTreeMap<u32, MadeInode>,
    /// Names that are on no medium, sorted: directory, name, inode, and its type.
    pub(super) names: BTreeMap<(u32, Vec<u8>), (u32, EntryKind)>,
    /// The directory of nameless files: its inode, and these files, sorted.
    pub(super) found: Option<(u32, Vec<(u32, EntryKind)>)>,
}

impl Table {
    pub(super) const fn new(units: Units) -> Self {
        Self {
            rows: Vec::new(),
            units,
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            found: None,
        }
    }

    /// Adds the locations of keys from `low` to `high`, sorted by key.
    pub(crate) fn range(&self, low: Key, high: Key, found: &mut Vec<(Key, Place)>) {
        let start = self.rows.partition_point(|row| row.key < low);
        let rows = self.rows[start..].iter().take_while(|row| row.key <= high);
        found.extend(rows.map(|row| (row.key, self.place(row))));
    }

    /// All locations, sorted by key.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Key, Place)> {
        self.rows.iter().map(|row| (row.key, self.place(row)))
    }

    fn place(&self, row: &Row) -> Place {
        self.units.place(row.unit, u32::from(row.bytes))
    }

    /// An inode that is on no medium.
    pub(crate) fn inode(&self, number: InodeNumber) -> Option<Inode> {
        let made = self.inodes.get(&number.0)?;
        Some(Inode {
            mode: made.mode,
            size_bytes: made.size_bytes,
            links: made.links,
            ..Inode::unknown(number)
        })
    }

    /// Names in a directory that are on no medium.
    pub(crate) fn entries(&self, directory: InodeNumber) -> Vec<Entry> {
        let first = (directory.0, Vec::new());
        let own = self
            .names
            .range(first..)
            .take_while(|((host, _), _)| *host == directory.0);
        let mut entries: Vec<Entry> = own
            .map(|((_, name), (inode, kind))| entry(name.clone(), *inode, *kind))
            .collect();
        if let Some((_, files)) = self.found.as_ref().filter(|(inode, _)| *inode == directory.0) {
            entries.extend(files.iter().map(|(inode, kind)| {
                let name = inode.to_string().into_bytes();
                entry(name, *inode, *kind)
            }));
        }
        entries
    }

    /// A name in a directory that is on no medium.
    pub(crate) fn entry(&self, directory: InodeNumber, name: &[u8]) -> Option<Entry> {
        if let Some((inode, kind)) = self.names.get(&(directory.0, name.to_vec())) {
            return Some(entry(name.to_vec(), *inode, *kind));
        }
        let (_, files) = self.found.as_ref().filter(|(inode, _)| *inode == directory.0)?;
        let number: u32 = std::str::from_utf8(name).ok()?.parse().ok()?;
        let at = files.binary_search_by_key(&number, |(inode, _)| *inode).ok()?;
        let (inode, kind) = files[at];
        (number.to_string().as_bytes() == name).then(|| entry(name.to_vec(), inode, kind))
    }

    /// Sorts the rows, after the last one.
    pub(super) fn sort(&mut self) {
        self.rows.sort_unstable_by_key(|row| (row.key, row.unit));
        self.rows.dedup_by_key(|row| (row.key, row.unit));
        self.rows.shrink_to_fit();
    }

    /// Gives nameless files a directory in the root.
    pub(super) fn add_found(&mut self, inode: u32, name: Vec<u8>, mut files: Vec<(u32, EntryKind)>) {
        files.sort_unstable_by_key(|(inode, _)| *inode);
        files.dedup_by_key(|(inode, _)| *inode);
        self.inodes.insert(
            inode,
            MadeInode {
                mode: 0o040_700,
                size_bytes: 160,
                links: 2,
            },
        );
        self.names
            .insert((ROOT_INODE.0, name), (inode, EntryKind::Directory));
        self.found = Some((inode, files));
    }
}

const fn entry(name: Vec<u8>, inode: u32, kind: EntryKind) -> Entry {
    Entry {
        name,
        inode: InodeNumber(inode),
        kind: Some(kind),
        cookie: 0,
    }
}
