//! Faults of a simulated chip: their probabilities, and the decisions, which are pure functions of the seed.
//!
//! There is no stream of random numbers: a decision is a hash of the seed, its purpose, the place, and the number of
//! the attempt. So the same calls meet the same faults, faults of one block do not shift those of another, and a
//! clone behaves like its original.

use std::collections::{BTreeMap, BTreeSet};

use media::{NandGeometry, Nanos, Page, Peb, index};

/// Random failures of a chip. [`FaultModel::none`] never fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultModel {
    /// Seed of all decisions.
    pub seed: u64,
    /// Number of factory-bad blocks; block 0 is always good.
    pub factory_bad_blocks: u32,
    /// Failure rate of programs of a page, per million, on a fresh block.
    pub program_failures_ppm: u32,
    /// Failure rate of erases, per million, on a fresh block.
    pub erase_failures_ppm: u32,
    /// Mean endurance in erases; that of each block lies between 3/4 and 5/4 of the mean. Beyond it, failures become
    /// certain within another half of the block's endurance. 0 means unlimited.
    pub endurance: u32,
    /// Read disturb: reads of a block's pages since its last erase that flip one bit per ECC step on average. 0
    /// disables it.
    pub reads_per_bit_flip: u32,
    /// Retention: time until one bit per ECC step has flipped on average. Zero disables it.
    pub time_per_bit_flip: Nanos,
}

impl FaultModel {
    /// A chip that never fails.
    #[must_use]
    pub const fn none() -> Self {
        Self::seeded(0)
    }

    /// A chip that never fails, as a base for setting individual faults.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self {
            seed,
            factory_bad_blocks: 0,
            program_failures_ppm: 0,
            erase_failures_ppm: 0,
            endurance: 0,
            reads_per_bit_flip: 0,
            time_per_bit_flip: Nanos::ZERO,
        }
    }

    /// The factory-bad blocks: at most all except block 0.
    #[must_use]
    pub fn factory_bad(&self, geometry: &NandGeometry) -> Vec<Peb> {
        if self.factory_bad_blocks == 0 {
            return Vec::new();
        }
        let mut pebs: Vec<_> = geometry.pebs().skip(1).collect();
        pebs.sort_by_cached_key(|peb| self.draw(Purpose::FactoryBad, [u64::from(peb.0), 0, 0]));
        let count = usize::try_from(self.factory_bad_blocks).unwrap_or(usize::MAX);
        pebs.truncate(count);
        pebs.sort_unstable();
        pebs
    }

    /// Whether the program of a page fails on a block with this erase counter.
    pub(crate) fn program_fails(&self, peb: Peb, page_start: u32, erases: u32) -> bool {
        let chance = self.chance(self.program_failures_ppm, peb, erases);
        let place = [u64::from(peb.0), u64::from(page_start), u64::from(erases)];
        chance > 0 && self.draw(Purpose::Program, place) % MILLION < chance
    }

    /// Whether the erase of a block with this erase counter fails.
    pub(crate) fn erase_fails(&self, peb: Peb, erases: u32) -> bool {
        let chance = self.chance(self.erase_failures_ppm, peb, erases);
        let place = [u64::from(peb.0), u64::from(erases), 0];
        chance > 0 && self.draw(Purpose::Erase, place) % MILLION < chance
    }

    fn chance(&self, fresh_ppm: u32, peb: Peb, erases: u32) -> u64 {
        if self.endurance == 0 {
            return u64::from(fresh_ppm);
        }
        let share = 750 + self.draw(Purpose::Endurance, [u64::from(peb.0), 0, 0]) % 501;
        let endurance = (u64::from(self.endurance) * share / 1000).max(1);
        let beyond = u64::from(erases).saturating_sub(endurance);
        let worn = beyond * MILLION / endurance.div_ceil(2);
        (u64::from(fresh_ppm) + worn).min(MILLION)
    }

    /// Number of wrong bits of one ECC step. It never decreases until the block is erased.
    pub(crate) fn wrong_bits(&self, step: Step, reads: u32, age: Nanos) -> u32 {
        let mut stress = 0_u64;
        if self.reads_per_bit_flip > 0 {
            stress += u64::from(reads) * GAP / u64::from(self.reads_per_bit_flip);
        }
        if self.time_per_bit_flip.0 > 0 {
            let share = u128::from(age.0) * u128::from(GAP) / u128::from(self.time_per_bit_flip.0);
            stress = stress.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        }
        // The bits flip one after another, each after a random gap with mean GAP.
        let mut bits = 0;
        let mut threshold = 0;
        while stress > 0 && bits < MOST_WRONG_BITS {
            let gap = self.draw(Purpose::Flip, step.place(u64::from(bits))) % (2 * GAP) + 1;
            threshold += gap;
            if threshold > stress {
                break;
            }
            bits += 1;
        }
        bits
    }

    /// Positions of `count` wrong bits in a step of `bits_of_step` bits: distinct, deterministic, and a larger
    /// `count` only adds positions.
    pub(crate) fn flipped_bits(&self, step: Step, count: u32, bits_of_step: u32) -> BTreeSet<u32> {
        let mut flipped = BTreeSet::new();
        let mut attempt = 0;
        while flipped.len() < index(count.min(bits_of_step / 2)) {
            let draw = self.draw(Purpose::Position, step.place(attempt)) % u64::from(bits_of_step);
            flipped.insert(u32::try_from(draw).expect("below a u32"));
            attempt += 1;
        }
        flipped
    }

    /// A byte of half-erased cells: a random subset of the zeros has become ones.
    pub(crate) fn half_erased(&self, peb: Peb, erases: u32, offset: u32, byte: u8) -> u8 {
        let place = [u64::from(peb.0), u64::from(erases), u64::from(offset)];
        byte | self.draw(Purpose::HalfErased, place).to_le_bytes()[0]
    }

    fn draw(&self, purpose: Purpose, place: [u64; 3]) -> u64 {
        let purpose = match purpose {
            Purpose::FactoryBad => 1,
            Purpose::Program => 2,
            Purpose::Erase => 3,
            Purpose::Endurance => 4,
            Purpose::Flip => 5,
            Purpose::Position => 6,
            Purpose::HalfErased => 7,
        };
        place
            .into_iter()
            .fold(mixed(self.seed ^ mixed(purpose)), |hash, part| mixed(hash ^ part))
    }
}

