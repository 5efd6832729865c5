//! Inodes: the fields that determine type and blocks of a file.

use super::medium::Medium;
use crate::bytes::{byte, index, joined, le16, le32};
use crate::checksum::crc32c;
use crate::files::FileKind;

/// Flags of an inode.
const ENCRYPTED: u32 = 0x800;
const INDEXED: u32 = 0x1000;
const EXTENTS: u32 = 0x8_0000;
const EA_INODE: u32 = 0x20_0000;
const INLINE_DATA: u32 = 0x1000_0000;

/// Bytes of the field for blocks, extents or inline data.
pub(crate) const BLOCKS_FIELD: std::ops::Range<usize> = 0x28..0x64;

/// One inode, as stored on the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode<'a> {
    pub number: u64,
    pub raw: &'a [u8],
}

impl<'a> Inode<'a> {
    pub(crate) fn mode(&self) -> u16 {
        le16(self.raw, 0)
    }

    /// The type in the mode; `None` for an invalid value.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        match self.mode() & 0xF000 {
            0x8000 => Some(FileKind::Regular),
            0x4000 => Some(FileKind::Directory),
            0xA000 => Some(FileKind::Symlink),
            0x1000 | 0x2000 | 0x6000 | 0xC000 => Some(FileKind::Special),
            _ => None,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        joined(le32(self.raw, 0x4), le32(self.raw, 0x6C))
    }

    pub(crate) fn deleted_at(&self) -> u32 {
        le32(self.raw, 0x14)
    }

    pub(crate) fn links(&self) -> u32 {
        u32::from(le16(self.raw, 0x1A))
    }

    pub(crate) fn generation(&self) -> u32 {
        le32(self.raw, 0x64)
    }

    /// Block of extended attributes, or 0.
    pub(crate) fn xattr_block(&self) -> u64 {
        joined(le32(self.raw, 0x68), u32::from(le16(self.raw, 0x76)))
    }

    fn flags(&self) -> u32 {
        le32(self.raw, 0x20)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags() & ENCRYPTED != 0
    }

    /// A directory with blocks of hashes.
    pub(crate) fn is_indexed(&self) -> bool {
        self.flags() & INDEXED != 0
    }

    pub(crate) fn has_extents(&self) -> bool {
        self.flags() & EXTENTS != 0
    }

    /// The inode holds the value of another file's extended attribute.
    pub(crate) fn holds_xattr(&self) -> bool {
        self.flags() & EA_INODE != 0
    }

    pub(crate) fn has_inline_data(&self) -> bool {
        self.flags() & INLINE_DATA != 0
    }

    /// Whether the block field points to blocks: short symbolic links and devices use it otherwise.
    pub(crate) fn has_blocks(&self) -> bool {
        let short_link = self.kind() == Some(FileKind::Symlink) && self.size() < 60 && !self.has_extents();
        !(short_link || self.has_inline_data() || self.kind() == Some(FileKind::Special))
    }

    /// The block field: pointers, the root of an extent tree, or inline data.
    pub(crate) fn blocks_field(&self) -> &'a [u8] {
        self.raw.get(BLOCKS_FIELD).unwrap_or_default()
    }

    /// Seed of the checksums of its blocks.
    pub(crate) fn seed(&self, medium: &Medium) -> u32 {
        let number = u32::try_from(self.number).unwrap_or(u32::MAX).to_le_bytes();
        let crc = crc32c(medium.superblock.checksum_seed, &number);
        crc32c(crc, &self.generation().to_le_bytes())
    }

    fn extra_bytes(&self) -> usize {
        if self.raw.len() > 128 {
            usize::from(le16(self.raw, 0x80))
        } else {
            0
        }
    }

    /// The stored and the computed checksum, if they differ.
    pub(crate) fn checksum_problem(&self, medium: &Medium) -> Option<(u32, u32)> {
        if !medium.checksums {
            return None;
        }
        let wide = self.extra_bytes() >= 4;
        let raw = self.raw;
        let mut crc = crc32c(self.seed(medium), raw.get(..0x7C)?);
        crc = crc32c(crc32c(crc, &[0, 0]), raw.get(0x7E..0x80)?);
        if wide {
            crc = crc32c(crc32c(crc, raw.get(0x80..0x82)?), &[0, 0]);
            crc = crc32c(crc, raw.get(0x84..)?);
        } else {
            crc = crc32c(crc, raw.get(0x80..).unwrap_or_default());
        }
        let high = if wide { u32::from(le16(raw, 0x82)) << 16 } else { 0 };
        let stored = u32::from(le16(raw, 0x7C)) | high;
        let computed = if wide { crc } else { crc & 0xFFFF };
        (stored != computed).then_some((stored, computed))
    }

    /// The part of inline data behind the inode's fields: the value of the attribute `system.data`.
    pub(crate) fn inline_rest(&self) -> &'a [u8] {
        const MAGIC: u32 = 0xEA02_0000;
        const SYSTEM: u8 = 7;
        let area = self.raw.get(128 + self.extra_bytes()..).unwrap_or_default();
        if le32(area, 0) != MAGIC {
            return &[];
        }
        let entries = area.get(4..).unwrap_or_default();
        let mut at = 0;
        while at + 16 <= entries.len() && le32(entries, at) != 0 {
            let name_length = usize::from(byte(entries, at));
            let name = entries.get(at + 16..at + 16 + name_length);
            if byte(entries, at + 1) == SYSTEM && name == Some(b"data") {
                let start = usize::from(le16(entries, at + 2));
                let length = index(u64::from(le32(entries, at + 8)));
                let end = start.saturating_add(length);
                return entries.get(start..end).unwrap_or_default();
            }
            at += (16 + name_length).next_multiple_of(4);
        }
        &[]
    }
}
