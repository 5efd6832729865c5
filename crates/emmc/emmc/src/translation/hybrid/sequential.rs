//! Sequential logs: each is filled in the order of one logical block and becomes the block's data block.

use media::Nanos;

use super::{Hybrid, NONE};
use crate::geometry::index;
use crate::nand_array::ProgramMode;
use crate::translation::{Epoch, Flash, OpenBlock};

/// A log of one logical block.
#[derive(Clone, Debug)]
pub(super) struct SequentialLog {
    pub(super) logical: u32,
    open: OpenBlock,
    used: u64,
}

impl Hybrid {
    /// Writes a unit to the sequential log of its block if it continues or starts one. Returns whether it did.
    pub(super) fn write_in_order(
        &mut self,
        flash: &mut Flash,
        unit: u32,
        logical: u32,
        offset: u32,
        arrived: Nanos,
        epoch: Epoch,
    ) -> bool {
        let existing = self.sequential.iter().position(|log| log.logical == logical);
        let at = match existing {
            Some(at) if self.sequential[at].open.filled == offset => at,
            Some(at) if offset == 0 => {
                self.end_sequential(flash, at, arrived);
                self.begin_sequential(flash, logical, arrived)
            }
            None if offset == 0 => self.begin_sequential(flash, logical, arrived),
            _ => return false,
        };
        self.outdate(unit);
        let log = &mut self.sequential[at];
        log.used = self.uses;
        let slot = log
            .open
            .take(&flash.geometry)
            .expect("a full sequential log is ended");
        self.log_map[index(unit)] = slot;
        let end = flash.program_host(&mut log.open, arrived, epoch);
        flash.note_programmed(unit, end);
        if log.open.filled == log.open.capacity {
            self.end_sequential(flash, at, arrived);
        }
        true
    }

    fn begin_sequential(&mut self, flash: &mut Flash, logical: u32, now: Nanos) -> usize {
        if self.sequential.len() == index(self.rules.sequential_logs) {
            let oldest = (0..self.sequential.len())
                .min_by_key(|at| self.sequential[*at].used)
                .unwrap_or_default();
            self.end_sequential(flash, oldest, now);
        }
        let open = OpenBlock::new(self.take_free(), &flash.geometry, ProgramMode::Native);
        self.sequential.push(SequentialLog {
            logical,
            open,
            used: self.uses,
        });
        self.sequential.len() - 1
    }

    /// Makes a sequential log the data block of its logical block: as it is if it is full, otherwise after completing
    /// it.
    pub(super) fn end_sequential(&mut self, flash: &mut Flash, at: usize, now: Nanos) {
        let SequentialLog {
            logical, mut open, ..
        } = self.sequential.swap_remove(at);
        let first = logical * self.block_slots;
        let filled = open.filled;
        self.counters.collections += 1;
        if filled == open.capacity {
            self.counters.switch_merges += 1;
        } else {
            self.counters.partial_merges += 1;
        }
        for offset in 0..filled {
            let unit = index(first + offset);
            if unit < self.log_map.len() && self.log_map[unit] == open.block * self.block_slots + offset {
                self.log_map[unit] = NONE;
            }
        }
        let copied = self.gather(flash, first, filled, &mut open, now);
        // The data block contains the units written to the log and those copied, and no others.
        for offset in 0..self.block_slots {
            let unit = first + offset;
            if unit < self.units {
                self.in_data[index(unit)] = offset < filled || copied.contains(&offset);
            }
        }
        self.replace_data(flash, logical, open.block, now);
    }
}
