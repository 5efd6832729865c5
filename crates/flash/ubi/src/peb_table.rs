//! Erase counter and state of every block of a device, in four and a half bytes each.
//!
//! It knows neither the medium nor LEBs. Linux keeps a tree node of 40 bytes per block; here a rare query (the free
//! block with the fewest erases) walks the table instead, which takes a few microseconds for 8192 blocks next to the
//! milliseconds of the medium.

use media::{Peb, index};

use crate::format::MAX_ERASE_COUNTER;

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PebState {
    /// Erased, with an EC header.
    Free,
    /// Mapped to a LEB.
    Used,
    /// As `Used`, with bit-flips: needs scrubbing.
    Scrub,
    /// As `Used`, but its data could not be moved: it stays where it is.
    Stuck,
    /// Allocated, not mapped yet.
    Held,
    /// Its content is obsolete; waits for its erase.
    Erase,
    /// As `Erase`, but failed or suspicious: it is tortured before it is used again.
    Torture,
    /// Marked bad.
    Bad,
    /// Foreign, or damaged with data in it: neither read nor written.
    Preserved,
}

const STATES: [PebState; 9] = [
    PebState::Free,
    PebState::Used,
    PebState::Scrub,
    PebState::Stuck,
    PebState::Held,
    PebState::Erase,
    PebState::Torture,
    PebState::Bad,
    PebState::Preserved,
];

impl PebState {
    fn nibble(self) -> u8 {
        let place = STATES.iter().position(|state| *state == self);
        u8::try_from(place.expect("all states are listed")).expect("nine states")
    }
}

/// Number of blocks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateCounts([u32; STATES.len()]);

impl StateCounts {
    pub(crate) fn of(&self, state: PebState) -> u32 {
        self.0[usize::from(state.nibble())]
    }
}

/// Smallest, largest and mean erase counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WearSummary {
    /// Erase counter of the least worn good block.
    pub lowest: u32,
    /// Erase counter of the most worn good block.
    pub highest: u32,
    /// Mean over all good blocks, rounded down.
    pub mean: u32,
}

/// Erase counters and states by PEB; see the module.
#[derive(Clone, Debug)]
pub(crate) struct PebTable {
    counters: Vec<u32>,
    nibbles: Vec<u8>,
    counts: StateCounts,
}

const UNKNOWN: u32 = u32::MAX;

impl PebTable {
    /// A table of `blocks` blocks with unknown erase counters, all `Preserved`.
    pub(crate) fn new(blocks: u32) -> Self {
        let nibble = PebState::Preserved.nibble();
        let mut counts = StateCounts::default();
        counts.0[usize::from(nibble)] = blocks;
        Self {
            counters: vec![UNKNOWN; index(blocks)],
            nibbles: vec![nibble | nibble << 4; index(blocks).div_ceil(2)],
            counts,
        }
    }

    pub(crate) fn blocks(&self) -> u32 {
        u32::try_from(self.counters.len()).expect("it was made from 32 bits")
    }

    pub(crate) fn counts(&self) -> StateCounts {
        self.counts
    }

    pub(crate) fn state(&self, peb: Peb) -> PebState {
        let (byte, shift) = Self::place(peb);
        STATES[usize::from(self.nibbles[byte] >> shift & 0xF)]
    }

    pub(crate) fn set_state(&mut self, peb: Peb, state: PebState) {
        let (byte, shift) = Self::place(peb);
        let (old, new) = (self.nibbles[byte] >> shift & 0xF, state.nibble());
        self.nibbles[byte] = self.nibbles[byte] & !(0xF << shift) | new << shift;
        self.counts.0[usize::from(old)] -= 1;
        self.counts.0[usize::from(new)] += 1;
    }

    fn place(peb: Peb) -> (usize, u8) {
        (index(peb.0 / 2), if peb.0.is_multiple_of(2) { 0 } else { 4 })
    }

