//! Padding up to a write unit: a padding node where one fits, single bytes where it does not.
//!
//! Padding ends where its write unit ends. The recovery of Linux writes a LEB of the journal anew up to the write unit of its last
//! node, padding being none, and counts the space behind the padding as free and goes on there: whole units of padding would be a
//! gap in what is written, which no scan gets over. A unit that holds nothing else begins with a node that changes nothing.

use super::{Group, HEADER_BYTES, NodeKind, PADDING_BYTE, Truncation, seal};

const NODE_BYTES: usize = HEADER_BYTES + 4;

/// Fills `space`, which starts and ends at multiples of 8 in its LEB. A padding node has sequence number 0: it is never
/// replayed.
///
/// # Panics
///
/// When `space` is 4 GiB or longer.
pub fn pad(space: &mut [u8]) {
    let Some(behind) = space.len().checked_sub(NODE_BYTES) else {
        space.fill(PADDING_BYTE);
        return;
    };
    let behind = u32::try_from(behind).expect("a LEB is smaller than 4 GiB");
    let (node, rest) = space.split_at_mut(NODE_BYTES);
    node[HEADER_BYTES..].copy_from_slice(&behind.to_le_bytes());
    seal(node, NodeKind::Padding, Group::None, 0);
    rest.fill(0);
}

/// Whether a write unit of that many bytes can be filled without anything else in it.
#[must_use]
pub const fn fills_unit(unit: usize) -> bool {
    unit >= Truncation::BYTES
}

/// Fills `unit`, a write unit of the journal in which nothing else is.
///
/// # Panics
///
/// When it does not take the node ([`fills_unit`]).
pub fn pad_unit(unit: &mut [u8], sequence: u64) {
    let (node, rest) = unit.split_at_mut(Truncation::BYTES);
    node.copy_from_slice(&Truncation::OF_NOTHING.encode(sequence, Group::None));
    pad(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Stop, scan};

    #[test]
    fn a_leb_that_is_all_padding_scans_to_its_end() {
        for bytes in (0..=200).step_by(8) {
            let mut leb = vec![0xFF; 4096];
            pad(&mut leb[..bytes]);
            let found = scan(&leb, 0);
            assert!(found.nodes.is_empty());
            assert_eq!((found.end, found.stop), (bytes, Stop::Erased));
        }
    }

    #[test]
    fn a_unit_with_nothing_else_in_it_begins_with_a_node() {
        for bytes in [56, 64, 512, 2048] {
            assert!(fills_unit(bytes));
            let mut leb = vec![0xFF; 4096];
            pad_unit(&mut leb[..bytes], 7);
            let found = scan(&leb, 0);
            let nodes: Vec<_> = found.nodes.iter().map(|node| node.offset).collect();
            assert_eq!((nodes, found.end, found.stop), (vec![0], bytes, Stop::Erased));
        }
        assert!(!fills_unit(8));
    }
}
