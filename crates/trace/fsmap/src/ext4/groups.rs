//! Group descriptors, and the layout of superblocks, descriptors, bitmaps and inode tables.

use super::medium::Medium;
use super::superblock::{incompat, ro_compat};
use crate::block_type::BlockType;
use crate::bytes::{byte, count, index, joined, le16, le32};
use crate::checksum::{crc16, crc32c};
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, Rank};
use crate::volume::InodeTableArea;

/// Descriptor flag: its inodes were never used.
const INODES_UNUSED: u16 = 1;
/// Descriptor flag: its block bitmap was never written, and only metadata is used.
const BLOCKS_UNUSED: u16 = 2;

/// One block group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    pub block_bitmap_checksum: u32,
    pub inode_bitmap_checksum: u32,
    /// Number of inodes at the end of the table that were never used.
    pub inodes_untouched: u32,
    pub inodes_unused: bool,
    pub blocks_unused: bool,
    /// Its checksum is right, or it has none.
    pub trusted: bool,
}

/// Number of descriptor blocks.
fn descriptor_blocks(medium: &Medium) -> u64 {
    let superblock = &medium.superblock;
    superblock
        .groups
        .div_ceil(superblock.block_bytes / superblock.descriptor_bytes)
}

/// Number of descriptor blocks that follow the superblock; with `meta_bg` the others are in their own groups.
fn leading_descriptor_blocks(medium: &Medium) -> u64 {
    let all = descriptor_blocks(medium);
    if medium.superblock.has_incompat(incompat::META_BG) {
        all.min(medium.superblock.first_meta_group)
    } else {
        all
    }
}

/// Block of the primary copy of descriptor block `number`, followed by backups that are worth trying.
fn copies(medium: &Medium, number: u64) -> Vec<u64> {
    let superblock = &medium.superblock;
    let mut copies = Vec::new();
    if number < leading_descriptor_blocks(medium) {
        let behind = |group: u64| superblock_block(medium, group) + 1 + number;
        copies.push(behind(0));
        let backups = (1..superblock.groups.min(400)).filter(|group| superblock.has_copy(*group));
        copies.extend(backups.take(2).map(behind));
    } else {
        let per_block = superblock.block_bytes / superblock.descriptor_bytes;
        let first = number * per_block;
        for group in [first, first + 1, first + per_block - 1] {
            if group < superblock.groups {
                let copy = u64::from(superblock.has_copy(group));
                copies.push(superblock_block(medium, group) + copy);
            }
        }
    }
    copies
}

/// Block of a group's superblock, whether or not it has one.
fn superblock_block(medium: &Medium, group: u64) -> u64 {
    let superblock = &medium.superblock;
    // With blocks of 1 KiB and bigalloc the first cluster starts at block 0, but the superblock is still in block 1.
    if group == 0 {
        1024 / superblock.block_bytes
    } else {
        superblock.group_start(group)
    }
}

/// Reads all descriptors, each from its first copy with a right checksum.
pub(crate) fn read(medium: &Medium, findings: &mut Findings) -> Vec<Group> {
    let superblock = &medium.superblock;
    let per_block = superblock.block_bytes / superblock.descriptor_bytes;
    let size = index(superblock.descriptor_bytes);
    let mut groups = Vec::with_capacity(index(superblock.groups));
    for number in 0..descriptor_blocks(medium) {
        let first = number * per_block;
        let last = (first + per_block).min(superblock.groups);
        let copies = copies(medium, number);
        let place = Place::Group(first);
        let primary = copies
            .first()
            .and_then(|block| medium.read_block(*block, &place, findings));
        let mut backup: Option<Option<Vec<u8>>> = None;
        for group in first..last {
            let at = index(group - first) * size;
            let from = |block: &Option<Vec<u8>>| {
                let raw = block.as_ref()?.get(at..at + size)?;
                Some(parse(medium, group, raw))
            };
            let mut found = from(&primary);
            if found.as_ref().is_none_or(|(_, problem)| problem.is_some()) {
                if let Some((_, Some(problem))) = &found {
                    findings.add(
                        FindingKind::Checksum,
                        Place::Group(group),
                        problem.0.clone(),
                        problem.1.clone(),
                    );
                }
                let backup = backup.get_or_insert_with(|| {
                    copies
                        .iter()
                        .skip(1)
                        .find_map(|block| medium.read_block(*block, &place, findings))
                });
                // A backup is as old as the last resize or check: its block numbers are right, but its counts may be
                // wrong.
                if let Some((mut group_found, None)) = from(backup) {
                    group_found.inodes_untouched = 0;
                    group_found.inodes_unused = false;
                    group_found.blocks_unused = false;
                    findings.add(
                        FindingKind::Backup,
                        Place::Group(group),
                        "an undamaged primary descriptor",
                        "its backup",
                    );
                    found = Some((group_found, None));
                }
            }
            groups.push(found.map_or_else(nowhere, |(group, _)| group));
        }
    }
    groups
}

