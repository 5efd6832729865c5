//! From the log and the journal on the medium to a [`Journal`] in memory, by the rules that Linux recovers by.
//!
//! - The log starts where the master says with a commit start of the master's commit, and ends before the first LEB that is
//!   empty or older.
//! - Each reference in it names a bud: a LEB of the journal from an offset on. All nodes of all buds are applied in the order of
//!   their sequence numbers.
//! - Only the last bud of a head may end in a torn write, which has nothing but erased bytes behind its write unit. An
//!   incomplete group of nodes at its end is dropped. Copies that garbage collection made in the write unit that was torn are
//!   dropped: what they are copies of is still there.
//! - What is broken elsewhere is damage: a finding, and the scan goes on at the next good node.

use std::collections::{BTreeMap, HashMap};

use ubi::Volume;

use crate::fetch;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{
    BLOCK_BYTES, CommitStart, Data, DirectoryEntry, Group, HEADER_BYTES, Inode, InodeNumber, Key, KeyKind,
    LOG_LEB, LogReference, MASTER_DIRTY, Master, NodeDefect, NodeKind, SEQUENCE_END, Superblock, Truncation,
};
use crate::journal::{Journal, JournalName};
use crate::scan::{Found, Scan, Stop, is_erased, next_node, scan, to_usize};

/// The journal head of garbage collection.
const HEAD_GC: u32 = 0;

/// What the replay did.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Whether the file system was unmounted, so that nothing can be torn.
    pub was_clean: bool,
    /// LEBs of the log that were in use, in their order.
    pub log_lebs: Vec<u32>,
    /// The LEBs of the journal, in the order of the log.
    pub buds: Vec<BudReport>,
    /// Nodes that were applied.
    pub nodes: u64,
    /// Removed inodes, truncations and removed names among them.
    pub removals: u64,
    /// Files whose size follows from data that a power cut left without their inode, with that size.
    pub sizes: Vec<(InodeNumber, u64)>,
    /// Inodes without a name that were open, and are removed.
    pub orphans: Vec<InodeNumber>,
    /// The largest sequence number.
    pub sequence_max: u64,
}

/// A LEB of the journal.
#[derive(Clone, Debug)]
pub struct BudReport {
    /// The LEB.
    pub leb: u32,
    /// Where the bud starts in it.
    pub offset: u32,
    /// Journal head: 0 garbage collection, 1 base, 2 data.
    pub head: u32,
    /// Nodes that count.
    pub nodes: usize,
    /// Good nodes that don't: of an incomplete group, or of a torn write unit.
    pub dropped: usize,
    /// How it ends.
    pub end: BudEnd,
}

/// How a LEB of the journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudEnd {
    /// As it should.
    Clean,
    /// In a write that a power cut tore, at this offset.
    Torn(u32),
    /// Something was broken that no power cut explains, first at this offset.
    Damaged(u32),
}

/// What the sizes of files follow from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SizeSeen {
    /// Of the last inode in the journal.
    pub(crate) inode: Option<u64>,
    /// Where the last byte in the journal ends.
    pub(crate) data: u64,
}

/// The journal, and what is left to be done with the index at hand.
pub(crate) struct Replayed {
    pub(crate) journal: Journal,
    pub(crate) report: ReplayReport,
    pub(crate) sizes: BTreeMap<InodeNumber, SizeSeen>,
}

struct Change {
    sequence: u64,
    place: Place,
    what: What,
}

enum What {
    Inode {
        inode: InodeNumber,
        size: u64,
        removed: bool,
    },
    Block {
        key: Key,
        end: u64,
    },
    Name {
        key: Key,
        name: Vec<u8>,
        removed: bool,
    },
    Truncation {
        inode: InodeNumber,
        new_bytes: u64,
    },
}

