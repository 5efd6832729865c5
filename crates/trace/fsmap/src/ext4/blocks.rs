//! Claims on the blocks of an inode: extent trees, and the block maps of ext2 and ext3.
//!
//! Each tree node is descended once, however many pointers lead to it: so a damaged file system can't make a walk
//! longer than its medium. Node and claim counts are bounded by inodes and distinct nodes.

use std::collections::HashSet;

use super::inode::Inode;
use super::medium::Medium;
use crate::block_type::BlockType;
use crate::bytes::{count, index, joined, le16, le32};
use crate::checksum::crc32c;
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, Content, Rank, push_joined};

const EXTENT_MAGIC: u16 = 0xF30A;
/// Maximum depth of a tree, as in the kernel.
const DEPTH_MAX: u16 = 5;
/// A longer extent has this many blocks fewer, and is unwritten.
const WRITTEN_MAX: u16 = 32768;
const ENTRY: usize = 12;

/// Owner, type and rank of the blocks to claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub file: u32,
    pub inode: u64,
    pub kind: BlockType,
    pub rank: Rank,
    /// Seed of the checksums of tree nodes.
    pub seed: u32,
}

/// Result of the walks.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub claims: Vec<Claim>,
    /// Blocks of tree nodes that have been descended.
    pub nodes: HashSet<u64>,
}

impl Walk {
    fn claim(
        &mut self,
        medium: &Medium,
        owner: &Owner,
        logical: u64,
        block: u64,
        blocks: u64,
        content: Content,
    ) {
        let claim = Claim {
            start: medium.byte_of(block),
            length: medium.byte_of(blocks),
            file_offset: medium.byte_of(logical),
            file: owner.file,
            kind: owner.kind,
            content,
            rank: owner.rank,
            shared: false,
        };
        push_joined(&mut self.claims, claim);
    }

    /// Claims a node and reads it; `None` if it was claimed before or can't be read.
    fn node(
        &mut self,
        medium: &Medium,
        owner: &Owner,
        kind: BlockType,
        (logical, block): (u64, u64),
        findings: &mut Findings,
    ) -> Option<Vec<u8>> {
        let place = Place::Tree {
            inode: owner.inode,
            byte: Some(medium.byte_of(block)),
        };
        if !medium.holds(block, 1) {
            out_of_range(medium, owner, None, block, 1, findings);
            return None;
        }
        if !self.nodes.insert(block) {
            findings.add(
                FindingKind::Loop,
                place,
                "a node of one tree",
                "one that was met before",
            );
            return None;
        }
        let kind = if owner.rank == Rank::Stale {
            BlockType::Deleted
        } else {
            kind
        };
        self.claim(
            medium,
            &Owner { kind, ..*owner },
            logical,
            block,
            1,
            Content::Written,
        );
        medium.read_block(block, &place, findings)
    }

