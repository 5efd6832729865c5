//! The order in which records are visited.
//!
//! The default order is a permutation without a table. A table for a 64 GiB file in 4 KiB records would take 128 MiB
//! of memory, and processor cache, from the machine under test. A Feistel network over the next power of two is a
//! bijection for any round function; numbers outside the range are mapped again until they fall inside (at most two
//! steps on average). A round is one multiplication: the order must be cheap compared with a system call.

use std::sync::Arc;

use crate::error::BenchError;
use crate::mersenne;
use crate::spec::{FileSpec, Order, Pattern};

const ROUNDS: usize = 4;

/// Numbers of a permutation that are computed at once.
const AHEAD: usize = 8;

/// [`AHEAD`] as a number of positions.
const AHEAD_NUMBERS: u64 = 8;

/// Odd, with well-distributed bits.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// A seeded permutation of `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    /// Width of the upper half; the lower half is equally wide or one bit wider. Rounds swap them.
    upper_bits: u32,
    lower_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// Creates a permutation of `0..count`.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).max(2);
        let mut keys = [0; ROUNDS];
        for (round, key) in (0_u64..).zip(&mut keys) {
            *key = mixed(seed.wrapping_add(round));
        }
        Self {
            count,
            upper_bits: bits / 2,
            lower_bits: bits - bits / 2,
            keys,
        }
    }

    /// The number at `index`.
    ///
    /// # Panics
    /// If `index` is not below `count`.
    pub fn at(&self, index: u64) -> u64 {
        assert!(
            index < self.count,
            "index {index} of a permutation of {} numbers",
            self.count
        );
        let mut number = self.shuffled(index);
        // Bounded: iterating a bijection from inside the range always returns to the range.
        while number >= self.count {
            number = self.shuffled(number);
        }
        number
    }

    /// The numbers from `index` on, up to the last one; their chains of multiplications do not depend on each other.
    fn run_from(&self, index: u64, numbers: &mut [u64]) {
        for (offset, number) in (0..).zip(numbers.iter_mut()) {
            *number = self.shuffled((index + offset).min(self.count - 1));
        }
        for number in numbers {
            while *number >= self.count {
                *number = self.shuffled(*number);
            }
        }
    }

    fn shuffled(&self, number: u64) -> u64 {
        let (mut upper_bits, mut lower_bits) = (self.upper_bits, self.lower_bits);
        let (mut upper, mut lower) = (number >> lower_bits, number & ((1 << lower_bits) - 1));
        for key in self.keys {
            let round = (lower ^ key).wrapping_mul(MULTIPLIER) >> (u64::BITS - upper_bits);
            (upper, lower) = (lower, upper ^ round);
            (upper_bits, lower_bits) = (lower_bits, upper_bits);
        }
        upper << lower_bits | lower
    }
}

/// The order in which one worker visits records; it restarts when it is exhausted.
#[derive(Clone, Debug)]
pub struct RecordOrder {
    kind: Kind,
    /// Number of records visited before the order restarts.
    visited: u64,
    /// Position in the order.
    position: u64,
    /// The records from the last position that is a multiple of this length: computing them together takes hardly
    /// longer than computing one.
    ahead: [u64; AHEAD],
}

#[derive(Clone, Debug)]
enum Kind {
    Ascending,
    /// Without end: an append continues after its last record.
    Growing,
    Shuffled(Permutation),
    /// The first `distinct` numbers of `places` map to themselves, the others repeat one of them; `names` spreads
    /// them over all records.
    Overlapping {
        places: Permutation,
        names: Permutation,
        distinct: u64,
        seed: u64,
    },
    Drawn {
        count: u64,
        state: u64,
    },
    /// The table is shared by all threads: the original uses the same order in each.
    Table(Arc<[u64]>),
}

impl RecordOrder {
    /// Creates the orders of all workers.
    pub fn of_all(spec: &FileSpec) -> Vec<Self> {
        let is_table = spec.order == Order::Mobibench && !spec.pattern.is_sequential();
        let table = is_table.then(|| mersenne::shuffled(spec.records(), spec.overlap_percent).into());
        (0..spec.threads)
            .map(|index| Self::new(spec, index, table.clone()))
            .collect()
    }

