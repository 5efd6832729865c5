//! Random numbers in streams named after their purpose.
//!
//! Integer arithmetic only: the same seed gives the same numbers on every machine. A stream that draws more or fewer
//! numbers does not affect the others.

use crate::order::mixed;

/// An independent stream of random numbers, named after its purpose.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream `name` of a run.
    pub fn named(seed: u64, name: &str) -> Self {
        let state = name
            .bytes()
            .fold(mixed(seed), |state, byte| mixed(state ^ u64::from(byte)));
        Self { state }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        mixed(self.state)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).expect("the upper half of 128 bits fits in 64")
    }

    /// Shuffles a list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let places = u64::try_from(last).expect("lengths fit in 64 bits") + 1;
            let other = usize::try_from(self.below(places)).expect("a place in memory");
            list.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_own_numbers_and_a_seed_repeats_them() {
        let draw = |seed, name| {
            let mut random = Random::named(seed, name);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, "sizes"), draw(1, "sizes"));
        assert_ne!(draw(1, "sizes"), draw(1, "gaps"));
        assert_ne!(draw(1, "sizes"), draw(2, "sizes"));
    }
}
