//! Scans all inodes: their files, and claims on their blocks.
//!
//! Tables are read in pieces of up to a megabyte. The inode bitmap determines the inodes in use; if its checksum is
//! wrong, the inodes themselves do. Inodes that fail their checksum, and deleted ones, are walked last, so that they
//! take no tree node from sound ones.

use super::blocks::{Owner, Walk, in_file_order, points_to_blocks};
use super::directory::{InlineDirectory, inline_entries};
use super::groups::{Bitmap, Group, read_bitmap};
use super::inode::Inode;
use super::medium::Medium;
use super::superblock::compat;
use crate::block_type::BlockType;
use crate::bytes::{index, le32};
use crate::files::{FileKind, FileRecord, FileTable, Life};
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, NO_FILE, Rank};

const ROOT: u64 = 2;
const BAD_BLOCKS: u64 = 1;
const BOOT_LOADER: u64 = 5;
const RESIZE: u64 = 7;
const CHUNK_BYTES: u64 = 1 << 20;

/// A pass over all inode tables.
pub(crate) struct Scan<'a> {
    medium: &'a Medium,
    walk: Walk,
    files: FileTable,
    inline: Vec<InlineDirectory>,
    /// Inodes to walk last.
    deferred: Vec<Deferred>,
}

struct Deferred {
    number: u64,
    file: u32,
    rank: Rank,
    raw: Box<[u8]>,
}

/// Result of the pass.
pub(crate) struct Scanned {
    pub claims: Vec<Claim>,
    pub files: FileTable,
    pub inline: Vec<InlineDirectory>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(medium: &'a Medium, claims: Vec<Claim>) -> Self {
        Self {
            medium,
            walk: Walk {
                claims,
                ..Walk::default()
            },
            files: FileTable::default(),
            inline: Vec::new(),
            deferred: Vec::new(),
        }
    }

    /// Reads the inode tables of all groups.
    pub(crate) fn tables(&mut self, groups: &[Group], findings: &mut Findings) {
        for (number, group) in (0_u64..).zip(groups) {
            if !group.inodes_unused && group.inode_table != 0 {
                self.table(number, group, findings);
            }
        }
    }

    fn table(&mut self, number: u64, group: &Group, findings: &mut Findings) {
        let medium = self.medium;
        let superblock = &medium.superblock;
        let bits = superblock.inodes_per_group;
        let checksum = group.inode_bitmap_checksum;
        let what = "an inode bitmap";
        let bitmap = read_bitmap(medium, number, group.inode_bitmap, bits, checksum, what, findings);
        let touched = bits.saturating_sub(u64::from(group.inodes_untouched));
        let per_block = superblock.block_bytes / superblock.inode_bytes;
        let blocks = touched.div_ceil(per_block);
        let chunk_blocks = (CHUNK_BYTES / superblock.block_bytes).max(1);
        let mut block = 0;
        while block < blocks {
            let part = chunk_blocks.min(blocks - block);
            let mut raw = vec![0; index(part * superblock.block_bytes)];
            let place = Place::Group(number);
            let first = group.inode_table.saturating_add(block);
            if medium.holds(first, part) && medium.read_blocks(first, &mut raw, &place, findings) {
                let size = index(superblock.inode_bytes);
                for (slot, raw) in (block * per_block..).zip(raw.chunks_exact(size)) {
                    let inode = Inode {
                        number: number * bits + slot + 1,
                        raw,
                    };
                    if slot < touched {
                        let byte = medium.byte_of(group.inode_table) + slot * superblock.inode_bytes;
                        self.inode(&inode, byte, slot, bitmap.as_ref(), findings);
                    }
                }
            }
            block += part;
        }
    }

