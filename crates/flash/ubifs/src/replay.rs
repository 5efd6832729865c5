//! Replays the log and the journal into an in-memory [`Journal`], by the same rules as Linux.
//!
//! - The log starts at the LEB named by the master node, with a commit start of the same commit number, and ends
//!   before the first LEB that is empty or has older nodes.
//! - Each reference in it names a bud: a LEB of the journal from an offset on. The nodes of all buds are applied in
//!   the order of their sequence numbers.
//! - Only the last bud of a head may end in a torn write, with nothing but erased bytes behind its write unit. An
//!   incomplete group of nodes at its end is dropped. Copies made by garbage collection in the torn write unit are
//!   dropped, since the originals still exist.
//! - Any other damage is a finding, and the scan continues at the next valid node.

use std::collections::{BTreeMap, HashMap};

use ubi::Volume;

use crate::bud::{Rules, journal_finding, read_bud, write_bytes};
use crate::fetch::{self, Extent};
use crate::finding::{Finding, Place};
use crate::format::{
    BLOCK_BYTES, Data, DirectoryEntry, Inode, InodeNumber, Key, KeyKind, MASTER_DIRTY, Master, NodeDefect,
    NodeKind, SEQUENCE_END, Superblock, Truncation,
};
use crate::journal::{Indexed, Journal, JournalName};
use crate::log::read_log;
use crate::open::OpenOptions;
use crate::report::{AppliedNode, Effect, ReplayReport};
use crate::scan::{Found, is_erased, to_usize, to_word};

/// Sizes of a file according to the journal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SizeSeen {
    /// Size in the last inode node.
    pub(crate) inode: Option<u64>,
    /// End of the last data.
    pub(crate) data: u64,
}

/// The journal, with sizes still to be checked against the index.
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
    options: OpenOptions,
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
    // Backwards, to recognize the last non-empty bud of each head.
    let mut ended_heads = Vec::new();
    for reference in references.iter().rev() {
        let extent = match dirty {
            true => Extent::Whole,
            false => Extent::WrittenFrom(reference.offset),
        };
        let raw = match fetch::extent_of_leb(volume, reference.leb, extent) {
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
            write_bytes: write_bytes(volume, superblock),
            min_io_bytes: to_usize(superblock.min_io_bytes.max(8)),
        };
        let bud = read_bud(volume, &raw, reference, &rules, findings, &mut report.doubts);
        for found in &bud.nodes {
            let node = &raw[found.offset..found.offset + to_usize(found.header.bytes)];
            let place = Place {
                leb: reference.leb,
                offset: to_word(found.offset),
                bytes: found.header.bytes,
            };
            report.sequence_max = report.sequence_max.max(found.header.sequence);
            match change(node, found) {
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
    let (journal, sizes) = apply(changes, &mut report, dirty, options);
    Replayed {
        journal,
        report,
        sizes,
    }
}

fn change(node: &[u8], found: &Found) -> Result<Option<What>, NodeDefect> {
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
            if node.is_of_nothing() {
                return Ok(None);
            }
            What::Truncation {
                inode: InodeNumber(node.inode),
                new_bytes: node.new_bytes,
            }
        }
        NodeKind::Authentication => return Ok(None),
        _ => return Err(wrong("it does not belong into the journal")),
    };
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

/// Applies sorted changes.
fn apply(
    changes: Vec<Change>,
    report: &mut ReplayReport,
    dirty: bool,
    options: OpenOptions,
) -> (Journal, Sizes) {
    // A file that lost its last link and was linked again (O_TMPFILE and linkat) is not deleted.
    let last_word: HashMap<InodeNumber, bool> = changes
        .iter()
        .filter_map(|change| match change.what {
            What::Inode { inode, removed, .. } => Some((inode, removed)),
            _ => None,
        })
        .collect();
    let mut journal = Journal::default();
    let mut sizes = Sizes::new();
    for Change {
        sequence,
        place,
        what,
    } in changes
    {
        report.nodes += 1;
        if options.lists_nodes {
            report.applied.push(applied(sequence, place, &what, &last_word));
        }
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
                        indexed: Indexed::Unknown,
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

fn applied(sequence: u64, place: Place, what: &What, last_word: &HashMap<InodeNumber, bool>) -> AppliedNode {
    let (key, effect) = match what {
        What::Inode { inode, size, removed } => {
            let effect = match (removed, last_word.get(inode)) {
                (false, _) => Effect::Inode { bytes: *size },
                (true, Some(false)) => Effect::InodeKept,
                (true, _) => Effect::InodeRemoved,
            };
            (Key::inode(*inode), effect)
        }
        What::Block { key, end } => (*key, Effect::Block { end: *end }),
        What::Name { key, name, removed } => {
            let name = name.clone();
            let effect = match removed {
                true => Effect::NameRemoved(name),
                false => Effect::Name(name),
            };
            (*key, effect)
        }
        What::Truncation { inode, new_bytes } => {
            (Key::inode(*inode), Effect::Truncated { bytes: *new_bytes })
        }
    };
    AppliedNode {
        sequence,
        place,
        key,
        effect,
    }
}
