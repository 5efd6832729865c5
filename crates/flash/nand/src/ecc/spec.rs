//! Layouts as text, such as `bch8/512,page=2048,oob=64,ecc=2..15+14,mask=none`.
//!
//! ```text
//! SPEC  = CODE "/" STEP { "," FIELD }          STEP: data bytes of a code word
//! CODE  = "hamming" | "hamming-sm" | "hamming-omap" | "bch" BITS
//! FIELD = "page=" N | "oob=" N                 sizes, if they are not known otherwise
//!       | "ecc=" AREA                          parity in the OOB area [default: at its end]
//!       | "covers=" AREA                       OOB bytes that the code covers after the data
//!       | "right"                              a parity that is no whole bytes is at the end of its bytes
//!       | "inline"                             data and parity of each step follow each other from byte 0 on
//!       | "prefix=" N | "spare=" N | "covered=" N | "room=" N | "pad=" N | "packed"        (inline)
//!       | "skip=" A ".." B | "skip-each=" A ".." B | "swap=" MARK ":" DATA                 (inline)
//!       | "msb" | "lsb"                        first bit of a byte [default: msb, the highest]
//!       | "mask=" ("erased" | "none" | HEX)    added to the parity [default: erased]
//!       | "field=" M | "poly=0x" HEX           GF(2^M) and its polynomial [default: Linux's]
//! AREA  = RANGE { ":" RANGE } [ "+" STRIDE ]   bytes of the OOB area; with a stride for each step, else shared
//! RANGE = FROM ".." [ TO ]                     TO is not included; halves of bytes are written .5
//! ```

use std::fmt::{self, Write};

use thiserror::Error;

use super::hamming::HammingOrder;
use super::layout::{
    Area, BitOrder, Code, Layout, LayoutError, Mask, PLACE_MAX, Placement, Skip, usual_polynomial,
};

/// Sizes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Bytes of the main area.
    pub page_bytes: u32,
    /// Bytes of the OOB area.
    pub oob_bytes: u32,
}

/// A text that is no layout.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The text doesn't follow the grammar.
    #[error(
        "`{part}` in the layout `{text}` is not {expected}; an example is bch8/512,ecc=2..15+14,mask=none"
    )]
    Syntax {
        /// The whole text.
        text: String,
        /// The part.
        part: String,
        /// The words that fit there.
        expected: &'static str,
    },
    /// A size is neither in the text nor known.
    #[error("the layout `{text}` needs the size of the {what}; add {field}=BYTES")]
    Size {
        /// The whole text.
        text: String,
        /// Which one.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
    /// No page can have this layout.
    #[error("the layout `{text}` is impossible: {source}")]
    Layout {
        /// The whole text.
        text: String,
        /// The reason.
        #[source]
        source: LayoutError,
    },
}

/// Fields as they are read.
#[derive(Debug, Default)]
struct Fields {
    page_bytes: Option<u32>,
    oob_bytes: Option<u32>,
    ecc: Option<OpenArea>,
    covers: Option<OpenArea>,
    is_right_aligned: bool,
    is_inline: bool,
    prefix: u32,
    spare: u32,
    covered: Option<u32>,
    room: Option<u32>,
    pad: u32,
    is_packed: bool,
    skip: Option<Skip>,
    swap: Option<(u32, u32)>,
    is_lowest_first: bool,
    mask: Option<Mask>,
    field: Option<u32>,
    polynomial: Option<u32>,
}

/// Ranges of bits with an optional end, and the stride in bits.
#[derive(Debug)]
struct OpenArea {
    ranges: Vec<(u32, Option<u32>)>,
    stride: Option<u32>,
}

impl Layout {
    /// Reads a layout. `shape` has the sizes that are known otherwise; those in the text come first.
    ///
    /// # Errors
    /// If the text doesn't follow the grammar, or no page can have the layout.
    pub fn parse(text: &str, shape: Option<Shape>) -> Result<Self, SpecError> {
        let layout = parse(text, shape)?;
        layout.check().map_err(|source| SpecError::Layout {
            text: text.to_owned(),
            source,
        })?;
        Ok(layout)
    }

    /// The sizes in the text of a layout.
    ///
    /// # Errors
    /// If the text doesn't follow the grammar.
    pub fn sizes_in(text: &str) -> Result<(Option<u32>, Option<u32>), SpecError> {
        fields(text).map(|(_, _, fields)| (fields.page_bytes, fields.oob_bytes))
    }
}