    fn inode(
        &mut self,
        inode: &Inode<'_>,
        byte: u64,
        slot: u64,
        bitmap: Option<&Bitmap>,
        findings: &mut Findings,
    ) {
        let marked = bitmap
            .filter(|bitmap| bitmap.trusted)
            .map(|bitmap| bitmap.is_set(slot));
        let looks_used = inode.links() > 0 && inode.mode() != 0 && inode.deleted_at() == 0;
        if !marked.unwrap_or(looks_used) {
            if inode.mode() != 0 && inode.deleted_at() != 0 {
                self.deleted(inode);
            }
            return;
        }
        let reserved = inode.number < self.medium.superblock.first_inode && inode.number != ROOT;
        if inode.mode() == 0 && inode.links() == 0 && reserved && !points_to_blocks(inode) {
            return;
        }
        let problem = inode.checksum_problem(self.medium);
        if let Some((stored, computed)) = problem {
            findings.add(
                FindingKind::Checksum,
                Place::Inode(inode.number),
                format!("checksum {stored:#010x} as the inode says"),
                format!("{computed:#010x}"),
            );
        }
        let kind = if self.is_system(inode) {
            Some(FileKind::System)
        } else {
            inode.kind()
        };
        let Some(kind) = kind else {
            findings.add(
                FindingKind::Field,
                Place::Inode(inode.number),
                "a mode that says file, directory, link, device, pipe or socket",
                format!("{:#06x}", inode.mode()),
            );
            return;
        };
        let Some(file) = self.add_file(inode, kind, findings) else {
            return;
        };
        let rank = if problem.is_none() {
            Rank::Trusted
        } else {
            Rank::Doubtful
        };
        if kind == FileKind::Directory && inode.has_inline_data() {
            self.inline.push(InlineDirectory {
                file,
                byte,
                entries: inline_entries(inode.blocks_field(), inode.inline_rest()),
                doubtful: rank == Rank::Doubtful,
            });
        }
        if rank == Rank::Doubtful {
            self.defer(inode, file, rank);
        } else {
            self.claim(inode, file, rank, findings);
        }
    }

    fn add_file(&mut self, inode: &Inode<'_>, kind: FileKind, findings: &mut Findings) -> Option<u32> {
        let life = if inode.links() == 0 && kind != FileKind::System {
            Life::Orphan
        } else {
            Life::Alive
        };
        let file = self.files.push(FileRecord {
            size: inode.size(),
            links: inode.links(),
            life,
            encrypted: kind == FileKind::Directory && inode.is_encrypted(),
            indexed: kind == FileKind::Directory && inode.is_indexed(),
            ..FileRecord::new(inode.number, inode.generation(), kind)
        });
        match file {
            Some(file) if inode.number == ROOT => self.files.set_root(file),
            Some(_) => {}
            None => findings.add(
                FindingKind::Bound,
                Place::Inode(inode.number),
                "fewer than 2^32 files",
                "more",
            ),
        }
        file
    }

    fn deleted(&mut self, inode: &Inode<'_>) {
        if inode.checksum_problem(self.medium).is_some() || !inode.has_blocks() || !points_to_blocks(inode) {
            return;
        }
        let Some(kind) = inode.kind() else { return };
        let file = self.files.push(FileRecord {
            size: inode.size(),
            links: 0,
            life: Life::Deleted,
            deleted_at: inode.deleted_at(),
            ..FileRecord::new(inode.number, inode.generation(), kind)
        });
        if let Some(file) = file {
            self.defer(inode, file, Rank::Stale);
        }
    }

    fn defer(&mut self, inode: &Inode<'_>, file: u32, rank: Rank) {
        self.deferred.push(Deferred {
            number: inode.number,
            file,
            rank,
            raw: inode.raw.into(),
        });
    }

    /// Whether an inode belongs to the file system itself.
    fn is_system(&self, inode: &Inode<'_>) -> bool {
        let superblock = &self.medium.superblock;
        let number = inode.number;
        (number < superblock.first_inode && number != ROOT)
            || inode.holds_xattr()
            || superblock.quota_inodes.contains(&number)
            || self.is_orphan_file(number)
    }