    /// Claims all blocks of an inode.
    pub(crate) fn inode(
        &mut self,
        medium: &Medium,
        inode: &Inode<'_>,
        owner: &Owner,
        findings: &mut Findings,
    ) {
        if inode.has_extents() {
            let place = Place::Tree {
                inode: inode.number,
                byte: None,
            };
            self.extents(medium, owner, inode.blocks_field(), None, 0, &place, findings);
        } else {
            self.block_map(medium, owner, inode.blocks_field(), findings);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "a recursion whose state is these values"
    )]
    fn extents(
        &mut self,
        medium: &Medium,
        owner: &Owner,
        node: &[u8],
        depth_expected: Option<u16>,
        mut logical_min: u64,
        place: &Place,
        findings: &mut Findings,
    ) {
        let (magic, entries, room, depth) = (le16(node, 0), le16(node, 2), le16(node, 4), le16(node, 6));
        let room_max = (node.len().saturating_sub(ENTRY)) / ENTRY;
        let fits = magic == EXTENT_MAGIC
            && entries <= room
            && usize::from(room) <= room_max
            && depth <= DEPTH_MAX
            && depth_expected.is_none_or(|expected| expected == depth);
        if !fits {
            let wanted =
                depth_expected.map_or_else(|| format!("0 to {DEPTH_MAX}"), |depth| depth.to_string());
            findings.add(
                FindingKind::Field,
                place.clone(),
                format!("magic 0xf30a, depth {wanted}, at most {room_max} entries"),
                format!("magic {magic:#06x}, depth {depth}, {entries} of {room} entries"),
            );
            return;
        }
        let owner = self.checked_owner(medium, owner, node, room, depth_expected, place, findings);
        for entry in 1..=usize::from(entries) {
            let raw = node.get(entry * ENTRY..(entry + 1) * ENTRY).unwrap_or_default();
            let logical = u64::from(le32(raw, 0));
            let in_order = logical >= logical_min;
            if !in_order {
                findings.add(
                    FindingKind::Field,
                    place.clone(),
                    format!("entry {entry} from block {logical_min} of the file on"),
                    format!("from block {logical}"),
                );
            }
            let rank = if in_order {
                owner.rank
            } else {
                owner.rank.min(Rank::Doubtful)
            };
            let owner = Owner { rank, ..owner };
            if depth == 0 {
                logical_min = logical + self.leaf(medium, &owner, raw, logical, place, findings);
                continue;
            }
            let block = joined(le32(raw, 4), u32::from(le16(raw, 8)));
            logical_min = logical + 1;
            if let Some(child) = self.node(medium, &owner, BlockType::ExtentTree, (logical, block), findings)
            {
                let place = Place::Tree {
                    inode: owner.inode,
                    byte: Some(medium.byte_of(block)),
                };
                self.extents(medium, &owner, &child, Some(depth - 1), logical, &place, findings);
            }
        }
    }

    /// Claims the blocks of one leaf entry; returns the number of file blocks that it covers.
    fn leaf(
        &mut self,
        medium: &Medium,
        owner: &Owner,
        raw: &[u8],
        logical: u64,
        place: &Place,
        findings: &mut Findings,
    ) -> u64 {
        let length = le16(raw, 4);
        let block = joined(le32(raw, 8), u32::from(le16(raw, 6)));
        let (blocks, content) = if length > WRITTEN_MAX {
            (u64::from(length - WRITTEN_MAX), Content::Unwritten)
        } else {
            (u64::from(length), Content::Written)
        };
        if blocks == 0 || !medium.holds(block, blocks) {
            out_of_range(medium, owner, Some(place), block, blocks, findings);
        } else {
            self.claim(medium, owner, logical, block, blocks, content);
        }
        blocks
    }

    /// The owner, with a lower rank if the node's checksum is wrong. The root is covered by the checksum of its inode.
    #[expect(clippy::too_many_arguments, reason = "a part of the recursion above")]
    fn checked_owner(
        &self,
        medium: &Medium,
        owner: &Owner,
        node: &[u8],
        room: u16,
        depth_expected: Option<u16>,
        place: &Place,
        findings: &mut Findings,
    ) -> Owner {
        if !medium.checksums || depth_expected.is_none() {
            return *owner;
        }
        let end = ENTRY + usize::from(room) * ENTRY;
        let computed = crc32c(owner.seed, node.get(..end).unwrap_or_default());
        let stored = le32(node, end);
        if computed == stored {
            return *owner;
        }
        findings.add(
            FindingKind::Checksum,
            place.clone(),
            format!("checksum {stored:#010x} as the node says"),
            format!("{computed:#010x}"),
        );
        Owner {
            rank: owner.rank.min(Rank::Doubtful),
            ..*owner
        }
    }

    fn block_map(&mut self, medium: &Medium, owner: &Owner, field: &[u8], findings: &mut Findings) {
        let per_block = medium.block_bytes() / 4;
        let mut logical = 0;
        for slot in 0..15 {
            let level = u32::try_from(slot).map_or(0, |slot: u32| slot.saturating_sub(11));
            let covered = per_block.pow(level);
            self.pointer(
                medium,
                owner,
                u64::from(le32(field, slot * 4)),
                level,
                logical,
                findings,
            );
            logical += covered;
        }
    }

