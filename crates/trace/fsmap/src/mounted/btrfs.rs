//! btrfs: FIEMAP reports logical addresses; chunks map them to devices.
//!
//! Chunks come from the chunk tree (TREE_SEARCH_V2, which needs root). Single, DUP and RAID1 chunks contain whole
//! copies and are mapped; striped ones (RAID0, 10, 5, 6) are reported and left out. Free space within chunks is not
//! identified.

use std::os::fd::AsFd;
use std::path::Path;

use super::ioctl::{Request, SEARCH_HEADER, call, pair};
use crate::block_type::BlockType;
use crate::bytes::{count, index, le16, le32, le64};
use crate::finding::{FindingKind, Findings, Place};
use crate::owner_map::Device;
use crate::resolve::{Claim, Rank};

const CHUNK_TREE: u64 = 3;
const CHUNK_ITEM: u32 = 228;
/// Object id of all chunks. A search starts at a key ordered by object, type and offset, so it must be given.
const CHUNK_OBJECT: u64 = 256;
const RESULT_BYTES: usize = 64 << 10;
/// Bytes before an item in the results.
const ITEM_HEADER: usize = 32;
const STRIPE_BYTES: usize = 32;
const STRIPES: usize = 48;

const DATA: u64 = 0x1;
const METADATA_OR_SYSTEM: u64 = 0x2 | 0x4;
/// RAID0, RAID10, RAID5, RAID6.
const STRIPED: u64 = 0x8 | 0x40 | 0x80 | 0x100;
/// Offsets and length of superblocks.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: u64 = 4096;

#[derive(Debug)]
struct Chunk {
    logical: u64,
    length: u64,
    kind: u64,
    /// Offsets of the copies on the first device.
    copies: Vec<u64>,
}

/// All chunks, by logical address.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    chunks: Vec<Chunk>,
}

