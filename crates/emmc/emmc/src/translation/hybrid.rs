//! Translation layers that map whole blocks and keep changes in log blocks: FAST and LAST.
//!
//! A logical block has at most one data block, in which a unit's slot is its offset. Changes go to logs. A write that
//! starts a logical block, or continues at the end of its sequential log, fills a *sequential log* of that block;
//! everything else fills *random logs*, which all blocks share. A full sequential log replaces the data block (switch
//! merge); one that has to be released earlier is completed first (partial merge). When no random log is free the
//! oldest is released, and every logical block with a unit in it is gathered into a new block (full merge). LAST
//! differs: it has several sequential logs, only long writes go there, units that change frequently have a random log
//! of their own, and the cheapest log is released first, at no cost if all of it is outdated.
//!
//! A unit equals a page here: for a smaller write the card reads the rest first.
//!
//! Invariants: `log_map` names the newest copy of a unit if that is in a log; `in_data` says whether the data block
//! has one; `valid` counts the units of a random log that `log_map` names.

mod random;
mod sequential;

use std::collections::{BTreeSet, VecDeque};

use media::Nanos;

use self::random::RandomLog;
use self::sequential::SequentialLog;
use super::kept::{Kept, foreign};
use super::{Epoch, Flash, Forget, OpenBlock, Translation, TranslationCounters, UnitWrite};
use crate::error::CardError;
use crate::geometry::{CardGeometry, PagePlace, index};
use crate::nand_array::ProgramMode;

const NONE: u32 = u32::MAX;

/// Configuration of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridRules {
    /// Number of random logs.
    pub random_logs: u32,
    /// Number of sequential logs.
    pub sequential_logs: u32,
    /// Minimum length in units of writes that may fill a sequential log; 0 for any (FAST).
    pub sequential_from_units: u32,
    /// Whether units that change frequently have their own log, and the cheapest log is released first (LAST).
    pub locality: Locality,
}

/// Whether the layer uses temporal locality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// The oldest log is released (FAST).
    Ignored,
    /// Hot and cold units are separated, and the cheapest log is released (LAST).
    Parted,
}

/// The log-block layer; see the module.
#[derive(Clone, Debug)]
pub struct Hybrid {
    rules: HybridRules,
    units: u32,
    block_slots: u32,
    data: Vec<u32>,
    in_data: Vec<bool>,
    log_map: Vec<u32>,
    /// Unit in each slot of a random log.
    reverse: Vec<u32>,
    sequential: Vec<SequentialLog>,
    /// Oldest first; the newest one or two are being filled.
    random: VecDeque<RandomLog>,
    /// Blocks of `random` being filled: cold, hot.
    filling: [u32; 2],
    free: BTreeSet<(u32, u32)>,
    erases: Vec<u32>,
    uses: u64,
    log_bank: u32,
    counters: TranslationCounters,
}

impl Hybrid {
    /// Empty flash.
    ///
    /// # Errors
    /// If a unit is not a page, or the flash is too small for the logs.
    pub fn new(geometry: &CardGeometry, rules: HybridRules) -> Result<Self, CardError> {
        if geometry.page_units() != 1 {
            return Err(CardError::Number {
                what: "unit_bytes",
                found: u64::from(geometry.unit_bytes),
                expected: "a page: fast and last map whole pages",
            });
        }
        if rules.random_logs < 2 || rules.sequential_logs < 1 {
            return Err(CardError::Number {
                what: "random_log_blocks, sequential_log_blocks",
                found: u64::from(rules.random_logs.min(rules.sequential_logs)),
                expected: "at least 2 and 1",
            });
        }
        let logical = geometry.units().div_ceil(geometry.block_slots());
        let needed = u64::from(logical) + u64::from(rules.random_logs) + u64::from(rules.sequential_logs) + 2;
        if needed > u64::from(geometry.super_blocks) {
            return Err(CardError::Number {
                what: "super blocks",
                found: u64::from(geometry.super_blocks),
                expected: "room for the logs and 2 more; raise spare_permille or take fewer logs",
            });
        }
        Ok(Self {
            rules,
            units: geometry.units(),
            block_slots: geometry.block_slots(),
            data: vec![NONE; index(logical)],
            in_data: vec![false; index(geometry.units())],
            log_map: vec![NONE; index(geometry.units())],
            reverse: vec![NONE; index(geometry.slots())],
            sequential: Vec::new(),
            random: VecDeque::new(),
            filling: [NONE; 2],
            free: (0..geometry.super_blocks).map(|block| (0, block)).collect(),
            erases: vec![0; index(geometry.super_blocks)],
            uses: 0,
            log_bank: 0,
            counters: TranslationCounters::default(),
        })
    }

    fn write_unit(&mut self, flash: &mut Flash, unit: u32, long: bool, arrived: Nanos, epoch: Epoch) {
        let (logical, offset) = (unit / self.block_slots, unit % self.block_slots);
        self.uses += 1;
        if long && self.write_in_order(flash, unit, logical, offset, arrived, epoch) {
            return;
        }
        let hot = usize::from(self.rules.locality == Locality::Parted && self.in_random_log(unit));
        self.write_anywhere(flash, unit, hot, arrived, epoch);
    }

