//! The written data: a file's content as a function of seed, offset and generation.
//!
//! A pool of [`POOL_BYTES`] holds the bytes of the pattern; the record at a file offset is the part of the pool at
//! that offset, modulo the pool's length. Neighbouring blocks therefore differ for a device or file system that
//! compresses extents of up to that size, and no byte is copied. Eight bytes at each 4 KiB block, and at the start of
//! each record, are a stamp of seed, offset and generation: every block is distinct for a device that deduplicates,
//! and a record that was written twice tells its generation.
//!
//! Prepared files have stamps only at blocks, whatever the record size.

use crate::order::mixed;
use crate::spec::DataPattern;

/// Alignment of records in memory: a page, which satisfies O_DIRECT everywhere.
const ALIGNMENT: usize = 4096;

/// Distance between stamps, and the block of which a share is compressible.
const BLOCK_BYTES: usize = 4096;

/// Twice the largest extent that a common file system compresses (btrfs: 128 KiB), and small enough for the
/// second-level cache of a processor. A power of two.
const POOL_BYTES: usize = 1 << 18;

const STAMP_BYTES: usize = 8;

/// Makes the stamps of different generations differ.
const GENERATION_STEP: u64 = 0xD1B5_4A32_D192_ED03;

/// Page-aligned memory.
#[derive(Debug)]
pub struct AlignedMemory {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedMemory {
    /// `length` bytes of `fill`.
    pub fn new(length: usize, fill: u8) -> Self {
        let memory = vec![fill; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self {
            memory,
            start,
            length,
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Generates the content of records of one length.
#[derive(Debug)]
pub struct Content {
    /// The bytes of the pattern, followed by a repetition one record long.
    pool: AlignedMemory,
    /// Scratch space for records whose stamps would overwrite the pool.
    copy: Option<AlignedMemory>,
    record_bytes: usize,
    stamps: Stamps,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamps {
    /// The pattern is constant.
    None,
    AtBlocks,
    AtBlocksAndRecords,
}

impl Content {
    /// The content that a workload writes in records of `record_bytes`.
    pub fn written(record_bytes: usize, data: DataPattern, seed: u64) -> Self {
        let fits_blocks =
            record_bytes.is_multiple_of(BLOCK_BYTES) || BLOCK_BYTES.is_multiple_of(record_bytes);
        let mut content = Self::new(record_bytes, data, seed, Stamps::AtBlocksAndRecords);
        if !fits_blocks && content.stamps != Stamps::None {
            content.copy = Some(AlignedMemory::new(record_bytes, 0));
        }
        content
    }

    /// The content of a file before the workload, requested in pieces of up to `piece_bytes`.
    pub fn prepared(piece_bytes: usize, data: DataPattern, seed: u64) -> Self {
        Self::new(piece_bytes, data, seed, Stamps::AtBlocks)
    }

    fn new(record_bytes: usize, data: DataPattern, seed: u64, stamps: Stamps) -> Self {
        let (fill, compressible, stamps) = match data {
            DataPattern::Zero => (0, None, Stamps::None),
            DataPattern::Constant(byte) => (byte, None, Stamps::None),
            DataPattern::Random => (0, Some(0), stamps),
            DataPattern::Compressible(percent) => (0, Some(percent.min(100)), stamps),
        };
        let length = if stamps == Stamps::None {
            record_bytes
        } else {
            POOL_BYTES + record_bytes
        };
        let mut pool = AlignedMemory::new(length, fill);
        if let Some(percent) = compressible {
            let random_bytes = BLOCK_BYTES * usize::from(100 - percent) / 100;
            fill_pool(pool.as_mut_slice(), seed, random_bytes);
        }
        Self {
            pool,
            copy: None,
            record_bytes,
            stamps,
            seed,
        }
    }

    /// The content of the record at file offset `offset`, written for the `generation`th time.
    #[inline]
    pub fn at(&mut self, offset: u64, generation: u32) -> &[u8] {
        if self.stamps == Stamps::None {
            return self.pool.as_slice();
        }
        self.stamped(offset, generation, self.record_bytes)
    }

    /// The first bytes of the record at `offset`, at most `length`, at the cost of a record of that length.
    pub fn start_at(&mut self, offset: u64, length: usize) -> &[u8] {
        let length = length.min(self.record_bytes);
        if self.stamps == Stamps::None {
            return &self.pool.as_slice()[..length];
        }
        self.stamped(offset, 0, length)
    }

    fn stamped(&mut self, offset: u64, generation: u32, length: usize) -> &[u8] {
        let seed = self
            .seed
            .wrapping_add(u64::from(generation).wrapping_mul(GENERATION_STEP));
        let place = in_pool(offset, POOL_BYTES);
        let into_block = in_pool(offset, BLOCK_BYTES);
        if let Some(copy) = &mut self.copy {
            let record = &mut copy.as_mut_slice()[..length];
            record.copy_from_slice(&self.pool.as_slice()[place..place + length]);
            stamp_blocks(record, offset, into_block, seed);
            stamp(record, 0, mixed(seed ^ offset));
            return record;
        }
        let pool = self.pool.as_mut_slice();
        if self.stamps == Stamps::AtBlocksAndRecords {
            let record = &mut pool[place..place + length];
            stamp_blocks(record, offset, into_block, seed);
            if into_block != 0 {
                stamp(record, 0, mixed(seed ^ offset));
            }
            return &self.pool.as_slice()[place..place + length];
        }
        // The stamp of the block that the piece begins in may reach into the piece.
        let before = if into_block < STAMP_BYTES { into_block } else { 0 };
        let block = offset - in_file(before);
        let whole = &mut pool[place - before..place + length];
        stamp_blocks(whole, block, in_pool(block, BLOCK_BYTES), seed);
        &self.pool.as_slice()[place..place + length]
    }
}

/// Stamps each block that begins inside `bytes`, which lie at file offset `offset`.
fn stamp_blocks(bytes: &mut [u8], offset: u64, into_block: usize, seed: u64) {
    let mut place = (BLOCK_BYTES - into_block) % BLOCK_BYTES;
    while place < bytes.len() {
        stamp(bytes, place, mixed(seed ^ (offset + in_file(place))));
        place += BLOCK_BYTES;
    }
}

fn stamp(bytes: &mut [u8], place: usize, value: u64) {
    let rest = &mut bytes[place..];
    let value = value.to_le_bytes();
    if let Some(whole) = rest.first_chunk_mut::<STAMP_BYTES>() {
        *whole = value;
    } else {
        let length = rest.len();
        rest.copy_from_slice(&value[..length]);
    }
}

/// Fills the pool: random bytes at the start of each block, zeros after them, repeated after the pool's length.
fn fill_pool(memory: &mut [u8], seed: u64, random_bytes: usize) {
    let first = POOL_BYTES.min(memory.len());
    let mut number = mixed(seed);
    for block in memory[..first].chunks_mut(BLOCK_BYTES) {
        let length = random_bytes.min(block.len());
        for word in block[..length].chunks_mut(STAMP_BYTES) {
            number = number.wrapping_add(1);
            word.copy_from_slice(&mixed(number).to_le_bytes()[..word.len()]);
        }
    }
    let mut done = first;
    while done < memory.len() {
        let part = POOL_BYTES.min(memory.len() - done);
        memory.copy_within(..part, done);
        done += part;
    }
}

/// A file offset modulo a length in memory.
fn in_pool(offset: u64, length: usize) -> usize {
    usize::try_from(offset % in_file(length)).expect("what is left is below a length in memory")
}

/// Converts a length in memory to a number of bytes in a file.
pub fn in_file(length: usize) -> u64 {
    u64::try_from(length).expect("lengths in memory fit in 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned_and_have_their_length() {
        for length in [1, 512, 4096, 12_345] {
            let mut content = Content::written(length, DataPattern::Random, 1);
            assert_eq!(content.at(0, 1).len(), length);
            assert_eq!(content.at(0, 1).as_ptr().align_offset(ALIGNMENT), 0);
        }
        let mut content = Content::written(512, DataPattern::Random, 1);
        assert_eq!(content.at(512 * 77, 1).as_ptr().align_offset(512), 0);
    }

    #[test]
    fn the_start_of_a_record_has_its_bytes_and_stamps_no_others() {
        for record_bytes in [8192, 12_345] {
            let written = || Content::written(record_bytes, DataPattern::Random, 1);
            for length in [0, 3, 4096, 4099, record_bytes, record_bytes + 1] {
                let (mut whole, mut start) = (written(), written());
                let kept = length.min(record_bytes);
                let pool_after = start.pool.as_slice()[kept..].to_vec();
                assert_eq!(start.start_at(0, length), &whole.at(0, 0)[..kept]);
                assert_eq!(start.pool.as_slice()[kept..], pool_after);
            }
        }
    }

    #[test]
    fn blocks_of_a_random_file_all_differ_and_repeat_for_a_seed() {
        let mut content = Content::written(8192, DataPattern::Random, 5);
        let mut blocks = std::collections::BTreeSet::new();
        for record in 0..1000 {
            for block in content.at(record * 8192, 1).chunks(4096) {
                assert!(
                    blocks.insert(block.to_vec()),
                    "a block of record {record} repeats"
                );
            }
        }
        let first = content.at(0, 1).to_vec();
        assert_eq!(Content::written(8192, DataPattern::Random, 5).at(0, 1), first);
    }

    #[test]
    fn content_depends_on_offset_and_generation_and_not_on_what_was_asked_before() {
        for length in [4, 100, 512, 1000, 4096, 6000, 300_000] {
            let step = u64::try_from(length).unwrap();
            let mut content = Content::written(length, DataPattern::Random, 5);
            let first = content.at(step * 41, 1).to_vec();
            for other in 0..600 {
                assert!(
                    content.at(step * other, 1) != first || other == 41,
                    "length {length}"
                );
            }
            assert_ne!(content.at(step * 41, 2), first, "length {length}");
            assert!(content.at(step * 41, 1) == first, "length {length}");
        }
    }

    #[test]
    fn a_prepared_file_is_the_same_in_pieces_of_any_size() {
        let mut whole = Content::prepared(1 << 20, DataPattern::Random, 9);
        let file = whole.at(1 << 20, 0).to_vec();
        for length in [3, 4, 100, 512, 4096, 5000] {
            let mut pieces = Content::prepared(length, DataPattern::Random, 9);
            for (number, expected) in file.chunks_exact(length).take(3000).enumerate() {
                let offset = (1 << 20) + in_file(number * length);
                assert!(pieces.at(offset, 0) == expected, "{length} bytes at {offset}");
            }
        }
    }

    #[test]
    fn the_share_of_zeros_is_as_asked() {
        let mut content = Content::written(1 << 16, DataPattern::Compressible(75), 1);
        let zeros = content.at(1 << 16, 1).iter().filter(|byte| **byte == 0).count();
        let share = zeros * 100 / (1 << 16);
        assert!((74..=76).contains(&share), "{share} %");
    }

    #[test]
    fn constant_data_is_constant() {
        let mut content = Content::written(100, DataPattern::Constant(0xFE), 1);
        assert!(content.at(4096, 1).iter().all(|byte| *byte == 0xFE));
    }
}
