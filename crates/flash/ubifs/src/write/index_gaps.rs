//! Gaps between live index nodes: where a commit writes index nodes if no LEB is empty.
//!
//! An index LEB is rewritten in one atomic change, with live nodes at their old offsets and new ones between them.
//! The old index thus stays intact until the master node refers to the new one. The LEB of the index head is
//! excluded: the next commit appends to it.

use std::collections::BTreeMap;

use media::Leb;
use ubi::Volume;

use super::commit_index::Failed;
use super::space_table::SpaceTable;
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::{Finding, Place};
use crate::format::{NodeKind, pad};
use crate::index::{Step, damage_at};
use crate::scan::to_usize;
use crate::space::LebSpace;

/// Gaps in index LEBs, and new nodes placed in them.
#[derive(Clone, Default)]
pub(super) struct Gaps {
    lebs: Vec<GapLeb>,
}

#[derive(Clone)]
struct GapLeb {
    leb: u32,
    /// Live nodes, ordered by location.
    used: Vec<Place>,
    /// Remaining gaps: start and end.
    free: Vec<(u32, u32)>,
    /// New nodes with their offsets.
    nodes: Vec<(u32, Vec<u8>)>,
}

impl GapLeb {
    fn new(leb: u32, mut used: Vec<Place>, leb_bytes: u32) -> Self {
        used.sort_unstable();
        let (mut free, mut end) = (Vec::new(), 0);
        let places = used.iter().map(|node| (node.offset, node.bytes));
        for (offset, bytes) in places.chain([(leb_bytes, 0)]) {
            if offset > end {
                free.push((end, offset));
            }
            end = offset + bytes.next_multiple_of(8);
        }
        Self {
            leb,
            used,
            free,
            nodes: Vec::new(),
        }
    }

    /// Bytes of nodes guaranteed to fit into the gaps, whatever their lengths up to `largest`.
    fn bytes(&self, largest: u64) -> u64 {
        let gaps = self.free.iter().map(|(from, to)| u64::from(to - from));
        gaps.map(|bytes| bytes.saturating_sub(largest)).sum()
    }

    /// Reads the live nodes and checks their CRCs: nothing else of the LEB is preserved.
    fn kept(&self, volume: &dyn Volume) -> Result<Vec<Vec<u8>>, Box<Finding>> {
        let (mut kept, mut lost) = (Vec::new(), None);
        fetch::nodes(
            volume,
            &self.used,
            NodeKind::Index,
            &mut Vec::new(),
            &mut |number, node| match node {
                Ok(node) => kept.push(node.to_vec()),
                Err(damage) => lost = lost.take().or(Some((self.used[number], damage))),
            },
        );
        match lost {
            None => Ok(kept),
            Some((place, damage)) => Err(damage_at(place, damage)),
        }
    }

    /// The content with the new nodes, and the resulting lprops. `kept` are the live nodes.
    fn content(&self, kept: &[Vec<u8>], leb_bytes: u32, min_io_bytes: u32) -> (Vec<u8>, LebSpace) {
        let mut pieces: BTreeMap<usize, &[u8]> = BTreeMap::new();
        for (place, node) in self.used.iter().zip(kept) {
            pieces.insert(to_usize(place.offset), node);
        }
        for (offset, node) in &self.nodes {
            pieces.insert(to_usize(*offset), node);
        }
        let (mut content, mut in_use) = (Vec::new(), 0);
        let fill = |content: &mut Vec<u8>, to: usize| {
            let from = content.len();
            content.resize(to, 0);
            pad(&mut content[from..]);
        };
        for (offset, piece) in pieces {
            fill(&mut content, offset);
            content.extend_from_slice(piece);
            let end = content.len().next_multiple_of(8);
            content.resize(end, 0);
            in_use += end - offset;
        }
        let end = content.len().next_multiple_of(to_usize(min_io_bytes));
        fill(&mut content, end);
        let small = |bytes: usize| u32::try_from(bytes).expect("less than a LEB");
        let space = LebSpace {
            free: leb_bytes - small(end),
            dirty: small(end - in_use),
            index: true,
        };
        (content, space)
    }
}

impl Gaps {
    /// Returns a copy without the given LEBs.
    pub(super) fn without(&self, lebs: &[u32]) -> Self {
        let others = self.lebs.iter().filter(|gap| !lebs.contains(&gap.leb));
        Self {
            lebs: others.cloned().collect(),
        }
    }

    /// Allocates a gap for a node of `bytes`.
    pub(super) fn place(&mut self, bytes: u32) -> Option<(u32, u32)> {
        let aligned = bytes.next_multiple_of(8);
        self.lebs.iter_mut().find_map(|gap| {
            let free = gap.free.iter_mut().find(|(from, to)| to - *from >= aligned)?;
            let offset = free.0;
            free.0 += aligned;
            Some((gap.leb, offset))
        })
    }

    /// Puts a node into a gap.
    pub(super) fn append(&mut self, node: &[u8]) -> Option<Place> {
        let bytes = u32::try_from(node.len()).expect("less than a LEB");
        let (leb, offset) = self.place(bytes)?;
        let gap = self.lebs.iter_mut().find(|gap| gap.leb == leb)?;
        gap.nodes.push((offset, node.to_vec()));
        Some(Place { leb, offset, bytes })
    }

    /// Rewrites the LEBs that received nodes.
    pub(super) fn write(
        &self,
        volume: &dyn Volume,
        space: &mut SpaceTable,
        (leb_bytes, min_io_bytes): (u32, u32),
    ) -> Result<(), Failed> {
        for gap in self.lebs.iter().filter(|gap| !gap.nodes.is_empty()) {
            let (content, after) = gap.content(&gap.kept(volume)?, leb_bytes, min_io_bytes);
            volume.leb_change(Leb(gap.leb), &content)?;
            space.set(gap.leb, after);
        }
        Ok(())
    }
}

