//! Saves and restores a page map.
//!
//! A collection in progress starts over with any victim, and a cached map starts with an empty RAM cache. Everything
//! that can be derived from the map is derived.

use super::{CONTEXTS, COPIES, HOST, MAP, NONE, PageMap, TAGGED};
use crate::error::CardError;
use crate::geometry::{CardGeometry, index};
use crate::nand_array::ProgramMode;
use crate::translation::OpenBlock;
use crate::translation::kept::{Kept, KeptMap, KeptOpen, expect_count, foreign};

impl PageMap {
    pub(super) fn kept(&self) -> Kept {
        let mut erased = vec![false; self.erases.len()];
        for (_, block) in &self.free {
            erased[index(*block)] = true;
        }
        let open = (0..).zip(&self.streams).filter_map(|(stream, open)| {
            open.as_ref().map(|open| KeptOpen {
                stream,
                block: open.block,
                filled: open.filled,
                epochs: open.epochs().to_vec(),
            })
        });
        Kept {
            erases: self.erases.clone(),
            map: Some(KeptMap {
                slots: self.map.clone(),
                erased,
                open: open.collect(),
            }),
        }
    }

    /// Restores a saved state into an empty map.
    pub(super) fn take_up_kept(&mut self, geometry: &CardGeometry, kept: &Kept) -> Result<(), CardError> {
        let by_wear = kept.by_wear(self.erases.len())?;
        let Some(map) = &kept.map else {
            self.erases.clone_from(&kept.erases);
            self.free = by_wear;
            return Ok(());
        };
        // Replaces this map only after the whole state has been accepted.
        let mut taken = self.clone();
        taken.erases.clone_from(&kept.erases);
        taken.take_up_blocks(geometry, map)?;
        taken.take_up_map(map)?;
        *self = taken;
        Ok(())
    }

    fn take_up_blocks(&mut self, geometry: &CardGeometry, map: &KeptMap) -> Result<(), CardError> {
        expect_count("super blocks", map.erased.len(), self.erases.len())?;
        self.free.clear();
        for ((block, erased), erases) in (0..).zip(&map.erased).zip(&self.erases) {
            if *erased {
                self.free.insert((*erases, block));
            }
            self.closed[index(block)] = !erased;
        }
        if self.free.len() < self.rules.reserve() {
            let found = u64::try_from(self.free.len()).unwrap_or(u64::MAX);
            return Err(foreign("erased super blocks", found, "enough for the collector"));
        }
        for open in &map.open {
            let wrong = |what, found: u32| Err(foreign(what, u64::from(found), "one of this card's"));
            let stream = index(open.stream);
            if !self.may_fill(stream) || self.streams[stream].is_some() {
                return wrong("a stream that fills a super block", open.stream);
            }
            if !self.closed.get(index(open.block)).is_some_and(|closed| *closed) {
                return wrong("a super block that is being filled", open.block);
            }
            let mode = if stream == TAGGED {
                ProgramMode::Slc
            } else {
                ProgramMode::Native
            };
            let mut block = OpenBlock::new(open.block, geometry, mode);
            if !block.resume(open.filled, &open.epochs) {
                return wrong("the fill of a super block", open.filled);
            }
            self.closed[index(open.block)] = false;
            self.streams[stream] = Some(block);
        }
        Ok(())
    }

    fn may_fill(&self, stream: usize) -> bool {
        match stream {
            HOST | COPIES => true,
            TAGGED => self.rules.data_tag,
            MAP => self.rules.cached_pages.is_some(),
            _ => stream < CONTEXTS + index(self.rules.contexts),
        }
    }

    fn take_up_map(&mut self, map: &KeptMap) -> Result<(), CardError> {
        expect_count("units of the map", map.slots.len(), self.map.len())?;
        let mut filled: Vec<u32> = map
            .erased
            .iter()
            .map(|erased| if *erased { 0 } else { self.block_slots })
            .collect();
        for open in self.streams.iter().flatten() {
            filled[index(open.block)] = open.filled;
        }
        for (unit, slot) in (0..).zip(&map.slots) {
            if *slot == NONE {
                continue;
            }
            let block = slot / self.block_slots;
            let is_written = filled
                .get(index(block))
                .is_some_and(|filled| slot % self.block_slots < *filled);
            if !is_written || self.valid_bits[index(slot / 64)] & (1 << (slot % 64)) != 0 {
                return Err(foreign(
                    "the slot of a unit",
                    u64::from(*slot),
                    "one that is written, and no other unit's",
                ));
            }
            self.map[index(unit)] = *slot;
            self.reverse[index(*slot)] = unit;
            self.valid_bits[index(slot / 64)] |= 1 << (slot % 64);
            self.valid[index(block)] += 1;
        }
        Ok(())
    }
}