/// Replays the journal of a volume.
pub(crate) fn replay(
    volume: &dyn Volume,
    superblock: &Superblock,
    master: &Master,
    findings: &mut Vec<Finding>,
) -> Replayed {
    let dirty = master.flags & MASTER_DIRTY != 0;
    let mut report = ReplayReport {
        was_clean: !dirty,
        ..ReplayReport::default()
    };
    let references = read_log(volume, superblock, master, &mut report, findings);
    let mut changes = Vec::new();
    let mut lebs: Vec<_> = Vec::new();
    // Backwards, so that the last bud with anything in it is known for each head.
    let mut ended_heads = Vec::new();
    for reference in references.iter().rev() {
        let raw = match fetch::leb(volume, reference.leb) {
            Ok(raw) => raw,
            Err(damage) => {
                findings.push(journal_finding(reference.leb, reference.offset, damage));
                continue;
            }
        };
        let start = to_usize(reference.offset).min(raw.len());
        let is_last = !ended_heads.contains(&reference.head);
        if !is_erased(&raw[start..]) {
            ended_heads.push(reference.head);
        }
        let rules = Rules {
            may_be_torn: dirty && is_last,
            write_bytes: to_usize(
                volume
                    .geometry()
                    .max_write_bytes
                    .max(superblock.min_io_bytes)
                    .max(8),
            ),
            min_io_bytes: to_usize(superblock.min_io_bytes.max(8)),
        };
        let bud = read_bud(&raw, reference, &rules, findings);
        for found in &bud.nodes {
            let node = &raw[found.offset..found.offset + to_usize(found.header.bytes)];
            let place = Place {
                leb: reference.leb,
                offset: to_word(found.offset),
                bytes: found.header.bytes,
            };
            report.sequence_max = report.sequence_max.max(found.header.sequence);
            match change(node, found, place) {
                Ok(Some(what)) => changes.push(Change {
                    sequence: found.header.sequence,
                    place,
                    what,
                }),
                Ok(None) => {}
                Err(defect) => findings.push(journal_finding(place.leb, place.offset, defect.into())),
            }
        }
        lebs.push(bud.report);
    }
    lebs.reverse();
    report.buds = lebs;
    changes.sort_by_key(|change| change.sequence);
    let (journal, sizes) = apply(changes, &mut report, dirty);
    Replayed {
        journal,
        report,
        sizes,
    }
}

fn journal_finding(leb: u32, offset: u32, damage: Damage) -> Finding {
    Finding {
        inode: None,
        subject: Subject::Journal,
        place: Place {
            leb,
            offset,
            bytes: 0,
        },
        damage,
    }
}

/// Offsets in a LEB.
fn to_word(offset: usize) -> u32 {
    u32::try_from(offset).expect("a LEB is smaller than 4 GiB")
}

/// The references of the log, oldest first, each LEB and offset once.
fn read_log(
    volume: &dyn Volume,
    superblock: &Superblock,
    master: &Master,
    report: &mut ReplayReport,
    findings: &mut Vec<Finding>,
) -> Vec<LogReference> {
    let mut references: Vec<LogReference> = Vec::new();
    let mut commit_sequence = None;
    let in_log = |leb| (LOG_LEB..LOG_LEB.saturating_add(superblock.log_lebs)).contains(&leb);
    let mut leb = master.log_leb;
    let mut lost = |leb, offset, damage| {
        let place = Place {
            leb,
            offset,
            bytes: 0,
        };
        findings.push(Finding {
            inode: None,
            subject: Subject::Log,
            place,
            damage,
        });
    };
    for _ in 0..superblock.log_lebs.min(volume.geometry().lebs) {
        if !in_log(leb) {
            lost(
                leb,
                0,
                Damage::Contradiction("the log is to start in a LEB that is none of it"),
            );
            break;
        }
        let raw = match fetch::leb(volume, leb) {
            Ok(raw) => raw,
            Err(damage) => {
                lost(leb, 0, damage);
                break;
            }
        };
        let scan = scan(&raw, 0);
        let write_bytes = to_usize(
            volume
                .geometry()
                .max_write_bytes
                .max(superblock.min_io_bytes)
                .max(8),
        );
        if let Stop::Broken(defect) = scan.stop
            && !is_torn(&raw, scan.end, &defect, write_bytes)
        {
            lost(leb, to_word(scan.end), defect.into());
        }
        let Some(first) = scan.nodes.first() else {
            if commit_sequence.is_none() {
                lost(
                    leb,
                    0,
                    Damage::Contradiction("the log is empty; it starts with a commit start node"),
                );
            }
            break;
        };
        let started = *commit_sequence.get_or_insert(first.header.sequence);
        if first.header.sequence < started {
            break;
        }
        report.log_lebs.push(leb);
        for found in &scan.nodes {
            let node = &raw[found.offset..];
            let sequence = found.header.sequence;
            report.sequence_max = report.sequence_max.max(sequence);
            match found.header.kind {
                NodeKind::CommitStart => {
                    let commit = CommitStart::decode(node).map_or(0, |node| node.commit);
                    if sequence == started && commit != master.commit {
                        let why = "the log starts with another commit than the master's";
                        lost(leb, to_word(found.offset), Damage::Contradiction(why));
                    }
                }
                NodeKind::Reference if sequence >= started => match LogReference::decode(node) {
                    Ok(reference) => {
                        let known = |other: &LogReference| {
                            (other.leb, other.offset) == (reference.leb, reference.offset)
                        };
                        if !references.iter().any(known) {
                            references.push(reference);
                        }
                    }
                    Err(defect) => lost(leb, to_word(found.offset), defect.into()),
                },
                NodeKind::Authentication => {}
                _ => {
                    let why = "a node is here that does not belong into the log";
                    lost(leb, to_word(found.offset), Damage::Contradiction(why));
                }
            }
        }
        leb = if in_log(leb + 1) { leb + 1 } else { LOG_LEB };
    }
    references
}