/// A group of which nothing is known.
fn nowhere() -> Group {
    Group {
        block_bitmap: 0,
        inode_bitmap: 0,
        inode_table: 0,
        block_bitmap_checksum: 0,
        inode_bitmap_checksum: 0,
        inodes_untouched: 0,
        inodes_unused: true,
        blocks_unused: false,
        trusted: false,
    }
}

fn parse(medium: &Medium, group: u64, raw: &[u8]) -> (Group, Option<(String, String)>) {
    let superblock = &medium.superblock;
    let wide = raw.len() >= 64;
    let high = |at| if wide { le32(raw, at) } else { 0 };
    let high16 = |at| if wide { u32::from(le16(raw, at)) << 16 } else { 0 };
    let flags = le16(raw, 0x12);
    // Without either kind of checksum the flags and the count of untouched inodes are meaningless.
    let counted = superblock.has_ro_compat(ro_compat::GDT_CSUM | ro_compat::METADATA_CSUM);
    let (stored, computed) = (le16(raw, 0x1E), checksum(medium, group, raw));
    let mut problem = computed.filter(|computed| *computed != stored).map(|computed| {
        (
            format!("descriptor checksum {stored:#06x} as stored"),
            format!("{computed:#06x}"),
        )
    });
    let found = Group {
        block_bitmap: joined(le32(raw, 0x0), high(0x20)),
        inode_bitmap: joined(le32(raw, 0x4), high(0x24)),
        inode_table: joined(le32(raw, 0x8), high(0x28)),
        block_bitmap_checksum: u32::from(le16(raw, 0x18)) | high16(0x38),
        inode_bitmap_checksum: u32::from(le16(raw, 0x1A)) | high16(0x3A),
        inodes_untouched: if counted {
            u32::from(le16(raw, 0x1C)) | high16(0x32)
        } else {
            0
        },
        inodes_unused: counted && flags & INODES_UNUSED != 0,
        blocks_unused: counted && flags & BLOCKS_UNUSED != 0,
        trusted: problem.is_none(),
    };
    if problem.is_none() && !places_fit(medium, &found) {
        problem = Some((
            "bitmaps and inode table on the medium".to_owned(),
            format!(
                "blocks {}, {} and {}",
                found.block_bitmap, found.inode_bitmap, found.inode_table
            ),
        ));
    }
    let trusted = problem.is_none();
    (Group { trusted, ..found }, problem)
}

fn places_fit(medium: &Medium, group: &Group) -> bool {
    medium.holds(group.block_bitmap, 1)
        && medium.holds(group.inode_bitmap, 1)
        && medium.holds(group.inode_table, table_blocks(medium))
}

/// Number of blocks of one inode table.
pub(crate) fn table_blocks(medium: &Medium) -> u64 {
    let superblock = &medium.superblock;
    (superblock.inodes_per_group * superblock.inode_bytes).div_ceil(superblock.block_bytes)
}

/// The descriptor's checksum, if the file system has them.
fn checksum(medium: &Medium, group: u64, raw: &[u8]) -> Option<u16> {
    let superblock = &medium.superblock;
    let number = u32::try_from(group).unwrap_or(u32::MAX).to_le_bytes();
    let behind = raw.get(0x20..).unwrap_or_default();
    if medium.checksums {
        let mut crc = crc32c(crc32c(superblock.checksum_seed, &number), raw.get(..0x1E)?);
        crc = crc32c(crc32c(crc, &[0, 0]), behind);
        let [a, b, ..] = crc.to_le_bytes();
        return Some(u16::from_le_bytes([a, b]));
    }
    if superblock.has_ro_compat(ro_compat::GDT_CSUM) {
        let crc = crc16(crc16(u16::MAX, &superblock.uuid), &number);
        return Some(crc16(crc16(crc, raw.get(..0x1E)?), behind));
    }
    None
}

