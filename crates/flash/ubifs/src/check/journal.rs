//! Reads the log and its buds, and applies the journal to the model.
//!
//! The rules are those of the format (`docs/formats/ubifs.md`, log and journal), but applied to a model of all files
//! instead of an overlay over the index: this is a second, independent implementation of the replay.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use super::authentication::LogHash;
use super::fault::{Area, At, Fault};
use super::medium::{Ending, InLeb, Spot, blank, explained_by_a_cut, nodes_of, to_usize, to_word};
use super::model::{BlockAt, InodeAt, Model, NameAt};
use crate::format::{
    BLOCK_BYTES, CommitStart, Data, DirectoryEntry, EntryKind, Group, Inode, InodeNumber, Key, KeyKind,
    LOG_LEB, LogReference, NodeDefect, NodeKind, SEQUENCE_END, Truncation,
};

/// The GC head: it copies nodes, so the originals of torn copies still exist.
const HEAD_GC: u32 = 0;

/// A change made by a journal node.
enum Change {
    Inode(Box<Inode>),
    Block(Key, u32),
    Name(Box<DirectoryEntry>),
    Truncation(InodeNumber, u64),
}

/// Journal nodes, ordered by sequence number.
pub(super) struct Journal(Vec<(u64, Spot, Change)>);

/// Reads the log and all buds. Returns the nodes and the references of the log.
pub(super) fn read(checker: &mut Checker<'_>) -> (Journal, Vec<LogReference>) {
    let references = read_log(checker);
    let buds = references
        .iter()
        .map(|(reference, _)| reference.clone())
        .collect();
    let mut journal = Journal(Vec::new());
    let mut ended: Vec<u32> = Vec::new();
    // The GC head, the base head, and the data heads, which the superblock counts.
    let heads = 0..checker.superblock.journal_heads.saturating_add(2);
    for (reference, log_hash) in references.into_iter().rev() {
        let spot = Spot {
            leb: reference.leb,
            offset: reference.offset,
            bytes: 0,
        };
        let is_possible = checker.main_area(spot).is_ok() && heads.contains(&reference.head);
        if !is_possible {
            let fault = Fault::Contradiction("the log names a LEB or a head that no journal can have");
            checker.tell(Area::Log, None, Some(at(reference.leb, reference.offset)), fault);
            continue;
        }
        let raw = match checker.medium.leb(reference.leb) {
            Ok(raw) => raw.to_vec(),
            Err(fault) => {
                checker.tell(Area::Journal, None, Some(at(reference.leb, 0)), fault);
                continue;
            }
        };
        let start = to_usize(reference.offset).min(raw.len());
        let is_last = checker.is_dirty() && !ended.contains(&reference.head);
        if !blank(&raw[start..]) {
            ended.push(reference.head);
        }
        read_bud(checker, &raw, &reference, log_hash, is_last, &mut journal);
    }
    journal.0.sort_by_key(|(sequence, ..)| *sequence);
    checker.report.counts.journal_nodes = u64::try_from(journal.0.len()).unwrap_or(u64::MAX);
    (journal, buds)
}

/// Number of the first block behind `bytes`.
fn blocks_before(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(u64::from(BLOCK_BYTES)))
        .unwrap_or(Key::LOW_MAX)
        .min(Key::LOW_MAX)
}

fn at(leb: u32, offset: u32) -> At {
    At { leb, offset }
}

