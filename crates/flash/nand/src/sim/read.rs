//! Reads of a simulated chip: time, counters, and ECC results.
//!
//! The cells hold the programmed data; wrong bits are computed during the read ([`FaultModel::wrong_bits`]), so they
//! take no memory. Erased pages have none.

use media::{NandError, PagePart, Peb, ReadReport, index};

use super::faults::Step;
use super::{Cells, FaultModel, SimNand};

impl<C: Cells> SimNand<C> {
    pub(super) fn read_pages(
        &mut self,
        peb: Peb,
        offset: u32,
        out: &mut [u8],
    ) -> Result<ReadReport, NandError> {
        let geometry = self.model.geometry;
        geometry.check_read(&self.name, peb, offset, out.len())?;
        self.read_cells(peb, offset, out)?;
        let mut report = ReadReport::default();
        for part in geometry.page_parts(offset, out.len()) {
            let bytes = &mut out[part.at..part.at + index(part.len)];
            report.merge(self.read_page(peb, part, bytes)?);
        }
        Ok(report)
    }

    /// Reads the cells of the whole range at once, as each request to a file costs more than a page. Bytes not
    /// written since the last erase are 0xFF.
    fn read_cells(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<(), NandError> {
        let written = index(self.state(peb).programmed_bytes.saturating_sub(offset));
        let (written, erased) = out.split_at_mut(written.min(out.len()));
        erased.fill(0xFF);
        if written.is_empty() {
            return Ok(());
        }
        self.cells
            .read(peb, offset, written)
            .map_err(|source| self.host_error(&format!("reading {peb} at offset {offset}"), source))
    }

    /// Advances the clock by the read of a page, and applies the page's bit errors to `out`.
    fn read_page(&mut self, peb: Peb, part: PagePart, out: &mut [u8]) -> Result<ReadReport, NandError> {
        let geometry = self.model.geometry;
        let end = self.clock.now() + self.model.timing.read_page + self.model.transfer(part.start, part.len);
        if !self.supply.allows_read(end) {
            return Err(self.power_cut());
        }
        self.clock.advance_to(end);
        self.statistics.page_reads += 1;
        self.statistics.bytes_read += u64::from(part.len);
        let state = self.state(peb);
        state.reads = state.reads.saturating_add(1);
        state.reads_since_erase = state.reads_since_erase.saturating_add(1);
        let start = geometry.page_start(part.page) + part.start;
        let written = state.programmed_bytes.saturating_sub(start).min(part.len);
        match written {
            0 => Ok(ReadReport::default()),
            _ => Ok(self.corrected(peb, part, &mut out[..index(written)])),
        }
    }

    /// Applies the bit errors of each written ECC step of `part`, and counts the corrected ones.
    fn corrected(&mut self, peb: Peb, part: PagePart, bytes: &mut [u8]) -> ReadReport {
        let mut report = ReadReport::default();
        if self.has_no_wrong_bits(peb, part) {
            return report;
        }
        let step_bytes = self.model.ecc_step_bytes();
        let end = part.start + u32::try_from(bytes.len()).expect("a part of a page");
        for step in part.start / step_bytes..end.div_ceil(step_bytes) {
            match self.wrong_bits(peb, part, step) {
                Wrong::Bits(bits) if bits <= self.model.ecc_bits => {
                    report.corrected_bits += bits;
                    report.worst_step_bits = report.worst_step_bits.max(bits);
                    self.statistics.corrected_bits += u64::from(bits);
                }
                Wrong::Bits(bits) => {
                    let first = step * step_bytes;
                    flip(
                        &self.faults,
                        self.step(peb, part, step),
                        bits,
                        step_bytes,
                        |byte, mask| {
                            if let Some(at) = (first + byte).checked_sub(part.start)
                                && let Some(byte) = bytes.get_mut(index(at))
                            {
                                *byte ^= mask;
                            }
                        },
                    );
                    report.uncorrectable = vec![part.page];
                }
                // Garbage of an interrupted erase that is all ones is indistinguishable from erased.
                Wrong::Garbage if is_erased(bytes, part.start, step * step_bytes, step_bytes) => {}
                Wrong::Garbage | Wrong::Torn => report.uncorrectable = vec![part.page],
            }
        }
        if !report.is_correct() {
            self.statistics.uncorrectable_reads += 1;
        }
        report
    }

    fn has_no_wrong_bits(&self, peb: Peb, part: PagePart) -> bool {
        let state = &self.blocks[index(peb.0)];
        let wears = self.faults.reads_per_bit_flip > 0 || self.faults.time_per_bit_flip.0 > 0;
        !wears
            && !state.is_half_erased
            && state.torn.is_none()
            && !state.lost.contains(part.page)
            && !self.injected.bit_flips.contains_key(&(peb, part.page))
    }

    fn wrong_bits(&self, peb: Peb, part: PagePart, step: u32) -> Wrong {
        let state = &self.blocks[index(peb.0)];
        let step_bytes = self.model.ecc_step_bytes();
        let is_torn_here = state.torn.is_some_and(|torn| {
            torn.is_uncorrectable && torn.page == part.page && torn.byte / step_bytes == step
        });
        if state.is_half_erased {
            return Wrong::Garbage;
        }
        if is_torn_here {
            return Wrong::Torn;
        }
        if state.lost.contains(part.page) {
            return Wrong::Bits(self.model.ecc_bits.saturating_add(LOST_BITS));
        }
        let age = self.clock.now().saturating_sub(state.programmed_at);
        let injected = self.injected.bit_flips.get(&(peb, part.page)).copied();
        let worn = self
            .faults
            .wrong_bits(self.step(peb, part, step), state.reads_since_erase, age);
        Wrong::Bits(worn + injected.unwrap_or(0))
    }

    fn step(&self, peb: Peb, part: PagePart, step: u32) -> Step {
        Step {
            peb,
            page: part.page,
            step,
            erases: self.blocks[index(peb.0)].erases,
        }
    }
}

/// Wrong bits, in addition to the correctable ones, in each step of a page that was lost with its pair.
const LOST_BITS: u32 = 32;

/// Error of an ECC step.
enum Wrong {
    /// This number of wrong bits.
    Bits(u32),
    /// A program was interrupted here.
    Torn,
    /// An erase was interrupted.
    Garbage,
}

/// Whether the bytes of a step are all ones, as far as they are in `bytes`, which begins at byte `start` of the page.
fn is_erased(bytes: &[u8], start: u32, first: u32, step_bytes: u32) -> bool {
    let from = index(first.saturating_sub(start));
    let to = index(first + step_bytes - start).min(bytes.len());
    bytes[from..to].iter().all(|byte| *byte == 0xFF)
}

fn flip(faults: &FaultModel, step: Step, count: u32, step_bytes: u32, mut apply: impl FnMut(u32, u8)) {
    for bit in faults.flipped_bits(step, count, step_bytes * 8) {
        apply(bit / 8, 1 << (bit % 8));
    }
}
