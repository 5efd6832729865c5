//! LZO1X decompressor, with a fast compressor in [`pack`]. Images are compressed with the crate `lzokay`; its decoder
//! moves single bytes, and took a third of an extraction, so this one replaces it.
//!
//! A stream is a sequence of instructions that copy literals from the stream, or a match from earlier output. Short
//! copies move a whole word of 16 bytes if there is room for it; excess bytes are overwritten by the next
//! instruction, or lie outside the result. Every position is checked: a stream may contain anything.
//!
//! Nearly all instructions are short matches of three kinds in an order that no processor predicts.
//! [`State::short_instructions`] decodes them without a branch between the kinds; everything else, and the end of the
//! block, is left to the loop of [`decompress`], which alone finds faults. 50 MB of text: 79 ms by the loop, 55 by both.
//!
//! | first byte    | match length                                  | distance                       | literals after it |
//! |---------------|-----------------------------------------------|--------------------------------|---------------|
//! | 0..16         | after no literals: no match, 3 + it literals (long form) |                     |               |
//! | 0..16         | after 1 to 3 literals: 2                      | 1 + 4 × next + bits 2 and 3    | bits 0 and 1  |
//! | 0..16         | after more: 3                                 | 2049 + 4 × next + bits 2 and 3 | bits 0 and 1  |
//! | 16..32        | 2 + bits 0 to 2 (long form)                   | 16384 × (1 + bit 3) + word / 4 | word's 0 and 1 |
//! | 32..64        | 2 + bits 0 to 4 (long form)                   | 1 + word / 4                   | word's 0 and 1 |
//! | 64..          | 1 + bits 5 to 7                               | 1 + 8 × next + bits 2 to 4     | bits 0 and 1  |
//!
//! Long form: if the bits are 0, the value is their maximum, plus 255 for each zero byte that follows, plus the next
//! byte. 17, 0, 0 ends the stream. The very first byte of a stream is special: above 17, it stands for that many
//! literals plus 17.

pub(crate) mod pack;

/// Bytes moved by a short copy.
const WORD: usize = 16;
/// Literal count that stands for more than three.
const MANY: usize = 4;

/// Decompresses `stream` into `out` and returns the number of bytes written. `None` if the stream is invalid or its
/// output does not fit.
pub(crate) fn decompress(stream: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut state = State {
        stream,
        out,
        read: 0,
        written: 0,
    };
    let mut literals = 0;
    let first = usize::from(*stream.first()?);
    if first > 17 {
        state.read = 1;
        literals = first - 17;
        state.literals(literals)?;
        literals = literals.min(MANY);
    }
    loop {
        literals = state.short_instructions(literals);
        let (instruction, word) = state.instruction()?;
        // Each arm returns match length, distance, the bits with the literal count, and the bytes consumed.
        let (bytes, distance, then, taken) = match instruction {
            64.. => {
                let distance = 1 + ((word & 0xFF) << 3 | instruction >> 2 & 7);
                (1 + (instruction >> 5), distance, instruction, 2)
            }
            33.. => (2 + (instruction & 31), 1 + (word >> 2), word, 3),
            0..16 if literals == 0 => {
                state.read += 1;
                let count = 3 + state.count(instruction, 15)?;
                state.literals(count)?;
                literals = MANY;
                continue;
            }
            0..16 => {
                let distance = (word & 0xFF) << 2 | instruction >> 2;
                match literals {
                    MANY => (3, distance + 2049, instruction, 2),
                    _ => (2, distance + 1, instruction, 2),
                }
            }
            16..32 => {
                state.read += 1;
                let bytes = 2 + state.count(instruction & 7, 7)?;
                let word = state.word()?;
                let distance = (instruction & 8) << 11 | word >> 2;
                if distance == 0 {
                    let is_end = bytes == 3 && state.read == stream.len();
                    return is_end.then_some(state.written);
                }
                (bytes, distance + 16_384, word, 0)
            }
            32 => {
                state.read += 1;
                let bytes = 2 + state.count(0, 31)?;
                let word = state.word()?;
                (bytes, 1 + (word >> 2), word, 0)
            }
        };
        state.read += taken;
        state.copy(bytes, distance)?;
        literals = then & 3;
        state.few_literals(literals)?;
    }
}

/// Length of the match of each short instruction; those from 16 to 32 have a long form or another distance.
const MATCH_BYTES: [u8; 256] = {
    let mut table = [2; 256];
    let mut code: u8 = 33;
    let mut instruction = 33;
    while instruction < 256 {
        table[instruction] = match instruction {
            0..64 => 2 + code % 32,
            _ => 1 + code / 32,
        };
        code = code.wrapping_add(1);
        instruction += 1;
    }
    table
};

