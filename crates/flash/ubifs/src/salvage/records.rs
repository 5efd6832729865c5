//! Compact records of the nodes that a scan finds: 32 bytes each, 40 for an inode. Contents stay on the medium.
//!
//! A location is a *unit*: the number of 8 bytes since the start of the volume, which reaches to 32 GiB.

use crate::finding::{Finding, Place};
use crate::format::{
    BLOCK_BYTES, CommitStart, Data, DirectoryEntry, EntryKind, Header, INODE_ENCRYPTED, INODE_XATTR, Inode,
    InodeNumber, Key, KeyKind, LogReference, Master, NodeDefect, NodeKind, SEQUENCE_END, Superblock,
    Truncation, crc, name_hash_r5, name_hash_test,
};
use crate::scan::{to_usize, to_word};

/// Verdict on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No index node decides: newer than the index, or in a part of it that is lost.
    Open,
    /// The index of the last commit leads to it.
    Indexed,
    /// An index node leads to it that may be older than the last commit.
    Claimed,
    /// An index node that is newer does not lead to it.
    Dead,
    /// Part of an operation whose end a power cut lost.
    Dropped,
}

impl State {
    /// Whether the node may be part of the file system.
    pub(super) const fn is_possible(self) -> bool {
        matches!(self, Self::Open | Self::Indexed | Self::Claimed)
    }
}

/// A record with a key.
pub(super) trait Record {
    fn key(&self) -> Key;
    fn sequence(&self) -> u64;
    fn unit(&self) -> u32;
    fn bytes(&self) -> u16;
    fn state(&self) -> State;
    fn set_state(&mut self, state: State);
}

macro_rules! record {
    ($name:ident) => {
        impl Record for $name {
            fn key(&self) -> Key {
                self.key
            }
            fn sequence(&self) -> u64 {
                self.sequence
            }
            fn unit(&self) -> u32 {
                self.unit
            }
            fn bytes(&self) -> u16 {
                self.bytes
            }
            fn state(&self) -> State {
                self.state
            }
            fn set_state(&mut self, state: State) {
                self.state = state;
            }
        }
    };
}

/// A data node.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockRecord {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) unit: u32,
    pub(super) bytes: u16,
    /// Bytes of the block before compression.
    pub(super) size: u16,
    pub(super) state: State,
}

/// An inode node.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeRecord {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) size: u64,
    pub(super) unit: u32,
    pub(super) links: u32,
    pub(super) bytes: u16,
    pub(super) mode: u16,
    pub(super) state: State,
    pub(super) is_xattr: bool,
    pub(super) is_encrypted: bool,
}

/// An entry of a directory, or the name of an extended attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameRecord {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) unit: u32,
    /// 0: a removal.
    pub(super) target: u32,
    /// CRC of the name, which tells names with one hash apart.
    pub(super) name_crc: u32,
    pub(super) bytes: u16,
    pub(super) state: State,
    pub(super) tags: u8,
}

/// The key is the r5 hash of the name.
pub(super) const FITS_R5: u8 = 0x10;
/// The key is the test hash of the name.
pub(super) const FITS_TEST: u8 = 0x20;

impl NameRecord {
    /// The type in the entry.
    pub(super) fn kind(&self) -> Option<EntryKind> {
        EntryKind::from_number(self.tags & 0x0F)
    }

    /// Bytes that the entry adds to the size of its directory.
    pub(super) fn size_in_directory(&self) -> u64 {
        u64::from(self.bytes).next_multiple_of(8)
    }
}

record!(BlockRecord);
record!(InodeRecord);
record!(NameRecord);

/// A truncation.
#[derive(Clone, Copy, Debug)]
pub(super) struct CutRecord {
    pub(super) inode: u32,
    pub(super) sequence: u64,
    pub(super) new_bytes: u64,
    pub(super) unit: u32,
}

/// An index node.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexRecord {
    pub(super) unit: u32,
    pub(super) bytes: u32,
    pub(super) sequence: u64,
    pub(super) level: u16,
}

/// A node whose CRC is wrong and whose header is plausible.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokenRecord {
    pub(super) key: Key,
    pub(super) sequence: u64,
    pub(super) place: Place,
    /// Nothing is written behind it.
    pub(super) is_last: bool,
}

/// Bytes of a LEB that are no nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scar {
    pub(super) place: Place,
    pub(super) defect: NodeDefect,
    /// Nothing is written behind them, as after a torn write.
    pub(super) is_last: bool,
    /// The LEB holds nodes of files.
    pub(super) is_of_files: bool,
}

