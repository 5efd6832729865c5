//! Random logs: units of all logical blocks, in order of arrival.

use std::collections::{BTreeSet, VecDeque};

use media::Nanos;

use super::{Hybrid, Locality, NONE};
use crate::geometry::index;
use crate::nand_array::ProgramMode;
use crate::translation::{Epoch, Flash, OpenBlock};

/// A log shared by all logical blocks.
#[derive(Clone, Debug)]
pub(super) struct RandomLog {
    open: OpenBlock,
    pub(super) valid: u32,
}

impl Hybrid {
    pub(super) fn write_anywhere(
        &mut self,
        flash: &mut Flash,
        unit: u32,
        hot: usize,
        arrived: Nanos,
        epoch: Epoch,
    ) {
        let at = self.random_with_room(flash, hot, arrived);
        self.outdate(unit);
        let log = &mut self.random[at];
        let slot = log
            .open
            .take(&flash.geometry)
            .expect("the log was chosen for its room");
        log.valid += 1;
        let end = flash.program_host(&mut log.open, arrived, epoch);
        flash.note_programmed(unit, end);
        self.log_map[index(unit)] = slot;
        self.reverse[index(slot)] = unit;
    }

    /// The random log being filled; merges another one first if there is no free one.
    fn random_with_room(&mut self, flash: &mut Flash, hot: usize, now: Nanos) -> usize {
        let place = |logs: &VecDeque<RandomLog>, block: u32| {
            logs.iter()
                .position(|log| log.open.block == block && log.open.filled < log.open.capacity)
        };
        if let Some(at) = place(&self.random, self.filling[hot]) {
            return at;
        }
        while self.random.len() >= index(self.rules.random_logs) {
            self.end_random(flash, now);
        }
        let open = OpenBlock::new(self.take_free(), &flash.geometry, ProgramMode::Native);
        self.filling[hot] = open.block;
        self.random.push_back(RandomLog { open, valid: 0 });
        self.random.len() - 1
    }

    /// Merges all units of one random log and erases it.
    fn end_random(&mut self, flash: &mut Flash, now: Nanos) {
        let at = match self.rules.locality {
            Locality::Ignored => 0,
            Locality::Parted => (0..self.random.len())
                .min_by_key(|at| {
                    let log = &self.random[*at];
                    let is_open = log.open.filled < log.open.capacity;
                    (log.valid > 0, is_open, self.logical_blocks_of(log).len())
                })
                .unwrap_or_default(),
        };
        for logical in self.logical_blocks_of(&self.random[at]) {
            self.full_merge(flash, logical, now);
        }
        if let Some(log) = self.random.remove(at) {
            for filling in &mut self.filling {
                if *filling == log.open.block {
                    *filling = NONE;
                }
            }
            self.erase(flash, log.open.block, now);
        }
    }

    fn logical_blocks_of(&self, log: &RandomLog) -> BTreeSet<u32> {
        if log.valid == 0 {
            return BTreeSet::new();
        }
        let first = log.open.block * self.block_slots;
        (first..first + log.open.filled)
            .filter(|slot| self.log_map[index(self.reverse[index(*slot)])] == *slot)
            .map(|slot| self.reverse[index(slot)] / self.block_slots)
            .collect()
    }

    pub(super) fn in_random_log(&self, unit: u32) -> bool {
        let slot = self.log_map[index(unit)];
        slot != NONE && self.random_of(slot).is_some()
    }

    pub(super) fn random_of(&self, slot: u32) -> Option<usize> {
        let block = slot / self.block_slots;
        self.random.iter().position(|log| log.open.block == block)
    }
}
