//! Builds the index: sorted leaves, then rows of index nodes from the bottom up.

use crate::finding::Place;
use crate::format::{IndexBranch, IndexNode, Key};
use crate::scan::to_usize;

/// A leaf node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leaf {
    pub(super) key: Key,
    /// The name of an entry, to order equal hashes; empty for other nodes.
    pub(super) name: Vec<u8>,
    pub(super) place: Place,
}

/// Result of writing the index.
pub(super) struct Written {
    pub(super) root: Place,
    /// Length of all its nodes, aligned.
    pub(super) bytes: u64,
}

/// Writes the index. `append` writes a node and returns its location; `leaves` must not be empty.
pub(super) fn write<E>(
    mut leaves: Vec<Leaf>,
    fanout: u32,
    append: &mut dyn FnMut(&IndexNode) -> Result<Place, E>,
) -> Result<Written, E> {
    leaves.sort();
    let mut row: Vec<IndexBranch> = leaves.iter().map(|leaf| branch(leaf.place, leaf.key)).collect();
    let mut bytes = 0;
    for level in 0.. {
        let mut upper = Vec::new();
        for branches in row.chunks(to_usize(fanout)) {
            let key = branches[0].key;
            let node = IndexNode {
                level,
                branches: branches.to_vec(),
            };
            let place = append(&node)?;
            bytes += u64::from(place.bytes.next_multiple_of(8));
            upper.push(branch(place, key));
        }
        if let [root] = upper.as_slice() {
            let root = Place {
                leb: root.leb,
                offset: root.offset,
                bytes: root.bytes,
            };
            return Ok(Written { root, bytes });
        }
        row = upper;
    }
    unreachable!("each row is shorter than the one below")
}

fn branch(place: Place, key: Key) -> IndexBranch {
    IndexBranch {
        leb: place.leb,
        offset: place.offset,
        bytes: place.bytes,
        key,
        hash: Vec::new(),
    }
}
