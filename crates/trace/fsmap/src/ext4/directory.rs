//! Reads names: linear directories, the leaves and index blocks of hashed ones, and directories within their inode.
//!
//! Blocks are read in the order of the medium, each once, from the table of owners without overlaps: so cross-linked
//! directories cost no more than their blocks.

use super::medium::Medium;
use crate::block_type::BlockType;
use crate::bytes::{byte, count, index, le16, le32};
use crate::checksum::crc32c;
use crate::files::{FileKind, FileTable, Life};
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, NO_FILE, Rank};

/// Bytes of an entry before its name.
const HEADER: usize = 8;
/// Bytes of the last entry, which contains the block's checksum.
const TAIL: usize = 12;
const TAIL_TYPE: u8 = 0xDE;
/// Bytes of directory blocks that are read at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// A directory whose entries are in its inode.
#[derive(Debug)]
pub(crate) struct InlineDirectory {
    pub file: u32,
    /// Offset of the inode.
    pub byte: u64,
    pub entries: Vec<Vec<u8>>,
    pub doubtful: bool,
}

/// Reader of names into a table of files.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    pub files: &'a mut FileTable,
    pub findings: &'a mut Findings,
    bound_reported: bool,
}

/// The block being read.
#[derive(Clone, Copy, Debug)]
struct Block {
    directory: u32,
    inode: u64,
    byte: u64,
    /// Its offset in the directory.
    offset: u64,
    doubtful: bool,
}

impl<'a> Names<'a> {
    pub(crate) fn new(files: &'a mut FileTable, findings: &'a mut Findings) -> Self {
        Self {
            files,
            findings,
            bound_reported: false,
        }
    }

    /// Reads all directory blocks among `owners`.
    pub(crate) fn read_all(&mut self, medium: &Medium, owners: &[Claim]) {
        let directories = owners
            .iter()
            .filter(|claim| claim.kind == BlockType::Directory && claim.file != NO_FILE);
        for claim in directories {
            let Some(record) = self.files.get(claim.file).copied() else {
                continue;
            };
            if record.kind != FileKind::Directory || record.life == Life::Deleted {
                continue;
            }
            let size = record.size.saturating_sub(claim.file_offset);
            let length = claim.length.min(size.next_multiple_of(medium.block_bytes()));
            let mut done = 0;
            while done < length {
                let part = (length - done).min(CHUNK_BYTES);
                let block = Block {
                    directory: claim.file,
                    inode: record.inode,
                    byte: claim.start + done,
                    offset: claim.file_offset + done,
                    doubtful: claim.rank < Rank::Trusted,
                };
                self.read_part(medium, block, part);
                done += part;
            }
        }
    }

    fn read_part(&mut self, medium: &Medium, first: Block, length: u64) {
        let mut buffer = vec![0; index(length)];
        let place = Place::Directory {
            inode: first.inode,
            byte: first.byte,
        };
        let block = first.byte / medium.block_bytes();
        if !medium.read_blocks(block, &mut buffer, &place, self.findings) {
            return;
        }
        for (number, raw) in (0_u64..).zip(buffer.chunks(index(medium.block_bytes()))) {
            let byte = first.byte + number * medium.block_bytes();
            let offset = first.offset + number * medium.block_bytes();
            let mut block = Block {
                byte,
                offset,
                ..first
            };
            block.doubtful |= !self.checksum_fits(medium, &block, raw);
            self.entries(medium, &block, raw);
        }
    }

    /// Reads a directory within its inode.
    pub(crate) fn read_inline(&mut self, medium: &Medium, directory: &InlineDirectory) {
        let Some(record) = self.files.get(directory.file).copied() else {
            return;
        };
        let block = Block {
            directory: directory.file,
            inode: record.inode,
            byte: directory.byte,
            offset: 0,
            doubtful: directory.doubtful,
        };
        for raw in &directory.entries {
            self.entries(medium, &block, raw);
        }
    }

    fn problem(&mut self, kind: FindingKind, block: &Block, expected: String, found: String) {
        let place = Place::Directory {
            inode: block.inode,
            byte: block.byte,
        };
        self.findings.add(kind, place, expected, found);
    }

