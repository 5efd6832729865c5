//! The simulated chip: rules, time, faults and counters on top of [`Cells`].
//!
//! Order of each operation: check the rules, ask the power supply how far it gets, advance the clock, store the
//! block's state, change the cells. Power fails only within an operation ([`crate::PowerSupply`]);
//! `docs/reference/media.md` specifies the content after a cut.

mod cells;
mod faults;
mod program;
mod read;

use std::fs::File;
use std::sync::Arc;

use media::{Clock, Host, Nand, NandError, NandGeometry, Nanos, Page, Peb, ReadReport, index};

pub use self::cells::{Cells, RamCells};
pub use self::faults::FaultModel;
use self::faults::Injected;
use crate::{BlockState, ChipModel, Failing, PowerSupply, RawNand, hamming};

/// A simulated NAND chip. A clone of a chip in memory is independent: it shares unchanged blocks, continues from the
/// same state, and has its own clock and power supply.
#[derive(Debug)]
pub struct SimNand<C = RamCells> {
    name: Arc<str>,
    model: ChipModel,
    faults: FaultModel,
    clock: Clock,
    supply: PowerSupply,
    blocks: Vec<BlockState>,
    cells: C,
    injected: Injected,
    statistics: Statistics,
    access: Access,
}

/// Whether a chip may be modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Programs, erases and bad-block marks are refused.
    ReadOnly,
    /// All operations are allowed.
    ReadWrite,
}

/// Counters of a chip since it was created or opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads of pages or parts of pages.
    pub page_reads: u64,
    /// Programs of pages or parts of pages.
    pub page_programs: u64,
    /// Erases of blocks.
    pub block_erases: u64,
    /// Bytes transferred over the bus by reads.
    pub bytes_read: u64,
    /// Bytes transferred over the bus by programs.
    pub bytes_programmed: u64,
    /// Failed programs.
    pub program_failures: u64,
    /// Failed erases.
    pub erase_failures: u64,
    /// Corrected bits.
    pub corrected_bits: u64,
    /// Uncorrectable page reads.
    pub uncorrectable_reads: u64,
}

impl SimNand<RamCells> {
    /// An erased chip in memory, with its factory-bad blocks marked.
    #[must_use]
    pub fn new(name: &str, model: ChipModel, faults: FaultModel) -> Self {
        let mut blocks: Vec<_> = model.geometry.pebs().map(|_| BlockState::default()).collect();
        for peb in faults.factory_bad(&model.geometry) {
            blocks[index(peb.0)].is_bad = true;
        }
        let cells = RamCells::new(&model.geometry);
        Self::from_parts(name, model, faults, cells, blocks, Nanos::ZERO)
    }

    /// Heap bytes of the content, including those shared with clones.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.cells.allocated_bytes()
    }
}

impl Clone for SimNand<RamCells> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            clock: Clock::starting_at(self.clock.now()),
            supply: self.supply.fork(),
            blocks: self.blocks.clone(),
            cells: self.cells.clone(),
            injected: self.injected.clone(),
            ..*self
        }
    }
}

impl<C: Cells> SimNand<C> {
    pub(crate) fn from_parts(
        name: &str,
        model: ChipModel,
        faults: FaultModel,
        cells: C,
        blocks: Vec<BlockState>,
        now: Nanos,
    ) -> Self {
        assert_eq!(blocks.len(), index(model.geometry.blocks()), "one state a block");
        Self {
            name: name.into(),
            model,
            faults,
            clock: Clock::starting_at(now),
            supply: PowerSupply::new(),
            blocks,
            cells,
            injected: Injected::default(),
            statistics: Statistics::default(),
            access: Access::ReadWrite,
        }
    }

    /// Sets the access mode.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Connects the chip to a power supply, which other chips may share.
    #[must_use]
    pub fn with_supply(self, supply: &PowerSupply) -> Self {
        Self {
            supply: supply.clone(),
            ..self
        }
    }

    /// The chip's power supply.
    #[must_use]
    pub fn supply(&self) -> &PowerSupply {
        &self.supply
    }

    /// The chip's model.
    #[must_use]
    pub const fn model(&self) -> &ChipModel {
        &self.model
    }

    /// The chip's fault model.
    #[must_use]
    pub const fn faults(&self) -> &FaultModel {
        &self.faults
    }

    /// The chip's counters.
    #[must_use]
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// State and counters of a block.
    pub fn block(&self, peb: Peb) -> Result<&BlockState, NandError> {
        self.model.geometry.check_peb(&self.name, peb)?;
        Ok(&self.blocks[index(peb.0)])
    }

    /// State and counters of all blocks, in order.
    #[must_use]
    pub fn blocks(&self) -> &[BlockState] {
        &self.blocks
    }

    /// Makes the chip's write number `write` fail: a program of a page or an erase, numbered from 0 by the sum of
    /// [`Statistics::page_programs`] and [`Statistics::block_erases`].
    pub fn fail_write(&mut self, write: u64) {
        self.injected.failing_writes.insert(write);
    }

