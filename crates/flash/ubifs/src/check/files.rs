//! Cross-checks: names against inodes, blocks against sizes, attributes against their counts.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use super::fault::{Area, At, Fault};
use super::medium::Spot;
use super::model::{InodeAt, Model, NameAt};
use crate::format::{
    BLOCK_BYTES, Compression, EntryKind, INODE_DATA_BYTES_MAX, INODE_ENCRYPTED, INODE_XATTR, Inode,
    InodeNumber, Key, KeyKind, ROOT_INODE, name_hash_r5, name_hash_test,
};

/// Bytes of an inode node without data, the base of a directory's size.
const INODE_BYTES: u64 = 160;
/// Maximum file size: block numbers have 29 bits.
const FILE_BYTES_MAX: u64 = (1 << 29) * 4096;

/// Counts of an inode, taken from names.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Names that refer to it.
    names: u64,
    /// Subdirectories.
    folders: u64,
    /// Sum of its entries' contributions to the directory size.
    entry_bytes: u64,
    xattrs: u64,
    xattr_bytes: u64,
    xattr_name_bytes: u64,
    is_xattr: bool,
}

type Tallies = BTreeMap<InodeNumber, Tally>;

/// Applies recovery's deletions to the model, then cross-checks everything.
pub(super) fn check(
    checker: &mut Checker<'_>,
    model: &mut Model,
    listed: &BTreeSet<InodeNumber>,
    index_is_whole: bool,
) {
    remove_orphans(checker, model, listed);
    let tallies = count_names(checker, model);
    let reached = reachable(model);
    let damaged = blocks(checker, model);
    for (number, at) in &model.inodes {
        let tally = tallies.get(number).copied().unwrap_or_default();
        let Some(inode) = &at.inode else {
            count(checker, None, tally, true);
            continue;
        };
        count(checker, Some(inode), tally, damaged.contains(number));
        fields(checker, *number, at.spot, inode);
        if !index_is_whole {
            continue;
        }
        if !reached.contains(number) && !tally.is_xattr {
            let fault = Fault::Contradiction("no name leads to it from the root directory");
            checker.tell(Area::Inode, Some(*number), Some(place(at.spot)), fault);
        }
        numbers(checker, *number, at, inode, tally, model);
    }
    if index_is_whole && !model.inodes.contains_key(&ROOT_INODE) {
        let fault = Fault::Contradiction("there is no root directory");
        checker.tell(Area::Inode, Some(ROOT_INODE), None, fault);
    }
}

fn place(spot: Spot) -> At {
    At {
        leb: spot.leb,
        offset: spot.offset,
    }
}

fn remove_orphans(checker: &mut Checker<'_>, model: &mut Model, listed: &BTreeSet<InodeNumber>) {
    let unlinked = |at: &InodeAt| at.inode.as_ref().is_some_and(|inode| inode.links == 0);
    let orphans: Vec<InodeNumber> = model
        .inodes
        .iter()
        .filter(|(number, at)| unlinked(at) && listed.contains(number))
        .map(|(number, _)| *number)
        .collect();
    if !checker.is_dirty() {
        for number in orphans {
            let fault = Fault::Contradiction("it has no name any more, and the file system was unmounted");
            checker.tell(Area::Orphans, Some(number), None, fault);
        }
        return;
    }
    for number in orphans {
        model.remove_inode(number);
        checker.report.counts.orphans += 1;
    }
}