/// Purpose of a decision; each has independent randomness.
#[derive(Clone, Copy)]
enum Purpose {
    FactoryBad,
    Program,
    Erase,
    Endurance,
    Flip,
    Position,
    HalfErased,
}

/// One ECC step, between two erases of its block.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub peb: Peb,
    pub page: Page,
    pub step: u32,
    pub erases: u32,
}

impl Step {
    fn place(&self, number: u64) -> [u64; 3] {
        [
            u64::from(self.peb.0) << 32 | u64::from(self.page.0),
            u64::from(self.step) << 32 | u64::from(self.erases),
            number,
        ]
    }
}

const MILLION: u64 = 1_000_000;

/// Fixed-point stress that flips one bit on average.
const GAP: u64 = 1 << 20;

/// Bounds the loop; a step with this number of wrong bits is uncorrectable anyway.
const MOST_WRONG_BITS: u32 = 64;

/// One round of SplitMix64: each input bit affects each output bit.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Faults injected by tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Injected {
    /// Numbers of the chip's writes (programs and erases, from 0) that fail.
    pub failing_writes: BTreeSet<u64>,
    /// Wrong bits in each ECC step of a page, until its block is erased.
    pub bit_flips: BTreeMap<(Peb, Page), u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(page: u32) -> Step {
        Step {
            peb: Peb(3),
            page: Page(page),
            step: 0,
            erases: 1,
        }
    }

    #[test]
    fn factory_bad_blocks_are_as_many_as_asked_for_and_never_block_zero() {
        let geometry = NandGeometry::new(512, 4, 40).unwrap();
        for seed in 0..50 {
            let faults = FaultModel {
                factory_bad_blocks: 5,
                ..FaultModel::seeded(seed)
            };
            let bad = faults.factory_bad(&geometry);
            assert_eq!(bad.len(), 5);
            assert!(!bad.contains(&Peb(0)), "seed {seed}");
        }
        let all = FaultModel {
            factory_bad_blocks: 1000,
            ..FaultModel::seeded(1)
        };
        assert_eq!(all.factory_bad(&geometry).len(), 39);
    }

    #[test]
    fn bits_flip_with_reads_and_time_at_the_rate_asked_for_and_never_come_back() {
        let faults = FaultModel {
            reads_per_bit_flip: 1000,
            time_per_bit_flip: Nanos::from_millis(10),
            ..FaultModel::seeded(9)
        };
        let mean = |reads, age| {
            let sum: u32 = (0..1000)
                .map(|page| faults.wrong_bits(step(page), reads, age))
                .sum();
            f64::from(sum) / 1000.0
        };
        assert!(
            (4.0..5.0).contains(&mean(4500, Nanos::ZERO)),
            "{}",
            mean(4500, Nanos::ZERO)
        );
        assert!((4.0..5.0).contains(&mean(0, Nanos::from_millis(45))));
        let mut before = 0;
        for reads in (0..20_000).step_by(100) {
            let bits = faults.wrong_bits(step(1), reads, Nanos::ZERO);
            assert!(bits >= before);
            before = bits;
        }
        assert_eq!(
            FaultModel::seeded(9).wrong_bits(step(1), u32::MAX, Nanos(u64::MAX)),
            0
        );
    }

    #[test]
    fn one_more_wrong_bit_keeps_those_before() {
        let faults = FaultModel::seeded(4);
        let five = faults.flipped_bits(step(2), 5, 4096);
        let six = faults.flipped_bits(step(2), 6, 4096);
        assert_eq!((five.len(), six.len()), (5, 6));
        assert!(five.is_subset(&six));
    }

    #[test]
    fn worn_blocks_fail_for_certain_and_fresh_ones_do_not() {
        let faults = FaultModel {
            endurance: 100,
            ..FaultModel::seeded(2)
        };
        for peb in (0..100).map(Peb) {
            assert!(!faults.erase_fails(peb, 70) && !faults.program_fails(peb, 0, 70));
            assert!(faults.erase_fails(peb, 200) && faults.program_fails(peb, 0, 200));
        }
    }
}
