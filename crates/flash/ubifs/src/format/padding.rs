//! Padding up to a write unit: a padding node if one fits, otherwise single padding bytes.
//!
//! Padding never extends past the write unit in which it starts. The recovery of Linux rewrites a journal LEB up to
//! the write unit of its last node, not counting padding, treats the space behind as free and continues there: whole
//! units of padding would leave a gap in the written area that no scan can cross. A unit without other content
//! therefore begins with a no-op node.

use super::{Group, HEADER_BYTES, NodeKind, PADDING_BYTE, Truncation, seal};

const NODE_BYTES: usize = HEADER_BYTES + 4;

/// Fills `space`, whose start and end are multiples of 8 in the LEB. A padding node has sequence number 0 and is
/// never replayed.
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

/// Whether a write unit of `unit` bytes can be filled by padding alone, that is, whether the no-op node fits.
#[must_use]
pub const fn fills_unit(unit: usize) -> bool {
    unit >= Truncation::BYTES
}

/// Fills `unit`, a write unit of the journal without other content.
///
/// # Panics
///
/// When the no-op node does not fit ([`fills_unit`]).
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
