//! Translation layers that map whole blocks and keep changes in log blocks: FAST and LAST.
//!
//! A logical block has at most one data block, in which a unit's slot is its offset. Changes go to logs. A write that
//! starts a logical block, or goes on where its sequential log ends, fills a *sequential log* of that block; everything
//! else fills *random logs*, which all blocks share. A full sequential log takes the place of the data block (switch
//! merge); one that has to go earlier is completed first (partial merge). When no random log is left the oldest goes, and
//! every logical block with a unit in it is gathered into a new block (full merge). LAST differs: several sequential
//! logs, long writes alone go there, units that change again soon have a random log of their own, and the log that costs
//! least goes first, for nothing when all of it is outdated.
//!
//! A unit is a page here: a smaller write has to read the rest first, which the card does.
//!
//! Invariants: `log_map` names the newest copy of a unit when that is in a log; `in_data` says whether the data block
//! has one; `valid` counts the units of a random log that `log_map` names.

use std::collections::{BTreeSet, VecDeque};

use media::Nanos;

use super::{Epoch, Flash, Forget, OpenBlock, Translation, TranslationCounters, UnitWrite};
use crate::error::CardError;
use crate::geometry::{CardGeometry, PagePlace, index};
use crate::nand_array::ProgramMode;

const NONE: u32 = u32::MAX;

/// How the logs are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HybridRules {
    /// Random logs.
    pub random_logs: u32,
    /// Sequential logs.
    pub sequential_logs: u32,
    /// Writes of at least so many units may fill a sequential log; 0 for all (FAST).
    pub sequential_from_units: u32,
    /// Whether units that change again have a log of their own, and the cheapest log goes first (LAST).
    pub locality: Locality,
}

/// Whether the layer looks at how often units change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locality {
    /// The oldest log goes (FAST).
    Ignored,
    /// Hot and cold are parted, the cheapest log goes (LAST).
    Parted,
}

#[derive(Clone, Debug)]
struct SequentialLog {
    logical: u32,
    open: OpenBlock,
    used: u64,
}

#[derive(Clone, Debug)]
struct RandomLog {
    open: OpenBlock,
    valid: u32,
}

/// The layer.
#[derive(Clone, Debug)]
pub struct Hybrid {
    rules: HybridRules,
    units: u32,
    block_slots: u32,
    data: Vec<u32>,
    in_data: Vec<bool>,
    log_map: Vec<u32>,
    /// Unit of each slot of a random log.
    reverse: Vec<u32>,
    sequential: Vec<SequentialLog>,
    /// Oldest first; the youngest one or two are being filled.
    random: VecDeque<RandomLog>,
    /// Blocks of `random` that are being filled: cold, hot.
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
    /// When a unit is no page, or the flash has no room for the logs.
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