fn read_log(checker: &mut Checker<'_>) -> Vec<(LogReference, LogHash)> {
    let lebs = checker.superblock.log_lebs;
    let (first_leb, start) = (LOG_LEB, checker.master.log_leb);
    let mut references: Vec<(LogReference, LogHash)> = Vec::new();
    let mut log_hash = LogHash::new(checker);
    if !(first_leb..first_leb + lebs).contains(&start) {
        let fault =
            Fault::Contradiction("the master node says that the log starts in a LEB that is none of it");
        checker.tell(Area::Log, None, Some(at(start, 0)), fault);
        return references;
    }
    let (mut started, mut torn_at) = (None, None);
    for step in 0..lebs {
        let leb = first_leb + (start - first_leb + step) % lebs;
        let raw = match checker.medium.leb(leb) {
            Ok(raw) => raw.to_vec(),
            Err(fault) => {
                checker.tell(Area::Log, None, Some(at(leb, 0)), fault);
                break;
            }
        };
        let (nodes, end, ending) = nodes_of(&raw, 0);
        let goes_on = |first: &InLeb| started.is_some_and(|started| first.header.sequence > started);
        if matches!(ending, Ending::Broken(_)) || nodes.first().is_some_and(goes_on) {
            log_ends_before(checker, torn_at.take());
        }
        if let Ending::Broken(defect) = ending {
            let broken = at(leb, to_word(end));
            torn_at = Some(broken);
            let looks_torn =
                checker.is_dirty() && explained_by_a_cut(&raw, end, &defect, checker.write_bytes());
            let text = format!("log, LEB {leb}, offset {end}: torn by a power cut: {defect}");
            if !looks_torn || !checker.is_torn(Area::Log, broken, text) {
                checker.tell(Area::Log, None, Some(broken), defect.into());
            }
        }
        let Some(first) = nodes.first() else {
            if started.is_none() {
                let fault = Fault::Contradiction("the log is empty; it starts with a commit start node");
                checker.tell(Area::Log, None, Some(at(leb, 0)), fault);
            }
            break;
        };
        if started.is_none() {
            let commit = (first.header.kind == NodeKind::CommitStart)
                .then(|| CommitStart::decode(&raw[first.offset..]).ok())
                .flatten();
            if commit.is_none_or(|commit| commit.commit != checker.master.commit) {
                let fault = Fault::Contradiction("the log does not start with the master node's commit");
                checker.tell(Area::Log, None, Some(at(leb, to_word(first.offset))), fault);
            }
        }
        let first_sequence = *started.get_or_insert(first.header.sequence);
        if first.header.sequence < first_sequence {
            break;
        }
        for node in nodes.iter().filter(|node| node.header.sequence >= first_sequence) {
            checker.sequences.add(node.header.sequence);
            let bytes = &raw[node.offset..node.offset + to_usize(node.header.bytes)];
            match node.header.kind {
                NodeKind::Reference => {
                    let Ok(reference) = LogReference::decode(bytes) else {
                        continue;
                    };
                    // An interrupted commit references the heads again, at their positions by then.
                    let same = |(other, _): &(LogReference, LogHash)| {
                        (other.leb, other.head) == (reference.leb, reference.head)
                            && other.offset <= reference.offset
                    };
                    if !references.iter().any(same) {
                        log_hash.update(bytes);
                        references.push((reference, log_hash.clone()));
                    }
                }
                NodeKind::CommitStart => log_hash.update(bytes),
                NodeKind::Authentication => {}
                kind => {
                    let fault = NodeDefect::Field {
                        kind,
                        why: "it does not belong into the log",
                    };
                    checker.tell(Area::Log, None, Some(at(leb, to_word(node.offset))), fault.into());
                }
            }
        }
    }
    references
}

/// Reports a log that continues behind a torn end. Linux recovers a torn end only if the next LEB holds nothing
/// newer.
fn log_ends_before(checker: &mut Checker<'_>, torn_at: Option<At>) {
    if torn_at.is_some() {
        let fault =
            Fault::Contradiction("the log goes on behind a torn end: Linux refuses to mount the file system");
        checker.tell(Area::Log, None, torn_at, fault);
    }
}

