//! A translation layer that maps each unit separately (page mapping), with the whole map in RAM or a part of it
//! (DFTL).
//!
//! Host writes fill one super block, copies another; tagged data and each context have their own. When free super
//! blocks run low, garbage collection empties the one with the fewest valid units, in steps proportional to host
//! writes: for each slot that the host takes, `valid / (slots - valid)` units are copied, so that the victim is empty
//! when its space is needed. Every 64th victim is the least erased block, which levels wear.
//!
//! Invariants: `map` and `reverse` agree for every valid slot; a bit of `valid_bits` is set exactly for those; the
//! collector always finds [`PageMapRules::reserve`] free blocks.

mod collect;
mod kept;

use std::collections::BTreeSet;

use media::Nanos;

use self::collect::Collection;
use super::kept::Kept;
use super::map_cache::{MapCache, Writes};
use super::prefetch::prefetch;
use super::{
    Epoch, Flash, Forget, OpenBlock, Placement, Translation, TranslationCounters, UnitWrite, Urgency,
};
use crate::error::CardError;
use crate::geometry::{CardGeometry, index};
use crate::nand_array::ProgramMode;

const NONE: u32 = super::NO_SLOT;

/// Size of a map entry in flash, bytes.
const ENTRY_BYTES: u32 = 4;

const HOST: usize = 0;
const COPIES: usize = 1;
const TAGGED: usize = 2;
const MAP: usize = 3;
const CONTEXTS: usize = 4;

/// Configuration of a page map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMapRules {
    /// Pages of the map that fit in RAM; `None` for all.
    pub cached_pages: Option<u32>,
    /// Whether tagged data goes to SLC blocks.
    pub data_tag: bool,
    /// Number of contexts with separate blocks.
    pub contexts: u32,
}

impl PageMapRules {
    /// Free super blocks reserved for the collector.
    const fn reserve(self) -> usize {
        if self.cached_pages.is_some() { 3 } else { 1 }
    }
}

/// The page-mapping layer; see the module.
#[derive(Clone, Debug)]
pub struct PageMap {
    rules: PageMapRules,
    units: u32,
    block_slots: u32,
    page_units: u32,
    map: Vec<u32>,
    reverse: Vec<u32>,
    valid_bits: Vec<u64>,
    valid: Vec<u32>,
    /// Full blocks that may be collected.
    closed: Vec<bool>,
    erases: Vec<u32>,
    free: BTreeSet<(u32, u32)>,
    streams: Vec<Option<OpenBlock>>,
    /// Arrival time of the last unit of each stream.
    ready: Vec<Nanos>,
    collection: Option<Collection>,
    credit: u64,
    cache: Option<MapCache>,
    log_bank: u32,
    counters: TranslationCounters,
}

impl PageMap {
    /// An empty map.
    ///
    /// # Errors
    /// If the flash is too small for the separate streams.
    pub fn new(geometry: &CardGeometry, rules: PageMapRules) -> Result<Self, CardError> {
        let streams = CONTEXTS + index(rules.contexts);
        let used = 2
            + usize::from(rules.data_tag)
            + usize::from(rules.cached_pages.is_some())
            + index(rules.contexts);
        let map_units = rules
            .cached_pages
            .map_or(0, |_| map_pages(geometry) * geometry.page_units());
        let needed = geometry.units() + map_units;
        let needed_blocks = needed.div_ceil(geometry.block_slots());
        let spare = geometry.super_blocks.saturating_sub(needed_blocks);
        if index(spare) < used + rules.reserve() + 1 {
            return Err(CardError::Number {
                what: "spare super blocks",
                found: u64::from(spare),
                expected: "one for each stream of data (host, copies, tag, map, contexts) and 2 more, 4 with a cached \
                           map; raise spare_permille",
            });
        }
        let blocks = index(geometry.super_blocks);
        Ok(Self {
            rules,
            units: geometry.units(),
            block_slots: geometry.block_slots(),
            page_units: geometry.page_units(),
            map: vec![NONE; index(needed)],
            reverse: vec![NONE; index(geometry.slots())],
            valid_bits: vec![0; index(geometry.slots().div_ceil(64))],
            valid: vec![0; blocks],
            closed: vec![false; blocks],
            erases: vec![0; blocks],
            free: (0..geometry.super_blocks).map(|block| (0, block)).collect(),
            streams: vec![None; streams],
            ready: vec![Nanos::ZERO; streams],
            collection: None,
            credit: 0,
            cache: rules
                .cached_pages
                .map(|pages| MapCache::new(map_pages(geometry), pages)),
            log_bank: 0,
            counters: TranslationCounters::default(),
        })
    }

    fn stream_of(&self, placement: Placement) -> usize {
        match placement {
            Placement::Tagged if self.rules.data_tag => TAGGED,
            Placement::Context(id) if id > 0 && u32::from(id) <= self.rules.contexts => {
                CONTEXTS + usize::from(id) - 1
            }
            _ => HOST,
        }
    }

