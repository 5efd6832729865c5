//! The flash below every translation layer: open super blocks, backup copies of endangered pages, and the RAM in
//! which data waits for its program.
//!
//! Invariants: pages of an open block are programmed in ascending order, each once; a page is copied to the SLC
//! buffer exactly if a program endangers it and it belongs to an earlier epoch. An epoch is a set of data
//! acknowledged together: one command, or, with a write cache, everything between two flushes.

use std::collections::VecDeque;

use media::Nanos;

use crate::geometry::{CardGeometry, index};
use crate::nand_array::{NandArray, ProgramMode};

/// Data that is acknowledged together. [`Epoch::COPY`] is never endangered, since its source still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Data copied by the card.
    pub const COPY: Self = Self(0);
}

/// Arrival times of a command's data over the bus.
#[derive(Clone, Copy, Debug)]
pub struct DataStream {
    /// Start of the first sector.
    pub start: Nanos,
    /// Transfer time of a sector, picoseconds.
    pub sector_ps: u64,
    /// Data that arrives earlier counts as arriving at this time.
    pub earliest: Nanos,
}

impl DataStream {
    /// Arrival time of the first `sectors` sectors.
    #[must_use]
    pub fn arrival(&self, sectors: u64) -> Nanos {
        let came = Nanos(self.start.0 + (sectors * self.sector_ps).div_ceil(1000));
        came.max(self.earliest)
    }
}

/// The flash below a translation layer; see the module.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Geometry.
    pub geometry: CardGeometry,
    /// Banks and their timing.
    pub array: NandArray,
    /// Time at which everything written so far is programmed.
    pub durable: Nanos,
    /// Time at which the data of everything written so far is in the card's RAM.
    pub admitted: Nanos,
    lsb_backup: bool,
    /// Ends of the programs whose data is in RAM; at most `buffer_pages`.
    waiting: VecDeque<Nanos>,
    buffer_pages: usize,
    /// Host units and the ends of their programs, for a caller that stores the data; `None` without such a caller.
    programmed: Option<Vec<(u32, Nanos)>>,
}

impl Flash {
    /// Erased flash with a RAM buffer of `buffer_pages` pages (at least 1).
    #[must_use]
    pub fn new(geometry: CardGeometry, array: NandArray, lsb_backup: bool, buffer_pages: usize) -> Self {
        let buffer_pages = buffer_pages.max(1);
        Self {
            geometry,
            array,
            durable: Nanos::ZERO,
            admitted: Nanos::ZERO,
            lsb_backup,
            waiting: VecDeque::with_capacity(buffer_pages),
            buffer_pages,
            programmed: None,
        }
    }

    /// Sets the clock of idle flash to zero.
    pub fn restart_clock(&mut self) {
        self.array.restart_clock();
        self.durable = Nanos::ZERO;
        self.admitted = Nanos::ZERO;
        self.waiting.clear();
    }

    /// From here on records which units are programmed when.
    pub fn keep_record(&mut self) {
        self.programmed.get_or_insert_default();
    }

    /// Whether programs are recorded.
    #[must_use]
    pub const fn keeps_record(&self) -> bool {
        self.programmed.is_some()
    }

    /// Records that the program of a unit's newest data ends at `end`.
    pub fn note_programmed(&mut self, unit: u32, end: Nanos) {
        if let Some(programmed) = &mut self.programmed {
            programmed.push((unit, end));
        }
    }