/// An unfinished group of nodes at the end of a LEB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// The first node and the end, units.
    pub(super) units: (u32, u32),
}

/// All records of a scan.
#[derive(Default)]
pub(super) struct Harvest {
    pub(super) blocks: Vec<BlockRecord>,
    pub(super) inodes: Vec<InodeRecord>,
    pub(super) names: Vec<NameRecord>,
    pub(super) cuts: Vec<CutRecord>,
    pub(super) index: Vec<IndexRecord>,
    pub(super) broken: Vec<BrokenRecord>,
    pub(super) scars: Vec<Scar>,
    pub(super) tails: Vec<Tail>,
    /// Commit starts: sequence number and commit.
    pub(super) starts: Vec<(u64, u64)>,
    /// References of the log with their sequence numbers.
    pub(super) references: Vec<(u64, LogReference)>,
    /// Master nodes with their sequence numbers.
    pub(super) masters: Vec<(u64, Place, Master)>,
    pub(super) superblock: Option<Superblock>,
    /// Sequence numbers of nodes without a record.
    pub(super) others: Vec<u64>,
    /// LEBs or parts of them that the volume can't read.
    pub(super) unreadable: Vec<Finding>,
    /// LEBs with at least one good node.
    pub(super) written: Vec<u32>,
    /// Nodes beyond the limit of memory.
    pub(super) left_out: u64,
    pub(super) bytes: usize,
}

/// Records of scars and broken nodes that are kept at most, each.
const SCARS_MAX: usize = 1 << 16;

impl Harvest {
    /// Adds a node that passed the check. `raw` is exactly the node.
    pub(super) fn add(&mut self, raw: &[u8], header: &Header, place: Place, unit: u32, bytes_max: usize) {
        if header.sequence >= SEQUENCE_END {
            return;
        }
        if self.bytes >= bytes_max {
            self.left_out += 1;
            return;
        }
        let Header { sequence, kind, .. } = *header;
        let bytes = u16::try_from(header.bytes).unwrap_or(u16::MAX);
        match kind {
            NodeKind::Data => {
                let Some((data, _)) = Data::split(raw)
                    .ok()
                    .filter(|(data, _)| is(data.key, KeyKind::Data))
                else {
                    return;
                };
                let size = u16::try_from(data.size_bytes.min(BLOCK_BYTES)).unwrap_or(u16::MAX);
                self.blocks.push(BlockRecord {
                    key: data.key,
                    sequence,
                    unit,
                    bytes,
                    size,
                    state: State::Open,
                });
                self.bytes += size_of::<BlockRecord>();
            }
            NodeKind::Inode => self.add_inode(raw, sequence, unit, bytes),
            NodeKind::Entry | NodeKind::XattrEntry => self.add_name(raw, kind, sequence, unit, bytes),
            NodeKind::Truncation => {
                if let Some(cut) = Truncation::decode(raw).ok().filter(|cut| !cut.is_of_nothing()) {
                    self.cuts.push(CutRecord {
                        inode: cut.inode,
                        sequence,
                        new_bytes: cut.new_bytes,
                        unit,
                    });
                    self.bytes += size_of::<CutRecord>();
                } else {
                    self.others.push(sequence);
                }
            }
            NodeKind::Index => {
                let level = raw.get(26..28).and_then(|raw| raw.try_into().ok());
                self.index.push(IndexRecord {
                    unit,
                    bytes: header.bytes,
                    sequence,
                    level: level.map_or(0, u16::from_le_bytes),
                });
                self.bytes += size_of::<IndexRecord>();
            }
            _ => self.add_of_areas(raw, kind, sequence, place),
        }
    }

    fn add_inode(&mut self, raw: &[u8], sequence: u64, unit: u32, bytes: u16) {
        let Some(inode) = Inode::decode(raw)
            .ok()
            .filter(|inode| is(inode.key, KeyKind::Inode))
        else {
            return;
        };
        self.inodes.push(InodeRecord {
            key: inode.key,
            sequence,
            size: inode.size_bytes,
            unit,
            links: inode.links,
            bytes,
            mode: u16::try_from(inode.mode & 0xFFFF).unwrap_or(0),
            state: State::Open,
            is_xattr: inode.flags & INODE_XATTR != 0,
            is_encrypted: inode.flags & INODE_ENCRYPTED != 0,
        });
        self.bytes += size_of::<InodeRecord>();
    }

