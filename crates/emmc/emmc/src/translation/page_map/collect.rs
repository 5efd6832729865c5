//! Garbage collection of a page map: choice and progress of the victim super block.

use media::Nanos;

use super::{COPIES, NONE, PageMap};
use crate::geometry::index;
use crate::translation::prefetch::prefetch;
use crate::translation::{Epoch, Flash};

/// Every victim with a number divisible by this is chosen by wear.
const WEAR_EVERY: u64 = 64;

/// The map entry of a slot is prefetched when the collector is this number of slots before it.
const AHEAD: u32 = 16;

/// State of the collection in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collection {
    victim: u32,
    /// Next slot of the victim to check.
    cursor: u32,
    /// Valid units at the start.
    valid: u32,
    /// The last page read from the victim, and the end of that read.
    read_page: u32,
    read_end: Nanos,
}

impl Collection {
    pub(super) fn restart_clock(&mut self) {
        self.read_end = Nanos::ZERO;
    }
}

impl PageMap {
    /// Called before the host takes `slots` slots: does the proportional share of garbage collection.
    pub(super) fn make_room(&mut self, flash: &mut Flash, slots: u32, now: Nanos) {
        let low = self.rules.reserve() + 1;
        if self.collection.is_none() {
            if self.free.len() > low {
                return;
            }
            self.begin_collection();
        }
        if let Some(collection) = self.collection {
            self.credit += u64::from(slots) * u64::from(collection.valid);
            let cost = u64::from(self.block_slots.saturating_sub(collection.valid)).max(1);
            let mut moves = self.credit / cost;
            self.credit %= cost;
            if collection.valid == 0 {
                moves = 1;
            }
            self.collect(flash, moves, now);
        }
        while self.free.len() <= self.rules.reserve() {
            if self.collection.is_none() {
                self.begin_collection();
            }
            self.collect(flash, u64::MAX, now);
        }
    }

    fn begin_collection(&mut self) {
        let by_wear = (self.counters.collections + 1).is_multiple_of(WEAR_EVERY);
        let closed = (0_u32..).zip(&self.closed).filter(|(_, closed)| **closed);
        let victim = closed
            .map(|(block, _)| block)
            .min_by_key(|block| {
                let (valid, erases) = (self.valid[index(*block)], self.erases[index(*block)]);
                let full = valid == self.block_slots;
                if by_wear {
                    (full, erases, valid)
                } else {
                    (full, valid, erases)
                }
            })
            .expect("with no free block left some block is full");
        self.closed[index(victim)] = false;
        self.counters.collections += 1;
        self.credit = 0;
        self.collection = Some(Collection {
            victim,
            cursor: 0,
            valid: self.valid[index(victim)],
            read_page: NONE,
            read_end: Nanos::ZERO,
        });
    }

    /// Copies up to `moves` units of the victim; erases it when none are left.
    fn collect(&mut self, flash: &mut Flash, mut moves: u64, now: Nanos) {
        let Some(mut collection) = self.collection.take() else {
            return;
        };
        let first = collection.victim * self.block_slots;
        while self.valid[index(collection.victim)] > 0 {
            if moves == 0 {
                self.collection = Some(collection);
                return;
            }
            let slot = self.next_valid(first + collection.cursor);
            collection.cursor = slot + 1 - first;
            if slot / self.page_units != collection.read_page {
                collection.read_page = slot / self.page_units;
                collection.read_end = flash.read_slot_of_block(slot - first, now);
            }
            let unit = self.reverse[index(slot)];
            debug_assert_eq!(self.map[index(unit)], slot, "map and reverse agree");
            if let Some(later) = self.reverse.get(index(slot + AHEAD)) {
                prefetch(&self.map, index(*later));
            }
            self.invalidate_in(collection.victim, slot);
            self.copy_unit(flash, unit, collection.read_end, now);
            moves -= 1;
        }
        flash.array.erase_all(now.max(collection.read_end));
        let erases = &mut self.erases[index(collection.victim)];
        *erases += 1;
        self.free.insert((*erases, collection.victim));
    }

    fn copy_unit(&mut self, flash: &mut Flash, unit: u32, read_end: Nanos, now: Nanos) {
        if self.put(flash, COPIES, unit) {
            self.program_stream(flash, COPIES, read_end, Epoch::COPY);
        }
        self.counters.copied_units += 1;
        let page = self.map_page_of(flash, unit);
        if let (Some(cache), Some(page)) = (&mut self.cache, page)
            && !cache.dirty_if_present(page)
        {
            // Read-modify-write of the map page in flash.
            self.counters.map_misses += 1;
            let ready = self.read_map_page(flash, page, now);
            self.write_map_page(flash, page, ready);
        }
    }

    /// The first valid slot at or after `slot`, which must exist.
    fn next_valid(&self, slot: u32) -> u32 {
        let mut word = slot / 64;
        let mut bits = self.valid_bits[index(word)] & (u64::MAX << (slot % 64));
        while bits == 0 {
            word += 1;
            bits = self.valid_bits[index(word)];
        }
        word * 64 + bits.trailing_zeros()
    }
}