    /// Flips `bits` bits in each ECC step of a page until its block is erased; 0 removes them.
    pub fn inject_bit_flips(&mut self, peb: Peb, page: Page, bits: u32) {
        self.injected.bit_flips.insert((peb, page), bits);
    }

    /// Sets or clears permanent failures of programs or erases of a block.
    pub fn set_failing(&mut self, peb: Peb, failing: Failing) -> Result<(), NandError> {
        self.model.geometry.check_peb(&self.name, peb)?;
        self.blocks[index(peb.0)].failing = failing;
        self.save(peb)
    }

    /// Sets the erase counter of a block, for tests of wear.
    pub fn set_erases(&mut self, peb: Peb, erases: u32) -> Result<(), NandError> {
        self.model.geometry.check_peb(&self.name, peb)?;
        self.blocks[index(peb.0)].erases = erases;
        self.save(peb)
    }

    pub(crate) const fn cells(&self) -> &C {
        &self.cells
    }

    fn state(&mut self, peb: Peb) -> &mut BlockState {
        &mut self.blocks[index(peb.0)]
    }

    fn save(&mut self, peb: Peb) -> Result<(), NandError> {
        let (state, now) = (self.blocks[index(peb.0)], self.clock.now());
        self.cells
            .save(peb, &state, now)
            .map_err(|source| self.host_error(&format!("keeping the state of {peb}"), source))
    }

    fn may_change(&self, peb: Peb, action: &'static str) -> Result<(), NandError> {
        let device = Arc::clone(&self.name);
        match self.access {
            Access::ReadOnly => Err(NandError::ReadOnly { device, peb, action }),
            Access::ReadWrite => Ok(()),
        }
    }

    fn power_cut(&self) -> NandError {
        NandError::PowerCut {
            device: Arc::clone(&self.name),
        }
    }

    fn oob_error(&self, peb: Peb, page: Page, source: std::io::Error) -> NandError {
        self.host_error(&format!("reading the OOB area of {peb}, {page}"), source)
    }

    fn host_error(&self, action: &str, source: std::io::Error) -> NandError {
        NandError::Host {
            device: Arc::clone(&self.name),
            action: action.to_owned(),
            source,
        }
    }
}

impl<C: Cells> Nand for SimNand<C> {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> NandGeometry {
        self.model.geometry
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        self.read_pages(peb, offset, out)
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        self.program_pages(peb, offset, data)
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.erase_block(peb)
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        Ok(self.block(peb)?.is_bad)
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.mark_block_bad(peb)
    }

    fn sync(&mut self) -> Result<(), NandError> {
        let now = self.clock.now();
        self.cells
            .sync(now, &self.blocks)
            .map_err(|source| self.host_error("writing everything out", source))
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        let (name, files) = (Arc::clone(&self.name), self.cells.host_files());
        match files.is_empty() {
            true => None,
            false => Some(Arc::new(HostFiles { name, files })),
        }
    }
}

/// The host files of a chip.
#[derive(Debug)]
struct HostFiles {
    name: Arc<str>,
    files: Vec<Arc<File>>,
}

impl Host for HostFiles {
    fn sync(&self) -> Result<(), NandError> {
        let synced = self.files.iter().try_for_each(|file| file.sync_data());
        synced.map_err(|source| NandError::Host {
            device: Arc::clone(&self.name),
            action: "writing everything out".to_owned(),
            source,
        })
    }
}

impl<C: Cells> RawNand for SimNand<C> {
    /// Takes no time: the OOB is transferred with the page. Cells without OOB areas return computed ones.
    fn read_oob(&mut self, peb: Peb, page: Page, out: &mut [u8]) -> Result<(), NandError> {
        let geometry = self.model.geometry;
        geometry.check_peb(&self.name, peb)?;
        let mut data = vec![0xFF; index(geometry.page_bytes())];
        let start = geometry.page_start(page);
        let state = self.blocks[index(peb.0)];
        let used = index(state.programmed_bytes.saturating_sub(start)).min(data.len());
        let result = match self.cells.read_oob(peb, page, out) {
            Ok(false) => self.cells.read(peb, start, &mut data[..used]),
            other => {
                return other
                    .map(|_| ())
                    .map_err(|source| self.oob_error(peb, page, source));
            }
        };
        result.map_err(|source| self.oob_error(peb, page, source))?;
        let mut oob = vec![0xFF; index(geometry.oob_bytes())];
        hamming::put_codes(&mut oob, data.len(), 0, &data);
        if let (true, Page(0), Some(mark)) = (state.is_bad, page, oob.first_mut()) {
            *mark = 0;
        }
        out.fill(0xFF);
        let len = out.len().min(oob.len());
        out[..len].copy_from_slice(&oob[..len]);
        Ok(())
    }
}