    /// Writes a unit to the sequential log of its block when it continues or starts one. Tells whether it did.
    fn write_in_order(
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

    /// Makes a sequential log the data block of its logical block: as it is when it is full, else completed.
    fn end_sequential(&mut self, flash: &mut Flash, at: usize, now: Nanos) {
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
        // What the log wrote is in the data block; what it copied as well; nothing else is.
        for offset in 0..self.block_slots {
            let unit = first + offset;
            if unit < self.units {
                self.in_data[index(unit)] = offset < filled || copied.contains(&offset);
            }
        }
        self.replace_data(flash, logical, open.block, now);
    }

    /// Copies the newest units of a logical block from `from` on into `open`. Returns the offsets that it copied.
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

    fn write_anywhere(&mut self, flash: &mut Flash, unit: u32, hot: usize, arrived: Nanos, epoch: Epoch) {
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

    /// The random log that is being filled, after another one made room when it has to.
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

    /// Empties one random log and erases it.
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

    /// Where the newest copy of a unit is.
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

    fn in_random_log(&self, unit: u32) -> bool {
        let slot = self.log_map[index(unit)];
        slot != NONE && self.random_of(slot).is_some()
    }

    fn random_of(&self, slot: u32) -> Option<usize> {
        let block = slot / self.block_slots;
        self.random.iter().position(|log| log.open.block == block)
    }

    /// The copy of a unit in a log, if there is one, is not the newest any more.
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
        // Units are pages: nothing ever waits for the rest of one.
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

    fn is_mapped(&self, unit: u32) -> bool {
        self.newest(unit).is_some()
    }

    fn counters(&self) -> TranslationCounters {
        self.counters
    }

    fn erase_counts(&self) -> &[u32] {
        &self.erases
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::CellKind;
    use crate::geometry::Shape;
    use crate::nand_array::{NandArray, NandTiming};
    use crate::translation::{DataStream, Placement};

    /// One bank of SLC blocks of 4 pages; 4 logical blocks. PC 10, program 100, read 20, erase 1000 us.
    fn flash() -> Flash {
        let geometry = CardGeometry::new(Shape {
            cell: CellKind::Slc,
            banks: 1,
            page_bytes: 4096,
            unit_bytes: 4096,
            word_lines: 4,
            capacity_bytes: 16 * 4096,
            spare_permille: 1000,
        })
        .unwrap();
        let timing = NandTiming {
            read: [Nanos::from_micros(20); 3],
            program: [Nanos::from_micros(100); 3],
            program_slc: Nanos::from_micros(100),
            erase: Nanos::from_micros(1000),
            transfer: Nanos::from_micros(10),
        };
        let array = NandArray::new(1, &geometry.word_lines, timing);
        Flash::new(geometry, array, true, 64)
    }

    fn hybrid(flash: &mut Flash, locality: Locality) -> Hybrid {
        let rules = HybridRules {
            random_logs: 2,
            sequential_logs: 1,
            sequential_from_units: 0,
            locality,
        };
        // Room: 4 logical + 2 + 1 + 2 = 9 blocks.
        flash.geometry.super_blocks = 9;
        Hybrid::new(&flash.geometry, rules).unwrap()
    }

    fn write(layer: &mut Hybrid, flash: &mut Flash, first: u32, count: u32) {
        let data = DataStream {
            start: Nanos::ZERO,
            sector_ps: 0,
        };
        layer.write(
            flash,
            &UnitWrite {
                first,
                count,
                data,
                sectors_before: 0,
                sectors: u64::from(count) * 8,
                epoch: Epoch(1),
                placement: Placement::Common,
            },
        );
    }

    /// Block 1 written in order twice: 2 switch merges, nothing copied; 8 programs of 110, one erase of 1000 between
    /// (the first data block goes when the second takes its place) = 8 x 110 + 1000 = 1880.
    #[test]
    fn blocks_written_in_order_are_only_exchanged() {
        let mut flash = flash();
        let mut layer = hybrid(&mut flash, Locality::Ignored);
        write(&mut layer, &mut flash, 4, 4);
        write(&mut layer, &mut flash, 4, 4);
        let counters = layer.counters();
        assert_eq!((counters.switch_merges, counters.copied_units), (2, 0));
        assert_eq!(flash.array.idle_at(), Nanos::from_micros(1880));
        assert_eq!(layer.erase_counts().iter().sum::<u32>(), 1);
    }

    /// Half of block 0 in order, then block 1 begins: block 0 had no other data, so nothing is copied.
    #[test]
    fn a_sequential_log_that_has_to_go_is_completed() {
        let mut flash = flash();
        let mut layer = hybrid(&mut flash, Locality::Ignored);
        write(&mut layer, &mut flash, 0, 4);
        write(&mut layer, &mut flash, 0, 2);
        write(&mut layer, &mut flash, 4, 1);
        let counters = layer.counters();
        assert_eq!((counters.partial_merges, counters.copied_units), (1, 2));
        assert!((0..5).all(|unit| layer.is_mapped(unit)));
    }

    /// 8 random units fill 2 logs; the ninth needs room: the oldest log holds units of blocks 0, 1, 2 and 3 -> 4 merges.
    #[test]
    fn a_full_random_log_costs_a_merge_for_every_block_in_it() {
        let mut flash = flash();
        let mut layer = hybrid(&mut flash, Locality::Ignored);
        for unit in [1, 5, 9, 13, 2, 6, 10, 14, 3] {
            write(&mut layer, &mut flash, unit, 1);
        }
        assert_eq!(layer.counters().full_merges, 4);
        assert_eq!(layer.counters().copied_units, 8);
        for unit in [1, 5, 9, 13, 2, 6, 10, 14, 3] {
            assert!(layer.is_mapped(unit), "{unit}");
        }
    }

    /// The same unit over and over: LAST finds logs in which nothing is valid, and merges nothing.
    #[test]
    fn outdated_logs_cost_nothing_when_locality_is_looked_at() {
        let mut flash = flash();
        let mut layer = hybrid(&mut flash, Locality::Parted);
        for _ in 0..40 {
            write(&mut layer, &mut flash, 7, 1);
        }
        assert_eq!(layer.counters().full_merges, 0);
        assert!(layer.is_mapped(7));
    }

    #[test]
    fn every_unit_is_found_after_many_random_writes() {
        for locality in [Locality::Ignored, Locality::Parted] {
            let mut flash = flash();
            let mut layer = hybrid(&mut flash, locality);
            let mut written = [false; 16];
            let mut state = 7_u32;
            for _ in 0..2000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let first = (state >> 8) % 16;
                let count = 1 + (state >> 20) % (16 - first).min(5);
                write(&mut layer, &mut flash, first, count);
                (first..first + count).for_each(|unit| written[index(unit)] = true);
                for (unit, written) in (0..).zip(written) {
                    assert_eq!(layer.is_mapped(unit), written, "{locality:?} {unit}");
                }
            }
        }
    }
}