impl Writer {
    /// The gaps of all index LEBs except the one of the index head.
    pub(super) fn gaps(&self) -> Result<Gaps, WriteError> {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let head = self.index_head.map(|(leb, _)| leb);
        let mut used: BTreeMap<u32, Vec<Place>> = self
            .space
            .iter()
            .filter(|(leb, space)| space.index && space.free + space.dirty > 0 && Some(*leb) != head)
            .map(|(leb, _)| (leb, Vec::new()))
            .collect();
        let walked = self.ubifs.index.walk(&mut |step| {
            if let Step::Node(place) = step
                && let Some(nodes) = used.get_mut(&place.leb)
            {
                nodes.push(place);
            }
            Ok(())
        });
        walked.map_err(|(place, damage)| self.unreadable(damage_at(place, damage)))?;
        let lebs = used
            .into_iter()
            .map(|(leb, nodes)| GapLeb::new(leb, nodes, leb_bytes));
        Ok(Gaps { lebs: lebs.collect() })
    }

    /// Bytes of index nodes of up to `largest` bytes that the next commit can put into gaps; cached until then.
    pub(super) fn gap_bytes(&self, largest: u64) -> Result<u64, WriteError> {
        if let Some(bytes) = self.gap_bytes.get() {
            return Ok(*bytes);
        }
        let bytes = self.gaps()?.lebs.iter().map(|gap| gap.bytes(largest)).sum();
        Ok(*self.gap_bytes.get_or_init(|| bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{IndexBranch, IndexNode, InodeNumber, Key};
    use crate::scan::{Stop, scan};

    const LEB_BYTES: u32 = 2048;

    fn node(branches: u32) -> Vec<u8> {
        let branch = |number| IndexBranch {
            leb: number,
            offset: 0,
            bytes: 56,
            key: Key::inode(InodeNumber(number)),
            hash: Vec::new(),
        };
        let branches = (1..=branches).map(branch).collect();
        IndexNode { level: 0, branches }.encode(7)
    }

    const fn place(offset: u32, bytes: u32) -> Place {
        Place {
            leb: 20,
            offset,
            bytes,
        }
    }

    #[test]
    fn nodes_in_use_stay_where_they_are_and_new_ones_fill_the_gaps() {
        // Nodes of 48, 68 and 188 bytes; the second and the last but one are obsolete.
        let old: Vec<Vec<u8>> = [1, 2, 8, 1, 8, 2].map(node).to_vec();
        let (mut end, mut places) = (0, Vec::new());
        for node in &old {
            places.push((end, node.len()));
            end += node.len().next_multiple_of(8);
        }
        let small = |bytes: usize| u32::try_from(bytes).expect("small");
        let used: Vec<Place> = [0, 2, 3, 5]
            .map(|number: usize| places[number])
            .map(|(offset, bytes)| place(small(offset), small(bytes)))
            .to_vec();
        let kept = [0, 2, 3, 5].map(|number: usize| old[number].clone());
        let mut gaps = Gaps {
            lebs: vec![GapLeb::new(20, used, LEB_BYTES)],
        };
        assert!(gaps.without(&[20]).place(48).is_none());
        let new: Vec<Vec<u8>> = [8, 1, 8, 8].map(node).to_vec();
        let offsets: Vec<u32> = new
            .iter()
            .map(|node| gaps.append(node).expect("there is room").offset)
            .collect();
        // The large one does not fit into the gap of the second node, the small one does.
        assert_eq!(offsets[0], small(places[4].0));
        assert_eq!(offsets[1], small(places[1].0));
        let (content, space) = gaps.lebs[0].content(&kept, LEB_BYTES, 512);
        for number in [0, 2, 3, 5] {
            let (offset, bytes) = places[number];
            assert_eq!(
                content[offset..offset + bytes],
                old[number],
                "node {number} moved"
            );
        }
        for (offset, node) in offsets.iter().zip(&new) {
            let offset = to_usize(*offset);
            assert_eq!(content[offset..offset + node.len()], *node);
        }
        let mut leb = content.clone();
        leb.resize(to_usize(LEB_BYTES), 0xFF);
        let scanned = scan(&leb, 0);
        assert_eq!((scanned.nodes.len(), scanned.stop), (8, Stop::Erased));
        let in_use: usize = scanned
            .nodes
            .iter()
            .map(|found| to_usize(found.header.aligned_bytes()))
            .sum();
        assert_eq!(to_usize(space.free), to_usize(LEB_BYTES) - content.len());
        assert_eq!(to_usize(space.dirty), content.len() - in_use);
    }

    #[test]
    fn what_the_gaps_are_said_to_take_fits_whatever_the_lengths_are() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..500 {
            let (mut used, mut end) = (Vec::new(), 0);
            loop {
                let (gap, bytes) = (random.u32(0..60) * 8, random.u32(6..24) * 8);
                if end + gap + bytes > LEB_BYTES {
                    break;
                }
                used.push(place(end + gap, bytes));
                end += gap + bytes;
            }
            let mut gaps = Gaps {
                lebs: vec![GapLeb::new(20, used, LEB_BYTES)],
            };
            let promised = gaps.lebs[0].bytes(188);
            let mut taken = 0;
            while let Some(left) = promised.checked_sub(taken).filter(|left| *left > 0) {
                let bytes = random.u32(48..=188);
                assert!(
                    gaps.place(bytes).is_some(),
                    "{left} bytes of {promised} were left"
                );
                taken += u64::from(bytes.next_multiple_of(8));
            }
        }
    }
}