    fn pointer(
        &mut self,
        medium: &Medium,
        owner: &Owner,
        block: u64,
        level: u32,
        logical: u64,
        findings: &mut Findings,
    ) {
        if block == 0 {
            return;
        }
        if level == 0 {
            if medium.holds(block, 1) {
                self.claim(medium, owner, logical, block, 1, Content::Written);
            } else {
                out_of_range(medium, owner, None, block, 1, findings);
            }
            return;
        }
        let Some(node) = self.node(
            medium,
            owner,
            BlockType::IndirectBlock,
            (logical, block),
            findings,
        ) else {
            return;
        };
        let covered = (medium.block_bytes() / 4).pow(level - 1);
        for (slot, pointer) in (0_u64..).zip(node.chunks_exact(4)) {
            let block = u64::from(le32(pointer, 0));
            self.pointer(
                medium,
                owner,
                block,
                level - 1,
                logical + slot * covered,
                findings,
            );
        }
    }

    /// Claims the only block of the resize inode that is not among the reserved descriptors.
    pub(crate) fn resize_inode(&mut self, medium: &Medium, inode: &Inode<'_>, owner: &Owner) {
        const DOUBLE_INDIRECT: usize = 13;
        let block = u64::from(le32(inode.blocks_field(), DOUBLE_INDIRECT * 4));
        if block != 0 && medium.holds(block, 1) {
            let owner = Owner {
                kind: BlockType::IndirectBlock,
                ..*owner
            };
            self.claim(medium, &owner, 0, block, 1, Content::Written);
        }
    }

    /// Claims the block of extended attributes, which several files may share.
    pub(crate) fn xattr_block(
        &mut self,
        medium: &Medium,
        inode: &Inode<'_>,
        owner: &Owner,
        findings: &mut Findings,
    ) {
        let block = inode.xattr_block();
        if block == 0 {
            return;
        }
        if !medium.holds(block, 1) {
            out_of_range(medium, owner, None, block, 1, findings);
            return;
        }
        self.claims.push(Claim {
            start: medium.byte_of(block),
            length: medium.block_bytes(),
            file_offset: 0,
            file: owner.file,
            kind: BlockType::Xattr,
            content: Content::Written,
            rank: owner.rank,
            shared: true,
        });
    }
}

fn out_of_range(
    medium: &Medium,
    owner: &Owner,
    place: Option<&Place>,
    block: u64,
    blocks: u64,
    findings: &mut Findings,
) {
    let place = place.cloned().unwrap_or(Place::Inode(owner.inode));
    findings.add(
        FindingKind::OutOfRange,
        place,
        format!("blocks below {}", medium.superblock.blocks),
        format!("{blocks} blocks from {block}"),
    );
}

/// Whether a deleted inode still points to blocks.
pub(crate) fn points_to_blocks(inode: &Inode<'_>) -> bool {
    let field = inode.blocks_field();
    if inode.has_extents() {
        le16(field, 0) == EXTENT_MAGIC && le16(field, 2) > 0
    } else {
        field.iter().any(|byte| *byte != 0)
    }
}

/// The claims of one file in file order.
pub(crate) fn in_file_order(claims: &[Claim], file: u32) -> Vec<Claim> {
    let mut own: Vec<Claim> = claims
        .iter()
        .filter(|claim| claim.file == file)
        .copied()
        .collect();
    own.sort_unstable_by_key(|claim| claim.file_offset);
    own
}

/// Number of blocks in `claims`, which are in file order.
pub(crate) fn block_count(claims: &[Claim], block_bytes: u64) -> usize {
    let bytes: u64 = claims.iter().map(|claim| claim.length).sum();
    let blocks = index(bytes / block_bytes);
    debug_assert!(count(blocks) * block_bytes == bytes);
    blocks
}
