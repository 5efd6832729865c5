//! The generator behind `srand` and `rand` of the GNU C library, to reproduce the draws of the original Mobibench.
//!
//! A lagged sum over 31 words. It is reimplemented from its published recurrence, so that the draws do not depend on
//! this machine's C library and threads do not share a generator.

/// Words of state.
const WORDS: usize = 31;
/// The other summand is this many words ahead.
const AHEAD: usize = 3;
/// Draws discarded after seeding.
const DISCARDED: usize = 10 * WORDS;

/// One generator.
#[derive(Clone, Debug)]
pub struct LibcRandom {
    words: [u32; WORDS],
    rear: usize,
}

impl LibcRandom {
    /// `srand(seed)`; 0 is replaced by 1.
    pub fn seeded(seed: u32) -> Self {
        const MODULUS: u64 = 2_147_483_647;
        let mut words = [seed.max(1); WORDS];
        // The C library computes with signed words: seeds of 2^31 and above represent negative numbers.
        let mut word = if seed > 0x7FFF_FFFF {
            MODULUS - (u64::from(u32::MAX - seed) + 1) % MODULUS
        } else {
            u64::from(seed.max(1))
        };
        for place in &mut words[1..] {
            word = word * 16_807 % MODULUS;
            *place = u32::try_from(word).expect("it is below 2^31");
        }
        let mut generator = Self { words, rear: 0 };
        for _ in 0..DISCARDED {
            generator.draw();
        }
        generator
    }

    /// `rand()`: 0 to 2^31 - 1.
    pub fn draw(&mut self) -> u32 {
        let front = (self.rear + AHEAD) % WORDS;
        let sum = self.words[front].wrapping_add(self.words[self.rear]);
        self.words[front] = sum;
        self.rear = (self.rear + 1) % WORDS;
        sum >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_draws_are_those_of_the_c_library() {
        let draws = |seed| {
            let mut generator = LibcRandom::seeded(seed);
            [generator.draw(), generator.draw(), generator.draw()]
        };
        assert_eq!(draws(1), [1_804_289_383, 846_930_886, 1_681_692_777]);
        assert_eq!(draws(0), draws(1));
        assert_eq!(draws(42), [71_876_166, 708_592_740, 1_483_128_881]);
    }

    #[cfg(target_env = "gnu")]
    #[test]
    #[expect(clippy::as_conversions, reason = "the C library's int")]
    fn long_sequences_agree_with_the_c_library_of_this_machine() {
        for seed in [2_u32, 1000, 296, u32::MAX, 0x8000_0001] {
            let mut generator = LibcRandom::seeded(seed);
            // SAFETY: no other test of this crate calls srand or rand.
            unsafe { libc::srand(seed) };
            for number in 0..1000 {
                // SAFETY: as above.
                let expected = unsafe { libc::rand() } as u32;
                assert_eq!(generator.draw(), expected, "seed {seed}, draw {number}");
            }
        }
    }
}
