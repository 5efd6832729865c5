//! Checks that the end of a journal head is the one that Linux finds when it recovers the last LEB. Linux keeps the
//! write units up to the one of the last node, not counting padding, and treats everything behind the end of its
//! scan, which includes padding, as free: both must be the same offset, or a gap precedes its next write.

use std::sync::Arc;

use ubi::{Volume, VolumeError};
use ubifs::format::{NodeKind, PADDING_BYTE, check};
use ubifs::{BudReport, OpenOptions, Ubifs};

/// Summary of the journal heads of a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heads {
    /// Heads that a recovery examines.
    pub recovered: usize,
    /// Their write units that contain nothing but a no-op node.
    pub filled_units: usize,
}

/// Checks each head that a mount would recover.
pub fn assert_ends_are_those_of_linux(volume: &Arc<dyn Volume>, what: &str) -> Heads {
    let ubifs = Ubifs::open(Arc::clone(volume), OpenOptions::standard());
    let ubifs = ubifs.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut heads = Heads::default();
    for bud in ubifs.replay_report().buds.iter().filter(|bud| bud.may_be_torn) {
        heads.recovered += 1;
        heads.filled_units += assert_end(volume, bud, what);
    }
    heads
}

fn assert_end(volume: &Arc<dyn Volume>, bud: &BudReport, what: &str) -> usize {
    let geometry = volume.geometry();
    let [start, unit, leb_bytes] = [bud.offset, geometry.min_io_bytes, geometry.leb_bytes]
        .map(|bytes| usize::try_from(bytes).expect("small"));
    let mut raw = vec![0; leb_bytes];
    match volume.read(media::Leb(bud.leb), 0, &mut raw) {
        Ok(()) | Err(VolumeError::Uncorrectable { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
    }
    // Ends of the nodes, and of the scan, which includes padding.
    let (mut at, mut ends, mut filled) = (start, Vec::new(), 0);
    while at < raw.len() {
        if raw[at] == PADDING_BYTE {
            at = at.next_multiple_of(unit);
            continue;
        }
        let Ok(header) = check(&raw[at..]) else { break };
        if header.kind == NodeKind::Padding {
            let behind = raw[at + 24..at + 28].try_into().expect("four bytes");
            at += usize::try_from(header.bytes + u32::from_le_bytes(behind)).expect("small");
        } else {
            filled += usize::from(header.kind == NodeKind::Truncation && at.is_multiple_of(unit));
            at += usize::try_from(header.aligned_bytes()).expect("small");
            ends.push(at);
        }
    }
    let kept = ends[..bud.nodes].last().copied().unwrap_or(start);
    let scanned = match bud.dropped_nodes.iter().map(|node| node.offset).min() {
        Some(dropped) => usize::try_from(dropped).expect("small"),
        None => at,
    };
    assert_eq!(
        kept.next_multiple_of(unit),
        scanned.next_multiple_of(unit),
        "{what}: LEB {}, head {}: Linux keeps it up to the first and goes on at the second",
        bud.leb,
        bud.head
    );
    filled
}
