//! The shape of a page with ECC, as data: code, order of bits, and the places of data, covered OOB bytes and parity.
//!
//! Places are bits of the raw page (main area and OOB). A layout is checked once, by [`Layout::check`]: every place lies
//! in the page, and no bit of parity serves twice.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::bch::Bch;
use super::field::Field;
use super::hamming::{CODE_BITS, Hamming, HammingOrder};
use super::map::Map;

/// Largest page and OOB area, bytes.
const PAGE_BYTES_MAX: u32 = 32 << 10;
const OOB_BYTES_MAX: u32 = 8 << 10;
/// Largest place or distance in a page, bytes.
pub(super) const PLACE_MAX: u32 = 64 << 10;
/// Smallest and largest step, bytes.
const STEP_BYTES: std::ops::RangeInclusive<u32> = 128..=8192;

/// An error-correcting code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Corrects 1 bit of 256 or 512 bytes and recognises 2.
    Hamming(HammingOrder),
    /// Corrects `strength` bits.
    Bch {
        /// Number of correctable bits, t.
        strength: u32,
        /// m of GF(2^m).
        field: u32,
        /// The polynomial that makes the field, with its term x^m.
        polynomial: u32,
    },
}

impl Code {
    /// A BCH code for steps of `step_bytes`: GF(2^13) to 512 bytes, GF(2^14) to 1024, GF(2^15) beyond, made by Linux's
    /// polynomials.
    #[must_use]
    pub fn bch(strength: u32, step_bytes: u32) -> Self {
        let field = match step_bytes {
            0..=767 => 13,
            768..=1535 => 14,
            _ => 15,
        };
        Self::Bch {
            strength,
            field,
            polynomial: usual_polynomial(field),
        }
    }

    /// Number of correctable bits of a step.
    #[must_use]
    pub fn strength(self) -> u32 {
        match self {
            Self::Hamming(_) => 1,
            Self::Bch { strength, .. } => strength,
        }
    }

    /// Length of the parity of a step in bits.
    #[must_use]
    pub fn parity_bits(self) -> u32 {
        match self {
            Self::Hamming(_) => CODE_BITS,
            Self::Bch { strength, field, .. } => strength.saturating_mul(field),
        }
    }

    /// The field of a BCH code; `None` if there is no such field.
    pub(super) fn field(self) -> Option<Arc<Field>> {
        match self {
            Self::Hamming(_) => None,
            Self::Bch {
                field, polynomial, ..
            } => Field::new(field, polynomial).map(Arc::new),
        }
    }

    /// The probability, as a power of 2, that a random word of `word_bits` is accepted after a correction of `errors`
    /// bits or fewer. It bounds the miscorrections of steps with too many errors, and accidental matches of a trial.
    #[must_use]
    pub fn accident_log2(self, word_bits: u32, errors: u32) -> f64 {
        let parity_bits = match self {
            // Those of 256 bytes; 512 bytes have 2 more.
            Self::Hamming(_) => 22,
            Self::Bch { .. } => self.parity_bits(),
        };
        let mut sum = 0.0_f64;
        let mut choices = 1.0_f64;
        for chosen in 1..=errors {
            choices *= f64::from(word_bits.saturating_sub(chosen - 1)) / f64::from(chosen);
            sum += choices;
        }
        (1.0 + sum).log2() - f64::from(parity_bits)
    }
}

/// log2 of the number of ways to choose `chosen` of `all`.
pub(super) fn choices_log2(all: usize, chosen: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    (0..chosen)
        .map(|done| (number(all - done) / number(done + 1)).log2())
        .sum()
}

/// The primitive polynomial of Linux's BCH library for GF(2^m).
pub(super) fn usual_polynomial(field: u32) -> u32 {
    match field {
        5 => 0x25,
        6 => 0x43,
        7 => 0x83,
        8 => 0x11d,
        9 => 0x211,
        10 => 0x409,
        11 => 0x805,
        12 => 0x1053,
        13 => 0x201b,
        14 => 0x402b,
        _ => 0x8003,
    }
}

/// Which bit of a byte is the first one of a code word, in data and parity alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitOrder {
    /// As in Linux's BCH library.
    HighestFirst,
    /// As in most controllers (`swap_bits` of Linux's library).
    LowestFirst,
}

/// Constant added to the stored parity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// The parity is stored as it is; an erased step is no code word.
    None,
    /// The parity of erased bytes is stored as ones, so that an erased step is a code word.
    Erased,
    /// These bytes.
    Bytes(Vec<u8>),
}

/// Places in the OOB area: ranges of bits, used in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Area {
    /// First bit and the bit after the last.
    pub ranges: Vec<(u32, u32)>,
    /// Distance from one step's places to the next one's in bits. Without it the steps share the ranges in order.
    pub stride: Option<u32>,
}

