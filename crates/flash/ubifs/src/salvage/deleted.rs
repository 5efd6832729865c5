//! Deleted files: inodes that are on the medium and no longer part of the file system, with all that is left of them.
//!
//! A file is given back in its last state: its newest inode node with links, and the newest node of each block that no
//! earlier truncation removed. Garbage collection erases blocks one by one, so a block may be missing, or an older
//! state of it may be left. The last state is proven if the deletion's inode node has the time of the last change, and
//! no sequence number is missing between the oldest block and the inode with that time: a later write would have one
//! of them. In the tree each file has its last name in its last directory; of two with one path the
//! older one gets its inode number as a suffix.

use std::collections::{BTreeMap, HashMap, HashSet};

use ubi::Volume;

use super::names::LiveNames;
use super::records::{InodeRecord, NameRecord, Record, State, by_key, of_inode};
use super::resolve::{Resolver, is_file};
use super::table::{MadeInode, Row, Table};
use crate::fetch;
use crate::finding::Place;
use crate::format::{
    BLOCK_BYTES, DirectoryEntry, EntryKind, Inode, InodeNumber, Key, KeyKind, NodeKind, ROOT_INODE,
};

/// A deleted file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedFile {
    /// Its inode number.
    pub inode: InodeNumber,
    /// Its type.
    pub kind: EntryKind,
    /// Directory and name, if a node of a name is left; encrypted names are as stored.
    pub name: Option<(InodeNumber, Vec<u8>)>,
    /// Size before the deletion, bytes.
    pub size_bytes: u64,
    /// Blocks up to that size, and those found. A missing one may have been a hole.
    pub blocks: u64,
    /// Number of blocks found.
    pub blocks_found: u64,
    /// Whether the nodes prove that nothing was written later: all nodes up to the last version of its inode are there, and
    /// the deletion has the time of its last write. They don't prove it against a later write of which no node at all is
    /// left, and after which the mtime is the time of that write: it was set back, or both were in one tick of the clock.
    pub is_last_state: bool,
    /// Time of the deletion, seconds since 1970, if its node is left.
    pub deleted_seconds: Option<i64>,
    /// Last change of the content, seconds since 1970.
    pub modified_seconds: i64,
    /// Location of the inode.
    pub place: Place,
}

impl DeletedFile {
    /// Whether each block of the file is there, in its last state.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.blocks_found == self.blocks && self.is_last_state
    }
}

/// Deleted files and their tree.
pub(super) struct Deleted {
    pub(super) files: Vec<DeletedFile>,
    pub(super) table: Table,
}

/// Versions of an inode that are compared at most.
const VERSIONS_MAX: usize = 16;

/// Whether content and size are unchanged between two nodes of an inode.
fn is_unchanged(one: &Inode, other: &Inode) -> bool {
    let of = |inode: &Inode| {
        (
            inode.modified_seconds,
            inode.modified_nanoseconds,
            inode.size_bytes,
        )
    };
    of(one) == of(other)
}

struct Collector<'a, 'b> {
    resolver: &'b Resolver<'a>,
    volume: &'b dyn Volume,
    /// The last name of each inode: the live one, or the newest one of a removed file.
    names: HashMap<u32, &'a NameRecord>,
    /// Sequence numbers of all nodes, sorted.
    sequences: Vec<u64>,
    deleted: Deleted,
    /// Names in the tree: directory with hash, and CRC of the name.
    taken: HashSet<(Key, u32)>,
    /// Directories in the tree.
    hosts: HashSet<u32>,
    nameless: Vec<(u32, EntryKind)>,
}

/// Collects all deleted files.
pub(super) fn collect(resolver: &Resolver<'_>, names: &LiveNames, volume: &dyn Volume) -> Deleted {
    let live = names.named();
    let is_gone = |number: u32| {
        let is_found =
            || {
                resolver.table.found.as_ref().is_some_and(|(_, files)| {
                    files.binary_search_by_key(&number, |(inode, _)| *inode).is_ok()
                })
            };
        number != ROOT_INODE.0 && !live.contains(&number) && !is_found()
    };
    let mut collector = Collector {
        resolver,
        volume,
        names: last_names(resolver, names),
        sequences: resolver.harvest.sequences(0),
        deleted: Deleted {
            files: Vec::new(),
            table: Table::new(resolver.units),
        },
        taken: HashSet::new(),
        hosts: HashSet::from([ROOT_INODE.0]),
        nameless: Vec::new(),
    };
    let gone: Vec<InodeNumber> = resolver
        .fates
        .iter()
        .map(|fate| fate.number)
        .filter(|number| is_gone(number.0))
        .collect();
    for number in gone {
        collector.add(number);
    }
    collector.finish()
}

