//! The random order of the original Mobibench: a table shuffled by a 64-bit Mersenne Twister (MT19937-64).
//!
//! IOzone has the same order. It is constant: the generator starts from four constants, so two programs that use it
//! visit the same records in the same order, and their numbers can be compared. The shuffle swaps each entry with one
//! drawn from the whole table, which is slightly biased; the bias is kept because the order would differ otherwise.
//! Other workloads use [`crate::order`], which needs no table.
//!
//! Memory: 8 bytes per record (2 MiB for 1 GiB in records of 4 KiB), with and without overlap. The order does not
//! depend on the thread: threads with a file each share one table.

/// Words of state.
const STATE_WORDS: usize = 312;

/// Distance to the word that is mixed in when the state is regenerated.
const MIDDLE: usize = 156;

/// Seed of the state before the key is mixed in.
const KEYED_SEED: u64 = 19_650_218;

/// The key of IOzone and Mobibench.
const KEY: [u64; 4] = [0x12345, 0x23456, 0x34567, 0x45678];

/// Largest share of records that may repeat others: at 100 % no record would be left to repeat.
pub const OVERLAP_PERCENT_MAX: u8 = 99;

/// The generator MT19937-64 of Nishimura and Matsumoto.
#[derive(Clone, Debug)]
pub struct Mersenne64 {
    state: [u64; STATE_WORDS],
    next: usize,
}

impl Mersenne64 {
    /// Seeds the generator from one number.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut state = [seed; STATE_WORDS];
        let mut before = seed;
        for (number, word) in (1_u64..).zip(&mut state[1..]) {
            before = (before ^ (before >> 62))
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(number);
            *word = before;
        }
        Self {
            state,
            next: STATE_WORDS,
        }
    }

    /// Seeds the generator from a key of at least one number.
    ///
    /// # Panics
    /// If the key is empty.
    #[must_use]
    pub fn from_key(key: &[u64]) -> Self {
        assert!(
            !key.is_empty(),
            "a Mersenne Twister needs a key of one number or more"
        );
        let mut generator = Self::from_seed(KEYED_SEED);
        let state = &mut generator.state;
        let mut place = 1;
        let numbered = (0_u64..).zip(key).cycle();
        for (number, word) in numbered.take(STATE_WORDS.max(key.len())) {
            let before = state[place - 1];
            let mixed = (before ^ (before >> 62)).wrapping_mul(3_935_559_000_370_003_845);
            state[place] = (state[place] ^ mixed).wrapping_add(*word).wrapping_add(number);
            place = step(state, place);
        }
        for _ in 1..STATE_WORDS {
            let before = state[place - 1];
            let mixed = (before ^ (before >> 62)).wrapping_mul(2_862_933_555_777_941_757);
            let number = u64::try_from(place).expect("a place in the state is below 312");
            state[place] = (state[place] ^ mixed).wrapping_sub(number);
            place = step(state, place);
        }
        state[0] = 1 << 63;
        generator
    }

    /// Draws the next number, of the full 64-bit range.
    pub fn draw(&mut self) -> u64 {
        if self.next == STATE_WORDS {
            self.renew();
        }
        let word = self.state[self.next];
        self.next += 1;
        let word = word ^ ((word >> 29) & 0x5555_5555_5555_5555);
        let word = word ^ ((word << 17) & 0x71D6_7FFF_EDA6_0000);
        let word = word ^ ((word << 37) & 0xFFF7_EEE0_0000_0000);
        word ^ (word >> 43)
    }

    fn renew(&mut self) {
        const LOWER_BITS: u64 = (1 << 31) - 1;
        for place in 0..STATE_WORDS {
            let following = self.state[(place + 1) % STATE_WORDS];
            let joined = (self.state[place] & !LOWER_BITS) | (following & LOWER_BITS);
            let twist = if following & 1 == 0 {
                0
            } else {
                0xB502_6F5A_A966_19E9
            };
            self.state[place] = self.state[(place + MIDDLE) % STATE_WORDS] ^ (joined >> 1) ^ twist;
        }
        self.next = 0;
    }
}

/// The index after `place`; after the last one, copies the last word to the first and continues with the second.
fn step(state: &mut [u64; STATE_WORDS], place: usize) -> usize {
    if place + 1 < STATE_WORDS {
        return place + 1;
    }
    state[0] = state[STATE_WORDS - 1];
    1
}