struct Rules {
    may_be_torn: bool,
    write_bytes: usize,
    min_io_bytes: usize,
}

struct Bud {
    nodes: Vec<Found>,
    report: BudReport,
}

fn read_bud(raw: &[u8], reference: &LogReference, rules: &Rules, findings: &mut Vec<Finding>) -> Bud {
    let Scan { mut nodes, end, stop } = scan(raw, to_usize(reference.offset));
    let all = nodes.len();
    let mut report = BudReport {
        leb: reference.leb,
        offset: reference.offset,
        head: reference.head,
        nodes: 0,
        dropped: 0,
        end: BudEnd::Clean,
    };
    match stop {
        Stop::Erased => {}
        Stop::Broken(defect) if rules.may_be_torn && is_torn(raw, end, &defect, rules.write_bytes) => {
            report.end = BudEnd::Torn(to_word(end));
        }
        Stop::Broken(defect) => {
            report.end = BudEnd::Damaged(to_word(end));
            rescan(raw, end, defect, reference.leb, &mut nodes, findings);
        }
    }
    let damaged = matches!(report.end, BudEnd::Damaged(_));
    if rules.may_be_torn && !damaged {
        drop_tail(&mut nodes, end, reference.head, rules.min_io_bytes);
        report.dropped = all - nodes.len();
    }
    report.nodes = nodes.len();
    Bud { nodes, report }
}

/// Goes on behind what is broken, each broken place a finding.
fn rescan(
    raw: &[u8],
    end: usize,
    defect: NodeDefect,
    leb: u32,
    nodes: &mut Vec<Found>,
    findings: &mut Vec<Finding>,
) {
    let (mut from, mut why) = (end, defect);
    loop {
        findings.push(journal_finding(leb, to_word(from), why.into()));
        let Some(next) = next_node(raw, from + 8) else {
            return;
        };
        let more = scan(raw, next);
        nodes.extend(more.nodes);
        match more.stop {
            Stop::Erased => return,
            Stop::Broken(defect) => (from, why) = (more.end, defect),
        }
    }
}

/// Whether a write that a power cut tore explains what is broken: behind it nothing was ever written.
fn is_torn(raw: &[u8], end: usize, defect: &NodeDefect, write_bytes: usize) -> bool {
    let erased_from = |offset: usize| {
        let from = offset.next_multiple_of(write_bytes);
        is_erased(raw.get(from..).unwrap_or_default())
    };
    match defect {
        NodeDefect::Crc { bytes, .. } => {
            erased_from(end + HEADER_BYTES) || erased_from(end + to_usize(*bytes))
        }
        NodeDefect::Length { .. } | NodeDefect::Kind { .. } => erased_from(end + HEADER_BYTES),
        _ => erased_from(end + 1),
    }
}

fn drop_tail(nodes: &mut Vec<Found>, end: usize, head: u32, min_io_bytes: usize) {
    if head != HEAD_GC {
        while nodes
            .last()
            .is_some_and(|last| last.header.group == Group::Inside)
        {
            nodes.pop();
        }
        return;
    }
    let unit = end / min_io_bytes * min_io_bytes;
    let mut end = end;
    while end > unit {
        let Some(last) = nodes.pop() else { return };
        end = last.offset;
    }
}

