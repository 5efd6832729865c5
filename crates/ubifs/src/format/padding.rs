//! What fills up a write unit: a padding node where one fits, single bytes where it does not.

use super::{Group, HEADER_BYTES, NodeKind, PADDING_BYTE, seal};

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
}