    /// Moves a unit to the next slot of a stream's open block, and invalidates its old slot. Returns whether a page
    /// is full.
    fn place(&mut self, flash: &Flash, stream: usize, unit: u32) -> bool {
        let old = self.map[index(unit)];
        if old != NONE {
            self.invalidate(old);
        }
        self.put(flash, stream, unit)
    }

    /// As [`Self::place`], for a unit whose old slot is already invalid. Only writes the map entry, so the
    /// processor does not stall on a map larger than its caches.
    fn put(&mut self, flash: &Flash, stream: usize, unit: u32) -> bool {
        let page_units = self.page_units;
        let open = self.open_block(flash, stream);
        let slot = open.take(&flash.geometry).expect("it has room");
        let block = open.block;
        let is_page_end = open.at_page_end(page_units);
        self.map[index(unit)] = slot;
        self.reverse[index(slot)] = unit;
        self.valid_bits[index(slot / 64)] |= 1 << (slot % 64);
        self.valid[index(block)] += 1;
        is_page_end
    }

    /// The open block of a stream, with at least one free slot.
    fn open_block(&mut self, flash: &Flash, stream: usize) -> &mut OpenBlock {
        if self.streams[stream].as_ref().is_none_or(OpenBlock::is_full) {
            self.open_next(flash, stream);
        }
        self.streams[stream].as_mut().expect("it was opened")
    }

    fn open_next(&mut self, flash: &Flash, stream: usize) {
        let (_, block) = self
            .free
            .pop_first()
            .expect("the collector leaves a free block, which its reserve guarantees");
        let mode = if stream == TAGGED {
            ProgramMode::Slc
        } else {
            ProgramMode::Native
        };
        match &mut self.streams[stream] {
            Some(full) => {
                self.closed[index(full.block)] = true;
                full.reopen(block);
            }
            none => *none = Some(OpenBlock::new(block, &flash.geometry, mode)),
        }
    }

    fn invalidate(&mut self, slot: u32) {
        self.invalidate_in(slot / self.block_slots, slot);
    }

    fn invalidate_in(&mut self, block: u32, slot: u32) {
        self.valid_bits[index(slot / 64)] &= !(1 << (slot % 64));
        self.valid[index(block)] -= 1;
    }

    fn program_stream(&mut self, flash: &mut Flash, stream: usize, ready: Nanos, epoch: Epoch) {
        if let Some(open) = &mut self.streams[stream] {
            flash.program(open, ready, epoch);
        }
    }

    /// Programs the page of host data that ends before a stream's next slot.
    fn program_page(&mut self, flash: &mut Flash, stream: usize, ready: Nanos, epoch: Epoch) {
        let Some(open) = &mut self.streams[stream] else {
            return;
        };
        let end = flash.program_host(open, ready, epoch);
        if !flash.keeps_record() {
            return;
        }
        let next = open.block * self.block_slots + open.filled;
        for slot in next - self.page_units..next {
            // A unit overwritten before its program counts with its newer copy; padding holds no unit.
            if self.valid_bits[index(slot / 64)] & (1 << (slot % 64)) != 0 {
                flash.note_programmed(self.reverse[index(slot)], end);
            }
        }
    }

    /// The map page with a unit's entry; `None` for units of the map itself.
    fn map_page_of(&self, flash: &Flash, unit: u32) -> Option<u32> {
        (unit < self.units).then(|| unit / (flash.geometry.page_bytes / ENTRY_BYTES))
    }

    /// Loads the map page of a unit into RAM if necessary. Returns the time at which it is there.
    fn with_map(&mut self, flash: &mut Flash, unit: u32, writes: Writes, now: Nanos) -> Nanos {
        let page = self.map_page_of(flash, unit);
        let (Some(cache), Some(page)) = (&mut self.cache, page) else {
            return now;
        };
        let touch = cache.touch(page, writes);
        let mut ready = now;
        if let Some(dirty) = touch.write_back {
            self.make_room(flash, self.page_units, now);
            self.write_map_page(flash, dirty, now);
        }
        if touch.missed {
            self.counters.map_misses += 1;
            ready = self.read_map_page(flash, page, ready);
        }
        ready
    }

    fn read_map_page(&mut self, flash: &mut Flash, page: u32, now: Nanos) -> Nanos {
        match self.map[index(self.units + page * self.page_units)] {
            NONE => now,
            slot => flash.read_slot(slot, now),
        }
    }

    fn write_map_page(&mut self, flash: &mut Flash, page: u32, now: Nanos) {
        let first = self.units + page * self.page_units;
        for unit in first..first + self.page_units {
            if self.place(flash, MAP, unit) {
                self.program_stream(flash, MAP, now, Epoch::COPY);
            }
        }
        self.counters.map_units += u64::from(self.page_units);
    }

