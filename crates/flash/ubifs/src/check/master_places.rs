//! Checks whether Linux accepts the positions of the master nodes in their two LEBs.
//!
//! If the last nodes of both LEBs are equal, a mount uses them. Otherwise it accepts only positions that a power cut
//! leaves while the master node is written, or while the LEBs are made equal again: the first LEB is always written
//! before the second. It refuses all others, whatever the nodes say.

use super::Checker;
use super::fault::{Area, At, Fault};
use super::medium::{blank, to_usize};
use crate::format::{
    HEADER_BYTES, MAGIC, MASTER_LEB, MASTER_RECOVERED, Master, NodeKind, check as check_node,
};

/// Size of a master node.
const NODE_BYTES: usize = 512;
/// Its keyed hash, which depends on the header.
pub(super) const HMAC: std::ops::Range<usize> = 296..360;

/// A master LEB: one node per slot.
struct Slots<'a> {
    /// The last valid node and its slot.
    last: Option<(usize, &'a [u8])>,
    /// Whether the slot behind it holds an invalid node.
    is_torn: bool,
    /// Number of slots.
    count: usize,
}

impl<'a> Slots<'a> {
    /// `None` if more is damaged than a single torn write explains.
    fn of(leb: &'a [u8], slot_bytes: usize) -> Option<Self> {
        let slots: Vec<&[u8]> = leb.chunks_exact(slot_bytes).collect();
        let has_header = |slot: &&&[u8]| slot.starts_with(&MAGIC.to_le_bytes());
        let written = slots.iter().take_while(has_header).count();
        let is_good = |slot: &usize| check_node(slots[*slot]).is_ok();
        let last = (written.saturating_sub(2)..written).rev().find(is_good);
        if last.is_none() && written > 1 {
            return None;
        }
        let last = last.map(|slot| (slot, slots[slot]));
        let is_other =
            |(_, node): (usize, &[u8])| check_node(node).is_ok_and(|header| header.kind != NodeKind::Master);
        let mut behind = slots.iter().skip(last.map_or(0, |(slot, _)| slot + 1));
        let is_torn = behind.next().is_some_and(|slot| !blank(slot));
        match last.is_some_and(is_other) || behind.any(|slot| !blank(slot)) {
            true => None,
            false => Some(Self {
                last,
                is_torn,
                count: slots.len(),
            }),
        }
    }

    /// Whether `slot` is the last one of the LEB.
    const fn is_end(&self, slot: usize) -> bool {
        slot + 1 == self.count
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    one[HEADER_BYTES..HMAC.start] == other[HEADER_BYTES..HMAC.start]
        && one[HMAC.end..NODE_BYTES] == other[HMAC.end..NODE_BYTES]
}

fn is_of_recovery(node: &[u8]) -> bool {
    Master::decode(node).is_ok_and(|master| master.flags & MASTER_RECOVERED != 0)
}

/// Whether a mount accepts the positions of the master nodes.
fn is_explained(first: &Slots<'_>, second: &Slots<'_>) -> bool {
    match (first.last, second.last) {
        // A recovery rewrites the first LEB, then the second.
        (Some((0, node)), _) if !first.is_torn && is_of_recovery(node) => true,
        (Some((one, node)), Some((two, other))) => match one == two {
            true => same(node, other),
            false => !first.is_torn && (one == two + 1 || one == 0 && second.is_end(two)),
        },
        // The second LEB was unmapped to start anew.
        (Some((one, _)), None) => one == 0 && !first.is_torn,
        // The first LEB was unmapped to start anew.
        (None, Some((two, _))) => second.is_end(two),
        (None, None) => false,
    }
}

/// Reports master node positions that Linux refuses to mount.
pub(super) fn check(checker: &mut Checker<'_>) {
    let unit = to_usize(checker.superblock.min_io_bytes.max(8));
    let slot_bytes = NODE_BYTES.next_multiple_of(unit);
    let leb = |checker: &mut Checker<'_>, leb| checker.medium.leb(leb).map(<[u8]>::to_vec);
    let (Ok(one), Ok(two)) = (leb(checker, MASTER_LEB), leb(checker, MASTER_LEB + 1)) else {
        return;
    };
    let slots = (Slots::of(&one, slot_bytes), Slots::of(&two, slot_bytes));
    if let (Some(first), Some(second)) = &slots
        && is_explained(first, second)
    {
        return;
    }
    let place = |slots: &Option<Slots<'_>>| {
        let last = slots.as_ref().and_then(|slots| slots.last);
        last.map(|(slot, _)| u32::try_from(slot * slot_bytes).expect("inside of a LEB"))
    };
    let at = At {
        leb: MASTER_LEB,
        offset: place(&slots.0).unwrap_or(0),
    };
    let fault = Fault::Contradiction(
        "no power cut leaves the two master nodes where they are: Linux refuses to mount the file system",
    );
    checker.tell(Area::Master, None, Some(at), fault);
}
