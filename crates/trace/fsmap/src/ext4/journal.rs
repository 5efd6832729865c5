//! The journal (jbd2): the types of its blocks, and the blocks that a mount would replay.
//!
//! Big-endian. Spec: Documentation/filesystems/ext4/journal.rst of the kernel. The newest metadata of a file system
//! that was not unmounted is here: committed transactions are read (never written back), so that the map shows the
//! state after a mount. Fast commits are not read: a note says if there may be some.

use std::collections::HashMap;

use super::medium::{Medium, Replayed};
use crate::block_type::BlockType;
use crate::bytes::{be16, be32, count, index, joined};
use crate::checksum::crc32c;
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, Content, push_joined};

/// First bytes of each block of the journal that is not a copy.
pub(crate) const MAGIC: u32 = 0xC03B_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const REVOKE: u32 = 5;

const FEATURE_64BIT: u32 = 0x2;
const FEATURE_CSUM_V2: u32 = 0x8;
const FEATURE_CSUM_V3: u32 = 0x10;
const FEATURE_FAST_COMMIT: u32 = 0x20;

const TAG_ESCAPED: u32 = 1;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

/// The journal as its superblock describes it.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Its blocks in log order, as claims on the medium.
    extents: Vec<Claim>,
    block_bytes: u64,
    first: u64,
    /// End of the log proper.
    end: u64,
    /// End of the area of fast commits.
    fast_commit_end: u64,
    sequence: u32,
    /// Start of the log, or 0 if there is nothing to replay.
    start: u64,
    features: u32,
    seed: u32,
}

/// A copy of a block in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    /// Offset of the copy.
    pub byte: u64,
    /// Original block of the copy.
    pub home: u64,
    /// Transaction.
    pub sequence: u32,
}

struct Tag {
    home: u64,
    escaped: bool,
    checksum: u32,
}

impl Journal {
    /// Reads the journal's superblock. `extents`: the blocks of the journal, in its order.
    pub(crate) fn read(medium: &Medium, extents: Vec<Claim>, findings: &mut Findings) -> Option<Self> {
        let first = extents.first().filter(|claim| claim.file_offset == 0)?;
        let raw = medium.read_block(first.start / medium.block_bytes(), &Place::Journal, findings)?;
        let block_bytes = u64::from(be32(&raw, 0xC));
        let version = be32(&raw, 4);
        if be32(&raw, 0) != MAGIC || ![3, 4].contains(&version) || block_bytes != medium.block_bytes() {
            findings.add(
                FindingKind::Field,
                Place::Journal,
                format!(
                    "magic {MAGIC:#010x}, version 3 or 4, blocks of {}",
                    medium.block_bytes()
                ),
                format!(
                    "magic {:#010x}, version {version}, blocks of {block_bytes}",
                    be32(&raw, 0)
                ),
            );
            return None;
        }
        let features = if version == 4 { be32(&raw, 0x28) } else { 0 };
        let all = u64::from(be32(&raw, 0x10)).min(count(super::blocks::block_count(&extents, block_bytes)));
        let fast = if features & FEATURE_FAST_COMMIT == 0 {
            0
        } else {
            match u64::from(be32(&raw, 0x54)) {
                0 => 256,
                blocks => blocks,
            }
        };
        if features & (FEATURE_CSUM_V2 | FEATURE_CSUM_V3) != 0 {
            let mut zeroed = raw.get(..1024)?.to_vec();
            zeroed.get_mut(0xFC..0x100)?.fill(0);
            let (stored, computed) = (be32(&raw, 0xFC), crc32c(u32::MAX, &zeroed));
            if stored != computed {
                findings.add(
                    FindingKind::Checksum,
                    Place::Journal,
                    format!("checksum {stored:#010x} as its superblock says"),
                    format!("{computed:#010x}"),
                );
                return None;
            }
        }
        Some(Self {
            extents,
            block_bytes,
            first: u64::from(be32(&raw, 0x14)).max(1),
            end: all.saturating_sub(fast),
            fast_commit_end: all,
            sequence: be32(&raw, 0x18),
            start: u64::from(be32(&raw, 0x1C)),
            features,
            seed: crc32c(u32::MAX, raw.get(0x30..0x40)?),
        })
    }

    pub(crate) fn must_replay(&self) -> bool {
        self.start != 0
    }

    pub(crate) fn has_fast_commits(&self) -> bool {
        self.fast_commit_end > self.end
    }

