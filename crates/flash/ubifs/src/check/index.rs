//! Walks the index level by level: checks the order of keys, levels and hashes, and that no two branches share a
//! location.

use std::collections::HashSet;

use super::Checker;
use super::fault::{Area, At, Fault};
use super::medium::Spot;
use crate::format::{IndexNode, Key, KeyKind, NodeKind};

/// A branch that refers to a leaf node.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) key: Key,
    pub(super) spot: Spot,
    pub(super) hash: Vec<u8>,
}

/// Nodes found by a walk of the index.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Ordered by location.
    pub(super) leaves: Vec<Leaf>,
    /// Locations of the index nodes.
    pub(super) nodes: Vec<Spot>,
    /// Whether a part of the index is lost.
    pub(super) is_torn: bool,
}

struct Step {
    spot: Spot,
    level: Option<u16>,
    /// Lower bound of the keys below it.
    low: Option<Key>,
    /// Upper bound of the keys below it.
    high: Option<Key>,
    hash: Vec<u8>,
}

/// Walks the index from its root.
pub(super) fn walk(checker: &mut Checker<'_>, root: Spot, root_hash: &[u8]) -> Walked {
    let mut walked = Walked::default();
    let mut seen = HashSet::new();
    let hash = match checker.hash {
        Some(hash) => root_hash.get(..hash.bytes()).unwrap_or_default().to_vec(),
        None => Vec::new(),
    };
    let mut level = vec![Step {
        spot: root,
        level: None,
        low: None,
        high: None,
        hash,
    }];
    while !level.is_empty() {
        // Sorted by location, so that each LEB is read once per level.
        level.sort_by_key(|step| step.spot);
        let mut below = Vec::new();
        for step in level {
            if !seen.insert(step.spot) {
                let fault = Fault::Contradiction("two branches of the index lead to this node");
                checker.tell(Area::Index, None, at(step.spot), fault);
                walked.is_torn = true;
                continue;
            }
            match load(checker, &step) {
                Ok(node) => {
                    walked.nodes.push(step.spot);
                    branches(checker, &step, node, &mut below, &mut walked.leaves);
                }
                Err(cause) => {
                    walked.is_torn = true;
                    let below = range_text(step.low, step.high);
                    let cause = Box::new(cause);
                    checker.tell(Area::Index, None, at(step.spot), Fault::Below { cause, below });
                }
            }
        }
        level = below;
    }
    walked.leaves.sort_by_key(|leaf| leaf.spot);
    overlaps(checker, &mut walked);
    walked
}

fn at(spot: Spot) -> Option<At> {
    Some(At {
        leb: spot.leb,
        offset: spot.offset,
    })
}

fn range_text(low: Option<Key>, high: Option<Key>) -> String {
    let name = |key: Key| {
        let kind = match key.kind() {
            Some(KeyKind::Inode) => "attributes",
            Some(KeyKind::Data) => "blocks",
            Some(KeyKind::Entry) => "names",
            Some(KeyKind::XattrEntry) => "extended attributes",
            None => "unknown keys",
        };
        format!("{kind} {:#x} of {}", key.low(), key.inode_number())
    };
    match (low, high) {
        (None, None) => "everything".to_owned(),
        (Some(low), None) => format!("from {} on", name(low)),
        (None, Some(high)) => format!("up to {}", name(high)),
        (Some(low), Some(high)) => format!("from {} to {}", name(low), name(high)),
    }
}

fn load(checker: &mut Checker<'_>, step: &Step) -> Result<IndexNode, Fault> {
    let hash = checker.hash;
    checker.main_area(step.spot)?;
    let raw = checker.medium.node(step.spot, NodeKind::Index)?;
    checker.sequences.add_of_index(raw, step.spot);
    let is_genuine = hash.is_none_or(|hash| hash.matches(raw, &step.hash));
    let node = IndexNode::decode(raw)?;
    if !is_genuine {
        return Err(Fault::Hash);
    }
    if let Some(level) = step.level.filter(|level| *level != node.level) {
        return Err(Fault::Value {
            what: "the level of the node",
            found: node.level.into(),
            expected: level.into(),
        });
    }
    let fanout = u64::from(checker.superblock.fanout);
    let branches = u64::try_from(node.branches.len()).unwrap_or(u64::MAX);
    if branches > fanout {
        return Err(Fault::Value {
            what: "the number of branches",
            found: branches,
            expected: fanout,
        });
    }
    // The hash length of an unknown algorithm is taken from the node itself.
    let expected = match (checker.is_authenticated(), hash) {
        (false, _) => 0,
        (true, Some(hash)) => hash.bytes(),
        (true, None) => node.branches.first().map_or(0, |branch| branch.hash.len()),
    };
    if node.branches.iter().any(|branch| branch.hash.len() != expected) {
        return Err(Fault::Contradiction(
            "its branches are of another length than they should be",
        ));
    }
    Ok(node)
}

/// Checks the keys of a node and queues its branches.
fn branches(
    checker: &mut Checker<'_>,
    step: &Step,
    node: IndexNode,
    below: &mut Vec<Step>,
    leaves: &mut Vec<Leaf>,
) {
    let keys: Vec<Key> = node.branches.iter().map(|branch| branch.key).collect();
    let outside =
        |key: &Key| step.low.is_some_and(|low| *key < low) || step.high.is_some_and(|high| *key > high);
    if keys.iter().any(outside) {
        let fault = Fault::Contradiction("a key is not between those that the node above it says");
        checker.tell(Area::Index, None, at(step.spot), fault);
    }
    let is_name = |key: &Key| matches!(key.kind(), Some(KeyKind::Entry | KeyKind::XattrEntry));
    if node.level == 0
        && keys
            .windows(2)
            .any(|pair| pair[0] == pair[1] && !is_name(&pair[0]))
    {
        let fault = Fault::Contradiction("a key that can be there once is there twice");
        checker.tell(Area::Index, None, at(step.spot), fault);
    }
    for (number, branch) in node.branches.into_iter().enumerate() {
        let spot = Spot {
            leb: branch.leb,
            offset: branch.offset,
            bytes: branch.bytes,
        };
        if node.level == 0 {
            leaves.push(Leaf {
                key: branch.key,
                spot,
                hash: branch.hash,
            });
            continue;
        }
        below.push(Step {
            spot,
            level: Some(node.level - 1),
            low: Some(branch.key),
            high: keys.get(number + 1).copied().or(step.high),
            hash: branch.hash,
        });
    }
}

/// Checks that no byte belongs to two nodes.
fn overlaps(checker: &mut Checker<'_>, walked: &mut Walked) {
    let index = walked.nodes.iter().copied();
    let mut spots: Vec<Spot> = index.chain(walked.leaves.iter().map(|leaf| leaf.spot)).collect();
    spots.sort_unstable();
    for pair in spots.windows(2) {
        let (one, next) = (pair[0], pair[1]);
        if one.leb == next.leb && one.end() > u64::from(next.offset) {
            let fault = Fault::Contradiction("two branches of the index lead to the same bytes");
            checker.tell(Area::Index, None, at(next), fault);
        }
    }
}