impl Area {
    /// The bytes from `start` to `end`, shared by the steps.
    #[must_use]
    pub fn shared(start: u32, end: u32) -> Self {
        Self {
            ranges: vec![(start * 8, end * 8)],
            stride: None,
        }
    }

    /// For each step the bytes from `start` to `end`, `stride` bytes apart.
    #[must_use]
    pub fn strided(start: u32, end: u32, stride: u32) -> Self {
        Self {
            ranges: vec![(start * 8, end * 8)],
            stride: Some(stride * 8),
        }
    }
}

/// Bytes of the page that the stream of code words passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Skip {
    /// First byte: of the raw page, or of each code word.
    pub start: u32,
    /// Byte after the last.
    pub end: u32,
    /// Whether it is in each code word.
    pub is_in_each: bool,
}

/// Places of data and parity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The main area holds the data, the OOB area the parity.
    Apart {
        /// The parity, in the OOB area.
        ecc: Area,
        /// OOB bits that follow the data in the code word.
        covers: Option<Area>,
        /// Whether a parity that is no multiple of 8 bits is at the end of its bytes.
        is_right_aligned: bool,
    },
    /// One stream from byte 0 of the raw page: data, spare bytes, parity, of each step.
    Inline {
        /// Bytes in front, covered by the first step.
        prefix: u32,
        /// Bytes after the data of each step.
        spare: u32,
        /// The first ones of these that the code covers.
        covered: u32,
        /// Bytes for each parity; `None`: as many as it needs.
        room: Option<u32>,
        /// Whether parities are not filled up to bytes.
        is_packed: bool,
        /// Bytes after each parity.
        pad: u32,
        /// Bytes passed over: the place of the bad-block mark.
        skip: Option<Skip>,
        /// A byte of the raw page whose data is in another byte instead, because the bad-block mark takes its place.
        swap: Option<(u32, u32)>,
    },
}

impl Placement {
    /// All bytes and bits named, so that they can be limited before anything is computed from them.
    fn numbers(&self) -> Vec<u32> {
        match self {
            Self::Apart { ecc, covers, .. } => [Some(ecc), covers.as_ref()]
                .into_iter()
                .flatten()
                .flat_map(|area| {
                    area.ranges
                        .iter()
                        .flat_map(|range| [range.0 / 8, range.1 / 8])
                        .chain(area.stride.map(|bits| bits / 8))
                })
                .collect(),
            Self::Inline {
                prefix,
                spare,
                covered,
                room,
                pad,
                skip,
                swap,
                ..
            } => {
                let skip = skip.map_or([0, 0], |skip| [skip.start, skip.end]);
                let swap = swap.map_or([0, 0], |swap| [swap.0, swap.1]);
                [
                    &[*prefix, *spare, *covered, *pad, room.unwrap_or(0)][..],
                    &skip,
                    &swap,
                ]
                .concat()
            }
        }
    }
}

/// The layout of a page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Bytes of the main area.
    pub page_bytes: u32,
    /// Bytes of the OOB area.
    pub oob_bytes: u32,
    /// Data bytes of a code word. If they don't divide the page, the last ones of the page are OOB data.
    pub step_bytes: u32,
    /// The code.
    pub code: Code,
    /// The order of bits.
    pub bit_order: BitOrder,
    /// The constant added to parities.
    pub mask: Mask,
    /// Places.
    pub placement: Placement,
}

/// A layout that no page can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A size is out of range.
    #[error("{what} is {value} bytes; it must be {expected}")]
    Size {
        /// Which one.
        what: &'static str,
        /// As given.
        value: u32,
        /// The range.
        expected: &'static str,
    },
    /// There is no such code.
    #[error("there is no code {code} for {message_bits} bits; {reason}")]
    Code {
        /// The code.
        code: Code,
        /// Bits to cover.
        message_bits: u32,
        /// Why not.
        reason: &'static str,
    },
    /// Places lie outside the page.
    #[error(
        "{what} of step {step} needs bit {bit} of a raw page of {bits} bits; check page, oob and the ranges"
    )]
    Outside {
        /// Which part.
        what: &'static str,
        /// The step, from 0.
        step: u32,
        /// The last bit.
        bit: u32,
        /// Bits of the raw page.
        bits: u32,
    },
    /// A bit serves twice.
    #[error("bit {bit} of byte {byte} of the raw page is parity of step {step} and part of another place")]
    Overlap {
        /// The byte.
        byte: u32,
        /// The bit, as the bit order counts.
        bit: u32,
        /// The step.
        step: u32,
    },
    /// Ranges have too few bits.
    #[error("{what} has {found} bits; step {step} needs them up to {needed}")]
    Short {
        /// Which ranges.
        what: &'static str,
        /// The step, from 0.
        step: u32,
        /// Bits there are.
        found: u32,
        /// Bits needed.
        needed: u32,
    },
    /// The mask has the wrong length.
    #[error("the mask has {found} bytes; a parity has {expected}")]
    MaskLength {
        /// Bytes of the mask.
        found: usize,
        /// Bytes of a parity.
        expected: u32,
    },
}