    /// Copies the newest units of a logical block from `from` on into `open`. Returns their offsets.
    fn gather(
        &mut self,
        flash: &mut Flash,
        first: u32,
        from: u32,
        open: &mut OpenBlock,
        now: Nanos,
    ) -> BTreeSet<u32> {
        let mut copied = BTreeSet::new();
        for offset in from..self.block_slots {
            let unit = first + offset;
            let Some(source) = self.newest(unit) else {
                continue;
            };
            let read = flash.read_slot(source, now);
            open.filled = offset + 1;
            flash.program(open, read, Epoch::COPY);
            self.outdate(unit);
            copied.insert(offset);
            self.counters.copied_units += 1;
        }
        copied
    }

    fn replace_data(&mut self, flash: &mut Flash, logical: u32, block: u32, now: Nanos) {
        let old = std::mem::replace(&mut self.data[index(logical)], block);
        if old != NONE {
            self.erase(flash, old, now);
        }
    }

    fn full_merge(&mut self, flash: &mut Flash, logical: u32, now: Nanos) {
        if let Some(at) = self.sequential.iter().position(|log| log.logical == logical) {
            self.end_sequential(flash, at, now);
        }
        let first = logical * self.block_slots;
        let mut open = OpenBlock::new(self.take_free(), &flash.geometry, ProgramMode::Native);
        let copied = self.gather(flash, first, 0, &mut open, now);
        for offset in 0..self.block_slots {
            if first + offset < self.units {
                self.in_data[index(first + offset)] = copied.contains(&offset);
            }
        }
        self.counters.collections += 1;
        self.counters.full_merges += 1;
        self.replace_data(flash, logical, open.block, now);
    }

    /// The slot with the newest copy of a unit.
    fn newest(&self, unit: u32) -> Option<u32> {
        if unit >= self.units {
            return None;
        }
        match self.log_map[index(unit)] {
            NONE if self.in_data[index(unit)] => {
                let block = self.data[index(unit / self.block_slots)];
                Some(block * self.block_slots + unit % self.block_slots)
            }
            NONE => None,
            slot => Some(slot),
        }
    }

    /// Invalidates the copy of a unit in a log, if any.
    fn outdate(&mut self, unit: u32) {
        let slot = std::mem::replace(&mut self.log_map[index(unit)], NONE);
        if slot != NONE
            && let Some(at) = self.random_of(slot)
        {
            self.random[at].valid -= 1;
        }
    }

    fn take_free(&mut self) -> u32 {
        self.free
            .pop_first()
            .map(|(_, block)| block)
            .expect("the constructor checked that there is room for every log and a merge")
    }

    fn erase(&mut self, flash: &mut Flash, block: u32, now: Nanos) {
        flash.array.erase_all(now);
        let erases = &mut self.erases[index(block)];
        *erases += 1;
        self.free.insert((*erases, block));
    }
}

impl Translation for Hybrid {
    fn write(&mut self, flash: &mut Flash, write: &UnitWrite) {
        let long = write.count >= self.rules.sequential_from_units;
        for n in 0..write.count {
            let arrived = write.arrival(n, flash.geometry.unit_sectors());
            self.write_unit(flash, write.first + n, long, arrived, write.epoch);
        }
        self.counters.host_units += u64::from(write.count);
    }

    fn close(&mut self, _: &mut Flash, _: Nanos, _: Epoch) {
        // Units are pages, so no partial page is ever pending.
    }

    fn read(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos) -> Nanos {
        let slots: Vec<u32> = (first..first.saturating_add(count))
            .filter_map(|unit| self.newest(unit))
            .collect();
        flash.read_slots(slots.into_iter(), ready)
    }

    fn forget(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos, how: Forget) -> Nanos {
        for unit in first..first.saturating_add(count).min(self.units) {
            self.outdate(unit);
            self.in_data[index(unit)] = false;
        }
        match how {
            Forget::Lazily => ready,
            Forget::Durably => {
                self.log_bank = (self.log_bank + 1) % flash.geometry.banks;
                self.counters.map_units += 1;
                let place = PagePlace {
                    bank: self.log_bank,
                    page: 0,
                };
                flash.array.program(place, ready, 0, ProgramMode::Slc)
            }
        }
    }

    fn copied(&self) -> Box<dyn Translation> {
        Box::new(self.clone())
    }

    fn is_mapped(&self, unit: u32) -> bool {
        self.newest(unit).is_some()
    }

    fn restart_clock(&mut self) {
        // No time is kept here.
    }

    fn pending_units(&self) -> u64 {
        // A unit is a page.
        0
    }

    fn counters(&self) -> TranslationCounters {
        self.counters
    }

    fn erase_counts(&self) -> &[u32] {
        &self.erases
    }

    fn keep(&self) -> Kept {
        Kept {
            erases: self.erases.clone(),
            map: None,
        }
    }

    fn take_up(&mut self, _: &CardGeometry, kept: &Kept) -> Result<(), CardError> {
        if let Some(map) = &kept.map {
            let found = u64::try_from(map.slots.len()).unwrap_or(u64::MAX);
            return Err(foreign(
                "units of the map",
                found,
                "none, as it has no map of pages",
            ));
        }
        self.free = kept.by_wear(self.erases.len())?;
        self.erases.clone_from(&kept.erases);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