fn change(node: &[u8], found: &Found, place: Place) -> Result<Option<What>, NodeDefect> {
    let kind = found.header.kind;
    let wrong = |why| NodeDefect::Field { kind, why };
    if found.header.sequence >= SEQUENCE_END {
        return Err(wrong("its sequence number is past the end"));
    }
    let what = match kind {
        NodeKind::Inode => {
            let inode = Inode::decode(node)?;
            check_key(inode.key, KeyKind::Inode, kind)?;
            What::Inode {
                inode: inode.key.inode_number(),
                size: inode.size_bytes,
                removed: inode.links == 0,
            }
        }
        NodeKind::Data => {
            let data = Data::decode(node)?;
            check_key(data.key, KeyKind::Data, kind)?;
            let start = u64::from(data.key.low()) * u64::from(BLOCK_BYTES);
            What::Block {
                key: data.key,
                end: start + u64::from(data.size_bytes),
            }
        }
        NodeKind::Entry | NodeKind::XattrEntry => {
            let entry = DirectoryEntry::decode(node, kind)?;
            let expected = if kind == NodeKind::Entry {
                KeyKind::Entry
            } else {
                KeyKind::XattrEntry
            };
            check_key(entry.key, expected, kind)?;
            What::Name {
                key: entry.key,
                name: entry.name,
                removed: entry.inode == 0,
            }
        }
        NodeKind::Truncation => {
            let node = Truncation::decode(node)?;
            What::Truncation {
                inode: InodeNumber(node.inode),
                new_bytes: node.new_bytes,
            }
        }
        NodeKind::Authentication => return Ok(None),
        _ => return Err(wrong("it does not belong into the journal")),
    };
    debug_assert_eq!(place.bytes, found.header.bytes);
    Ok(Some(what))
}

fn check_key(key: Key, expected: KeyKind, kind: NodeKind) -> Result<(), NodeDefect> {
    if key.kind() == Some(expected) {
        return Ok(());
    }
    Err(NodeDefect::Field {
        kind,
        why: "its key is of another kind",
    })
}

type Sizes = BTreeMap<InodeNumber, SizeSeen>;

/// Applies changes that are in order.
fn apply(changes: Vec<Change>, report: &mut ReplayReport, dirty: bool) -> (Journal, Sizes) {
    // A file that lost its last name and got one again (O_TMPFILE and linkat) is not removed.
    let last_word: HashMap<InodeNumber, bool> = changes
        .iter()
        .filter_map(|change| match change.what {
            What::Inode { inode, removed, .. } => Some((inode, removed)),
            _ => None,
        })
        .collect();
    let mut journal = Journal::default();
    let mut sizes = Sizes::new();
    for Change { place, what, .. } in changes {
        report.nodes += 1;
        match what {
            What::Inode {
                inode, removed: true, ..
            } => {
                report.removals += 1;
                if last_word.get(&inode).is_some_and(|removed| *removed) {
                    journal.remove_inode(inode);
                }
                sizes.remove(&inode);
            }
            What::Inode { inode, size, .. } => {
                journal.put(Key::inode(inode), place);
                sizes.entry(inode).or_default().inode = Some(size);
            }
            What::Block { key, end } => {
                journal.put(key, place);
                let seen = sizes.entry(key.inode_number()).or_default();
                seen.data = seen.data.max(end);
            }
            What::Name { key, name, removed } => {
                report.removals += u64::from(removed);
                journal.put_name(
                    key,
                    JournalName {
                        name,
                        place: (!removed).then_some(place),
                    },
                );
            }
            What::Truncation { inode, new_bytes } => {
                report.removals += 1;
                let end = u32::try_from(new_bytes.div_ceil(u64::from(BLOCK_BYTES))).unwrap_or(u32::MAX);
                if end <= Key::LOW_MAX {
                    journal.remove_blocks(inode, end);
                }
                if let Some(seen) = sizes.get_mut(&inode) {
                    seen.data = new_bytes;
                }
            }
        }
    }
    if !dirty {
        sizes.clear();
    }
    (journal, sizes)
}