fn read_bud(
    checker: &mut Checker<'_>,
    raw: &[u8],
    reference: &LogReference,
    log_hash: LogHash,
    may_be_torn: bool,
    journal: &mut Journal,
) {
    let (mut nodes, mut end, mut ending) = nodes_of(raw, to_usize(reference.offset));
    let mut is_damaged = false;
    while let Ending::Broken(defect) = ending {
        let broken = at(reference.leb, to_word(end));
        let looks_torn =
            may_be_torn && !is_damaged && explained_by_a_cut(raw, end, &defect, checker.write_bytes());
        let (leb, head) = (reference.leb, reference.head);
        let text = format!("journal, LEB {leb}, offset {end}: head {head} ends in a torn write: {defect}");
        if looks_torn && checker.is_torn(Area::Journal, broken, text) {
            break;
        }
        is_damaged = true;
        checker.tell(Area::Journal, None, Some(broken), defect.into());
        // Resume at the next valid node, so that all damage is reported.
        let places = (end + 8..raw.len()).step_by(8);
        let Some(next) = places
            .into_iter()
            .find(|place| crate::format::check(&raw[*place..]).is_ok())
        else {
            break;
        };
        let more = nodes_of(raw, next);
        nodes.extend(more.0);
        (end, ending) = (more.1, more.2);
    }
    log_hash.verify(checker, raw, reference, &nodes, may_be_torn);
    if may_be_torn && !is_damaged {
        drop_unfinished(checker, &mut nodes, end, reference);
    }
    for node in nodes {
        checker.sequences.add(node.header.sequence);
        let raw = &raw[node.offset..node.offset + to_usize(node.header.bytes)];
        let spot = Spot {
            leb: reference.leb,
            offset: to_word(node.offset),
            bytes: node.header.bytes,
        };
        match change(raw, &node, checker) {
            Ok(Some(change)) => journal.0.push((node.header.sequence, spot, change)),
            Ok(None) => {}
            Err(fault) => checker.tell(Area::Journal, None, Some(at(spot.leb, spot.offset)), fault),
        }
    }
}

/// At the end of a head's last bud, drops an incomplete group; of the GC head, drops the nodes in a write unit that
/// may be torn.
fn drop_unfinished(checker: &mut Checker<'_>, nodes: &mut Vec<InLeb>, end: usize, reference: &LogReference) {
    let before = nodes.len();
    if reference.head == HEAD_GC {
        let unit = to_usize(checker.superblock.min_io_bytes.max(8));
        let whole = end / unit * unit;
        nodes.retain(|node| node.offset + to_usize(node.header.aligned_bytes()) <= whole);
    } else {
        let kept = nodes.iter().rposition(|node| node.header.group != Group::Inside);
        nodes.truncate(kept.map_or(0, |last| last + 1));
    }
    let dropped = before - nodes.len();
    if dropped > 0 {
        let leb = reference.leb;
        checker.note(format!(
            "journal, LEB {leb}: {dropped} nodes of an unfinished write do not count"
        ));
    }
}

fn change(raw: &[u8], node: &InLeb, checker: &Checker<'_>) -> Result<Option<Change>, Fault> {
    let kind = node.header.kind;
    let wrong = |why| Err(NodeDefect::Field { kind, why }.into());
    if node.header.sequence >= SEQUENCE_END {
        return wrong("its sequence number is past the end");
    }
    let (change, key, expected) = match kind {
        NodeKind::Inode => {
            let inode = Inode::decode(raw)?;
            let key = inode.key;
            (Change::Inode(Box::new(inode)), key, KeyKind::Inode)
        }
        NodeKind::Data => {
            let data = Data::decode(raw)?;
            checker.unpack(&data)?;
            (Change::Block(data.key, data.size_bytes), data.key, KeyKind::Data)
        }
        NodeKind::Entry | NodeKind::XattrEntry => {
            let entry = DirectoryEntry::decode(raw, kind)?;
            let expected = match kind {
                NodeKind::Entry => KeyKind::Entry,
                _ => KeyKind::XattrEntry,
            };
            let key = entry.key;
            (Change::Name(Box::new(entry)), key, expected)
        }
        NodeKind::Truncation => {
            let node = Truncation::decode(raw)?;
            let change = Change::Truncation(InodeNumber(node.inode), node.new_bytes);
            return Ok((!node.is_of_nothing()).then_some(change));
        }
        NodeKind::Authentication => return Ok(None),
        _ => return wrong("it does not belong into the journal"),
    };
    match key.kind() == Some(expected) {
        true => Ok(Some(change)),
        false => wrong("its key is of another kind"),
    }
}