fn count_names(checker: &mut Checker<'_>, model: &Model) -> Tallies {
    let mut tallies = Tallies::new();
    for ((key, name), at) in &model.names {
        let owner = key.inode_number();
        let is_xattr = key.kind() == Some(KeyKind::XattrEntry);
        let area = if is_xattr { Area::Xattr } else { Area::Entry };
        let mut tell = |fault| checker.tell(area, Some(owner), Some(place(at.spot)), fault);
        for fault in name_faults(model, *key, name, at) {
            tell(fault);
        }
        let node_bytes = (57 + length(name)).next_multiple_of(8);
        let value = model.inodes.get(&at.inode).and_then(|at| at.inode.as_ref());
        let tally = tallies.entry(owner).or_default();
        if is_xattr {
            tally.xattrs += 1;
            tally.xattr_name_bytes += length(name);
            let value_bytes = value.map_or(0, |value| u64::from(value.data_bytes));
            tally.xattr_bytes += node_bytes + (INODE_BYTES + value_bytes + 1).next_multiple_of(8);
        } else {
            tally.entry_bytes += node_bytes;
            tally.folders += u64::from(at.kind == Some(EntryKind::Directory));
        }
        let target = tallies.entry(at.inode).or_default();
        target.names += 1;
        target.is_xattr |= is_xattr;
        if !model.inodes.contains_key(&at.inode) {
            checker.report.counts.names_without_inode += 1;
        }
    }
    checker.report.counts.xattrs = tallies.values().map(|tally| tally.xattrs).sum();
    tallies
}

fn length(name: &[u8]) -> u64 {
    u64::try_from(name.len()).expect("a name is short")
}

