//! LZO1X streams made while a program waits for its write: some hundred MB/s, where the search of the crate `lzokay` for the
//! shortest stream, which images are made with, has 20 (with bytes that do not compress, two thirds of what a write cost).
//!
//! A table knows where each four bytes were last seen. Where nothing was found for long, only each so many-th place is looked
//! at. Of the instructions, three are enough: literals, a few bytes from near, any number from farther away.

/// How far back a copy of any length reaches.
const DISTANCE_MAX: usize = 1 << 14;
/// How far back a copy of few bytes reaches, which takes two bytes rather than three.
const NEAR_MAX: usize = 1 << 11;
/// The most that such a copy has.
const NEAR_BYTES_MAX: usize = 8;
/// The bits that find a place in the table.
const TABLE_BITS: u32 = 12;
/// After so many places without a find one more of them is left out each time.
const PATIENCE: usize = 32;

/// Makes streams; keeps the table between them.
pub(crate) struct Encoder {
    /// By the hash of four bytes, where they were seen last; 0 where they were not, which is looked at in vain.
    seen_at: Box<[u16; 1 << TABLE_BITS]>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self {
            seen_at: Box::new([0; 1 << TABLE_BITS]),
        }
    }

    /// The stream of a block; `None` where it would not be shorter than the block, or that has more than 65,535 bytes.
    pub(crate) fn compress(&mut self, block: &[u8]) -> Option<Vec<u8>> {
        u16::try_from(block.len()).ok()?;
        self.seen_at.fill(0);
        let mut stream = Stream {
            bytes: Vec::with_capacity(block.len()),
        };
        let (mut at, mut done) = (1, 0);
        while let Some(word) = word_at(block, at) {
            let seen_at = &mut self.seen_at[slot(word)];
            let from = usize::from(*seen_at);
            *seen_at = u16::try_from(at).ok()?;
            if at - from > DISTANCE_MAX || word_at(block, from) != Some(word) {
                at += 1 + (at - done) / PATIENCE;
                continue;
            }
            let distance = at - from;
            let before = as_before(&block[..from], &block[done..at]);
            let bytes = before + 4 + in_common(&block[from + 4..], &block[at + 4..]);
            stream.literals(&block[done..at - before]);
            stream.copy(bytes, distance);
            done = at - before + bytes;
            at = done;
            if stream.bytes.len() >= block.len() {
                return None;
            }
        }
        stream.literals(&block[done..]);
        stream.bytes.extend([17, 0, 0]);
        (stream.bytes.len() < block.len()).then_some(stream.bytes)
    }
}

struct Stream {
    bytes: Vec<u8>,
}

impl Stream {
    /// Bytes as they are; at the beginning, or behind a copy.
    fn literals(&mut self, literals: &[u8]) {
        match (self.bytes.last_chunk_mut::<2>(), literals.len()) {
            (_, 0) => return,
            (None, count @ ..=238) => self.bytes.push(low_byte(17 + count)),
            // Bits that a copy leaves for them.
            (Some([bits, _]), count @ ..=3) => *bits |= low_byte(count),
            (_, count @ ..=18) => self.bytes.push(low_byte(count - 3)),
            (_, count) => self.long(0, count - 18),
        }
        self.bytes.extend_from_slice(literals);
    }

    /// Four bytes or more of what there was, from so far back.
    fn copy(&mut self, bytes: usize, distance: usize) {
        let back = distance - 1;
        if bytes <= NEAR_BYTES_MAX && distance <= NEAR_MAX {
            let first = (bytes - 1) << 5 | (back & 7) << 2;
            self.bytes.extend([low_byte(first), low_byte(back >> 3)]);
            return;
        }
        match bytes {
            ..=33 => self.bytes.push(low_byte(32 | (bytes - 2))),
            _ => self.long(32, bytes - 33),
        }
        self.bytes.extend([low_byte(back << 2), low_byte(back >> 6)]);
    }

    /// The long form of a number: what is more than the bits of the instruction can say.
    fn long(&mut self, instruction: u8, more: usize) {
        self.bytes.push(instruction);
        let zeros = (more - 1) / 255;
        self.bytes.resize(self.bytes.len() + zeros, 0);
        self.bytes.push(low_byte(more - zeros * 255));
    }
}

const fn low_byte(number: usize) -> u8 {
    number.to_le_bytes()[0]
}