    fn is_orphan_file(&self, number: u64) -> bool {
        let superblock = &self.medium.superblock;
        superblock.has_compat(compat::ORPHAN_FILE) && superblock.orphan_file_inode == number
    }

    fn block_type(&self, inode: &Inode<'_>) -> BlockType {
        let superblock = &self.medium.superblock;
        match inode.number {
            BAD_BLOCKS => return BlockType::BadBlocks,
            BOOT_LOADER => return BlockType::BootRecord,
            number if number == superblock.journal_inode => return BlockType::Journal,
            number if superblock.quota_inodes.contains(&number) => return BlockType::Quota,
            number if self.is_orphan_file(number) => return BlockType::OrphanFile,
            _ => {}
        }
        match inode.kind() {
            _ if inode.holds_xattr() => BlockType::Xattr,
            Some(FileKind::Directory) => BlockType::Directory,
            Some(FileKind::Symlink) => BlockType::Symlink,
            _ => BlockType::Data,
        }
    }

    fn claim(&mut self, inode: &Inode<'_>, file: u32, rank: Rank, findings: &mut Findings) {
        let stale = rank == Rank::Stale;
        let owner = Owner {
            file,
            inode: inode.number,
            kind: if stale {
                BlockType::Deleted
            } else {
                self.block_type(inode)
            },
            rank,
            seed: inode.seed(self.medium),
        };
        if inode.number == RESIZE {
            self.walk.resize_inode(self.medium, inode, &owner);
            return;
        }
        if inode.has_blocks() {
            self.walk.inode(self.medium, inode, &owner, findings);
        }
        if !stale {
            self.walk.xattr_block(self.medium, inode, &owner, findings);
        }
    }

    /// Walks the deferred inodes, and returns the result.
    pub(crate) fn finish(mut self, findings: &mut Findings) -> Scanned {
        let mut deferred = std::mem::take(&mut self.deferred);
        deferred.sort_by_key(|inode| std::cmp::Reverse(inode.rank));
        let mut quiet = Findings::default();
        for one in &deferred {
            let inode = Inode {
                number: one.number,
                raw: &one.raw,
            };
            // Damage to a deleted file's blocks is no loss.
            let findings = if one.rank == Rank::Stale {
                &mut quiet
            } else {
                &mut *findings
            };
            self.claim(&inode, one.file, one.rank, findings);
        }
        Scanned {
            claims: self.walk.claims,
            files: self.files,
            inline: self.inline,
        }
    }
}

/// The blocks of one inode, in file order, without a scan of the others.
pub(crate) fn extents_of(
    medium: &Medium,
    groups: &[Group],
    number: u64,
    findings: &mut Findings,
) -> Option<Vec<Claim>> {
    let superblock = &medium.superblock;
    let slot = number.checked_sub(1)?;
    let group = groups.get(index(slot / superblock.inodes_per_group))?;
    let offset = slot % superblock.inodes_per_group * superblock.inode_bytes;
    let block = group.inode_table.checked_add(offset / superblock.block_bytes)?;
    if !medium.holds(block, 1) {
        return None;
    }
    let raw = medium.read_block(block, &Place::Inode(number), findings)?;
    let at = index(offset % superblock.block_bytes);
    let inode = Inode {
        number,
        raw: raw.get(at..at + index(superblock.inode_bytes))?,
    };
    if inode.checksum_problem(medium).is_some() || le32(inode.raw, 0) == 0 {
        return None;
    }
    let owner = Owner {
        file: NO_FILE,
        inode: number,
        kind: BlockType::Journal,
        rank: Rank::Trusted,
        seed: inode.seed(medium),
    };
    let mut walk = Walk::default();
    walk.inode(medium, &inode, &owner, findings);
    walk.claims.retain(|claim| claim.kind == BlockType::Journal);
    Some(in_file_order(&walk.claims, NO_FILE))
}