    /// Checks the checksum of a leaf (in its last entry) or of an index block (behind its pointers).
    fn checksum_fits(&mut self, medium: &Medium, block: &Block, raw: &[u8]) -> bool {
        if !medium.checksums {
            return true;
        }
        let number = u32::try_from(block.inode).unwrap_or(u32::MAX).to_le_bytes();
        let record = self.files.get(block.directory);
        let generation = record.map_or(0, |record| record.generation);
        let seed = crc32c(
            crc32c(medium.superblock.checksum_seed, &number),
            &generation.to_le_bytes(),
        );
        // The first block of an indexed directory has hashes behind `.` and `..`; others have them behind one empty
        // entry.
        let whole = entry_length(le16(raw, 4), raw.len()) == raw.len() && le32(raw, 0) == 0;
        let counts = match record.is_some_and(|record| record.indexed) {
            true if block.offset == 0 => Some(0x20),
            true if whole => Some(8),
            _ => None,
        };
        let (stored, computed) = if let Some(counts) = counts {
            let (limit, used) = (usize::from(le16(raw, counts)), usize::from(le16(raw, counts + 2)));
            let end = counts + limit * 8;
            let mut crc = crc32c(seed, raw.get(..counts + used * 8).unwrap_or_default());
            crc = crc32c(crc32c(crc, raw.get(end..end + 4).unwrap_or_default()), &[0; 4]);
            (le32(raw, end + 4), crc)
        } else {
            let tail = raw.len().saturating_sub(TAIL);
            let is_tail =
                le32(raw, tail) == 0 && le16(raw, tail + 4) == 12 && byte(raw, tail + 7) == TAIL_TYPE;
            let computed = crc32c(seed, raw.get(..tail).unwrap_or_default());
            let stored = le32(raw, tail + 8);
            // Without that last entry the checksum is missing, whatever the bytes are.
            (if is_tail { stored } else { !computed }, computed)
        };
        if stored != computed {
            self.problem(
                FindingKind::Checksum,
                block,
                format!("checksum {stored:#010x} as the block says"),
                format!("{computed:#010x}"),
            );
        }
        stored == computed
    }

    fn entries(&mut self, medium: &Medium, block: &Block, raw: &[u8]) {
        let mut at = 0;
        while at + HEADER <= raw.len() {
            let inode = u64::from(le32(raw, at));
            let length = entry_length(le16(raw, at + 4), raw.len());
            let name_length = usize::from(byte(raw, at + 6));
            if length < HEADER
                || !length.is_multiple_of(4)
                || at + length > raw.len()
                || HEADER + name_length > length
            {
                self.problem(
                    FindingKind::Field,
                    block,
                    format!("an entry within {} bytes at offset {at}", raw.len() - at),
                    format!("one of {length} bytes with a name of {name_length}"),
                );
                return;
            }
            let name = raw
                .get(at + HEADER..at + HEADER + name_length)
                .unwrap_or_default();
            if inode != 0 && name != b"." && name != b".." {
                self.name(medium, block, inode, name);
            }
            at += length;
        }
    }

    fn name(&mut self, medium: &Medium, block: &Block, inode: u64, name: &[u8]) {
        let shown = || String::from_utf8_lossy(name).into_owned();
        let possible =
            !name.is_empty() && !name.contains(&0) && (block.encrypted(self.files) || !name.contains(&b'/'));
        if !possible && !block.encrypted(self.files) {
            self.problem(
                FindingKind::Field,
                block,
                "a name without / and NUL".to_owned(),
                format!("{:?} for inode {inode}", shown()),
            );
            return;
        }
        let target = self.files.by_inode(inode);
        let alive = target.and_then(|file| {
            let record = self.files.get(file)?;
            (record.life != Life::Deleted).then_some(file)
        });
        let Some(file) = alive else {
            let expected = format!("an inode in use, at most {}", medium.superblock.inodes);
            self.problem(
                FindingKind::DanglingName,
                block,
                expected,
                format!("{:?} for inode {inode}", shown()),
            );
            return;
        };
        let is_directory = self
            .files
            .get(file)
            .is_some_and(|record| record.kind == FileKind::Directory);
        if is_directory && self.files.name_count(file) > 0 {
            self.problem(
                FindingKind::Field,
                block,
                format!("one name for directory inode {inode}"),
                format!("a second one, {:?}", shown()),
            );
        }
        let added = self.files.add_name(file, block.directory, name, block.doubtful);
        if added.is_err() && !self.bound_reported {
            self.bound_reported = true;
            self.problem(
                FindingKind::Bound,
                block,
                "at most 4 GiB of names".to_owned(),
                "more".to_owned(),
            );
        }
    }
}

impl Block {
    fn encrypted(&self, files: &FileTable) -> bool {
        files.get(self.directory).is_some_and(|record| record.encrypted)
    }
}

/// In blocks of 64 KiB the length of an entry is encoded differently.
fn entry_length(stored: u16, block_bytes: usize) -> usize {
    if block_bytes < 65536 {
        return usize::from(stored);
    }
    match stored {
        0 | u16::MAX => block_bytes,
        _ => usize::from(stored & 0xFFFC) | usize::from(stored & 3) << 16,
    }
}

/// Splits the data of an inline directory: the parent's number, entries in the inode, entries in an attribute.
pub(crate) fn inline_entries(field: &[u8], rest: &[u8]) -> Vec<Vec<u8>> {
    let in_inode = field.get(4..).unwrap_or_default();
    debug_assert!(count(in_inode.len()) <= 56);
    vec![in_inode.to_vec(), rest.to_vec()]
}