/// The last name of each inode: the one that was removed last.
fn last_names<'a>(resolver: &Resolver<'a>, names: &LiveNames) -> HashMap<u32, &'a NameRecord> {
    let mut last: HashMap<u32, (u64, &NameRecord)> = HashMap::new();
    let harvest = resolver.harvest;
    let entries = |name: &NameRecord| name.key.kind() == Some(KeyKind::Entry) && name.state != State::Dropped;
    for group in by_key(&harvest.names) {
        let mut removals: HashMap<u32, u64> = HashMap::new();
        for name in group.iter().filter(|name| name.target == 0 && entries(name)) {
            let removal = removals.entry(name.name_crc).or_insert(0);
            *removal = name.sequence.max(*removal);
        }
        for name in group.iter().filter(|name| name.target != 0 && entries(name)) {
            let removal = removals.get(&name.name_crc).copied().unwrap_or(0);
            let rank = name.sequence.max(removal);
            let known = last.entry(name.target).or_insert((rank, name));
            if rank > known.0 {
                *known = (rank, name);
            }
        }
    }
    let mut last: HashMap<u32, &NameRecord> = last
        .into_iter()
        .map(|(target, (_, name))| (target, name))
        .collect();
    last.extend(names.kept_entries(harvest));
    last
}

impl<'a> Collector<'a, '_> {
    /// The node that gives the attributes of a deleted inode, and the node of its deletion.
    fn versions(&self, number: InodeNumber) -> (Option<&'a InodeRecord>, Option<&'a InodeRecord>) {
        let all = of_inode(&self.resolver.harvest.inodes, number);
        let newest = |has_links: bool| {
            all.iter()
                .filter(|version| version.state != State::Dropped && (version.links > 0) == has_links)
                .max_by_key(|version| version.sequence)
        };
        let deletion = newest(false);
        (newest(true).or(deletion), deletion)
    }

    fn add(&mut self, number: InodeNumber) {
        let (Some(record), deletion) = self.versions(number) else {
            return;
        };
        let Some(kind) = EntryKind::from_mode(record.mode.into()).filter(|_| !record.is_xattr) else {
            return;
        };
        self.add_inode(record);
        self.add_xattrs(number);
        let (blocks_found, oldest) = match is_file(record) {
            true => self.add_blocks(number, record),
            false => (0, record.sequence),
        };
        let blocks = if is_file(record) {
            record.size.div_ceil(BLOCK_BYTES.into())
        } else {
            0
        };
        let place = self.place(record);
        let inode = self.inode(record);
        let deletion_sequence = deletion.map_or(u64::MAX, |deletion| deletion.sequence);
        let deletion = deletion.and_then(|deletion| self.inode(deletion));
        let is_last_state = match (&inode, &deletion) {
            (Some(inode), Some(deletion)) => {
                is_unchanged(inode, deletion)
                    && self.has_all(oldest, record.sequence)
                    && (self.is_time_of_write(number, inode)
                        || self.has_all(record.sequence, deletion_sequence))
            }
            _ => false,
        };
        let name = self.add_name(number, kind);
        self.deleted.files.push(DeletedFile {
            inode: number,
            kind,
            name,
            size_bytes: record.size,
            blocks,
            blocks_found,
            is_last_state,
            deleted_seconds: deletion.map(|inode| inode.changed_seconds.cast_signed()),
            modified_seconds: inode.map_or(0, |inode| inode.modified_seconds.cast_signed()),
            place,
        });
    }

    fn place(&self, record: &InodeRecord) -> Place {
        self.resolver.units.place(record.unit, record.bytes.into())
    }

    fn inode(&self, record: &InodeRecord) -> Option<Inode> {
        let raw = fetch::node(self.volume, self.place(record), NodeKind::Inode).ok()?;
        Inode::decode(&raw).ok()
    }

    fn push<R: Record>(&mut self, record: &R, bytes: u16) {
        self.deleted.table.rows.push(Row {
            key: record.key(),
            unit: record.unit(),
            bytes,
            is_guess: true,
        });
    }

    fn add_inode(&mut self, record: &InodeRecord) {
        self.push(record, record.bytes);
    }

    /// Adds the last extended attributes of an inode.
    fn add_xattrs(&mut self, number: InodeNumber) {
        let harvest = self.resolver.harvest;
        let of_host = of_inode(&harvest.names, number);
        let xattrs = of_host
            .iter()
            .filter(|name| name.key.kind() == Some(KeyKind::XattrEntry));
        let mut last: BTreeMap<(Key, u32), &NameRecord> = BTreeMap::new();
        for name in xattrs.filter(|name| name.state != State::Dropped) {
            let known = last.entry((name.key, name.name_crc)).or_insert(name);
            if name.sequence > known.sequence {
                *known = name;
            }
        }
        for name in last.into_values().filter(|name| name.target != 0) {
            self.push(name, name.bytes);
            if let (Some(value), _) = self.versions(InodeNumber(name.target)) {
                self.push(value, value.bytes);
            }
        }
    }

    /// Whether the mtime of an inode is that of a write, as a version says whose ctime is the same. A time that was set,
    /// as copies with times do, says nothing about later writes.
    fn is_time_of_write(&self, number: InodeNumber, inode: &Inode) -> bool {
        let mut versions = of_inode(&self.resolver.harvest.inodes, number)
            .iter()
            .filter(|version| version.links > 0 && version.size == inode.size_bytes)
            .take(VERSIONS_MAX)
            .filter_map(|version| self.inode(version));
        versions.any(|version| {
            let changed = (version.changed_seconds, version.changed_nanoseconds);
            is_unchanged(&version, inode) && changed == (inode.modified_seconds, inode.modified_nanoseconds)
        })
    }

    /// Whether a node with each sequence number from `first` to `last` is on the medium.
    fn has_all(&self, first: u64, last: u64) -> bool {
        let position = |sequence: u64| self.sequences.partition_point(|known| *known < sequence);
        let found = position(last).checked_sub(position(first));
        first >= last || found.and_then(|found| u64::try_from(found).ok()) == Some(last - first)
    }

    /// Adds the last blocks of a file; returns the number of those before its end, and the oldest sequence number.
    fn add_blocks(&mut self, number: InodeNumber, inode: &InodeRecord) -> (u64, u64) {
        let cuts = self.resolver.cuts_before_deletion(number);
        let (mut found, mut oldest) = (0, inode.sequence);
        for versions in by_key(of_inode(&self.resolver.harvest.blocks, number)) {
            let newest = versions
                .iter()
                .filter(|block| block.state != State::Dropped)
                .max_by_key(|block| block.sequence);
            let Some(block) = newest else { continue };
            let low = u64::from(block.key.low());
            let is_cut = cuts.end(block.sequence).is_some_and(|end| low >= end);
            if is_cut || low * u64::from(BLOCK_BYTES) >= inode.size {
                continue;
            }
            found += 1;
            oldest = oldest.min(block.sequence);
            self.push(block, block.bytes);
        }
        (found, oldest)
    }

    /// Gives a deleted file its last name. Returns it with its directory.
    fn add_name(&mut self, number: InodeNumber, kind: EntryKind) -> Option<(InodeNumber, Vec<u8>)> {
        let Some(name) = self.names.get(&number.0).copied() else {
            self.nameless.push((number.0, kind));
            return None;
        };
        let stored = self.stored_name(name);
        self.add_named(name, number, kind);
        self.add_hosts(name.key.inode_number());
        stored.map(|stored| (name.key.inode_number(), stored))
    }

    fn stored_name(&self, name: &NameRecord) -> Option<Vec<u8>> {
        let place = self.resolver.units.place(name.unit, name.bytes.into());
        let raw = fetch::node(self.volume, place, NodeKind::Entry).ok()?;
        Some(DirectoryEntry::decode(&raw, NodeKind::Entry).ok()?.name)
    }

    fn add_named(&mut self, name: &NameRecord, number: InodeNumber, kind: EntryKind) {
        if kind == EntryKind::Directory && !self.hosts.insert(number.0) {
            return;
        }
        if self.taken.insert((name.key, name.name_crc)) {
            self.push(name, name.bytes);
            return;
        }
        let Some(mut other) = self.stored_name(name) else {
            return;
        };
        other.extend_from_slice(format!(".{}", number.0).as_bytes());
        other.truncate(255);
        let host = name.key.inode_number().0;
        self.deleted.table.names.insert((host, other), (number.0, kind));
    }

    /// Adds the directories above a deleted file.
    fn add_hosts(&mut self, host: InodeNumber) {
        let mut host = host;
        while !self.hosts.contains(&host.0) {
            match self.resolver.live(host).or_else(|| self.versions(host).0) {
                Some(record) => self.add_inode(record),
                None => {
                    let made = MadeInode {
                        mode: 0o040_700,
                        size_bytes: 160,
                        links: 2,
                    };
                    self.deleted.table.inodes.insert(host.0, made);
                }
            }
            let Some(name) = self.names.get(&host.0).copied() else {
                self.hosts.insert(host.0);
                self.nameless.push((host.0, EntryKind::Directory));
                return;
            };
            self.add_named(name, host, EntryKind::Directory);
            host = name.key.inode_number();
        }
    }

    fn finish(mut self) -> Deleted {
        if let Some(root) = self.resolver.live(ROOT_INODE) {
            self.add_inode(root);
        } else {
            let made = MadeInode {
                mode: 0o040_755,
                size_bytes: 160,
                links: 2,
            };
            self.deleted.table.inodes.insert(ROOT_INODE.0, made);
        }
        let used: HashSet<u32> = self.nameless.iter().map(|(number, _)| *number).collect();
        let is_free = |number: &u32| {
            let key = Key::inode(InodeNumber(*number));
            !used.contains(number)
                && self
                    .resolver
                    .harvest
                    .inodes
                    .binary_search_by_key(&key, Record::key)
                    .is_err()
        };
        if let (Some(number), false) = ((64..u32::MAX).rev().find(is_free), self.nameless.is_empty()) {
            self.deleted
                .table
                .add_found(number, b"lost+found".to_vec(), self.nameless);
        }
        self.deleted.table.sort();
        self.deleted
    }
}
