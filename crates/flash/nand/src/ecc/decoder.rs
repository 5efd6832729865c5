//! Corrects one page in place.
//!
//! A step whose parity fits is as it was written. One with at most as many zeros as the code corrects bits is erased,
//! whatever its parity says: an erased page of most controllers is no code word. Any other one is decoded; one that
//! can't be stays as it was read and is reported.
//!
//! A page decides on its steps together. Data with an erased parity in all of them was written without ECC and stays as it
//! is. Random bits are a few wrong bits away from a code word more often than is tolerable: corrections of a page with
//! steps that can't be corrected count only if another step shows that the page has this ECC at all.

use super::bch::{Parity, WORDS_MAX};
use super::layout::{Code, Codec, Layout, LayoutError, Mask, choices_log2};
use super::map::{Map, Step};

/// The state of a code word as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepState {
    /// Ones, except for these bits, which are ones again.
    Erased {
        /// Bits that were 0.
        flipped: u32,
    },
    /// Written data, with these bits corrected.
    Good {
        /// Corrected bits.
        flipped: u32,
    },
    /// More wrong bits than the code corrects.
    Failed,
    /// Part of a page that was written without ECC.
    Unprotected,
}

/// Probability, as a power of 2, below which a step fits by accident is no longer considered.
const ACCIDENT_LOG2_MAX: f64 = -20.0;

/// A layout with its tables.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    map: Map,
    codec: Codec,
    mask: Parity,
    strength: u32,
    parity_bits: u32,
    page_bytes: usize,
    /// By the number of corrected bits: the probability, as a power of 2, that a random step is corrected by as few.
    accidents_log2: Vec<f64>,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    message: Vec<u8>,
    parity: Vec<u8>,
    /// The page before its correction.
    read: Vec<u8>,
}

impl Decoder {
    pub(super) fn new(layout: &Layout) -> Result<Self, LayoutError> {
        let map = layout.map()?;
        let codec = layout.codec(map.message_bits_max())?;
        Self::with_codec(layout, map, codec)
    }

    /// With tables made before, for a code that fits.
    pub(super) fn with_codec(layout: &Layout, map: Map, codec: Codec) -> Result<Self, LayoutError> {
        let parity_bits = layout.code.parity_bits();
        let mask = match &layout.mask {
            Mask::None => [0; WORDS_MAX],
            Mask::Erased => erased_mask(
                &codec,
                map.steps.first().map_or(0, |step| step.message_bits),
                parity_bits,
            ),
            Mask::Bytes(bytes) => {
                let expected = layout.parity_bytes();
                if bytes.len() != media::index(expected) {
                    let found = bytes.len();
                    return Err(LayoutError::MaskLength { found, expected });
                }
                cut(words(bytes), parity_bits)
            }
        };
        let word_bits = parity_bits + map.steps.first().map_or(0, |step| step.message_bits);
        let accident = |bits| layout.code.accident_log2(word_bits, bits);
        Ok(Self {
            accidents_log2: (0..=layout.code.strength()).map(accident).collect(),
            map,
            codec,
            mask,
            strength: layout.code.strength(),
            parity_bits,
            page_bytes: media::index(layout.page_bytes),
        })
    }