/// `one` where the bits of `mask` are set, otherwise `other`.
#[inline]
const fn choose(mask: u64, one: u64, other: u64) -> u64 {
    other ^ (one ^ other) & mask
}

/// All bits set, or none.
#[inline]
fn mask(is_set: bool) -> u64 {
    u64::from(is_set).wrapping_neg()
}

/// Copies a word that has a run of at most 16 literals. `None` if a whole word does not fit.
#[inline]
fn move_run(stream: &[u8], from: usize, out: &mut [u8], to: usize) -> Option<()> {
    let word = stream.get(from..)?.first_chunk::<WORD>()?;
    *out.get_mut(to..)?.first_chunk_mut()? = *word;
    Some(())
}

/// Copies a match of at most 16 bytes, not more than its distance, and four literals behind it. `None` if the match
/// begins before the block, or whole words do not fit; nothing is written then.
#[inline]
fn move_match(out: &mut [u8], at: usize, bytes: usize, distance: usize, literals: u64) -> Option<()> {
    let start = at.checked_sub(distance)?;
    let word: [u8; WORD] = *out.get(start..)?.first_chunk()?;
    let to: &mut [u8; WORD + 4] = out.get_mut(at..)?.first_chunk_mut()?;
    *to.first_chunk_mut()? = word;
    *to.get_mut(bytes..)?.first_chunk_mut()? = *literals.to_le_bytes().first_chunk::<4>()?;
    Some(())
}

struct State<'a> {
    stream: &'a [u8],
    out: &'a mut [u8],
    read: usize,
    written: usize,
}

