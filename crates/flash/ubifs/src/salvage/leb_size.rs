//! The size of LEBs by the nodes of a bare volume: the index names LEB and offset of nodes that lie somewhere in the
//! file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use crate::format::{HEADER_BYTES, IndexNode, Key, MAGIC, NodeKind, check};
use crate::scan::to_usize;

/// Bytes that are read at once, and those kept from the piece before: the longest node that is looked at.
const PIECE_BYTES: usize = 1 << 20;
const OVERLAP_BYTES: usize = 16 << 10;
/// Nodes and branches that are remembered.
const NODES_MAX: usize = 1 << 18;
/// Sizes that are possible.
const SIZES: std::ops::RangeInclusive<u64> = 15 * 1024..=16 << 20;
/// Branches that must agree.
const VOTES_MIN: u32 = 3;

#[derive(Default)]
struct Nodes {
    /// Places of nodes by key and length; of several nodes the first one.
    leaves: HashMap<(Key, u32), u64>,
    /// Key and length of a node with its LEB and offset.
    branches: Vec<(Key, u32, u32, u32)>,
}

/// The size of LEBs that most branches of the index agree on.
///
/// # Errors
///
/// Fails if the file can't be read.
pub fn leb_bytes_of(file: &File) -> io::Result<Option<u32>> {
    let nodes = nodes_of(file)?;
    let mut votes: HashMap<u64, u32> = HashMap::new();
    for (key, bytes, leb, offset) in &nodes.branches {
        let Some(at) = nodes.leaves.get(&(*key, *bytes)) else {
            continue;
        };
        let before = at.checked_sub(u64::from(*offset)).filter(|_| *leb > 0);
        let Some(before) = before.filter(|before| before.is_multiple_of(u64::from(*leb))) else {
            continue;
        };
        let size = before / u64::from(*leb);
        let end = u64::from(*offset) + u64::from(*bytes);
        if SIZES.contains(&size) && size.is_multiple_of(8) && end <= size {
            *votes.entry(size).or_insert(0) += 1;
        }
    }
    let best = votes.into_iter().max_by_key(|(size, count)| (*count, *size));
    let size = best
        .filter(|(_, count)| *count >= VOTES_MIN)
        .map(|(size, _)| size);
    Ok(size.and_then(|size| u32::try_from(size).ok()))
}

fn nodes_of(file: &File) -> io::Result<Nodes> {
    let mut nodes = Nodes::default();
    let mut piece = vec![0; PIECE_BYTES];
    let mut start = 0_u64;
    loop {
        let filled = fill(file, start, &mut piece)?;
        let is_end = filled < piece.len();
        let until = if is_end { filled } else { filled - OVERLAP_BYTES };
        let next = nodes.add(&piece[..filled], until, start);
        if is_end || nodes.is_full() {
            return Ok(nodes);
        }
        start += u64::try_from(next).unwrap_or(u64::MAX);
    }
}

fn fill(file: &File, start: u64, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        let at = start + u64::try_from(filled).unwrap_or(u64::MAX);
        match file.read_at(&mut piece[filled..], at) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Nodes {
    fn is_full(&self) -> bool {
        self.leaves.len() >= NODES_MAX && self.branches.len() >= NODES_MAX
    }

    /// Adds the nodes that begin before `until`; returns where the next one begins.
    fn add(&mut self, piece: &[u8], until: usize, start: u64) -> usize {
        let magic = MAGIC.to_le_bytes();
        let mut at = 0;
        while at < until {
            let rest = &piece[at..];
            let rest = rest.get(..OVERLAP_BYTES).unwrap_or(rest);
            let header = match rest.len() >= HEADER_BYTES && rest.starts_with(&magic) {
                true => check(rest).ok(),
                false => None,
            };
            let Some(header) = header else {
                at += 8;
                continue;
            };
            let node = &rest[..to_usize(header.bytes)];
            match header.kind {
                NodeKind::Index if self.branches.len() < NODES_MAX => self.add_branches(node),
                NodeKind::Inode | NodeKind::Data | NodeKind::Entry | NodeKind::XattrEntry => {
                    let key = node.get(HEADER_BYTES..).and_then(Key::from_bytes);
                    if let Some(key) = key.filter(|_| self.leaves.len() < NODES_MAX) {
                        let place = start + u64::try_from(at).unwrap_or(0);
                        self.leaves.entry((key, header.bytes)).or_insert(place);
                    }
                }
                _ => {}
            }
            at += to_usize(header.aligned_bytes());
        }
        at
    }

    fn add_branches(&mut self, raw: &[u8]) {
        if let Some(node) = IndexNode::decode(raw).ok().filter(|node| node.level == 0) {
            let branches = node.branches.iter();
            self.branches
                .extend(branches.map(|branch| (branch.key, branch.bytes, branch.leb, branch.offset)));
        }
    }
}