fn word_at(block: &[u8], at: usize) -> Option<u32> {
    block
        .get(at..)?
        .first_chunk()
        .map(|word| u32::from_le_bytes(*word))
}

/// Slot of a word in the table: the upper bits of a product, which depend on all of it.
fn slot(word: u32) -> usize {
    usize::try_from(word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - TABLE_BITS)).unwrap_or(0)
}

/// How many bytes at the beginning are the same; `there` is the longer one.
fn in_common(there: &[u8], here: &[u8]) -> usize {
    let (words, rest) = here.as_chunks::<8>();
    let mut bytes = 0;
    for (there, here) in there.as_chunks::<8>().0.iter().zip(words) {
        let different = u64::from_le_bytes(*there) ^ u64::from_le_bytes(*here);
        if different != 0 {
            let same = usize::try_from(different.trailing_zeros() / 8).unwrap_or(0);
            return bytes + same;
        }
        bytes += 8;
    }
    let same = there[bytes..]
        .iter()
        .zip(rest)
        .take_while(|(there, here)| there == here);
    bytes + same.count()
}

/// The same at the end.
fn as_before(there: &[u8], here: &[u8]) -> usize {
    let pairs = there.iter().rev().zip(here.iter().rev());
    pairs.take_while(|(there, here)| there == here).count()
}

#[cfg(test)]
mod tests {
    use super::super::{decompress, tests::block};
    use super::*;

    fn check(encoder: &mut Encoder, block: &[u8], expects_some: bool) {
        let Some(stream) = encoder.compress(block) else {
            assert!(!expects_some, "{} bytes were not compressed", block.len());
            return;
        };
        let mut out = vec![0; block.len()];
        assert_eq!(decompress(&stream, &mut out), Some(block.len()));
        assert!(out == block, "{} bytes", block.len());
        let mut theirs = vec![0; block.len()];
        assert_eq!(
            lzokay::decompress::decompress(&stream, &mut theirs),
            Ok(block.len())
        );
        assert!(theirs == block, "{} bytes, another decoder", block.len());
    }

    #[test]
    fn two_decoders_make_the_block_of_each_stream() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut encoder = Encoder::new();
        for _ in 0..500 {
            check(&mut encoder, &block(&mut random), false);
        }
    }

    #[test]
    fn all_lengths_and_distances_come_out_again() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut encoder = Encoder::new();
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(2000).collect();
        let lengths = (4..40).chain([286, 287, 288, 289, 290, 541, 542, 543, 544, 800]);
        for bytes in lengths {
            for apart in [
                0, 1, 2, 3, 4, 18, 19, 238, 239, 272, 273, 274, 2040, 2048, 2049, 16_300,
            ] {
                // Twice the same, noise between them, or so much else that it would be overlooked behind it, and behind them.
                let mut block = noise[..bytes].to_vec();
                match apart {
                    ..300 => block.extend_from_slice(&noise[1000..1000 + apart]),
                    _ => block.resize(bytes + apart, 9),
                }
                block.extend_from_slice(&noise[..bytes]);
                block.extend_from_slice(&noise[bytes..bytes + apart % 300]);
                block.resize(block.len() + 300, 7);
                check(&mut encoder, &block, true);
            }
        }
    }

    #[test]
    fn noise_and_blocks_that_are_too_long_are_left_alone() {
        let mut random = fastrand::Rng::with_seed(5);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(4096).collect();
        assert_eq!(Encoder::new().compress(&noise), None);
        assert_eq!(Encoder::new().compress(&[]), None);
        assert_eq!(Encoder::new().compress(&[0; 65_536]), None);
        assert!(
            Encoder::new()
                .compress(&[0; 65_535])
                .is_some_and(|stream| stream.len() < 300)
        );
    }

    #[test]
    fn text_is_hardly_longer_than_after_a_thorough_search() {
        let text = include_bytes!("../lzo.rs");
        let (mut quick, mut thorough, mut encoder) = (0, 0, Encoder::new());
        for block in text.chunks(4096) {
            quick += encoder.compress(block).unwrap().len();
            thorough += lzokay::compress::compress(block).unwrap().len();
        }
        assert!(quick < text.len() * 2 / 3, "{quick} of {}", text.len());
        assert!(quick * 100 < thorough * 125, "{quick} and {thorough}");
    }
}
