//! Fast LZO1X compressor for writes to a mount: some hundred MB/s. `lzokay`, which is used for images, searches for
//! the shortest stream at 20 MB/s; on incompressible data that was two thirds of the cost of a write.
//!
//! A hash table holds the last position of each four-byte sequence. After a long stretch without a match, positions
//! are skipped with growing steps. Three kinds of instructions suffice: literals, short near matches, and far matches
//! of any length.

/// Maximum distance of a match of any length.
const DISTANCE_MAX: usize = 1 << 14;
/// Maximum distance of a short match, which is encoded in two bytes instead of three.
const NEAR_MAX: usize = 1 << 11;
/// Maximum length of a short match.
const NEAR_BYTES_MAX: usize = 8;
/// Size of the hash table, as a power of two.
const TABLE_BITS: u32 = 12;
/// The step grows by one for every this many positions without a match.
const PATIENCE: usize = 32;

/// Compresses blocks; owns the hash table.
pub(crate) struct Encoder {
    /// Last position by the hash of four bytes; 0 if unseen, which the comparison with the actual bytes then rejects.
    seen_at: Box<[u16; 1 << TABLE_BITS]>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self {
            seen_at: Box::new([0; 1 << TABLE_BITS]),
        }
    }

    /// Compresses a block; `None` if the result would not be shorter, or the block has more than 65,535 bytes.
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
    /// Emits literals; at the start of the stream or after a match.
    fn literals(&mut self, literals: &[u8]) {
        match (self.bytes.last_chunk_mut::<2>(), literals.len()) {
            (_, 0) => return,
            (None, count @ ..=238) => self.bytes.push(low_byte(17 + count)),
            // Up to three fit into spare bits of the preceding match.
            (Some([bits, _]), count @ ..=3) => *bits |= low_byte(count),
            (_, count @ ..=18) => self.bytes.push(low_byte(count - 3)),
            (_, count) => self.long(0, count - 18),
        }
        self.bytes.extend_from_slice(literals);
    }

    /// Emits a match of at least four bytes.
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

    /// Emits an instruction in long form; `more` is the excess over the maximum of its bits.
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

/// Hash of a word: the upper bits of a product, which depend on all of its bits.
fn slot(word: u32) -> usize {
    usize::try_from(word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - TABLE_BITS)).unwrap_or(0)
}

/// Length of the common prefix; `there` is the longer slice.
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

/// Length of the common suffix.
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
                // Twice the same bytes; between and behind them noise, or runs long enough to make the search skip
                // positions.
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