    pub(super) fn raw_bytes(&self) -> usize {
        media::index(self.map.raw_bytes)
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(super) fn strength(&self) -> u32 {
        self.strength
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.map.steps
    }

    /// Copies the main area of a raw page.
    pub(super) fn copy_main(&self, raw: &[u8], out: &mut [u8]) {
        self.map.copy_main(raw, out);
    }

    /// Message and parity of a step as they are stored.
    pub(super) fn gather(&self, raw: &[u8], step: &Step, scratch: &mut Scratch) {
        let message_bytes = media::index(step.message_bits.next_multiple_of(64) / 8);
        scratch.message.clear();
        scratch.message.resize(message_bytes, 0);
        self.map
            .gather(raw, &step.message, front(step), &mut scratch.message);
        scratch.parity.clear();
        // One byte more, because bits of the last one may be copied across its border.
        scratch.parity.resize(WORDS_MAX * 8 + 1, 0);
        self.map.gather(raw, &step.parity, 0, &mut scratch.parity);
    }

    /// The gathered message differs from erased bytes and from one repeated byte in more than a few places, so that its
    /// parity says something.
    pub(super) fn is_telling(scratch: &Scratch, step: &Step) -> bool {
        let message = &scratch.message[media::index(front(step).div_ceil(8))..];
        let first = message.first().copied().unwrap_or(0xFF);
        let differing = message.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let same = message.iter().filter(|byte| **byte == first).count();
        differing >= 8 && message.len() - same >= 8
    }

    /// Difference of the stored and the computed parity of the gathered step.
    pub(super) fn difference(&self, scratch: &Scratch) -> Parity {
        let mut difference = self.parity(&scratch.message);
        let stored = cut(words(&scratch.parity), self.parity_bits);
        for ((word, stored), mask) in difference.iter_mut().zip(stored).zip(self.mask) {
            *word ^= stored ^ mask;
        }
        difference
    }

    pub(super) fn parity(&self, message: &[u8]) -> Parity {
        match &self.codec {
            Codec::Hamming(code) => code.parity(message),
            Codec::Bch(code) => code.parity(message),
        }
    }

    /// The wrong bits of a step, numbered from the first bit of its message.
    pub(super) fn locate(&self, difference: &Parity, step: &Step) -> Option<Vec<u32>> {
        match &self.codec {
            Codec::Hamming(code) => code.locate(difference),
            Codec::Bch(code) => code.locate(difference, step.message_bits + self.parity_bits),
        }
    }

    /// Corrects a step of a raw page.
    pub(super) fn correct_step(&self, raw: &mut [u8], step: &Step, scratch: &mut Scratch) -> StepState {
        self.gather(raw, step, scratch);
        let difference = self.difference(scratch);
        let zeros = self.zeros(step, scratch);
        if difference == [0; WORDS_MAX] {
            return match zeros {
                0 => StepState::Erased { flipped: 0 },
                _ => StepState::Good { flipped: 0 },
            };
        }
        if zeros <= self.strength {
            for run in step.message.iter().chain(&step.parity) {
                for bit in run.start..run.start + run.bits {
                    raw[media::index(bit / 8)] |= self.map.flag(bit);
                }
            }
            return StepState::Erased { flipped: zeros };
        }
        let Some(wrong) = self.locate(&difference, step) else {
            return StepState::Failed;
        };
        for bit in &wrong {
            let place = match bit.checked_sub(step.message_bits) {
                None => Map::raw_bit(&step.message, *bit),
                Some(bit) => Map::raw_bit(&step.parity, bit),
            };
            if let Some(place) = place {
                raw[media::index(place / 8)] ^= self.map.flag(place);
            }
        }
        StepState::Good {
            flipped: u32::try_from(wrong.len()).unwrap_or(u32::MAX),
        }
    }

    /// Corrects all steps of a raw page that is not erased.
    pub(super) fn correct_steps(&self, raw: &mut [u8], scratch: &mut Scratch) -> Vec<StepState> {
        scratch.read.clear();
        scratch.read.extend_from_slice(raw);
        let step = |step| self.correct_step(raw, step, scratch);
        let mut states: Vec<StepState> = self.steps().iter().map(step).collect();
        let is_right = |state: &StepState| matches!(state, StepState::Good { flipped: 0 });
        let is_wrong = |state: &StepState| match state {
            StepState::Failed => true,
            StepState::Good { flipped } => *flipped > 0,
            StepState::Erased { .. } | StepState::Unprotected => false,
        };
        if !states.iter().any(is_wrong) {
            return states;
        }
        if !states.iter().any(is_right) && self.has_erased_parity(scratch) {
            raw.copy_from_slice(&scratch.read);
            states.fill(StepState::Unprotected);
            return states;
        }
        if states.contains(&StepState::Failed) && !self.have_the_layout(&states) {
            raw.copy_from_slice(&scratch.read);
            for state in &mut states {
                if !matches!(state, StepState::Erased { flipped: 0 }) {
                    *state = StepState::Failed;
                }
            }
        }
        states
    }

    /// Whether the steps of a page would be as good by accident with less than [`ACCIDENT_LOG2_MAX`]: one of them, or
    /// all good ones together, each taken for as bad as the worst of them.
    fn have_the_layout(&self, states: &[StepState]) -> bool {
        let accidents = || {
            states.iter().filter_map(|state| match state {
                StepState::Good { flipped } => self.accidents_log2.get(media::index(*flipped)).copied(),
                _ => None,
            })
        };
        let written = states
            .iter()
            .filter(|state| matches!(state, StepState::Good { .. } | StepState::Failed));
        let good = accidents().count();
        let worst = accidents().reduce(f64::max).unwrap_or(0.0);
        let together = accidents().map(|_| worst).sum::<f64>() + choices_log2(written.count(), good);
        accidents().any(|accident| accident < ACCIDENT_LOG2_MAX) || together < ACCIDENT_LOG2_MAX
    }

    /// Whether all parity bits of the page as it was read are ones.
    fn has_erased_parity(&self, scratch: &mut Scratch) -> bool {
        let read = std::mem::take(&mut scratch.read);
        let ones = cut([u64::MAX; WORDS_MAX], self.parity_bits);
        let is_erased = self.steps().iter().all(|step| {
            self.gather(&read, step, scratch);
            cut(words(&scratch.parity), self.parity_bits) == ones
        });
        scratch.read = read;
        is_erased
    }

    /// Zero bits of the gathered step; counting stops beyond the strength of the code.
    fn zeros(&self, step: &Step, scratch: &Scratch) -> u32 {
        let mut ones = 0_u32;
        let mut seen = 0;
        for part in scratch.message.chunks(64) {
            ones += part.iter().map(|byte| byte.count_ones()).sum::<u32>();
            seen += u32::try_from(part.len()).unwrap_or(u32::MAX) * 8;
            // Bits in front of the message are 0 and no data.
            if seen.saturating_sub(front(step)).saturating_sub(ones) > self.strength {
                return self.strength + 1;
            }
        }
        let stored = cut(words(&scratch.parity), self.parity_bits);
        ones += stored.iter().map(|word| word.count_ones()).sum::<u32>();
        step.message_bits + self.parity_bits - ones
    }
}

/// Bits of zeros in front of a message.
fn front(step: &Step) -> u32 {
    step.message_bits.next_multiple_of(64) - step.message_bits
}

/// The inverted parity of ones.
fn erased_mask(codec: &Codec, message_bits: u32, parity_bits: u32) -> Parity {
    let padded = message_bits.next_multiple_of(64);
    let mut message = vec![0xFF_u8; media::index(padded / 8)];
    let front = padded - message_bits;
    for bit in 0..front {
        message[media::index(bit / 8)] &= !(0x80 >> (bit % 8));
    }
    let mut mask = match codec {
        Codec::Hamming(code) => code.parity(&message),
        Codec::Bch(code) => code.parity(&message),
    };
    for word in &mut mask {
        *word = !*word;
    }
    cut(mask, parity_bits)
}

/// Bytes as words, the first one highest.
pub(super) fn words(bytes: &[u8]) -> Parity {
    let mut words = [0; WORDS_MAX];
    for (word, part) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..part.len()].copy_from_slice(part);
        *word = u64::from_be_bytes(eight);
    }
    words
}

/// Zeroes all but the first bits.
pub(super) fn cut(parity: Parity, bits: u32) -> Parity {
    let mut result = [0; WORDS_MAX];
    for ((word, from), first) in result.iter_mut().zip(parity).zip((0..).step_by(64)) {
        *word = match bits.saturating_sub(first) {
            0 => 0,
            64.. => from,
            kept => from & !(u64::MAX >> kept),
        };
    }
    result
}

/// The probability that a step with more wrong bits than `code` corrects is taken for another one, as a power of 2.
#[must_use]
pub fn miscorrection_log2(code: Code, word_bits: u32) -> f64 {
    code.accident_log2(word_bits, code.strength())
}