fn parse(text: &str, shape: Option<Shape>) -> Result<Layout, SpecError> {
    let (code, step_bytes, fields) = fields(text)?;
    let size = |given: Option<u32>, known: Option<u32>, what, field| {
        given.or(known).ok_or_else(|| SpecError::Size {
            text: text.to_owned(),
            what,
            field,
        })
    };
    let page_bytes = size(
        fields.page_bytes,
        shape.map(|shape| shape.page_bytes),
        "page",
        "page",
    )?;
    let oob_bytes = size(
        fields.oob_bytes,
        shape.map(|shape| shape.oob_bytes),
        "OOB area",
        "oob",
    )?;
    let code = match code {
        Code::Bch { strength, .. } => match (Code::bch(strength, step_bytes), fields.field) {
            (Code::Bch { field: usual, .. }, field) => {
                let field = field.unwrap_or(usual);
                let polynomial = fields.polynomial.unwrap_or_else(|| usual_polynomial(field));
                Code::Bch {
                    strength,
                    field,
                    polynomial,
                }
            }
            (other, _) => other,
        },
        other => other,
    };
    let parity_bytes = code.parity_bits().div_ceil(8);
    let usual_mask = match code {
        Code::Hamming(_) => Mask::None,
        Code::Bch { .. } => Mask::Erased,
    };
    let steps = page_bytes.div_ceil(step_bytes.max(1));
    let placement = if fields.is_inline {
        Placement::Inline {
            prefix: fields.prefix,
            spare: fields.spare,
            covered: fields.covered.unwrap_or(fields.spare),
            room: fields.room,
            is_packed: fields.is_packed,
            pad: fields.pad,
            skip: fields.skip,
            swap: fields.swap,
        }
    } else {
        let at_end = || {
            Area::shared(
                oob_bytes
                    .saturating_sub(parity_bytes.saturating_mul(steps))
                    .min(oob_bytes),
                oob_bytes,
            )
        };
        Placement::Apart {
            ecc: fields
                .ecc
                .map_or_else(at_end, |area| area.closed(oob_bytes, parity_bytes)),
            covers: fields.covers.map(|area| area.closed(oob_bytes, 0)),
            is_right_aligned: fields.is_right_aligned,
        }
    };
    Ok(Layout {
        page_bytes,
        oob_bytes,
        step_bytes,
        code,
        bit_order: match fields.is_lowest_first {
            true => BitOrder::LowestFirst,
            false => BitOrder::HighestFirst,
        },
        mask: fields.mask.unwrap_or(usual_mask),
        placement,
    })
}

impl OpenArea {
    fn closed(self, oob_bytes: u32, parity_bytes: u32) -> Area {
        let end = |start: u32| match self.stride {
            Some(_) => start + parity_bytes * 8,
            None => oob_bytes * 8,
        };
        Area {
            ranges: self
                .ranges
                .iter()
                .map(|(start, to)| (*start, to.unwrap_or_else(|| end(*start))))
                .collect(),
            stride: self.stride,
        }
    }
}

fn fields(text: &str) -> Result<(Code, u32, Fields), SpecError> {
    let wrong = |part: &str, expected| SpecError::Syntax {
        text: text.to_owned(),
        part: part.to_owned(),
        expected,
    };
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next().unwrap_or_default();
    let (code, step) = first
        .split_once('/')
        .ok_or_else(|| wrong(first, "a code and its step, such as bch8/512"))?;
    let code = match code {
        "hamming" => Code::Hamming(HammingOrder::Linux),
        "hamming-sm" => Code::Hamming(HammingOrder::SmartMedia),
        "hamming-omap" => Code::Hamming(HammingOrder::Omap),
        other => {
            let strength = other
                .strip_prefix("bch")
                .and_then(|bits| bits.parse().ok())
                .filter(|bits| (1..=64).contains(bits));
            let strength =
                strength.ok_or_else(|| wrong(code, "hamming, hamming-sm, hamming-omap or bch1 to bch64"))?;
            Code::bch(strength, 512)
        }
    };
    let step_bytes = number(step).ok_or_else(|| wrong(step, "a number of bytes"))?;
    let mut found = Fields::default();
    for part in parts {
        found
            .add(part)
            .ok_or_else(|| wrong(part, "a field of a layout; see docs/guide/nand.md"))?;
    }
    Ok((code, step_bytes, found))
}

impl Fields {
    fn add(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "page" => self.page_bytes = Some(number(value)?),
            "oob" => self.oob_bytes = Some(number(value)?),
            "ecc" => self.ecc = Some(area(value)?),
            "covers" => {
                self.covers =
                    Some(area(value)?).filter(|area| area.ranges.iter().all(|range| range.1.is_some()));
                self.covers.as_ref()?;
            }
            "prefix" => self.prefix = number(value)?,
            "spare" => self.spare = number(value)?,
            "covered" => self.covered = Some(number(value)?),
            "room" => self.room = Some(number(value)?),
            "pad" => self.pad = number(value)?,
            "skip" | "skip-each" => {
                let (start, end) = value.split_once("..")?;
                let (start, end) = (number(start)?, number(end)?);
                let is_in_each = name == "skip-each";
                self.skip = Some(Skip {
                    start,
                    end,
                    is_in_each,
                })
                .filter(|skip| skip.start < skip.end);
                self.skip?;
            }
            "swap" => {
                let (mark, data) = value.split_once(':')?;
                self.swap = Some((number(mark)?, number(data)?));
            }
            "mask" => self.mask = Some(mask(value)?),
            "field" => self.field = Some(number(value)?),
            "poly" => self.polynomial = Some(u32::from_str_radix(value.strip_prefix("0x")?, 16).ok()?),
            flag if value.is_empty() && !part.contains('=') => match flag {
                "right" => self.is_right_aligned = true,
                "inline" => self.is_inline = true,
                "packed" => self.is_packed = true,
                "lsb" => self.is_lowest_first = true,
                "msb" => self.is_lowest_first = false,
                _ => return None,
            },
            _ => return None,
        }
        Some(())
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number <= PLACE_MAX)
}

