//! What every translation layer writes through: open super blocks, the copies of endangered pages, and the RAM in which
//! data waits for its program.
//!
//! Invariants: pages of an open block are programmed upwards, each once; a page is copied to the SLC buffer exactly when a
//! page of an earlier epoch is endangered. An epoch is what is acknowledged together: one command, or everything
//! between two flushes of a card that acknowledges from its cache.

use std::collections::VecDeque;

use media::Nanos;

use crate::geometry::{CardGeometry, index};
use crate::nand_array::{NandArray, ProgramMode};

/// Data that is acknowledged together. [`Epoch::COPY`] is never endangered: its source is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(pub u32);

impl Epoch {
    /// Data that the card moved.
    pub const COPY: Self = Self(0);
}

/// When the data of a command comes over the bus.
#[derive(Clone, Copy, Debug)]
pub struct DataStream {
    /// Start of the first sector.
    pub start: Nanos,
    /// Picoseconds of a sector.
    pub sector_ps: u64,
    /// Data that came earlier counts as come then.
    pub earliest: Nanos,
}

impl DataStream {
    /// When `sectors` sectors have come.
    #[must_use]
    pub fn arrival(&self, sectors: u64) -> Nanos {
        let came = Nanos(self.start.0 + (sectors * self.sector_ps).div_ceil(1000));
        came.max(self.earliest)
    }
}

/// The flash below a translation layer.
#[derive(Clone, Debug)]
pub struct Flash {
    /// Shape.
    pub geometry: CardGeometry,
    /// Times.
    pub array: NandArray,
    /// When everything that was written so far is programmed.
    pub durable: Nanos,
    /// When the data of everything that was written so far is in the card's RAM.
    pub admitted: Nanos,
    lsb_backup: bool,
    /// Ends of the programs whose data is in RAM; its capacity is the RAM's pages.
    waiting: VecDeque<Nanos>,
    buffer_pages: usize,
    /// Units of the host and when their programs end, for who keeps the data; `None` when nobody does.
    programmed: Option<Vec<(u32, Nanos)>>,
}

impl Flash {
    /// Erased flash; `buffer_pages` pages of data wait in RAM at most (at least 1).
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

    /// Notes from here on which units are programmed when.
    pub fn keep_record(&mut self) {
        self.programmed.get_or_insert_default();
    }

    /// Whether programs are noted.
    #[must_use]
    pub const fn keeps_record(&self) -> bool {
        self.programmed.is_some()
    }

    /// Notes that the newest data of a unit is in a program that ends then.
    pub fn note_programmed(&mut self, unit: u32, end: Nanos) {
        if let Some(programmed) = &mut self.programmed {
            programmed.push((unit, end));
        }
    }

    /// What was noted since this was last asked.
    pub fn take_programmed(&mut self) -> Vec<(u32, Nanos)> {
        self.programmed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Programs the page of `open` that ends before its next slot, with data of the host that comes at `arrived`.
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

    /// Programs the page of `open` that ends before its next slot, with data that the card has.
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

    /// Reads the pages that hold `slots`, which are in ascending order; a page is read once. Returns the end.
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

    /// Reads the page that holds a slot. Returns the end.
    pub fn read_slot(&mut self, slot: u32, ready: Nanos) -> Nanos {
        self.read_slot_of_block(slot % self.geometry.block_slots(), ready)
    }

    /// The same for one that is counted from its block's first.
    pub fn read_slot_of_block(&mut self, slot: u32, ready: Nanos) -> Nanos {
        let place = self.geometry.page_of(slot);
        self.array.read(place, ready)
    }
}

/// A super block that is being filled.
#[derive(Clone, Debug)]
pub struct OpenBlock {
    /// Number of the super block.
    pub block: u32,
    /// Slots that are taken.
    pub filled: u32,
    /// Slots that it has in its mode.
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

    /// Takes the next slot. `None` when the block is full.
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

    /// Whether the slots taken so far end at the end of a page.
    #[must_use]
    pub const fn at_page_end(&self, page_units: u32) -> bool {
        self.filled.is_multiple_of(page_units)
    }

    /// Slots to skip so that the page is full.
    #[must_use]
    pub const fn to_page_end(&self, page_units: u32) -> u32 {
        (page_units - self.filled % page_units) % page_units
    }

    /// By page, the epoch in which it was programmed.
    #[must_use]
    pub fn epochs(&self) -> &[u32] {
        &self.epochs
    }

    /// Goes on where a block of the same number was left. Tells whether it could be left so.
    pub fn go_on(&mut self, filled: u32, epochs: &[u32]) -> bool {
        let could_be = filled <= self.capacity && epochs.len() == self.epochs.len();
        if could_be {
            self.filled = filled;
            self.epochs.copy_from_slice(epochs);
        }
        could_be
    }

    /// Makes it an erased block with another number, in the same memory.
    pub fn reopen(&mut self, block: u32) {
        self.block = block;
        self.filled = 0;
        self.epochs.fill(0);
    }
}