fn name_faults(model: &Model, key: Key, name: &[u8], at: &NameAt) -> Vec<Fault> {
    let mut faults = Vec::new();
    let owner = model
        .inodes
        .get(&key.inode_number())
        .and_then(|at| at.inode.as_ref());
    let target = model.inodes.get(&at.inode);
    let is_xattr = key.kind() == Some(KeyKind::XattrEntry);
    let is_plain = owner.is_none_or(|owner| owner.flags & INODE_ENCRYPTED == 0);
    let is_possible = !matches!(name, b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
    if is_plain && !is_possible {
        faults.push(Fault::Contradiction("no file can have this name"));
    }
    if ![name_hash_r5(name), name_hash_test(name)].contains(&key.low()) {
        faults.push(Fault::Contradiction("its key is not the hash of the name"));
    }
    if owner.is_some_and(|owner| !is_xattr && owner.kind() != Some(EntryKind::Directory)) {
        faults.push(Fault::Contradiction("what has this name in it is no directory"));
    }
    if target.is_none() {
        faults.push(Fault::Contradiction("the inode that it names does not exist"));
    }
    if let Some(target) = target.and_then(|target| target.inode.as_ref()) {
        if !is_xattr && (at.kind.is_none() || target.kind() != at.kind) {
            faults.push(Fault::Contradiction(
                "it names a file of another kind than its inode is",
            ));
        }
        if is_xattr != (target.flags & INODE_XATTR != 0) {
            faults.push(Fault::Contradiction(
                "extended attributes and files can't be each other's inodes",
            ));
        }
    }
    faults
}

/// All inodes reachable by name from the root directory.
fn reachable(model: &Model) -> BTreeSet<InodeNumber> {
    let mut reached = BTreeSet::from([ROOT_INODE]);
    let mut pending = vec![ROOT_INODE];
    while let Some(number) = pending.pop() {
        let (first, last) = (
            Key::first(number, KeyKind::Entry),
            Key::last(number, KeyKind::Entry),
        );
        for (_, at) in model.names_between(first, last) {
            if reached.insert(at.inode) && at.kind == Some(EntryKind::Directory) {
                pending.push(at.inode);
            }
        }
    }
    reached
}

/// Checks blocks. Returns the files with lost blocks.
fn blocks(checker: &mut Checker<'_>, model: &Model) -> BTreeSet<InodeNumber> {
    let mut damaged = BTreeSet::new();
    for (key, at) in &model.blocks {
        let number = key.inode_number();
        checker.report.counts.blocks += 1;
        if !at.is_good {
            checker.report.counts.blocks_lost += 1;
            damaged.insert(number);
        }
        let mut tell = |why| {
            checker.tell(
                Area::Data,
                Some(number),
                Some(place(at.spot)),
                Fault::Contradiction(why),
            )
        };
        let Some(owner) = model.inodes.get(&number) else {
            tell("the inode that it belongs to does not exist");
            continue;
        };
        let Some(inode) = &owner.inode else { continue };
        if inode.kind() != Some(EntryKind::File) || inode.flags & INODE_XATTR != 0 {
            tell("what it belongs to is no regular file");
        } else if u64::from(key.low()) * u64::from(BLOCK_BYTES) >= inode.size_bytes {
            tell("it is behind the end of the file");
        }
    }
    damaged
}

fn count(checker: &mut Checker<'_>, inode: Option<&Inode>, tally: Tally, is_damaged: bool) {
    let counts = &mut checker.report.counts;
    if tally.is_xattr {
        return;
    }
    match inode.and_then(Inode::kind) {
        Some(EntryKind::Directory) => counts.directories += 1,
        _ => {
            counts.files += 1;
            counts.files_damaged += u64::from(is_damaged);
        }
    }
}

/// Checks the fields of an inode that can be judged in isolation.
fn fields(checker: &mut Checker<'_>, number: InodeNumber, spot: Spot, inode: &Inode) {
    let is_xattr = inode.flags & INODE_XATTR != 0;
    let kind = inode.kind();
    let (data, size) = (u64::from(inode.data_bytes), inode.size_bytes);
    let data_fits = match kind {
        // For an encrypted target, mkfs.ubifs stores the length before encryption, Linux the one after.
        Some(EntryKind::Symlink) if inode.flags & INODE_ENCRYPTED != 0 => data > 0,
        Some(EntryKind::Symlink) => data > 0 && size == data,
        Some(EntryKind::BlockDevice | EntryKind::CharacterDevice) => data == 4 || data == 8,
        Some(EntryKind::File) if is_xattr => size == data,
        _ => data == 0,
    };
    let rules = [
        (kind.is_some(), "its mode is no kind of file"),
        (
            size <= FILE_BYTES_MAX,
            "its size is more than 2 TiB, which no file can have",
        ),
        (
            inode.data_bytes <= INODE_DATA_BYTES_MAX,
            "it has more than 4096 bytes of data",
        ),
        (data_fits, "the data that it has do not fit its kind and size"),
        (
            Compression::from_number(inode.compression).is_some(),
            "its compressor is not known",
        ),
        (
            !is_xattr || kind == Some(EntryKind::File),
            "the value of an extended attribute is no regular file",
        ),
    ];
    for (good, why) in rules {
        if !good {
            checker.tell(
                Area::Inode,
                Some(number),
                Some(place(spot)),
                Fault::Contradiction(why),
            );
        }
    }
}

/// Checks the fields of an inode that follow from names.
fn numbers(
    checker: &mut Checker<'_>,
    number: InodeNumber,
    at: &InodeAt,
    inode: &Inode,
    tally: Tally,
    model: &Model,
) {
    let is_tainted = |kind| {
        model
            .damaged_names
            .iter()
            .any(|(key, _)| key.inode_number() == number && key.kind() == Some(kind))
    };
    let mut pairs: Vec<(&'static str, u64, u64)> = Vec::new();
    let links = u64::from(inode.links);
    if inode.kind() != Some(EntryKind::Directory) {
        pairs.push(("the number of its links", links, tally.names));
    } else {
        if !is_tainted(KeyKind::Entry) {
            pairs.push(("the number of its links", links, 2 + tally.folders));
            let bytes = INODE_BYTES + tally.entry_bytes;
            // As with link targets, mkfs.ubifs and Linux count different lengths for encrypted names.
            if inode.flags & INODE_ENCRYPTED == 0 {
                pairs.push(("the size of the directory", inode.size_bytes, bytes));
            }
        }
        let names = u64::from(number != ROOT_INODE);
        if tally.names > names {
            pairs.push(("the number of names of a directory", tally.names, names));
        }
    }
    if !is_tainted(KeyKind::XattrEntry) {
        pairs.extend([
            (
                "the number of its extended attributes",
                inode.xattr_count.into(),
                tally.xattrs,
            ),
            (
                "the space of its extended attributes",
                inode.xattr_bytes.into(),
                tally.xattr_bytes,
            ),
            (
                "the length of its extended attributes' names",
                inode.xattr_names_bytes.into(),
                tally.xattr_name_bytes,
            ),
        ]);
    }
    let wrong = pairs.into_iter().filter(|(_, found, expected)| found != expected);
    for (what, found, expected) in wrong {
        let fault = Fault::Value {
            what,
            found,
            expected,
        };
        checker.tell(Area::Inode, Some(number), Some(place(at.spot)), fault);
    }
}