    fn add_name(&mut self, raw: &[u8], kind: NodeKind, sequence: u64, unit: u32, bytes: u16) {
        let expected = match kind {
            NodeKind::Entry => KeyKind::Entry,
            _ => KeyKind::XattrEntry,
        };
        let Some(entry) = DirectoryEntry::decode(raw, kind)
            .ok()
            .filter(|entry| is(entry.key, expected))
        else {
            return;
        };
        let fits = |hash: u32, tag: u8| if hash == entry.key.low() { tag } else { 0 };
        let known = EntryKind::from_number(entry.kind).map_or(0x0F, EntryKind::number);
        self.names.push(NameRecord {
            key: entry.key,
            sequence,
            unit,
            target: u32::try_from(entry.inode).unwrap_or(0),
            name_crc: crc(&entry.name),
            bytes,
            state: State::Open,
            tags: known
                | fits(name_hash_r5(&entry.name), FITS_R5)
                | fits(name_hash_test(&entry.name), FITS_TEST),
        });
        self.bytes += size_of::<NameRecord>();
    }

    /// Adds a node of an area other than the main one.
    fn add_of_areas(&mut self, raw: &[u8], kind: NodeKind, sequence: u64, place: Place) {
        self.others.push(sequence);
        self.bytes += size_of::<u64>();
        match kind {
            NodeKind::Superblock if self.superblock.is_none() => {
                self.superblock = Superblock::decode(raw).ok();
            }
            NodeKind::Master => {
                if let Ok(master) = Master::decode(raw) {
                    self.masters.push((sequence, place, master));
                    self.bytes += size_of::<(u64, Place, Master)>();
                }
            }
            NodeKind::CommitStart => {
                if let Ok(start) = CommitStart::decode(raw) {
                    self.starts.push((sequence, start.commit));
                    self.bytes += size_of::<(u64, u64)>();
                }
            }
            NodeKind::Reference => {
                if let Ok(reference) = LogReference::decode(raw) {
                    self.references.push((sequence, reference));
                    self.bytes += size_of::<(u64, LogReference)>();
                }
            }
            _ => {}
        }
    }

    /// Adds a node with a wrong CRC, if it has a key.
    pub(super) fn add_broken(&mut self, raw: &[u8], kind: NodeKind, place: Place, is_last: bool) {
        let has_key = matches!(
            kind,
            NodeKind::Inode | NodeKind::Data | NodeKind::Entry | NodeKind::XattrEntry
        );
        let key = raw
            .get(24..)
            .and_then(Key::from_bytes)
            .filter(|key| key.kind().is_some());
        let sequence = raw
            .get(8..16)
            .and_then(|raw| raw.try_into().ok())
            .map(u64::from_le_bytes);
        if let (true, Some(key), Some(sequence)) = (has_key && self.broken.len() < SCARS_MAX, key, sequence) {
            self.broken.push(BrokenRecord {
                key,
                sequence,
                place,
                is_last,
            });
        }
    }

    /// Adds bytes that are no nodes.
    pub(super) fn add_scar(&mut self, scar: Scar) {
        if self.scars.len() < SCARS_MAX {
            self.scars.push(scar);
        }
    }

    /// Adds the records of another scan.
    pub(super) fn absorb(&mut self, mut other: Self) {
        self.blocks.append(&mut other.blocks);
        self.inodes.append(&mut other.inodes);
        self.names.append(&mut other.names);
        self.cuts.append(&mut other.cuts);
        self.index.append(&mut other.index);
        self.broken.append(&mut other.broken);
        self.scars.append(&mut other.scars);
        self.tails.append(&mut other.tails);
        self.starts.append(&mut other.starts);
        self.references.append(&mut other.references);
        self.masters.append(&mut other.masters);
        self.others.append(&mut other.others);
        self.superblock = self.superblock.take().or(other.superblock);
        self.unreadable.append(&mut other.unreadable);
        self.written.append(&mut other.written);
        self.left_out += other.left_out;
        self.bytes += other.bytes;
    }

