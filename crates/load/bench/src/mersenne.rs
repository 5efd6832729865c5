//! The random order of the original Mobibench: a table shuffled by a 64-bit Mersenne Twister (MT19937-64).
//!
//! IOzone has the same order. It is constant: the generator starts from four constants, so two programs that use it
//! visit the same records in the same order, and their numbers can be compared. The shuffle swaps each entry with one
//! drawn from the whole table, which is slightly biased; the bias is kept because the order would differ otherwise.
//! Other workloads use [`crate::order`], which needs no table.
//!
//! Memory: 8 bytes per record (2 MiB for 1 GiB in records of 4 KiB), with and without overlap. The order does not
//! depend on the thread: threads with a file each share one table.

use rand_mt::Mt64;

/// The key of IOzone and Mobibench.
const KEY: [u64; 4] = [0x12345, 0x23456, 0x34567, 0x45678];

/// Largest share of records that may repeat others: at 100 % no record would be left to repeat.
pub const OVERLAP_PERCENT_MAX: u8 = 99;

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
    let mut generator = Mt64::new_with_key(KEY);
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

fn shuffle(order: &mut [u64], generator: &mut Mt64) {
    for place in 0..order.len() {
        let other = draw_below(generator, order.len());
        order.swap(place, other);
    }
}

fn draw_below(generator: &mut Mt64, count: usize) -> usize {
    let count = u64::try_from(count).expect("lengths in memory fit in 64 bits");
    usize::try_from(generator.next_u64() % count).expect("a remainder of a length fits where the length did")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_generator_gives_the_published_numbers() {
        // The first line of the reference output of MT19937-64 for this key.
        let mut generator = Mt64::new_with_key(KEY);
        let published = [
            7_266_447_313_870_364_031,
            4_946_485_549_665_804_864,
            16_945_909_448_695_747_420,
            16_394_063_075_524_226_720,
            4_873_882_236_456_199_058,
        ];
        assert_eq!(published.map(|_| generator.next_u64()), published);
    }

    #[test]
    fn the_generator_is_that_of_the_cxx_standard_far_into_its_sequence() {
        // C++ specifies this number for a default-constructed `mt19937_64`, whose seed is 5489.
        let mut generator = Mt64::new(5489);
        let last = (0..10_000).map(|_| generator.next_u64()).last();
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
