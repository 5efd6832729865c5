//! The order in which records are visited: a permutation without a table.
//!
//! A table of a 64 GiB file in 4 KiB records would take 128 MiB of memory and of processor cache from the very
//! machine that is measured. A Feistel network over the next even power of two is a bijection for any round
//! function; numbers outside the range are walked on until they fall inside (at most four steps on average).

const ROUNDS: u64 = 4;

/// A seeded permutation of `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// A permutation of `0..count`.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self {
            count,
            half_bits: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// The number at `index`.
    ///
    /// # Panics
    /// When `index` is not below `count`.
    pub fn at(&self, index: u64) -> u64 {
        assert!(
            index < self.count,
            "index {index} of a permutation of {} numbers",
            self.count
        );
        let mut number = self.shuffled(index);
        // Bounded: following a bijection from inside the range always comes back inside.
        while number >= self.count {
            number = self.shuffled(number);
        }
        number
    }

    fn shuffled(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 0..ROUNDS {
            let key = mixed(self.seed.wrapping_add(round));
            (left, right) = (right, left ^ (mixed(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// A bijection of 64-bit numbers that changes about half of the bits for each bit changed (SplitMix64's finish).
pub fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_appears_exactly_once() {
        for count in [1, 2, 3, 4, 5, 15, 16, 17, 1000, 1024, 4097] {
            for seed in [0, 1, u64::MAX] {
                let permutation = Permutation::new(count, seed);
                let mut seen: Vec<u64> = (0..count).map(|index| permutation.at(index)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..count).collect::<Vec<_>>(), "count {count}, seed {seed}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_seed_another() {
        let order = |seed| {
            let permutation = Permutation::new(256, seed);
            (0..256).map(|index| permutation.at(index)).collect::<Vec<_>>()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }

    #[test]
    fn neighbours_rarely_follow_each_other() {
        let permutation = Permutation::new(4096, 3);
        let runs = (1..4096)
            .filter(|&index| permutation.at(index) == permutation.at(index - 1) + 1)
            .count();
        assert!(runs < 20, "{runs} of 4095 steps go to the next record");
    }

    #[test]
    fn a_huge_range_needs_no_table() {
        let permutation = Permutation::new(u64::MAX / 3, 1);
        assert!(permutation.at(12_345) < u64::MAX / 3);
        assert_ne!(permutation.at(0), permutation.at(1));
    }
}