impl State<'_> {
    /// Executes instructions as long as they are short matches and short runs of literals, far from the end of the
    /// stream and of the block. Gets and returns the number of literals before the next instruction.
    #[inline]
    fn short_instructions(&mut self, literals: usize) -> usize {
        let wide = |small: u64| usize::try_from(small).unwrap_or(usize::MAX);
        // Here and not in `self`, which would be in memory.
        let (mut read, mut written) = (self.read, self.written);
        let mut literals = literals;
        // Instructions below 16 are short matches only after one to three literals.
        let mut runs_below = if (1..MANY).contains(&literals) { 0 } else { 16 };
        // An instruction of at most three bytes, and its three literals.
        while let Some(code) = self.stream.get(read..).and_then(|rest| rest.first_chunk()) {
            let code = u64::from_le_bytes(*code);
            let instruction = code & 0xFF;
            if instruction.wrapping_sub(16) <= 16 {
                break;
            }
            if instruction < runs_below {
                let count = wide(instruction) + 3;
                let is_short = literals == 0 && (4..=WORD).contains(&count);
                if !is_short || move_run(self.stream, read + 1, self.out, written).is_none() {
                    break;
                }
                read += 1 + count;
                written += count;
                literals = MANY;
                continue;
            }
            let is_far = mask(instruction & 0xE0 == 0x20);
            // From 64 on, the next byte counts twice as much.
            let next = code >> 6 & 0x3FC;
            let near = next + (next & mask(instruction >= 64)) + (instruction >> 2 & 7);
            let distance = wide(1 + choose(is_far, code >> 10 & 0x3FFF, near));
            let bytes = usize::from(MATCH_BYTES[wide(instruction)]);
            if bytes > distance || bytes > WORD {
                break;
            }
            // The byte with the number of literals, one more, and these.
            let tail = choose(is_far, code >> 8, code);
            if move_match(self.out, written, bytes, distance, tail >> 16).is_none() {
                break;
            }
            literals = wide(tail & 3);
            read += wide((2 + (tail & 3)).wrapping_sub(is_far));
            written += bytes + literals;
            runs_below = 16 & mask(tail & 3 == 0);
        }
        (self.read, self.written) = (read, written);
        literals
    }

    /// The next byte and the two behind it, which most instructions use. Past the end they read as zero, which the
    /// following copy or instruction detects.
    #[inline]
    fn instruction(&self) -> Option<(usize, usize)> {
        let rest = self.stream.get(self.read..)?;
        let [instruction, word @ ..] = match rest.first_chunk::<3>() {
            Some(raw) => *raw,
            None => [*rest.first()?, rest.get(1).copied().unwrap_or(0), 0],
        };
        Some((usize::from(instruction), usize::from(u16::from_le_bytes(word))))
    }

    #[inline]
    fn word(&mut self) -> Option<usize> {
        let word = u16::from_le_bytes(*self.stream.get(self.read..)?.first_chunk()?);
        self.read += 2;
        Some(usize::from(word))
    }

    /// A count from the bits of an instruction, whose maximum is `most`.
    #[inline]
    fn count(&mut self, bits: usize, most: usize) -> Option<usize> {
        match bits {
            0 => self.long_count(most),
            bits => Some(bits),
        }
    }

    #[cold]
    fn long_count(&mut self, most: usize) -> Option<usize> {
        let mut count = most;
        loop {
            let byte = *self.stream.get(self.read)?;
            self.read += 1;
            match byte {
                // Can't overflow: a stream is shorter than memory.
                0 => count += 255,
                last => return Some(count + usize::from(last)),
            }
        }
    }

    /// Copies literals from the stream.
    #[inline]
    fn literals(&mut self, bytes: usize) -> Option<()> {
        let from = self.stream.get(self.read..)?;
        let to = self.out.get_mut(self.written..)?;
        match (from.first_chunk::<WORD>(), to.first_chunk_mut::<WORD>()) {
            (Some(from), Some(to)) if bytes <= WORD => *to = *from,
            _ => to.get_mut(..bytes)?.copy_from_slice(from.get(..bytes)?),
        }
        self.read += bytes;
        self.written += bytes;
        Some(())
    }

    /// Like [`Self::literals`], for at most three.
    #[inline]
    fn few_literals(&mut self, bytes: usize) -> Option<()> {
        let from = self.stream.get(self.read..)?;
        let to = self.out.get_mut(self.written..)?;
        let (Some(from), Some(to)) = (from.first_chunk::<4>(), to.first_chunk_mut::<4>()) else {
            return self.literals(bytes);
        };
        *to = *from;
        self.read += bytes;
        self.written += bytes;
        Some(())
    }

    /// Copies a match from earlier output.
    #[inline]
    fn copy(&mut self, bytes: usize, distance: usize) -> Option<()> {
        let start = self.written.checked_sub(distance)?;
        if distance >= WORD && bytes <= WORD && self.written + WORD <= self.out.len() {
            let word: [u8; WORD] = *self.out.get(start..)?.first_chunk()?;
            *self.out.get_mut(self.written..)?.first_chunk_mut()? = word;
        } else {
            self.repeat(start, bytes, distance)?;
        }
        self.written += bytes;
        Some(())
    }

    /// Copies a long or overlapping match; each round doubles the part that is copied.
    #[cold]
    fn repeat(&mut self, start: usize, bytes: usize, distance: usize) -> Option<()> {
        if self.written + bytes > self.out.len() {
            return None;
        }
        let mut there = distance;
        while there < distance + bytes {
            let more = there.min(distance + bytes - there);
            self.out.copy_within(start..start + more, start + there);
            there += more;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test data: near and far repetitions, runs, and noise.
    pub(super) fn block(random: &mut fastrand::Rng) -> Vec<u8> {
        let mut block: Vec<u8> = Vec::new();
        let wanted = random.usize(1..9000);
        while block.len() < wanted {
            match random.u8(..4) {
                0 => block.extend(std::iter::repeat_with(|| random.u8(..)).take(60)),
                1 => block.extend(vec![random.u8(..); random.usize(1..700)]),
                _ if block.is_empty() => block.push(7),
                _ => {
                    let from = random.usize(..block.len());
                    let end = block.len().min(from + random.usize(1..40));
                    block.extend_from_within(from..end);
                }
            }
        }
        block
    }

    #[test]
    fn what_an_encoder_made_comes_out_again() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let block = block(&mut random);
            let stream = lzokay::compress::compress(&block).unwrap();
            let mut out = vec![0; block.len()];
            assert_eq!(decompress(&stream, &mut out), Some(block.len()));
            assert!(out == block);
            // A larger buffer changes nothing, a smaller one is refused.
            let mut larger = vec![0; block.len() + 50];
            assert_eq!(decompress(&stream, &mut larger), Some(block.len()));
            assert!(larger.starts_with(&block));
            assert_eq!(decompress(&stream, &mut out[1..]), None);
        }
    }

    #[test]
    fn broken_streams_end_as_with_another_decoder() {
        let mut random = fastrand::Rng::with_seed(2);
        for round in 0..3000 {
            let block = block(&mut random);
            let mut stream = lzokay::compress::compress(&block).unwrap();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..stream.len());
                stream[at] ^= 1 << random.u8(..8);
            }
            if random.bool() {
                stream.truncate(random.usize(..stream.len()));
            }
            let (mut ours, mut theirs) = (vec![0; block.len()], vec![0; block.len()]);
            let result = decompress(&stream, &mut ours);
            let expected = lzokay::decompress::decompress(&stream, &mut theirs).ok();
            assert_eq!(result, expected, "round {round}");
            if let Some(bytes) = result {
                assert!(ours[..bytes] == theirs[..bytes], "round {round}");
            }
        }
    }
}