    /// Offset of a journal block on the medium.
    fn byte_of(&self, block: u64) -> Option<u64> {
        let offset = block.checked_mul(self.block_bytes)?;
        let at = self
            .extents
            .partition_point(|claim| claim.file_offset <= offset)
            .checked_sub(1)?;
        let claim = self.extents.get(at)?;
        let within = offset - claim.file_offset;
        (within < claim.length).then_some(claim.start + within)
    }

    fn block(&self, medium: &Medium, block: u64, findings: &mut Findings) -> Option<Vec<u8>> {
        let byte = self.byte_of(block)?;
        let mut raw = vec![0; index(self.block_bytes)];
        match medium.source.read(byte, &mut raw) {
            Ok(()) => Some(raw),
            Err(error) => {
                findings.add(
                    FindingKind::Unreadable,
                    Place::Journal,
                    "readable blocks",
                    error.to_string(),
                );
                None
            }
        }
    }

    fn next(&self, block: u64) -> u64 {
        if block + 1 >= self.end {
            self.first
        } else {
            block + 1
        }
    }

    fn has_checksums(&self) -> bool {
        self.features & (FEATURE_CSUM_V2 | FEATURE_CSUM_V3) != 0
    }

    fn tags(&self, raw: &[u8]) -> Vec<Tag> {
        let wide = self.features & FEATURE_64BIT != 0;
        let third = self.features & FEATURE_CSUM_V3 != 0;
        let size = match (third, wide, self.features & FEATURE_CSUM_V2 != 0) {
            (true, ..) => 16,
            (false, true, true) => 14,
            (false, true, false) => 12,
            (false, false, true) => 10,
            (false, false, false) => 8,
        };
        let end = raw.len().saturating_sub(if self.has_checksums() { 4 } else { 0 });
        let (mut tags, mut at) = (Vec::new(), 12);
        while at + size <= end {
            let flags = if third {
                be32(raw, at + 4)
            } else {
                u32::from(be16(raw, at + 6))
            };
            let high = if wide { be32(raw, at + 8) } else { 0 };
            tags.push(Tag {
                home: joined(be32(raw, at), high),
                escaped: flags & TAG_ESCAPED != 0,
                checksum: if third {
                    be32(raw, at + 12)
                } else {
                    u32::from(be16(raw, at + 4))
                },
            });
            at += size;
            if flags & TAG_SAME_UUID == 0 {
                at += 16;
            }
            if flags & TAG_LAST != 0 {
                break;
            }
        }
        tags
    }

    /// The blocks that a mount would replay: for each the newest committed copy.
    pub(crate) fn replay(&self, medium: &Medium, findings: &mut Findings) -> HashMap<u64, Replayed> {
        let mut committed: Vec<(u64, Replayed, u32)> = Vec::new();
        let mut revoked: HashMap<u64, u32> = HashMap::new();
        let mut open: Vec<(u64, Replayed, u32)> = Vec::new();
        let mut open_revoked: Vec<u64> = Vec::new();
        let (mut block, mut sequence) = (self.start, self.sequence);
        // The log is at most one round long.
        let mut left = self.end.saturating_sub(self.first);
        while left > 0 {
            let Some(raw) = self.block(medium, block, findings) else {
                break;
            };
            if be32(&raw, 0) != MAGIC || be32(&raw, 8) != sequence {
                break;
            }
            left -= 1;
            block = self.next(block);
            match be32(&raw, 4) {
                DESCRIPTOR => {
                    if !self.tail_fits(&raw) {
                        break;
                    }
                    for tag in self.tags(&raw) {
                        let Some(byte) = self.byte_of(block).filter(|_| left > 0) else {
                            break;
                        };
                        if !self.copy_fits(medium, byte, &tag, sequence) {
                            findings.add(
                                FindingKind::Checksum,
                                Place::Journal,
                                format!("a copy of block {} as its tag says", tag.home),
                                "another checksum; its transaction and all behind it are left out",
                            );
                            left = 1;
                        }
                        let place = Replayed {
                            byte,
                            escaped: tag.escaped,
                        };
                        open.push((tag.home, place, sequence));
                        block = self.next(block);
                        left -= 1;
                        if left == 0 {
                            break;
                        }
                    }
                }
                REVOKE => open_revoked.extend(self.revoked(&raw)),
                COMMIT => {
                    committed.append(&mut open);
                    for home in open_revoked.drain(..) {
                        revoked.insert(home, sequence);
                    }
                    sequence = sequence.wrapping_add(1);
                }
                _ => break,
            }
        }
        committed
            .into_iter()
            .filter(|(home, _, at)| revoked.get(home).is_none_or(|revoked| revoked < at))
            .filter(|(home, ..)| *home < medium.superblock.blocks)
            .map(|(home, place, _)| (home, place))
            .collect()
    }

