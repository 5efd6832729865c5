//! Addresses of the IOs of a pattern: pure functions of the IO number and the random stream.

use crate::random::Random;
use crate::words::words;

words! {
    /// The four baseline patterns of all benchmarks, named as the uFLIP authors do.
    #[serde(rename_all = "snake_case")]
    Baseline {
        /// Sequential reads.
        SequentialRead = "SR",
        /// Random reads.
        RandomRead = "RR",
        /// Sequential writes.
        SequentialWrite = "SW",
        /// Random writes.
        RandomWrite = "RW",
    }
}

impl Baseline {
    /// True for SW and RW.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::RandomWrite)
    }

    /// True for RR and RW.
    #[must_use]
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }
}

/// A sequence of IOs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Direction, and order unless the other fields say otherwise.
    pub baseline: Baseline,
    /// Size of each IO.
    pub io_bytes: u64,
    /// Offset of each IO from a multiple of its size.
    pub shift_bytes: u64,
    /// IOs stay in this many bytes.
    pub target_bytes: u64,
    /// Number of partitions of the target between which sequential IOs alternate; 1 for none.
    pub partitions: u64,
    /// Increment of sequential IOs in multiples of their size: usually 1; 0 stays in place, -1 goes backwards.
    pub increment: i64,
}

impl Pattern {
    /// Number of IO positions in the target.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.target_bytes.saturating_sub(self.shift_bytes) / self.io_bytes
    }

    /// Address of the IO with this number, relative to the start of the target.
    pub(super) fn address(&self, number: u64, random: &mut Random) -> u64 {
        let slots = self.slots().max(1);
        let slot = if self.baseline.is_random() {
            random.below(slots)
        } else if self.partitions > 1 {
            let part_slots = (slots / self.partitions).max(1);
            part_slots * (number % self.partitions) + (number / self.partitions) % part_slots
        } else {
            let moved = i128::from(self.increment) * i128::from(number);
            u64::try_from(moved.rem_euclid(i128::from(slots)))
                .expect("the remainder is below a number of 64 bits")
        };
        slot * self.io_bytes + self.shift_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Pattern = Pattern {
        baseline: Baseline::SequentialWrite,
        io_bytes: 100,
        shift_bytes: 0,
        target_bytes: 800,
        partitions: 1,
        increment: 1,
    };

    fn addresses(pattern: Pattern) -> Vec<u64> {
        let mut random = Random::named(1, "test");
        (0..10)
            .map(|number| pattern.address(number, &mut random))
            .collect()
    }

    #[test]
    fn increments_go_on_stay_and_go_back() {
        assert_eq!(addresses(USUAL), [0, 100, 200, 300, 400, 500, 600, 700, 0, 100]);
        assert_eq!(
            addresses(Pattern {
                increment: 0,
                ..USUAL
            }),
            [0; 10]
        );
        assert_eq!(
            addresses(Pattern {
                increment: -1,
                ..USUAL
            })[..4],
            [0, 700, 600, 500]
        );
        assert_eq!(
            addresses(Pattern {
                increment: 4,
                ..USUAL
            })[..4],
            [0, 400, 0, 400]
        );
    }

    #[test]
    fn partitions_take_turns() {
        let found = addresses(Pattern {
            partitions: 4,
            ..USUAL
        });
        assert_eq!(found, [0, 200, 400, 600, 100, 300, 500, 700, 0, 200]);
    }

    #[test]
    fn a_shift_moves_every_io_and_none_leaves_the_target() {
        for &baseline in Baseline::ALL {
            for address in addresses(Pattern {
                baseline,
                shift_bytes: 30,
                ..USUAL
            }) {
                assert!(address % 100 == 30 && address + 100 <= 800, "{address}");
            }
        }
    }

    #[test]
    fn random_ios_reach_every_place() {
        let mut random = Random::named(3, "test");
        let pattern = Pattern {
            baseline: Baseline::RandomRead,
            ..USUAL
        };
        let mut found: Vec<u64> = (0..200)
            .map(|number| pattern.address(number, &mut random))
            .collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [0, 100, 200, 300, 400, 500, 600, 700]);
    }
}