    /// Sorts everything, so that the result does not depend on the threads. Names whose key is not their hash are
    /// dropped: returns their number.
    pub(super) fn sort(&mut self, key_hash: u8) -> usize {
        let fits = if key_hash == 0 { FITS_R5 } else { FITS_TEST };
        let before = self.names.len();
        self.names.retain(|name| name.tags & fits != 0);
        self.blocks
            .sort_unstable_by_key(|record| (record.key, record.unit));
        self.inodes
            .sort_unstable_by_key(|record| (record.key, record.unit));
        self.names
            .sort_unstable_by_key(|record| (record.key, record.unit));
        self.cuts
            .sort_unstable_by_key(|cut| (cut.inode, cut.sequence, cut.unit));
        self.index.sort_unstable_by_key(|node| node.unit);
        self.broken.sort_unstable_by_key(|node| (node.key, node.place));
        self.scars.sort_unstable_by_key(|scar| scar.place);
        self.tails.sort_unstable_by_key(|tail| tail.units);
        self.starts.sort_unstable();
        self.written.sort_unstable();
        self.masters
            .sort_by_key(|(sequence, place, _)| (*sequence, *place));
        self.unreadable.sort_by_key(|finding| finding.place);
        before - self.names.len()
    }

    /// Sequence numbers of all nodes from `first` on, sorted.
    pub(super) fn sequences(&self, first: u64) -> Vec<u64> {
        let blocks = self.blocks.iter().map(|record| record.sequence);
        let inodes = self.inodes.iter().map(|record| record.sequence);
        let names = self.names.iter().map(|record| record.sequence);
        let cuts = self.cuts.iter().map(|record| record.sequence);
        let index = self.index.iter().map(|record| record.sequence);
        let others = self.others.iter().copied();
        let all = blocks
            .chain(inodes)
            .chain(names)
            .chain(cuts)
            .chain(index)
            .chain(others);
        let mut all: Vec<u64> = all.filter(|sequence| *sequence >= first).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The hash of names that most keys have.
    pub(super) fn key_hash_by_names(&self) -> u8 {
        let count = |tag: u8| self.names.iter().filter(|name| name.tags & tag != 0).count();
        u8::from(count(FITS_TEST) > count(FITS_R5))
    }
}

fn is(key: Key, kind: KeyKind) -> bool {
    key.kind() == Some(kind)
}

/// Conversion between units and places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    leb_units: u32,
}

impl Units {
    pub(super) const fn new(leb_bytes: u32) -> Self {
        let units = leb_bytes / 8;
        Self {
            leb_units: if units == 0 { 1 } else { units },
        }
    }

    /// The LEBs that units can name.
    pub(super) const fn lebs_max(self) -> u32 {
        u32::MAX / self.leb_units
    }

    /// The unit at an offset of a LEB; `None` beyond 32 GiB, or inside a unit.
    pub(super) fn unit(self, leb: u32, offset: u32) -> Option<u32> {
        let is_aligned = offset.is_multiple_of(8) && offset / 8 < self.leb_units;
        let first = leb.checked_mul(self.leb_units).filter(|_| is_aligned)?;
        first.checked_add(offset / 8)
    }

    pub(super) const fn place(self, unit: u32, bytes: u32) -> Place {
        Place {
            leb: unit / self.leb_units,
            offset: unit % self.leb_units * 8,
            bytes,
        }
    }
}

/// The unit of an offset in the LEB that begins at unit `first`.
pub(super) fn unit_at(first: u32, offset: usize) -> u32 {
    first.saturating_add(to_word(offset / 8))
}

/// The records of one inode in a sorted list.
pub(super) fn of_inode<R: Record>(records: &[R], inode: InodeNumber) -> &[R] {
    let start = records.partition_point(|record| record.key().inode_number() < inode);
    let rest = &records[start..];
    &rest[..rest.partition_point(|record| record.key().inode_number() == inode)]
}

/// Splits off the records that have the inode of the first one.
pub(super) fn next_inode<'a, R: Record>(records: &mut &'a [R]) -> Option<(InodeNumber, &'a [R])> {
    let number = records.first()?.key().inode_number();
    let count = records.partition_point(|record| record.key().inode_number() <= number);
    let (group, rest) = records.split_at(count);
    *records = rest;
    Some((number, group))
}

/// Groups of records with one key.
pub(super) fn by_key<R: Record>(records: &[R]) -> impl Iterator<Item = &[R]> {
    records.chunk_by(|one, other| one.key() == other.key())
}

/// Length of a node as a place has it.
pub(super) fn slice_of(raw: &[u8], offset: usize, bytes: u32) -> &[u8] {
    raw.get(offset..offset.saturating_add(to_usize(bytes)))
        .unwrap_or_default()
}