    fn tail_fits(&self, raw: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let tail = raw.len().saturating_sub(4);
        let computed = crc32c(crc32c(self.seed, raw.get(..tail).unwrap_or_default()), &[0; 4]);
        be32(raw, tail) == computed
    }

    fn copy_fits(&self, medium: &Medium, byte: u64, tag: &Tag, sequence: u32) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let mut raw = vec![0; index(self.block_bytes)];
        if medium.source.read(byte, &mut raw).is_err() {
            return false;
        }
        // The checksum covers the block with its magic, which the copy has zeroed.
        if let Some(first) = raw.get_mut(..4).filter(|_| tag.escaped) {
            first.copy_from_slice(&MAGIC.to_be_bytes());
        }
        let computed = crc32c(crc32c(self.seed, &sequence.to_be_bytes()), &raw);
        if self.features & FEATURE_CSUM_V3 != 0 {
            tag.checksum == computed
        } else {
            tag.checksum == computed & 0xFFFF
        }
    }

    fn revoked(&self, raw: &[u8]) -> Vec<u64> {
        let size = if self.features & FEATURE_64BIT != 0 { 8 } else { 4 };
        let end = index(u64::from(be32(raw, 12))).min(raw.len());
        let entries = raw.get(16..end).unwrap_or_default();
        entries
            .chunks_exact(size)
            .map(|entry| match size {
                8 => joined(be32(entry, 4), be32(entry, 0)),
                _ => u64::from(be32(entry, 0)),
            })
            .collect()
    }

    /// Splits the journal's claims using only its superblock: superblock, log, fast commits.
    pub(crate) fn areas(&self) -> Vec<Claim> {
        let mut areas = Vec::new();
        self.each_block(|block, claim| {
            let kind = match block {
                0 => BlockType::JournalSuperblock,
                block if (self.end..self.fast_commit_end).contains(&block) => BlockType::JournalFastCommit,
                _ => BlockType::Journal,
            };
            push_joined(&mut areas, Claim { kind, ..claim });
        });
        areas
    }

    /// Splits the journal's claims by reading all its blocks; also returns the original block of each copy.
    pub(crate) fn blocks(&self, medium: &Medium, findings: &mut Findings) -> (Vec<Claim>, Vec<Logged>) {
        let (mut claims, mut logged) = (Vec::new(), Vec::new());
        // Copies listed by the last descriptor, in order.
        let mut announced: Vec<(u64, u32)> = Vec::new();
        self.each_block(|block, claim| {
            let kind = if block == 0 {
                BlockType::JournalSuperblock
            } else if block >= self.end {
                BlockType::JournalFastCommit
            } else if let Some((home, sequence)) = announced.pop() {
                logged.push(Logged {
                    byte: claim.start,
                    home,
                    sequence,
                });
                BlockType::JournalData
            } else {
                let raw = self.block(medium, block, findings).unwrap_or_default();
                match (be32(&raw, 0), be32(&raw, 4)) {
                    (MAGIC, DESCRIPTOR) => {
                        let sequence = be32(&raw, 8);
                        announced.extend(self.tags(&raw).iter().rev().map(|tag| (tag.home, sequence)));
                        BlockType::JournalDescriptor
                    }
                    (MAGIC, COMMIT) => BlockType::JournalCommit,
                    (MAGIC, REVOKE) => BlockType::JournalRevoke,
                    _ => BlockType::Journal,
                }
            };
            push_joined(&mut claims, Claim { kind, ..claim });
        });
        logged.sort_unstable_by_key(|copy| copy.byte);
        (claims, logged)
    }

    fn each_block(&self, mut visit: impl FnMut(u64, Claim)) {
        for claim in &self.extents {
            let mut done = 0;
            while done < claim.length {
                let offset = claim.file_offset + done;
                let part = Claim {
                    start: claim.start + done,
                    length: self.block_bytes.min(claim.length - done),
                    file_offset: offset,
                    content: Content::Written,
                    ..*claim
                };
                visit(offset / self.block_bytes, part);
                done += self.block_bytes;
            }
        }
    }
}