    fn new(spec: &FileSpec, index: u32, table: Option<Arc<[u64]>>) -> Self {
        let seed = worker_seed(spec, index);
        let count = spec.records();
        let kind = match (table, spec.pattern, spec.order) {
            (Some(table), ..) => Kind::Table(table),
            (_, Pattern::Append, _) => Kind::Growing,
            (_, pattern, _) if pattern.is_sequential() => Kind::Ascending,
            (_, _, Order::WithReplacement) => Kind::Drawn { count, state: seed },
            (..) if spec.overlap_percent == 0 => Kind::Shuffled(Permutation::new(count, seed)),
            (..) => {
                let repeated = u128::from(count) * u128::from(spec.overlap_percent) / 100;
                Kind::Overlapping {
                    places: Permutation::new(count, seed),
                    names: Permutation::new(count, mixed(seed)),
                    distinct: count - u64::try_from(repeated).unwrap_or(0),
                    seed,
                }
            }
        };
        Self {
            kind,
            visited: spec.visited_records(),
            position: 0,
            ahead: [0; AHEAD],
        }
    }

    /// The next record.
    #[inline]
    pub fn next(&mut self) -> u64 {
        let record = self.upcoming()[0];
        self.advance(1);
        record
    }

    /// The next records, at least one.
    #[inline]
    pub fn upcoming(&mut self) -> &[u64] {
        let place = self.position % AHEAD_NUMBERS;
        let end = AHEAD_NUMBERS.min(self.left() + place);
        let (place, end) = (in_block(place), in_block(end));
        if place == 0 {
            self.kind.run_from(self.position, &mut self.ahead[..end]);
        }
        &self.ahead[place..end]
    }

    /// Advances past `records` of the [`upcoming`](Self::upcoming) records.
    #[inline]
    pub const fn advance(&mut self, records: u64) {
        self.position += records;
        if self.left() == 0 {
            self.position = 0;
        }
    }

    /// Positions left before the order restarts.
    const fn left(&self) -> u64 {
        if matches!(self.kind, Kind::Growing) {
            AHEAD_NUMBERS
        } else {
            self.visited - self.position
        }
    }
}

/// A position within a block of records.
fn in_block(position: u64) -> usize {
    usize::try_from(position).expect("positions in a block are at most its length")
}

impl Kind {
    /// The records from a position on.
    #[inline(never)]
    fn run_from(&mut self, position: u64, records: &mut [u64]) {
        if let Self::Shuffled(permutation) = self {
            return permutation.run_from(position, records);
        }
        for (position, record) in (position..).zip(records) {
            *record = self.at(position);
        }
    }

    /// The record at a position.
    fn at(&mut self, position: u64) -> u64 {
        match self {
            Self::Ascending | Self::Growing => position,
            Self::Shuffled(permutation) => permutation.at(position),
            Self::Overlapping {
                places,
                names,
                distinct,
                seed,
            } => {
                let place = places.at(position);
                if place < *distinct {
                    names.at(place)
                } else {
                    names.at(scaled(mixed(*seed ^ place), *distinct))
                }
            }
            Self::Drawn { count, state } => {
                *state = state.wrapping_add(MULTIPLIER);
                scaled(mixed(*state), *count)
            }
            Self::Table(table) => usize::try_from(position)
                .ok()
                .and_then(|place| table.get(place).copied())
                .expect("the table has a number for each record"),
        }
    }
}

/// The file offsets that worker `index` visits in one pass of its order, in that order. Comparison programs follow
/// the same order.
///
/// # Errors
/// If the workload contradicts itself, or has no such worker.
pub fn offsets(spec: &FileSpec, index: u32) -> Result<impl Iterator<Item = u64>, BenchError> {
    spec.validate()?;
    let mut orders = RecordOrder::of_all(spec);
    let place = usize::try_from(index).unwrap_or(usize::MAX);
    if place >= orders.len() {
        let problem = format!("there is no worker {index}, counted from 0");
        return Err(BenchError::spec("threads", problem));
    }
    let mut order = orders.swap_remove(place);
    let (base, record_bytes) = (spec.base_of(index), spec.record_bytes);
    let all = spec.visited_records().saturating_mul(u64::from(spec.passes));
    Ok((0..all).map(move |_| base + order.next() * record_bytes))
}