impl Layout {
    /// Bytes of main area and OOB.
    #[must_use]
    pub fn raw_bytes(&self) -> u32 {
        self.page_bytes + self.oob_bytes
    }

    /// Code words of a page.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.page_bytes.div_ceil(self.step_bytes.max(1))
    }

    /// Bytes that hold a parity.
    #[must_use]
    pub fn parity_bytes(&self) -> u32 {
        self.code.parity_bits().div_ceil(8)
    }

    /// Checks a layout, such as one given by hand.
    ///
    /// # Errors
    /// The first reason why no page can have it.
    pub fn check(&self) -> Result<(), LayoutError> {
        let map = self.map()?;
        map.check_overlaps()?;
        self.codec(map.message_bits_max()).map(drop)
    }

    pub(super) fn check_sizes(&self) -> Result<(), LayoutError> {
        let size = |what, value, is_right, expected| match is_right {
            true => Ok(()),
            false => Err(LayoutError::Size {
                what,
                value,
                expected,
            }),
        };
        size(
            "the page",
            self.page_bytes,
            (128..=PAGE_BYTES_MAX).contains(&self.page_bytes),
            "128 to 32768",
        )?;
        let oob_max = OOB_BYTES_MAX.min(self.page_bytes);
        size(
            "the OOB area",
            self.oob_bytes,
            (1..=oob_max).contains(&self.oob_bytes),
            "1 to 8192, and at most a page",
        )?;
        let step = self.step_bytes;
        size(
            "the step",
            step,
            STEP_BYTES.contains(&step) && step <= self.page_bytes,
            "128 to 8192, and at most a page",
        )?;
        for value in self.placement.numbers() {
            size("a place", value, value <= PLACE_MAX, "at most 65536")?;
        }
        let is_whole = self.page_bytes.is_multiple_of(step);
        let is_inline = matches!(self.placement, Placement::Inline { .. });
        size(
            "the step",
            step,
            is_whole || is_inline,
            "a divisor of the page, unless the layout is inline",
        )
    }

    pub(super) fn map(&self) -> Result<Map, LayoutError> {
        Map::new(self)
    }

    /// The code with its tables, for messages of up to `message_bits`.
    pub(super) fn codec(&self, message_bits: u32) -> Result<Codec, LayoutError> {
        self.codec_over(self.code.field(), message_bits)
    }

    /// As [`Layout::codec`], over a field made before: [`Code::field`].
    pub(super) fn codec_over(
        &self,
        field: Option<Arc<Field>>,
        message_bits: u32,
    ) -> Result<Codec, LayoutError> {
        let refused = |reason| LayoutError::Code {
            code: self.code,
            message_bits,
            reason,
        };
        match self.code {
            Code::Hamming(order) => {
                let code = Hamming::new(order, self.step_bytes).filter(|code| {
                    code.step_bytes() * 8 == message_bits && self.bit_order == BitOrder::HighestFirst
                });
                code.map(Codec::Hamming)
                    .ok_or_else(|| refused("Hamming codes cover 256 or 512 bytes of data and no others, msb"))
            }
            Code::Bch { strength, .. } => {
                let code = field.and_then(|field| Bch::new(field, strength)).ok_or_else(|| {
                    refused("the field has 13 to 15 bits, its polynomial must be primitive, and 1 to 64 bits are correctable")
                })?;
                match message_bits <= code.message_bits_max() && code.parity_bits() == self.code.parity_bits()
                {
                    true => Ok(Codec::Bch(Arc::new(code))),
                    false => Err(refused("a larger field is needed")),
                }
            }
        }
    }
}

/// A code with its tables.
#[derive(Clone, Debug)]
pub(super) enum Codec {
    Hamming(Hamming),
    Bch(Arc<Bch>),
}

impl Codec {
    /// Whether a message of this length is short enough.
    pub(super) fn fits(&self, message_bits: u32) -> bool {
        match self {
            Self::Hamming(code) => code.step_bytes() * 8 == message_bits,
            Self::Bch(code) => message_bits <= code.message_bits_max(),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hamming(HammingOrder::Linux) => formatter.write_str("hamming"),
            Self::Hamming(HammingOrder::SmartMedia) => formatter.write_str("hamming-sm"),
            Self::Hamming(HammingOrder::Omap) => formatter.write_str("hamming-omap"),
            Self::Bch { strength, .. } => write!(formatter, "bch{strength}"),
        }
    }
}