    /// The erase counter; 0 while it is unknown.
    pub(crate) fn erases(&self, peb: Peb) -> u32 {
        match self.counters[index(peb.0)] {
            UNKNOWN => 0,
            erases => erases,
        }
    }

    pub(crate) fn set_erases(&mut self, peb: Peb, erases: u32) {
        self.counters[index(peb.0)] = erases.min(MAX_ERASE_COUNTER);
    }

    /// Sets unknown erase counters to the mean of the known ones, as Linux does.
    pub(crate) fn assume_mean_where_unknown(&mut self) {
        let (sum, known) = self
            .counters
            .iter()
            .filter(|erases| **erases != UNKNOWN)
            .fold((0_u64, 0_u64), |(sum, known), erases| {
                (sum + u64::from(*erases), known + 1)
            });
        let mean = u32::try_from(sum.checked_div(known).unwrap_or(0)).expect("a mean of 32-bit values");
        for erases in &mut self.counters {
            if *erases == UNKNOWN {
                *erases = mean;
            }
        }
    }

    /// The block in one of `states` with the smallest `order`; the first one if several are equal.
    pub(crate) fn smallest_by<K: Ord>(
        &self,
        states: &[PebState],
        order: impl Fn(Peb, u32) -> Option<K>,
    ) -> Option<Peb> {
        if states.iter().all(|state| self.counts.of(*state) == 0) {
            return None;
        }
        (0..self.blocks())
            .map(Peb)
            .filter(|peb| states.contains(&self.state(*peb)))
            .filter_map(|peb| order(peb, self.erases(peb)).map(|key| (key, peb)))
            .min_by(|(a, _), (b, _)| a.cmp(b))
            .map(|(_, peb)| peb)
    }

    pub(crate) fn least_worn(&self, state: PebState) -> Option<Peb> {
        self.smallest_by(&[state], |_, erases| Some(erases))
    }

    pub(crate) fn wear(&self) -> WearSummary {
        let good = || {
            (0..self.blocks())
                .map(Peb)
                .filter(|peb| self.state(*peb) != PebState::Bad)
                .map(|peb| self.erases(peb))
        };
        let (sum, number) = good().fold((0_u64, 0_u64), |(sum, number), erases| {
            (sum + u64::from(erases), number + 1)
        });
        let mean = sum.checked_div(number).unwrap_or(0);
        WearSummary {
            lowest: good().min().unwrap_or(0),
            highest: good().max().unwrap_or(0),
            mean: u32::try_from(mean).expect("a mean of 32-bit values"),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.counters.capacity() * size_of::<u32>() + self.nibbles.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_neighbours_do_not_touch_one_another() {
        let mut table = PebTable::new(5);
        table.set_state(Peb(1), PebState::Free);
        table.set_state(Peb(2), PebState::Bad);
        table.set_state(Peb(1), PebState::Used);
        let states: Vec<_> = (0..5).map(|peb| table.state(Peb(peb))).collect();
        let kept = PebState::Preserved;
        assert_eq!(states, [kept, PebState::Used, PebState::Bad, kept, kept]);
        let counts = table.counts();
        assert_eq!(
            [PebState::Used, PebState::Bad, kept, PebState::Free].map(|state| counts.of(state)),
            [1, 1, 3, 0]
        );
    }

    #[test]
    fn the_least_worn_block_is_the_first_of_equals() {
        let mut table = PebTable::new(4);
        for (peb, erases) in [(0, 9), (1, 3), (2, 3), (3, 1)] {
            table.set_erases(Peb(peb), erases);
            table.set_state(Peb(peb), PebState::Free);
        }
        table.set_state(Peb(3), PebState::Used);
        assert_eq!(table.least_worn(PebState::Free), Some(Peb(1)));
        assert_eq!(table.least_worn(PebState::Scrub), None);
    }

    #[test]
    fn a_block_takes_less_than_five_bytes() {
        assert!(PebTable::new(10_000).memory_bytes() <= 45_000);
    }
}
