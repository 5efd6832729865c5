//! Programs, erases and bad-block marks of a simulated chip, complete or interrupted.

use std::sync::Arc;

use media::{NandError, Page, PagePart, Peb, index};

use super::{Cells, SimNand};
use crate::block::{LostPages, TornPage};
use crate::power::{Allowed, CutPoint};

impl<C: Cells> SimNand<C> {
    pub(super) fn program_pages(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        let geometry = self.model.geometry;
        geometry.check_program(&self.name, peb, offset, data.len())?;
        self.may_change(peb, "programmed")?;
        self.check_good(peb, "programmed")?;
        let next = self.state(peb).programmed_bytes;
        if offset < next {
            return Err(NandError::NotErased {
                device: Arc::clone(&self.name),
                peb,
                page: geometry.page_of(offset),
                offset,
                next,
            });
        }
        for part in geometry.page_parts(offset, data.len()) {
            let bytes = &data[part.at..part.at + index(part.len)];
            self.program_page(peb, part, bytes)?;
        }
        Ok(())
    }

    fn program_page(&mut self, peb: Peb, part: PagePart, data: &[u8]) -> Result<(), NandError> {
        let start = self.clock.now();
        let end = start + self.model.transfer(part.start, part.len) + self.model.timing.program_page;
        let allowed = self.supply.allows_write(start, end, part.len);
        if allowed == Allowed::Nothing {
            return Err(self.power_cut());
        }
        self.clock.advance_to(end);
        let number = self.next_write();
        self.statistics.page_programs += 1;
        self.statistics.bytes_programmed += u64::from(part.len);
        if let Allowed::Cut {
            point,
            torn_is_uncorrectable,
        } = allowed
        {
            if matches!(point, CutPoint::Partway(bytes) if (1..part.len).contains(&bytes)) {
                self.lose_lower_page(peb, part.page);
            }
            self.program_torn(peb, part, data, point, torn_is_uncorrectable)?;
            return Err(self.power_cut());
        }
        let state = *self.state(peb);
        let block_offset = self.model.geometry.page_start(part.page) + part.start;
        if self.injected.failing_writes.remove(&number)
            || state.failing.program_at == Some(part.page)
            || self.faults.program_fails(peb, block_offset, state.erases)
        {
            self.statistics.program_failures += 1;
            let half = CutPoint::Partway(part.len / 2);
            self.program_torn(peb, part, data, half, true)?;
            return Err(NandError::ProgramFailed {
                device: Arc::clone(&self.name),
                peb,
                page: part.page,
            });
        }
        self.fill(peb, part, data)
    }

    /// The charge of the paired page is now undefined. This is stored together with the state of the torn page.
    fn lose_lower_page(&mut self, peb: Peb, page: Page) {
        let geometry = self.model.geometry;
        let lower = self.model.pairing.lower_page(page, geometry.pages_per_block());
        if let Some(lower) = lower
            && geometry.page_start(lower) < self.state(peb).programmed_bytes
        {
            self.state(peb).lost.insert(lower);
        }
    }

    /// Programs the first bytes of a page. The rest stays unchanged, and can't be programmed before an erase.
    fn program_torn(
        &mut self,
        peb: Peb,
        part: PagePart,
        data: &[u8],
        point: CutPoint,
        is_uncorrectable: bool,
    ) -> Result<(), NandError> {
        match point {
            CutPoint::Before | CutPoint::Partway(0) => Ok(()),
            CutPoint::Partway(bytes) if bytes < part.len => {
                self.state(peb).torn = Some(TornPage {
                    page: part.page,
                    byte: part.start + bytes,
                    is_uncorrectable,
                });
                let mut torn = data.to_vec();
                torn[index(bytes)..].fill(0xFF);
                self.fill(peb, part, &torn)
            }
            CutPoint::Partway(_) | CutPoint::After => self.fill(peb, part, data),
        }
    }

    /// Stores the use of the bytes before the bytes themselves: a process that dies in between leaves a partly
    /// programmed page, as after a power cut.
    fn fill(&mut self, peb: Peb, part: PagePart, data: &[u8]) -> Result<(), NandError> {
        let now = self.clock.now();
        let start = self.model.geometry.page_start(part.page) + part.start;
        let state = self.state(peb);
        state.programs += 1;
        if state.programmed_bytes == 0 {
            state.programmed_at = now;
        }
        state.programmed_bytes = start + part.len;
        self.save(peb)?;
        self.cells
            .write(peb, start, data)
            .map_err(|source| self.host_error(&format!("programming {peb} at offset {start}"), source))
    }

