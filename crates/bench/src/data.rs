//! What is written: one page-aligned record in memory, stamped so that each block of a file is different.
//!
//! The stamp is eight bytes at the start of every 4 KiB of the record, made from seed and file offset. It costs one
//! store a page, so the generator does not slow the run, and it makes every block distinct for a device that
//! deduplicates. The content of a file is a function of seed, record size and offset: tests check it.

use crate::order::mixed;
use crate::spec::DataPattern;

/// Alignment of the record in memory: a page, which O_DIRECT accepts everywhere.
const ALIGNMENT: usize = 4096;

/// Distance of stamps in a record.
const STAMP_EVERY: usize = 4096;

/// A record in memory.
#[derive(Debug)]
pub struct RecordBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    /// Seed of the stamps; `None` for patterns that are the same everywhere.
    stamp_seed: Option<u64>,
}

impl RecordBuffer {
    /// A record of `length` bytes.
    pub fn new(length: usize, data: DataPattern, seed: u64) -> Self {
        let fill = if let DataPattern::Constant(byte) = data {
            byte
        } else {
            0
        };
        let mut memory = vec![fill; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let stamp_seed = (data == DataPattern::Random).then_some(seed);
        if let Some(seed) = stamp_seed {
            let words = memory[start..start + length].chunks_mut(8);
            for (number, word) in (seed..=u64::MAX).chain(0..).zip(words) {
                word.copy_from_slice(&mixed(number).to_le_bytes()[..word.len()]);
            }
        }
        Self {
            memory,
            start,
            length,
            stamp_seed,
        }
    }

    /// The content of the record at `offset` of the file.
    pub fn content_at(&mut self, offset: u64) -> &[u8] {
        let seed = self.stamp_seed;
        let record = self.as_mut_slice();
        if let Some(seed) = seed {
            for (position, block) in (offset..)
                .step_by(STAMP_EVERY)
                .zip(record.chunks_mut(STAMP_EVERY))
            {
                let length = block.len().min(8);
                block[..length].copy_from_slice(&mixed(seed ^ position).to_le_bytes()[..length]);
            }
        }
        record
    }

    /// The memory, to read into.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_aligned_and_has_its_length() {
        for length in [1, 512, 4096, 12_345] {
            let mut buffer = RecordBuffer::new(length, DataPattern::Random, 1);
            let record = buffer.as_mut_slice();
            assert_eq!(record.len(), length);
            assert_eq!(record.as_ptr().align_offset(ALIGNMENT), 0);
        }
    }

    #[test]
    fn blocks_of_a_random_file_all_differ_and_repeat_for_a_seed() {
        let mut buffer = RecordBuffer::new(8192, DataPattern::Random, 5);
        let first = buffer.content_at(0).to_vec();
        let second = buffer.content_at(8192).to_vec();
        let blocks = [&first[..4096], &first[4096..], &second[..4096], &second[4096..]];
        for (index, block) in blocks.iter().enumerate() {
            assert!(
                blocks[index + 1..].iter().all(|other| other != block),
                "block {index} repeats"
            );
        }
        assert_eq!(
            RecordBuffer::new(8192, DataPattern::Random, 5).content_at(0),
            first
        );
    }

    #[test]
    fn content_depends_on_the_offset_and_not_on_what_was_asked_before() {
        for length in [4, 1000, 6000] {
            let mut buffer = RecordBuffer::new(length, DataPattern::Random, 5);
            let first = buffer.content_at(4000).to_vec();
            assert_ne!(buffer.content_at(96_000), first);
            assert_eq!(buffer.content_at(4000), first, "length {length}");
        }
    }

    #[test]
    fn constant_data_is_constant() {
        let mut buffer = RecordBuffer::new(100, DataPattern::Constant(0xFE), 1);
        assert!(buffer.content_at(4096).iter().all(|byte| *byte == 0xFE));
    }
}