    /// Programs a page of the log of durable map changes.
    fn log_change(&mut self, flash: &mut Flash, now: Nanos) -> Nanos {
        self.log_bank = (self.log_bank + 1) % flash.geometry.banks;
        let place = crate::geometry::PagePlace {
            bank: self.log_bank,
            page: 0,
        };
        self.counters.map_units += u64::from(self.page_units);
        flash.array.program(place, now, 0, ProgramMode::Slc)
    }

    #[cfg(test)]
    fn check(&self) {
        let mut valid = vec![0; self.valid.len()];
        for (unit, slot) in (0_u32..).zip(&self.map) {
            if *slot != NONE {
                assert_eq!(self.reverse[index(*slot)], unit);
                assert!(self.valid_bits[index(*slot / 64)] & (1 << (*slot % 64)) != 0);
                valid[index(*slot / self.block_slots)] += 1;
            }
        }
        assert_eq!(valid, self.valid);
    }
}

/// Flash pages taken by a map of all units.
fn map_pages(geometry: &CardGeometry) -> u32 {
    geometry.units().div_ceil(geometry.page_bytes / ENTRY_BYTES)
}

impl Translation for PageMap {
    fn write(&mut self, flash: &mut Flash, write: &UnitWrite) {
        let (stream, unit_sectors) = (self.stream_of(write.placement), flash.geometry.unit_sectors());
        for n in 0..write.count {
            let arrived = write.arrival(n, unit_sectors);
            self.make_room(flash, 1, arrived);
            let known = self.with_map(flash, write.first + n, Writes::Yes, arrived);
            self.ready[stream] = self.ready[stream].max(known);
            if self.place(flash, stream, write.first + n) {
                let ready = std::mem::take(&mut self.ready[stream]);
                self.program_page(flash, stream, ready, write.epoch);
            }
        }
        self.counters.host_units += u64::from(write.count);
    }

    fn prefetch(&self, unit: u32, urgency: Urgency) {
        match (urgency, self.map.get(index(unit))) {
            (Urgency::Next, Some(slot)) if *slot != NONE => {
                prefetch(&self.valid_bits, index(slot / 64));
            }
            (Urgency::Next, _) => {}
            (Urgency::Later, _) => prefetch(&self.map, index(unit)),
        }
    }

    fn close(&mut self, flash: &mut Flash, ready: Nanos, epoch: Epoch) {
        for stream in (0..self.streams.len()).filter(|stream| *stream != COPIES && *stream != MAP) {
            let Some(open) = &mut self.streams[stream] else {
                continue;
            };
            let padding = open.to_page_end(self.page_units);
            if padding > 0 {
                open.filled += padding;
                self.counters.padded_units += u64::from(padding);
                let ready = std::mem::take(&mut self.ready[stream]).max(ready);
                self.program_page(flash, stream, ready, epoch);
                self.make_room(flash, padding, ready);
            }
        }
    }

    fn read(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos) -> Nanos {
        let (mut end, mut last_page) = (ready, NONE);
        for unit in first..first.saturating_add(count).min(self.units) {
            let known = self.with_map(flash, unit, Writes::No, ready);
            let slot = self.map[index(unit)];
            if slot != NONE && slot / self.page_units != last_page {
                last_page = slot / self.page_units;
                end = end.max(flash.read_slot(slot, known));
            }
        }
        end
    }

    fn forget(&mut self, flash: &mut Flash, first: u32, count: u32, ready: Nanos, how: Forget) -> Nanos {
        for unit in first..first.saturating_add(count).min(self.units) {
            let old = std::mem::replace(&mut self.map[index(unit)], NONE);
            if old != NONE {
                self.invalidate(old);
            }
        }
        match how {
            Forget::Durably => self.log_change(flash, ready),
            Forget::Lazily => ready,
        }
    }

    fn copied(&self) -> Box<dyn Translation> {
        Box::new(self.clone())
    }

    fn is_mapped(&self, unit: u32) -> bool {
        self.map.get(index(unit)).is_some_and(|slot| *slot != NONE)
    }

    fn restart_clock(&mut self) {
        self.ready.fill(Nanos::ZERO);
        if let Some(collection) = &mut self.collection {
            collection.restart_clock();
        }
    }

    fn pending_units(&self) -> u64 {
        let open = self.streams.iter().flatten();
        open.map(|open| u64::from(open.filled % self.page_units)).sum()
    }

    fn counters(&self) -> TranslationCounters {
        self.counters
    }

    fn erase_counts(&self) -> &[u32] {
        &self.erases
    }

    fn keep(&self) -> Kept {
        self.kept()
    }

    fn take_up(&mut self, geometry: &CardGeometry, kept: &Kept) -> Result<(), CardError> {
        self.take_up_kept(geometry, kept)
    }
}

#[cfg(test)]
mod tests;