#[derive(Default)]
struct Size {
    of_inode: Option<u64>,
    of_data: u64,
}

/// Applies the journal to the files of the index. Returns the keys of the names it touches.
pub(super) fn apply(checker: &mut Checker<'_>, journal: Journal, model: &mut Model) -> BTreeSet<Key> {
    let mut names = BTreeSet::new();
    let mut links: BTreeMap<InodeNumber, u32> = BTreeMap::new();
    for (_, _, change) in &journal.0 {
        if let Change::Inode(inode) = change {
            links.insert(inode.key.inode_number(), inode.links);
        }
    }
    let mut sizes: BTreeMap<InodeNumber, Size> = BTreeMap::new();
    for (_, spot, change) in journal.0 {
        match change {
            Change::Inode(mut inode) => {
                let number = inode.key.inode_number();
                if inode.links == 0 {
                    if links.get(&number) == Some(&0) {
                        model.remove_inode(number);
                    }
                    sizes.remove(&number);
                    continue;
                }
                sizes.entry(number).or_default().of_inode = Some(inode.size_bytes);
                inode.data = Vec::new();
                let inode = Some(inode);
                model.inodes.insert(number, InodeAt { spot, inode });
            }
            Change::Block(key, bytes) => {
                let end = u64::from(key.low()) * u64::from(BLOCK_BYTES) + u64::from(bytes);
                let size = sizes.entry(key.inode_number()).or_default();
                size.of_data = size.of_data.max(end);
                model.blocks.insert(key, BlockAt { spot, is_good: true });
            }
            Change::Name(entry) => {
                names.insert(entry.key);
                let name = (entry.key, entry.name);
                if entry.inode == 0 {
                    model.names.remove(&name);
                    continue;
                }
                let at = NameAt {
                    spot,
                    inode: InodeNumber(u32::try_from(entry.inode).unwrap_or(u32::MAX)),
                    kind: EntryKind::from_number(entry.kind),
                };
                model.names.insert(name, at);
            }
            Change::Truncation(inode, bytes) => {
                model.remove_blocks(inode, blocks_before(bytes));
                if let Some(size) = sizes.get_mut(&inode) {
                    size.of_data = bytes;
                }
            }
        }
    }
    if checker.is_dirty() {
        recover_sizes(checker, model, &sizes);
    }
    names
}

/// Recovers file sizes: a power cut may have lost the inode update that belongs to data. Files are extended to the
/// end of their data; data without an inode is dropped.
fn recover_sizes(checker: &mut Checker<'_>, model: &mut Model, sizes: &BTreeMap<InodeNumber, Size>) {
    for (number, size) in sizes {
        if size.of_inode.is_some_and(|bytes| bytes >= size.of_data) {
            continue;
        }
        let Some(at) = model.inodes.get_mut(number) else {
            model.remove_inode(*number);
            checker.note(format!(
                "{number}: its data in the journal count for nothing, the inode was never written"
            ));
            continue;
        };
        let Some(inode) = at
            .inode
            .as_mut()
            .filter(|inode| inode.kind() == Some(EntryKind::File))
        else {
            continue;
        };
        if inode.size_bytes < size.of_data {
            let bytes = size.of_data;
            checker.note(format!(
                "{number}: recovery makes it {bytes} bytes long, its inode says {}",
                inode.size_bytes
            ));
            inode.size_bytes = size.of_data;
        }
    }
}
