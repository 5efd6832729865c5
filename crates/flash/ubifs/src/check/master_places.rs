//! Whether Linux makes sense of the two LEBs of the master node.
//!
//! A mount goes by the last node of both LEBs where they are the same. Otherwise it takes their places as those that a cut in
//! writing the master node, or in making both LEBs equal again, leaves: the first LEB is always written before the second. It
//! refuses all others, whatever the nodes themselves say.

use super::Checker;
use super::fault::{Area, At, Fault};
use super::medium::{blank, to_usize};
use crate::format::{
    HEADER_BYTES, MAGIC, MASTER_LEB, MASTER_RECOVERED, Master, NodeKind, check as check_node,
};

/// A master node.
const NODE_BYTES: usize = 512;
/// Its keyed hash, which differs where the header does.
pub(super) const HMAC: std::ops::Range<usize> = 296..360;

/// A LEB of the master node: one node to a slot.
struct Slots<'a> {
    /// The slot of its last good node, and that node.
    last: Option<(usize, &'a [u8])>,
    /// Whether something that is no good node is in the slot behind it.
    is_torn: bool,
    /// How many slots it has.
    count: usize,
}

impl<'a> Slots<'a> {
    /// `None`: more is broken than one write explains.
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

    /// Whether the node in a slot is the last that the LEB has room for.
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

/// Whether the two LEBs are such that a mount finds the master node.
fn is_explained(first: &Slots<'_>, second: &Slots<'_>) -> bool {
    match (first.last, second.last) {
        // A recovery makes the first LEB anew, then the second.
        (Some((0, node)), _) if !first.is_torn && is_of_recovery(node) => true,
        (Some((one, node)), Some((two, other))) => match one == two {
            true => same(node, other),
            false => !first.is_torn && (one == two + 1 || one == 0 && second.is_end(two)),
        },
        // The second one was unmapped to begin anew.
        (Some((one, _)), None) => one == 0 && !first.is_torn,
        // The first one was.
        (None, Some((two, _))) => second.is_end(two),
        (None, None) => false,
    }
}

/// Tells where Linux would not mount the file system for its master nodes.
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
