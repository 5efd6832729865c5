//! Loads the model: reads every node that the index refers to, LEB by LEB.
//!
//! Nodes that the journal replaced or deleted may be gone: garbage collection unmaps a LEB once it holds no live
//! node, and the index on the medium catches up only at the next commit. Unreadable nodes are therefore reported
//! after the journal was applied, and only if they are still live.

use std::collections::BTreeSet;

use super::Checker;
use super::fault::{Area, At, Fault};
use super::index::{Leaf, Walked};
use super::medium::Spot;
use super::model::{BlockAt, InodeAt, Model, NameAt};
use crate::format::{Data, DirectoryEntry, EntryKind, Inode, InodeNumber, Key, KeyKind, NodeKind};

/// An unreadable node.
pub(super) struct Unread {
    key: Key,
    spot: Spot,
    fault: Fault,
}

/// Reads every node that the index refers to.
pub(super) fn load(checker: &mut Checker<'_>, walked: &Walked, model: &mut Model) -> Vec<Unread> {
    let mut unread = Vec::new();
    let highest = checker.master.highest_inode;
    for leaf in &walked.leaves {
        if u64::from(leaf.key.inode_number().0) > highest {
            let fault = Fault::Value {
                what: "the inode number, above the largest that the master node knows,",
                found: leaf.key.inode_number().0.into(),
                expected: highest,
            };
            checker.tell(Area::Index, None, Some(place(leaf.spot)), fault);
        }
        if let Err(fault) = one(checker, leaf, model) {
            unread.push(Unread {
                key: leaf.key,
                spot: leaf.spot,
                fault,
            });
        }
    }
    unread
}

fn place(spot: Spot) -> At {
    At {
        leb: spot.leb,
        offset: spot.offset,
    }
}

fn one(checker: &mut Checker<'_>, leaf: &Leaf, model: &mut Model) -> Result<(), Fault> {
    let (key, spot) = (leaf.key, leaf.spot);
    let number = key.inode_number();
    match key.kind() {
        Some(KeyKind::Inode) => {
            let inode = node(checker, leaf, NodeKind::Inode)
                .and_then(|raw| Ok(Inode::decode(raw)?))
                .and_then(|inode| same_key(inode.key, key).map(|()| inode));
            let (inode, result) = match inode {
                Ok(mut inode) => {
                    inode.data = Vec::new();
                    (Some(Box::new(inode)), Ok(()))
                }
                Err(fault) => (None, Err(fault)),
            };
            model.inodes.insert(number, InodeAt { spot, inode });
            result
        }
        Some(KeyKind::Data) => {
            let data = node(checker, leaf, NodeKind::Data)
                .and_then(|raw| Ok(Data::decode(raw)?))
                .and_then(|data| same_key(data.key, key).map(|()| data));
            let result = data.and_then(|data| checker.unpack(&data));
            let is_good = result.is_ok();
            model.blocks.insert(key, BlockAt { spot, is_good });
            result
        }
        Some(kind @ (KeyKind::Entry | KeyKind::XattrEntry)) => {
            let node_kind = match kind {
                KeyKind::Entry => NodeKind::Entry,
                _ => NodeKind::XattrEntry,
            };
            let entry = node(checker, leaf, node_kind)
                .and_then(|raw| Ok(DirectoryEntry::decode(raw, node_kind)?))
                .and_then(|entry| same_key(entry.key, key).map(|()| entry));
            let entry = entry.inspect_err(|_| model.damaged_names.push((key, spot)))?;
            let at = NameAt {
                spot,
                inode: InodeNumber(u32::try_from(entry.inode).unwrap_or(u32::MAX)),
                kind: EntryKind::from_number(entry.kind),
            };
            match model.names.insert((key, entry.name), at) {
                None => Ok(()),
                Some(_) => Err(Fault::Contradiction("the name is there twice")),
            }
        }
        None => Err(Fault::Contradiction("no key has such a kind")),
    }
}

fn same_key(found: Key, expected: Key) -> Result<(), Fault> {
    match found == expected {
        true => Ok(()),
        false => Err(Fault::Contradiction(
            "its key is not the one of the branch that leads to it",
        )),
    }
}

fn node<'c>(checker: &'c mut Checker<'_>, leaf: &Leaf, kind: NodeKind) -> Result<&'c [u8], Fault> {
    checker.main_area(leaf.spot)?;
    let hash = checker.hash;
    let raw = checker.medium.node(leaf.spot, kind)?;
    checker.sequences.add_of_index(raw, leaf.spot);
    match hash.is_none_or(|hash| hash.matches(raw, &leaf.hash)) {
        true => Ok(raw),
        false => Err(Fault::Hash),
    }
}

/// Reports unreadable nodes that are still live.
pub(super) fn tell_unread(
    checker: &mut Checker<'_>,
    model: &mut Model,
    unread: Vec<Unread>,
    replaced: &BTreeSet<Key>,
) {
    // A name with the same hash in the journal may have replaced the unreadable one.
    model.damaged_names.retain(|(key, _)| !replaced.contains(key));
    for Unread { key, spot, fault } in unread {
        let (area, counts) = match key.kind() {
            Some(KeyKind::Inode) => {
                let at = model.inodes.get(&key.inode_number());
                (Area::Inode, at.is_some_and(|at| at.spot == spot))
            }
            Some(KeyKind::Data) => {
                let at = model.blocks.get(&key);
                (Area::Data, at.is_some_and(|at| at.spot == spot))
            }
            Some(KeyKind::Entry) => (Area::Entry, still_counts(model, key, spot)),
            Some(KeyKind::XattrEntry) => (Area::Xattr, still_counts(model, key, spot)),
            None => (Area::Index, true),
        };
        if counts {
            model.tainted.insert(key.inode_number());
            checker.tell(area, Some(key.inode_number()), Some(place(spot)), fault);
        }
    }
}

fn still_counts(model: &Model, key: Key, spot: Spot) -> bool {
    let is_damaged = model.damaged_names.contains(&(key, spot));
    let mut same_key = model.names_between(key, key);
    is_damaged || same_key.any(|(_, at)| at.spot == spot)
}
