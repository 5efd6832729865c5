//! Places of a layout as runs of bits of the raw page, and copies of bits along them.
//!
//! Bits of the raw page are numbered in the layout's bit order: bit n is in byte n / 8, and the first bit of a byte is
//! its highest or its lowest. A buffer of gathered bits always has the highest bit first.

use super::layout::{Area, BitOrder, Layout, LayoutError, Placement};

/// Consecutive bits of the raw page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u32,
    pub(super) bits: u32,
}

/// A code word.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) message: Vec<Run>,
    pub(super) message_bits: u32,
    pub(super) parity: Vec<Run>,
    /// Its bytes of the main area.
    pub(super) main: std::ops::Range<u32>,
}

/// All places of a page.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) raw_bytes: u32,
    pub(super) bit_order: BitOrder,
    pub(super) steps: Vec<Step>,
    /// The main area in order.
    pub(super) main: Vec<Run>,
}

impl Map {
    pub(super) fn new(layout: &Layout) -> Result<Self, LayoutError> {
        layout.check_sizes()?;
        let mut map = Self {
            raw_bytes: layout.raw_bytes(),
            bit_order: layout.bit_order,
            steps: Vec::new(),
            main: Vec::new(),
        };
        match &layout.placement {
            Placement::Apart {
                ecc,
                covers,
                is_right_aligned,
            } => map.apart(layout, ecc, covers.as_ref(), *is_right_aligned)?,
            Placement::Inline { .. } => map.inline(layout),
        }
        map.check_ends()?;
        Ok(map)
    }

    fn apart(
        &mut self,
        layout: &Layout,
        ecc: &Area,
        covers: Option<&Area>,
        is_right_aligned: bool,
    ) -> Result<(), LayoutError> {
        let oob = layout.page_bytes * 8;
        let parity_bits = layout.code.parity_bits();
        let parity_room = layout.parity_bytes() * 8;
        let lead = if is_right_aligned {
            parity_room - parity_bits
        } else {
            0
        };
        for number in 0..layout.steps() {
            let main = number * layout.step_bytes..(number + 1) * layout.step_bytes;
            let mut message = vec![Run {
                start: main.start * 8,
                bits: layout.step_bytes * 8,
            }];
            if let Some(area) = covers {
                let bits = match area.stride {
                    Some(_) => total(area),
                    None => total(area) / layout.steps(),
                };
                message.extend(part("the covered OOB", area, number, (bits, 0, bits), oob)?);
            }
            let parity = part("the ecc", ecc, number, (parity_room, lead, parity_bits), oob)?;
            self.push(message, parity, main);
        }
        self.main = vec![Run { start: 0, bits: oob }];
        Ok(())
    }

    fn inline(&mut self, layout: &Layout) {
        let Placement::Inline {
            prefix,
            spare,
            covered,
            room,
            is_packed,
            pad,
            skip,
            swap,
        } = layout.placement
        else {
            return;
        };
        let parity_bits = layout.code.parity_bits();
        let room_bits = match room {
            Some(bytes) => bytes.saturating_mul(8).max(parity_bits),
            None if is_packed => parity_bits,
            None => layout.parity_bytes() * 8,
        };
        let mut cursor = Cursor {
            next: 0,
            skip: skip
                .filter(|skip| !skip.is_in_each)
                .map(|skip| (skip.start * 8, skip.end * 8)),
        };
        let front = cursor.take(prefix.saturating_mul(8));
        let mut main = Vec::new();
        for number in 0..layout.steps() {
            if let Some(skip) = skip.filter(|skip| skip.is_in_each) {
                cursor.skip = Some((cursor.next + skip.start * 8, cursor.next + skip.end * 8));
            }
            let mut message = if number == 0 { front.clone() } else { Vec::new() };
            let first = number * layout.step_bytes;
            let main_bytes = layout.step_bytes.min(layout.page_bytes - first);
            let data = cursor.take(main_bytes * 8);
            main.extend_from_slice(&data);
            message.extend(data);
            message.extend(cursor.take((layout.step_bytes - main_bytes) * 8));
            message.extend(cursor.take(covered.min(spare).saturating_mul(8)));
            let _ = cursor.take(spare.saturating_sub(covered).saturating_mul(8));
            let mut parity = cursor.take(room_bits);
            shorten(&mut parity, parity_bits);
            let _ = cursor.take(pad.saturating_mul(8));
            self.push(message, parity, first..first + main_bytes);
        }
        if let Some((marked, instead)) = swap {
            main = exchanged(&main, marked.saturating_mul(8), instead.saturating_mul(8));
        }
        self.main = merged(main);
    }