    /// Returns and clears the record.
    pub fn take_programmed(&mut self) -> Vec<(u32, Nanos)> {
        self.programmed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Programs the page of `open` that ends before its next slot, with host data that arrives at `arrived`.
    pub fn program_host(&mut self, open: &mut OpenBlock, arrived: Nanos, epoch: Epoch) -> Nanos {
        let room = if self.waiting.len() == self.buffer_pages {
            self.waiting.pop_front().unwrap_or_default()
        } else {
            Nanos::ZERO
        };
        let arrived = arrived.max(room);
        self.admitted = self.admitted.max(arrived);
        let end = self.program(open, arrived, epoch);
        self.waiting.push_back(end);
        self.durable = self.durable.max(end);
        end
    }

    /// Programs the page of `open` that ends before its next slot, with data that is already in the card.
    pub fn program(&mut self, open: &mut OpenBlock, ready: Nanos, epoch: Epoch) -> Nanos {
        let page_of_block = (open.filled - 1) / self.geometry.page_units();
        let place = self.geometry.page_of(open.filled - 1);
        open.epochs[index(page_of_block)] = epoch.0;
        let mut backups = 0;
        if self.lsb_backup && open.mode == ProgramMode::Native && epoch != Epoch::COPY {
            for partner in self.geometry.word_lines.lower_partners(place.page) {
                let written = open.epochs[index(partner * self.geometry.banks + place.bank)];
                backups += u32::from(written != epoch.0 && written != Epoch::COPY.0);
            }
        }
        self.array.program(place, ready, backups, open.mode)
    }

    /// Reads the pages that contain `slots`, given in ascending order, each page once. Returns the end.
    pub fn read_slots(&mut self, slots: impl Iterator<Item = u32>, ready: Nanos) -> Nanos {
        let (mut last_page, mut end) = (u32::MAX, ready);
        for slot in slots {
            let page = slot / self.geometry.page_units();
            if page != last_page {
                last_page = page;
                end = end.max(self.read_slot(slot, ready));
            }
        }
        end
    }

    /// Reads the page that contains a slot. Returns the end.
    pub fn read_slot(&mut self, slot: u32, ready: Nanos) -> Nanos {
        self.read_slot_of_block(slot % self.geometry.block_slots(), ready)
    }

    /// As [`Self::read_slot`], with the slot numbered within its block.
    pub fn read_slot_of_block(&mut self, slot: u32, ready: Nanos) -> Nanos {
        let place = self.geometry.page_of(slot);
        self.array.read(place, ready)
    }
}

/// A super block being filled.
#[derive(Clone, Debug)]
pub struct OpenBlock {
    /// Number of the super block.
    pub block: u32,
    /// Used slots.
    pub filled: u32,
    /// Number of slots in its program mode.
    pub capacity: u32,
    /// How its pages are programmed.
    pub mode: ProgramMode,
    /// Epoch of each page, by page of the super block.
    epochs: Vec<u32>,
}

impl OpenBlock {
    /// An erased block.
    #[must_use]
    pub fn new(block: u32, geometry: &CardGeometry, mode: ProgramMode) -> Self {
        let lines = geometry.block_slots() / u32::from(geometry.word_lines.kind().bits());
        Self {
            block,
            filled: 0,
            capacity: match mode {
                ProgramMode::Native => geometry.block_slots(),
                ProgramMode::Slc => lines,
            },
            mode,
            epochs: vec![0; index(geometry.block_pages())],
        }
    }

    /// Takes the next slot; `None` if the block is full.
    pub fn take(&mut self, geometry: &CardGeometry) -> Option<u32> {
        (!self.is_full()).then(|| {
            self.filled += 1;
            self.block * geometry.block_slots() + self.filled - 1
        })
    }

    /// Whether no slot is left.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.filled == self.capacity
    }

    /// Whether the next slot starts a new page.
    #[must_use]
    pub const fn at_page_end(&self, page_units: u32) -> bool {
        self.filled.is_multiple_of(page_units)
    }

    /// Number of slots left in the current page.
    #[must_use]
    pub const fn to_page_end(&self, page_units: u32) -> u32 {
        (page_units - self.filled % page_units) % page_units
    }

    /// Epoch in which each page was programmed.
    #[must_use]
    pub fn epochs(&self) -> &[u32] {
        &self.epochs
    }

    /// Restores the fill state of a block with the same number. Returns whether that state is possible.
    pub fn resume(&mut self, filled: u32, epochs: &[u32]) -> bool {
        let could_be = filled <= self.capacity && epochs.len() == self.epochs.len();
        if could_be {
            self.filled = filled;
            self.epochs.copy_from_slice(epochs);
        }
        could_be
    }

    /// Reuses the memory for an erased block with another number.
    pub fn reopen(&mut self, block: u32) {
        self.block = block;
        self.filled = 0;
        self.epochs.fill(0);
    }
}