/// A place in bits, given in bytes or halves.
fn place(text: &str) -> Option<u32> {
    match text.strip_suffix(".5") {
        Some(whole) => Some(number(whole)? * 8 + 4),
        None => Some(number(text)? * 8),
    }
}

fn area(text: &str) -> Option<OpenArea> {
    let (ranges, stride) = match text.split_once('+') {
        Some((ranges, stride)) => (ranges, Some(number(stride)? * 8)),
        None => (text, None),
    };
    let range = |range: &str| {
        let (start, end) = range.split_once("..")?;
        let start = place(start)?;
        let end = match end {
            "" => None,
            end => Some(place(end).filter(|end| *end > start)?),
        };
        Some((start, end))
    };
    let ranges: Vec<_> = ranges.split(':').map(range).collect::<Option<_>>()?;
    (ranges.len() <= 64).then_some(OpenArea { ranges, stride })
}

fn mask(text: &str) -> Option<Mask> {
    match text {
        "none" => return Some(Mask::None),
        "erased" => return Some(Mask::Erased),
        _ => {}
    }
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex || text.is_empty() || text.len() % 2 == 1 || text.len() > 256 {
        return None;
    }
    let pairs = (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok());
    pairs.collect::<Option<_>>().map(Mask::Bytes)
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}/{},page={},oob={}",
            self.code, self.step_bytes, self.page_bytes, self.oob_bytes
        )?;
        match &self.placement {
            Placement::Apart {
                ecc,
                covers,
                is_right_aligned,
            } => {
                write!(formatter, ",ecc={}", area_text(ecc))?;
                if let Some(covers) = covers {
                    write!(formatter, ",covers={}", area_text(covers))?;
                }
                flag(formatter, "right", *is_right_aligned)?;
            }
            Placement::Inline {
                prefix,
                spare,
                covered,
                room,
                is_packed,
                pad,
                skip,
                swap,
            } => {
                formatter.write_str(",inline")?;
                // The usual value of each is left out.
                for (name, value, usual) in [
                    ("prefix", prefix, &0),
                    ("spare", spare, &0),
                    ("covered", covered, spare),
                    ("pad", pad, &0),
                ] {
                    if value != usual {
                        write!(formatter, ",{name}={value}")?;
                    }
                }
                if let Some(room) = room {
                    write!(formatter, ",room={room}")?;
                }
                flag(formatter, "packed", *is_packed)?;
                if let Some(Skip {
                    start,
                    end,
                    is_in_each,
                }) = skip
                {
                    let name = if *is_in_each { "skip-each" } else { "skip" };
                    write!(formatter, ",{name}={start}..{end}")?;
                }
                if let Some((mark, data)) = swap {
                    write!(formatter, ",swap={mark}:{data}")?;
                }
            }
        }
        flag(formatter, "lsb", self.bit_order == BitOrder::LowestFirst)?;
        match &self.mask {
            Mask::Erased => {}
            Mask::None if matches!(self.code, Code::Hamming(_)) => {}
            Mask::None => formatter.write_str(",mask=none")?,
            Mask::Bytes(bytes) => {
                formatter.write_str(",mask=")?;
                for byte in bytes {
                    write!(formatter, "{byte:02x}")?;
                }
            }
        }
        if let Code::Bch {
            strength,
            field,
            polynomial,
        } = self.code
            && self.code != Code::bch(strength, self.step_bytes)
        {
            write!(formatter, ",field={field},poly={polynomial:#x}")?;
        }
        Ok(())
    }
}

fn flag(formatter: &mut fmt::Formatter<'_>, name: &str, is_set: bool) -> fmt::Result {
    match is_set {
        true => write!(formatter, ",{name}"),
        false => Ok(()),
    }
}

fn area_text(area: &Area) -> String {
    let place = |bits: u32| match bits % 8 {
        0 => (bits / 8).to_string(),
        _ => format!("{}.5", bits / 8),
    };
    let mut text = String::new();
    for (number, (start, end)) in area.ranges.iter().enumerate() {
        let separator = if number == 0 { "" } else { ":" };
        let _ = write!(text, "{separator}{}..{}", place(*start), place(*end));
    }
    if let Some(stride) = area.stride {
        let _ = write!(text, "+{}", stride / 8);
    }
    text
}