/// Claims all blocks determined by the layout and the descriptors.
pub(crate) fn claim_layout(
    medium: &Medium,
    groups: &[Group],
    claims: &mut Vec<Claim>,
    tables: &mut Vec<InodeTableArea>,
) {
    let superblock = &medium.superblock;
    let block_bytes = superblock.block_bytes;
    let area = |start: u64, blocks: u64, kind, rank| {
        let end = start.saturating_add(blocks).min(superblock.blocks);
        Claim::area(
            medium.byte_of(start),
            end.saturating_sub(start) * block_bytes,
            kind,
            rank,
        )
    };
    let leading = leading_descriptor_blocks(medium);
    let per_block = block_bytes / superblock.descriptor_bytes;
    if block_bytes == 1024 {
        claims.push(area(0, 1, BlockType::BootRecord, Rank::Layout));
    }
    for (number, group) in (0_u64..).zip(groups) {
        let mut at = superblock_block(medium, number);
        if superblock.has_copy(number) {
            claims.push(area(at, 1, BlockType::Superblock, Rank::Layout));
            at += 1;
            claims.push(area(at, leading, BlockType::GroupDescriptors, Rank::Layout));
            let reserved = superblock.reserved_descriptor_blocks;
            claims.push(area(
                at + leading,
                reserved,
                BlockType::ReservedGroupDescriptors,
                Rank::Layout,
            ));
        }
        let own_block = number / per_block >= leading && superblock.has_incompat(incompat::META_BG);
        if own_block && [0, 1, per_block - 1].contains(&(number % per_block)) {
            claims.push(area(at, 1, BlockType::GroupDescriptors, Rank::Layout));
        }
        let rank = if group.trusted {
            Rank::Layout
        } else {
            Rank::Doubtful
        };
        if group.trusted || places_fit(medium, group) {
            claims.push(area(group.block_bitmap, 1, BlockType::BlockBitmap, rank));
            claims.push(area(group.inode_bitmap, 1, BlockType::InodeBitmap, rank));
            claims.push(area(
                group.inode_table,
                table_blocks(medium),
                BlockType::InodeTable,
                rank,
            ));
            tables.push(InodeTableArea {
                start: medium.byte_of(group.inode_table),
                length: table_blocks(medium) * block_bytes,
                first_inode: number * superblock.inodes_per_group + 1,
                inode_bytes: superblock.inode_bytes,
            });
        }
    }
    if superblock.has_incompat(incompat::MMP) && medium.holds(superblock.mmp_block, 1) {
        claims.push(area(
            superblock.mmp_block,
            1,
            BlockType::MultiMountProtection,
            Rank::Layout,
        ));
    }
    tables.sort_unstable_by_key(|table| table.start);
}

/// One bitmap of a group: a bit per cluster or inode.
#[derive(Debug)]
pub(crate) struct Bitmap {
    pub bits: Vec<u8>,
    /// Its checksum is right, or it has none.
    pub trusted: bool,
}

impl Bitmap {
    pub(crate) fn is_set(&self, bit: u64) -> bool {
        byte(&self.bits, index(bit / 8)) >> (bit % 8) & 1 == 1
    }

    /// First bit from `from` and before `to` that differs from `set`; `to` if there is no such bit.
    pub(crate) fn run_end(&self, from: u64, to: u64, set: bool) -> u64 {
        let skip = if set { 0xFF } else { 0 };
        let mut bit = from;
        while bit < to {
            if bit.is_multiple_of(8) && to - bit >= 8 && byte(&self.bits, index(bit / 8)) == skip {
                bit += 8;
            } else if self.is_set(bit) == set {
                bit += 1;
            } else {
                break;
            }
        }
        bit
    }
}

/// Reads a bitmap of `bits` bits and checks it.
pub(crate) fn read_bitmap(
    medium: &Medium,
    number: u64,
    block: u64,
    bits: u64,
    checksum: u32,
    what: &str,
    findings: &mut Findings,
) -> Option<Bitmap> {
    let place = Place::Group(number);
    let raw = medium.read_block(block, &place, findings)?;
    let used = raw.get(..index(bits.div_ceil(8)).min(raw.len()))?;
    let mut trusted = true;
    if medium.checksums {
        let full = crc32c(medium.superblock.checksum_seed, used);
        let mask = if medium.superblock.descriptor_bytes >= 64 {
            u32::MAX
        } else {
            0xFFFF
        };
        if full & mask != checksum & mask {
            trusted = false;
            findings.add(
                FindingKind::Checksum,
                place,
                format!("{what} with checksum {:#010x}", checksum & mask),
                format!("{:#010x}", full & mask),
            );
        }
    }
    debug_assert!(count(used.len()) <= medium.block_bytes());
    Some(Bitmap { bits: raw, trusted })
}