/// Reads the chunk tree.
pub(crate) fn chunks(root: impl AsFd, findings: &mut Findings) -> Chunks {
    let mut chunks = Vec::new();
    let mut from = 0_u64;
    let mut skipped = 0_u64;
    let mut first_device = None;
    loop {
        let mut buffer = vec![0_u64; SEARCH_HEADER + RESULT_BYTES / 8];
        // tree, object ids, offsets, transactions, types, number of items
        let key = [
            CHUNK_TREE,
            CHUNK_OBJECT,
            CHUNK_OBJECT,
            from,
            u64::MAX,
            0,
            u64::MAX,
            pair(CHUNK_ITEM, CHUNK_ITEM),
            pair(u32::MAX, 0),
        ];
        buffer[..key.len()].copy_from_slice(&key);
        buffer[SEARCH_HEADER - 1] = count(RESULT_BYTES);
        if let Err(error) = call(&root, Request::BtrfsTreeSearch, &mut buffer) {
            findings.note(format!(
                "addresses of btrfs can't be led to the device: TREE_SEARCH: {error}; no file is mapped"
            ));
            return Chunks::default();
        }
        let (items, before) = (super::ioctl::halves(buffer[8]).0, from);
        let bytes: Vec<u8> = buffer[SEARCH_HEADER..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let mut at = 0;
        for _ in 0..items {
            let (logical, length) = (le64(&bytes, at + 16), index(u64::from(le32(&bytes, at + 28))));
            let item = bytes
                .get(at + ITEM_HEADER..at + ITEM_HEADER + length)
                .unwrap_or_default();
            let chunk = parse(logical, item, &mut first_device);
            skipped += u64::from(chunk.is_none());
            chunks.extend(chunk);
            at += ITEM_HEADER + length;
            from = logical.saturating_add(1);
        }
        // Ensures progress, whatever the kernel answers.
        if items == 0 || from <= before {
            break;
        }
    }
    if skipped > 0 {
        findings.add(
            FindingKind::Unsupported,
            Place::Byte(0),
            "chunks with whole copies on the first device",
            format!("{skipped} that are striped or on other devices; their files are not mapped"),
        );
    }
    chunks.sort_by_key(|chunk: &Chunk| chunk.logical);
    Chunks { chunks }
}

fn parse(logical: u64, item: &[u8], first_device: &mut Option<u64>) -> Option<Chunk> {
    let kind = le64(item, 24);
    if kind & STRIPED != 0 {
        return None;
    }
    let stripes = item.get(STRIPES..)?.chunks_exact(STRIPE_BYTES);
    let mut copies = Vec::new();
    for stripe in stripes.take(usize::from(le16(item, 44))) {
        let device = *first_device.get_or_insert_with(|| le64(stripe, 0));
        if le64(stripe, 0) == device {
            copies.push(le64(stripe, 8));
        }
    }
    (!copies.is_empty()).then(|| Chunk {
        logical,
        length: le64(item, 0),
        kind,
        copies,
    })
}

impl Chunks {
    /// Maps a claim on logical addresses to the device, one claim per chunk and copy.
    pub(crate) fn place(&self, claim: Claim, out: &mut Vec<Claim>) {
        let mut at = self
            .chunks
            .partition_point(|chunk| chunk.logical + chunk.length <= claim.start);
        while let Some(chunk) = self.chunks.get(at).filter(|chunk| chunk.logical < claim.end()) {
            let start = claim.start.max(chunk.logical);
            let end = claim.end().min(chunk.logical + chunk.length);
            for copy in &chunk.copies {
                out.push(Claim {
                    start: copy + (start - chunk.logical),
                    length: end - start,
                    file_offset: claim.file_offset + (start - claim.start),
                    ..claim
                });
            }
            at += 1;
        }
    }

    /// Claims superblocks and metadata chunks; the rest of the chunks is unknown, and space outside of chunks is free.
    pub(crate) fn claim_areas(&self, device: Option<&Device>, claims: &mut Vec<Claim>) {
        let Some(device) = device.filter(|_| !self.chunks.is_empty()) else {
            return;
        };
        for start in SUPERBLOCKS {
            if start + SUPERBLOCK_BYTES <= device.length {
                claims.push(Claim::area(
                    start,
                    SUPERBLOCK_BYTES,
                    BlockType::Superblock,
                    Rank::Layout,
                ));
            }
        }
        let mut areas: Vec<(u64, u64)> = Vec::new();
        for chunk in &self.chunks {
            let metadata = chunk.kind & METADATA_OR_SYSTEM != 0 && chunk.kind & DATA == 0;
            let kind = if metadata {
                BlockType::Tree
            } else {
                BlockType::Unknown
            };
            for copy in &chunk.copies {
                claims.push(Claim::area(*copy, chunk.length, kind, Rank::Gap));
                areas.push((*copy, chunk.length));
            }
        }
        areas.sort_unstable();
        let mut position = 0;
        for (start, length) in areas.into_iter().chain([(device.length, 0)]) {
            if start > position {
                claims.push(Claim::area(
                    position,
                    start - position,
                    BlockType::Free,
                    Rank::Gap,
                ));
            }
            position = position.max(start + length);
        }
    }
}

/// The device of a btrfs mount, by the name in /proc/self/mountinfo: the device numbers of its files are not those of a
/// block device.
pub(crate) fn device(path: &Path) -> Option<Device> {
    let path = path.canonicalize().ok()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = table.lines().filter_map(|line| {
        let (before, behind) = line.split_once(" - ")?;
        let mountpoint = before.split(' ').nth(4)?;
        let mut behind = behind.split(' ');
        let kind = behind.next()?;
        let source = behind.next()?;
        (kind == "btrfs" && path.starts_with(mountpoint)).then_some((mountpoint.len(), source))
    });
    let (_, source) = mounts.max_by_key(|(length, _)| *length)?;
    super::device_of_node(&std::fs::metadata(source).ok()?)
}