    fn push(&mut self, message: Vec<Run>, parity: Vec<Run>, main: std::ops::Range<u32>) {
        let message = merged(message);
        self.steps.push(Step {
            message_bits: message.iter().map(|run| run.bits).sum(),
            message,
            parity: merged(parity),
            main,
        });
    }

    fn check_ends(&self) -> Result<(), LayoutError> {
        let bits = self.raw_bytes * 8;
        let check = |what, step, runs: &[Run]| {
            let end = runs
                .iter()
                .map(|run| run.start.saturating_add(run.bits))
                .max()
                .unwrap_or(0);
            match end <= bits {
                true => Ok(()),
                false => Err(LayoutError::Outside {
                    what,
                    step,
                    bit: end - 1,
                    bits,
                }),
            }
        };
        for (number, step) in (0..).zip(&self.steps) {
            check("the data", number, &step.message)?;
            check("the ecc", number, &step.parity)?;
        }
        check("the exchanged byte", 0, &self.main)
    }

    pub(super) fn check_overlaps(&self) -> Result<(), LayoutError> {
        let mut is_used = vec![false; media::index(self.raw_bytes * 8)];
        for run in self.steps.iter().flat_map(|step| &step.message) {
            is_used[media::index(run.start)..][..media::index(run.bits)].fill(true);
        }
        for (number, step) in (0..).zip(&self.steps) {
            for run in &step.parity {
                for bit in run.start..run.start + run.bits {
                    if std::mem::replace(&mut is_used[media::index(bit)], true) {
                        return Err(LayoutError::Overlap {
                            byte: bit / 8,
                            bit: bit % 8,
                            step: number,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn message_bits_max(&self) -> u32 {
        self.steps.iter().map(|step| step.message_bits).max().unwrap_or(0)
    }

    /// Copies the main area of a raw page.
    pub(super) fn copy_main(&self, raw: &[u8], out: &mut [u8]) {
        let mut at = 0;
        for run in &self.main {
            if run.start % 8 == 0 && run.bits % 8 == 0 && at % 8 == 0 {
                let (from, to, bytes) = (
                    media::index(run.start / 8),
                    media::index(at / 8),
                    media::index(run.bits / 8),
                );
                out[to..to + bytes].copy_from_slice(&raw[from..from + bytes]);
            } else if at % 8 == 0 {
                self.copy_shifted(raw, *run, at, out);
            } else {
                self.copy_bit_by_bit(raw, *run, at, out);
            }
            at += run.bits;
        }
    }

    fn copy_shifted(&self, raw: &[u8], run: Run, at: u32, out: &mut [u8]) {
        let whole = run.bits / 8;
        for byte in 0..whole {
            let value = fetch(raw, run.start + byte * 8, self.bit_order);
            out[media::index(at / 8 + byte)] = ordered(value, self.bit_order);
        }
        let rest = Run {
            start: run.start + whole * 8,
            bits: run.bits % 8,
        };
        self.copy_bit_by_bit(raw, rest, at + whole * 8, out);
    }

    fn copy_bit_by_bit(&self, raw: &[u8], run: Run, at: u32, out: &mut [u8]) {
        for bit in 0..run.bits {
            let is_set = raw[media::index((run.start + bit) / 8)] & self.flag(run.start + bit) != 0;
            let target = &mut out[media::index((at + bit) / 8)];
            let flag = self.flag(at + bit);
            *target = if is_set { *target | flag } else { *target & !flag };
        }
    }

    /// The bit's place in its byte.
    pub(super) fn flag(&self, bit: u32) -> u8 {
        match self.bit_order {
            BitOrder::HighestFirst => 0x80 >> (bit % 8),
            BitOrder::LowestFirst => 1 << (bit % 8),
        }
    }

    /// Gathers runs into `out`, which is zeroed, from its bit `at` on.
    pub(super) fn gather(&self, raw: &[u8], runs: &[Run], at: u32, out: &mut [u8]) {
        let mut at = at;
        for run in runs {
            let mut done = 0;
            if run.start.is_multiple_of(8) && at.is_multiple_of(8) {
                let bytes = media::index(run.bits / 8);
                let from = &raw[media::index(run.start / 8)..][..bytes];
                let to = &mut out[media::index(at / 8)..][..bytes];
                match self.bit_order {
                    BitOrder::HighestFirst => to.copy_from_slice(from),
                    BitOrder::LowestFirst => {
                        for (to, from) in to.iter_mut().zip(from) {
                            *to = from.reverse_bits();
                        }
                    }
                }
                done = run.bits / 8 * 8;
            }
            while done < run.bits {
                let bits = (run.bits - done).min(8);
                let value =
                    fetch(raw, run.start + done, self.bit_order) & !(0xFF_u16 >> bits).to_be_bytes()[1];
                let target = at + done;
                let [high, low] = (u16::from(value) << 8 >> (target % 8)).to_be_bytes();
                out[media::index(target / 8)] |= high;
                if low != 0 {
                    out[media::index(target / 8) + 1] |= low;
                }
                done += bits;
            }
            at += run.bits;
        }
    }

    /// The bit of the raw page that is number `bit` of the runs.
    pub(super) fn raw_bit(runs: &[Run], bit: u32) -> Option<u32> {
        let mut rest = bit;
        for run in runs {
            if rest < run.bits {
                return Some(run.start + rest);
            }
            rest -= run.bits;
        }
        None
    }
}

/// Eight bits from bit `start` on, the first one highest; zeros beyond the end.
fn fetch(raw: &[u8], start: u32, order: BitOrder) -> u8 {
    let at = media::index(start / 8);
    let byte = |at: usize| ordered(raw.get(at).copied().unwrap_or(0), order);
    let [high, _] = (u16::from_be_bytes([byte(at), byte(at + 1)]) << (start % 8)).to_be_bytes();
    high
}

fn ordered(byte: u8, order: BitOrder) -> u8 {
    match order {
        BitOrder::HighestFirst => byte,
        BitOrder::LowestFirst => byte.reverse_bits(),
    }
}

fn total(area: &Area) -> u32 {
    area.ranges
        .iter()
        .map(|(start, end)| end.saturating_sub(*start))
        .sum()
}

/// The bits of step `number` in an area of the OOB: of each `room` bits the `bits` after `lead`.
fn part(
    what: &'static str,
    area: &Area,
    number: u32,
    (room, lead, bits): (u32, u32, u32),
    oob: u32,
) -> Result<Vec<Run>, LayoutError> {
    let (shift, first) = match area.stride {
        Some(stride) => (number.saturating_mul(stride), lead),
        None => (0, number.saturating_mul(room) + lead),
    };
    let found = total(area);
    if first + bits > found {
        let needed = first + bits;
        return Err(LayoutError::Short {
            what,
            step: number,
            found,
            needed,
        });
    }
    let mut runs = Vec::new();
    let mut place = 0;
    for (start, end) in &area.ranges {
        let length = end.saturating_sub(*start);
        let from = first.clamp(place, place + length);
        let to = (first + bits).clamp(place, place + length);
        if to > from {
            runs.push(Run {
                start: oob.saturating_add(shift).saturating_add(start + from - place),
                bits: to - from,
            });
        }
        place += length;
    }
    Ok(runs)
}

/// Takes bits of the raw page in order.
struct Cursor {
    next: u32,
    /// Bits passed over.
    skip: Option<(u32, u32)>,
}

impl Cursor {
    fn take(&mut self, bits: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut left = bits;
        while left > 0 {
            let mut length = left;
            if let Some((start, end)) = self.skip {
                if (start..end).contains(&self.next) {
                    self.next = end;
                }
                if self.next < start {
                    length = length.min(start - self.next);
                }
            }
            runs.push(Run {
                start: self.next,
                bits: length,
            });
            self.next = self.next.saturating_add(length);
            left -= length;
        }
        runs
    }
}

fn shorten(runs: &mut Vec<Run>, bits: u32) {
    let mut left = bits;
    for run in runs.iter_mut() {
        run.bits = run.bits.min(left);
        left -= run.bits;
    }
    runs.retain(|run| run.bits > 0);
}

/// The runs with the eight bits from `marked` on replaced by those from `instead` on.
fn exchanged(runs: &[Run], marked: u32, instead: u32) -> Vec<Run> {
    let mut result = Vec::new();
    for run in runs {
        let end = run.start + run.bits;
        let from = marked.clamp(run.start, end);
        let to = marked.saturating_add(8).clamp(run.start, end);
        result.push(Run {
            start: run.start,
            bits: from - run.start,
        });
        result.push(Run {
            start: instead.saturating_add(from.saturating_sub(marked)),
            bits: to - from,
        });
        result.push(Run {
            start: to,
            bits: end - to,
        });
    }
    result.retain(|run| run.bits > 0);
    result
}

fn merged(runs: Vec<Run>) -> Vec<Run> {
    let mut result: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs.into_iter().filter(|run| run.bits > 0) {
        match result.last_mut() {
            Some(last) if last.start + last.bits == run.start => last.bits += run.bits,
            _ => result.push(run),
        }
    }
    result
}