/// The order in which the original visits `records` records.
///
/// Without overlap each record is visited once. With overlap, `records * overlap_percent / 100` (rounded down) of the
/// visits repeat records of other visits, and as many records are never visited.
///
/// # Panics
/// If `overlap_percent` is above [`OVERLAP_PERCENT_MAX`].
#[must_use]
pub fn shuffled(records: u64, overlap_percent: u8) -> Vec<u64> {
    assert!(
        overlap_percent <= OVERLAP_PERCENT_MAX,
        "{overlap_percent} % overlap, expected 0 to {OVERLAP_PERCENT_MAX}"
    );
    let mut generator = Mersenne64::from_key(&KEY);
    let mut order: Vec<u64> = (0..records).collect();
    let repeated = u128::from(records) * u128::from(overlap_percent) / 100;
    if repeated > 0 {
        let repeated = usize::try_from(repeated).expect("it is a part of a table that is in memory");
        shuffle(&mut order, &mut generator);
        let distinct = order.len() - repeated;
        let (distinct, repeats) = order.split_at_mut(distinct);
        repeats.fill_with(|| distinct[draw_below(&mut generator, distinct.len())]);
    }
    shuffle(&mut order, &mut generator);
    order
}

fn shuffle(order: &mut [u64], generator: &mut Mersenne64) {
    for place in 0..order.len() {
        let other = draw_below(generator, order.len());
        order.swap(place, other);
    }
}

fn draw_below(generator: &mut Mersenne64, count: usize) -> usize {
    let count = u64::try_from(count).expect("lengths in memory fit in 64 bits");
    usize::try_from(generator.draw() % count).expect("a remainder of a length fits where the length did")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_generator_gives_the_published_numbers() {
        // The first line of the reference output of MT19937-64 for this key.
        let mut generator = Mersenne64::from_key(&KEY);
        let published = [
            7_266_447_313_870_364_031,
            4_946_485_549_665_804_864,
            16_945_909_448_695_747_420,
            16_394_063_075_524_226_720,
            4_873_882_236_456_199_058,
        ];
        assert_eq!(published.map(|_| generator.draw()), published);
    }

    #[test]
    fn the_generator_is_that_of_the_cxx_standard_far_into_its_sequence() {
        // C++ specifies this number for a default-constructed `mt19937_64`, whose seed is 5489.
        let mut generator = Mersenne64::from_seed(5489);
        let last = (0..10_000).map(|_| generator.draw()).last();
        assert_eq!(last, Some(9_981_545_732_273_789_042));
    }

    #[test]
    fn the_order_is_that_of_the_original() {
        // Recorded from the seeks of the original.
        assert_eq!(
            shuffled(16, 0),
            [3, 15, 8, 1, 12, 9, 7, 2, 5, 0, 6, 10, 14, 13, 4, 11]
        );
        assert_eq!(shuffled(256, 0)[..8], [58, 23, 92, 160, 17, 101, 175, 173]);
    }

    #[test]
    fn the_order_with_overlap_is_that_of_the_original() {
        // As above, with an overlap of 50 %.
        assert_eq!(
            shuffled(16, 50),
            [2, 15, 9, 12, 12, 15, 1, 2, 9, 15, 7, 7, 3, 15, 8, 2]
        );
    }

    #[test]
    fn each_record_comes_once_without_overlap() {
        for records in [0, 1, 2, 311, 312, 313, 5000] {
            let visited: BTreeSet<u64> = shuffled(records, 0).into_iter().collect();
            assert_eq!(visited, (0..records).collect(), "{records} records");
        }
    }

    #[test]
    fn overlap_leaves_out_its_share_of_the_records() {
        for (records, percent, distinct) in [
            (1000, 10, 900),
            (1000, 50, 500),
            (1000, 99, 10),
            (10, 25, 8),
            (1, 99, 1),
        ] {
            let order = shuffled(records, percent);
            assert_eq!(u64::try_from(order.len()), Ok(records));
            assert!(order.iter().all(|record| *record < records));
            let visited: BTreeSet<u64> = order.into_iter().collect();
            assert_eq!(visited.len(), distinct, "{records} records, {percent} %");
        }
    }
}