/// The seed of a worker: its order and choices are independent of the other workers'.
pub fn worker_seed(spec: &FileSpec, index: u32) -> u64 {
    mixed(spec.seed ^ (u64::from(index) << 32))
}

/// Scales a 64-bit number to `0..count`.
fn scaled(number: u64, count: u64) -> u64 {
    let product = u128::from(number) * u128::from(count);
    u64::try_from(product >> 64).expect("the upper half of a product has 64 bits")
}

/// A bijection of 64-bit numbers that changes about half of the bits for each changed bit (the finalizer of
/// SplitMix64).
pub fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
    fn numbers_made_at_once_are_those_made_one_by_one_also_when_the_order_begins_again() {
        for (records, visited) in [(1, None), (5, None), (8, None), (21, None), (1000, Some(13))] {
            let spec = FileSpec {
                records_max: visited,
                ..FileSpec::plain(PathBuf::new(), Pattern::RandomRead, 512, records * 512)
            };
            let visited = visited.unwrap_or(records);
            let permutation = Permutation::new(records, worker_seed(&spec, 0));
            let mut order = RecordOrder::of_all(&spec).remove(0);
            for round in 0..3 {
                for index in 0..visited {
                    assert_eq!(
                        order.next(),
                        permutation.at(index),
                        "{records} records, round {round}, {index}"
                    );
                }
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

    fn drawn(order: Order, overlap_percent: u8, records: u64) -> Vec<u64> {
        let spec = FileSpec {
            order,
            overlap_percent,
            ..FileSpec::plain("/".into(), Pattern::RandomWrite, 512, 512 * records)
        };
        let mut order = RecordOrder::of_all(&spec).remove(0);
        (0..records).map(|_| order.next()).collect()
    }

    fn distinct(numbers: &[u64]) -> usize {
        numbers.iter().collect::<std::collections::BTreeSet<_>>().len()
    }

    #[test]
    fn the_overlap_is_the_share_of_records_that_repeat_others() {
        for (percent, expected) in [(0, 1000), (10, 900), (50, 500), (99, 10)] {
            let numbers = drawn(Order::EachOnce, percent, 1000);
            assert_eq!(distinct(&numbers), expected, "{percent} %");
            assert!(numbers.iter().all(|number| *number < 1000));
        }
    }

    #[test]
    fn drawing_with_replacement_meets_about_two_thirds_of_the_records() {
        let numbers = drawn(Order::WithReplacement, 0, 10_000);
        assert!(numbers.iter().all(|number| *number < 10_000));
        let found = distinct(&numbers);
        assert!((6_200..6_450).contains(&found), "{found} of 10000");
    }

    #[test]
    fn what_is_upcoming_is_what_comes_next() {
        for (order, overlap_percent) in [
            (Order::EachOnce, 0),
            (Order::EachOnce, 30),
            (Order::WithReplacement, 0),
            (Order::Mobibench, 0),
        ] {
            let spec = FileSpec {
                order,
                overlap_percent,
                records_max: Some(21),
                ..FileSpec::plain("/".into(), Pattern::RandomWrite, 512, 512 * 37)
            };
            let mut one_by_one = RecordOrder::of_all(&spec).remove(0);
            let mut some = one_by_one.clone();
            for step in (1..=3).cycle().take(60) {
                let upcoming = some.upcoming();
                let taken = upcoming.len().min(step);
                let expected: Vec<u64> = (0..taken).map(|_| one_by_one.next()).collect();
                assert_eq!(upcoming[..taken], expected, "{order:?} {overlap_percent} %");
                some.advance(u64::try_from(taken).unwrap());
            }
        }
    }

    #[test]
    fn an_order_begins_again_where_it_ended_and_an_append_goes_on() {
        let next = |pattern| {
            let spec = FileSpec {
                records_max: Some(3),
                ..FileSpec::plain("/".into(), pattern, 512, 4096)
            };
            let mut order = RecordOrder::of_all(&spec).remove(0);
            (0..6).map(|_| order.next()).collect::<Vec<_>>()
        };
        assert_eq!(next(Pattern::SequentialWrite), [0, 1, 2, 0, 1, 2]);
        assert_eq!(next(Pattern::Append), [0, 1, 2, 3, 4, 5]);
        let random = next(Pattern::RandomRead);
        assert_eq!(random[..3], random[3..]);
    }
}