    pub(super) fn erase_block(&mut self, peb: Peb) -> Result<(), NandError> {
        self.model.geometry.check_peb(&self.name, peb)?;
        self.may_change(peb, "erased")?;
        self.check_good(peb, "erased")?;
        let start = self.clock.now();
        let end = start + self.model.timing.erase_block;
        let allowed = self.supply.allows_write(start, end, 2);
        if allowed == Allowed::Nothing {
            return Err(self.power_cut());
        }
        self.clock.advance_to(end);
        let number = self.next_write();
        self.statistics.block_erases += 1;
        let before = *self.state(peb);
        match allowed {
            Allowed::Cut {
                point: CutPoint::Before,
                ..
            } => return Err(self.power_cut()),
            Allowed::Cut {
                point: CutPoint::Partway(_),
                ..
            } => {
                self.half_erase(peb)?;
                return Err(self.power_cut());
            }
            _ => {}
        }
        if self.injected.failing_writes.remove(&number)
            || before.failing.erases
            || self.faults.erase_fails(peb, before.erases)
        {
            self.statistics.erase_failures += 1;
            self.half_erase(peb)?;
            return Err(NandError::EraseFailed {
                device: Arc::clone(&self.name),
                peb,
            });
        }
        self.clear(peb)?;
        match allowed {
            Allowed::Cut { .. } => Err(self.power_cut()),
            Allowed::All | Allowed::Nothing => Ok(()),
        }
    }

    /// Completes an erase. While the cells change, the stored state says that they hold garbage.
    fn clear(&mut self, peb: Peb) -> Result<(), NandError> {
        let state = self.state(peb);
        state.erases = state.erases.saturating_add(1);
        state.is_half_erased = true;
        self.save(peb)?;
        self.cells
            .erase(peb)
            .map_err(|source| self.host_error(&format!("erasing {peb}"), source))?;
        let state = self.state(peb);
        *state = state.erased();
        self.forget_injected(peb);
        self.save(peb)
    }

    /// Leaves garbage in the programmed part: erased ones, and zeros that the erase did not reach.
    fn half_erase(&mut self, peb: Peb) -> Result<(), NandError> {
        let block_bytes = self.model.geometry.block_bytes();
        let state = self.state(peb);
        let mut bytes = vec![0; index(state.programmed_bytes)];
        state.erases = state.erases.saturating_add(1);
        state.is_half_erased = true;
        state.torn = None;
        state.lost = LostPages::default();
        state.programmed_bytes = block_bytes;
        let erases = state.erases;
        self.forget_injected(peb);
        self.save(peb)?;
        let result = self.cells.read(peb, 0, &mut bytes).and_then(|()| {
            for (offset, byte) in (0..).zip(&mut bytes) {
                *byte = self.faults.half_erased(peb, erases, offset, *byte);
            }
            self.cells.write(peb, 0, &bytes)
        });
        result.map_err(|source| self.host_error(&format!("erasing {peb}"), source))
    }

    pub(super) fn mark_block_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.model.geometry.check_peb(&self.name, peb)?;
        self.may_change(peb, "marked bad")?;
        let start = self.clock.now();
        let end = start + self.model.timing.program_page;
        let allowed = self.supply.allows_write(start, end, 2);
        match allowed {
            Allowed::Nothing => return Err(self.power_cut()),
            Allowed::Cut { point, .. } if point != CutPoint::After => return Err(self.power_cut()),
            Allowed::Cut { .. } | Allowed::All => {}
        }
        self.clock.advance_to(end);
        self.state(peb).is_bad = true;
        self.save(peb)?;
        match allowed {
            Allowed::All => Ok(()),
            Allowed::Cut { .. } | Allowed::Nothing => Err(self.power_cut()),
        }
    }

    fn check_good(&mut self, peb: Peb, action: &'static str) -> Result<(), NandError> {
        if self.state(peb).is_bad {
            let device = Arc::clone(&self.name);
            return Err(NandError::BadBlock { device, peb, action });
        }
        Ok(())
    }

    /// The number of the next write.
    fn next_write(&self) -> u64 {
        self.statistics.page_programs + self.statistics.block_erases
    }

    fn forget_injected(&mut self, peb: Peb) {
        self.injected.bit_flips.retain(|(place, _), _| *place != peb);
    }
}
