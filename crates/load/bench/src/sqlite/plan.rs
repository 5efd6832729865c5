//! The transactions of one thread: kinds, keys and values.
//!
//! Keys begin at 0, or at 1 if SQLite assigns them (AUTOINCREMENT). All tables of a database have the same rows.

use super::libc_random::LibcRandom;
use super::spec::{KeyOrder, Operation, SqliteSpec, TransactionShape, VALUE_BYTES, Values};
use crate::order::{Permutation, mixed};
use crate::words::words;

words! {
    /// The operation of a transaction on every table.
    Kind {
        /// Inserts a row.
        Insert = "insert",
        /// Updates a row.
        Update = "update",
        /// Deletes a row.
        Delete = "delete",
    }
}

/// One transaction.
#[derive(Debug)]
pub struct Step<'plan> {
    /// The kind of transaction.
    pub kind: Kind,
    /// The key in each table, database by database; for an insert with AUTOINCREMENT, the key that SQLite will
    /// assign.
    pub keys: &'plan [i64],
}

/// The sequence of transactions of one thread.
pub struct Plan {
    operation: Operation,
    order: KeyOrder,
    databases: u64,
    tables: u64,
    seed: u64,
    first_key: u64,
    rows_before: u64,
    insert_order: Permutation,
    row_order: Permutation,
    /// For the original order: keys of each database that were already drawn.
    taken: Vec<Vec<bool>>,
    done: u64,
    inserted: u64,
    deleted: u64,
    keys: Vec<i64>,
}

impl Plan {
    /// Creates the plan of thread `index`.
    pub fn new(spec: &SqliteSpec, index: u32) -> Self {
        let seed = thread_seed(spec, index);
        let rows_before = spec.rows_before();
        let pool = match spec.operation {
            Operation::Insert => spec.transactions,
            _ => rows_before,
        };
        let pool = usize::try_from(pool).unwrap_or(usize::MAX);
        let draws_without_replacement =
            spec.keys == KeyOrder::Original && !matches!(spec.operation, Operation::Update);
        let databases = usize::try_from(spec.databases).expect("databases are few");
        let taken = if draws_without_replacement {
            vec![vec![false; pool]; databases]
        } else {
            Vec::new()
        };
        Self {
            operation: spec.operation,
            order: spec.keys,
            databases: u64::from(spec.databases),
            tables: u64::from(spec.tables),
            seed,
            first_key: match spec.shape {
                TransactionShape::Autocommit => 1,
                TransactionShape::Explicit => 0,
            },
            rows_before,
            insert_order: Permutation::new(spec.transactions, seed ^ 1),
            row_order: Permutation::new(rows_before.max(1), seed ^ 2),
            taken,
            done: 0,
            inserted: 0,
            deleted: 0,
            keys: Vec::with_capacity(usize::try_from(spec.statements()).expect("statements are few")),
        }
    }

    /// Rows of each table after the transactions so far.
    pub const fn rows(&self) -> u64 {
        self.rows_before + self.inserted - self.deleted
    }

    /// The next transaction.
    pub fn next(&mut self) -> Step<'_> {
        let kind = self.kind();
        self.keys.clear();
        if self.order == KeyOrder::Original {
            self.draw_as_the_original(kind);
        } else {
            for _ in 0..self.databases * self.tables {
                let key = self.key(kind, self.keys.len());
                self.keys.push(key);
            }
        }
        self.done += 1;
        match kind {
            Kind::Insert => self.inserted += 1,
            Kind::Update => {}
            Kind::Delete => self.deleted += 1,
        }
        Step {
            kind,
            keys: &self.keys,
        }
    }

    fn kind(&self) -> Kind {
        match self.operation {
            Operation::Insert => Kind::Insert,
            Operation::Update => Kind::Update,
            Operation::Delete => Kind::Delete,
            Operation::Mix {
                insert_percent,
                update_percent,
            } => {
                let drawn = mixed(self.seed ^ 3 ^ (self.done << 8)) % 100;
                let inserts = u64::from(insert_percent);
                if drawn < inserts {
                    Kind::Insert
                } else if drawn < inserts + u64::from(update_percent) {
                    Kind::Update
                } else {
                    Kind::Delete
                }
            }
        }
    }

    /// The key of one statement. Initial rows are deleted in the order of `row_order`, so those from `deleted` on
    /// still exist; there are at least as many of them as transactions.
    fn key(&self, kind: Kind, statement: usize) -> i64 {
        let statement = u64::try_from(statement).expect("statements are few");
        let remaining = self.rows_before - self.deleted;
        let is_shuffled = self.order == KeyOrder::Random;
        let number = match (kind, is_shuffled) {
            (Kind::Insert, false) => self.rows_before + self.inserted,
            (Kind::Insert, true) => self.rows_before + self.insert_order.at(self.inserted),
            (Kind::Delete, false) => self.deleted,
            (Kind::Delete, true) => self.row_order.at(self.deleted),
            (Kind::Update, false) => self.deleted + self.done % remaining,
            (Kind::Update, true) => {
                let drawn = mixed(
                    self.seed ^ 4 ^ mixed(self.done.wrapping_mul(self.databases * self.tables) + statement),
                );
                self.row_order.at(self.deleted + drawn % remaining)
            }
        };
        signed(self.first_key + number)
    }

    /// The original seeds the generator with the transaction's number; updates then draw once per table, the other
    /// kinds once per database, repeatedly until the key is unused.
    fn draw_as_the_original(&mut self, kind: Kind) {
        // The original's counter is an int: larger numbers are not possible there.
        let seed = u32::try_from(self.done & 0x7FFF_FFFF).expect("31 bits");
        let mut generator = LibcRandom::seeded(seed);
        for database in 0..usize::try_from(self.databases).expect("databases are few") {
            if kind == Kind::Update {
                for _ in 0..self.tables {
                    let key = u64::from(generator.draw()) % self.rows_before + 1;
                    self.keys.push(signed(key));
                }
                continue;
            }
            let taken = &mut self.taken[database];
            let key = loop {
                let drawn = usize::try_from(generator.draw()).expect("31 bits") % taken.len();
                if !std::mem::replace(&mut taken[drawn], true) {
                    break u64::try_from(drawn).expect("keys fit in 64 bits");
                }
            };
            for _ in 0..self.tables {
                self.keys.push(signed(self.first_key + key));
            }
        }
    }
}

fn signed(key: u64) -> i64 {
    i64::try_from(key).expect("transactions are checked to be below 2^40")
}

/// Each thread has its own random stream.
pub fn thread_seed(spec: &SqliteSpec, index: u32) -> u64 {
    mixed(spec.seed ^ mixed(u64::from(index)))
}

/// The values that statements write.
#[derive(Clone, Copy, Debug)]
pub struct ValueStream {
    values: Values,
    seed: u64,
    constant: &'static [u8; VALUE_BYTES],
}

/// The ten digits, ten times; rows of the preparation have ten letters, ten times, so that a first update changes
/// them.
const DIGITS: &[u8; VALUE_BYTES] =
    b"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";
const LETTERS: &[u8; VALUE_BYTES] =
    b"abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij";

impl ValueStream {
    /// The values that the preparation writes.
    pub const fn of_preparation(values: Values, seed: u64) -> Self {
        Self {
            values,
            seed: seed ^ 0x7072_6570,
            constant: LETTERS,
        }
    }

    /// The values that transactions write.
    pub const fn of_transactions(values: Values, seed: u64) -> Self {
        Self {
            values,
            seed,
            constant: DIGITS,
        }
    }

    /// Writes value `number` of the stream: text without quotes.
    pub fn fill(&self, number: u64, value: &mut [u8; VALUE_BYTES]) {
        if self.values == Values::Constant {
            *value = *self.constant;
            return;
        }
        let base = self.seed.wrapping_add(number.wrapping_mul(8));
        for (word, digits) in (0..).zip(value.chunks_mut(16)) {
            let mut bits = mixed(base.wrapping_add(word));
            for digit in digits {
                *digit = b"0123456789abcdef"[usize::from(bits.to_le_bytes()[0] & 0xF)];
                bits >>= 4;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::spec::ROWS_MIN;
    use crate::sqlite::spec::tests::spec;
    use std::collections::BTreeSet;

    fn keys(spec: &SqliteSpec) -> Vec<(Kind, Vec<i64>)> {
        let mut plan = Plan::new(spec, 0);
        (0..spec.transactions)
            .map(|_| {
                let step = plan.next();
                (step.kind, step.keys.to_vec())
            })
            .collect()
    }

    #[test]
    fn inserts_meet_each_key_once_in_every_order() {
        for order in [KeyOrder::Sequential, KeyOrder::Random, KeyOrder::Original] {
            let spec = SqliteSpec {
                transactions: 100,
                keys: order,
                ..spec()
            };
            let met: Vec<i64> = keys(&spec).iter().map(|(_, keys)| keys[0]).collect();
            let distinct: BTreeSet<i64> = met.iter().copied().collect();
            assert_eq!(distinct, (0..100).collect(), "{order:?}");
            assert_eq!(met.is_sorted(), order == KeyOrder::Sequential, "{order:?}");
            assert!(keys(&spec).iter().all(|(_, keys)| keys.len() == 3));
        }
    }

    #[test]
    fn deletes_meet_rows_that_are_there_once_each() {
        for order in [KeyOrder::Sequential, KeyOrder::Random, KeyOrder::Original] {
            let spec = SqliteSpec {
                operation: Operation::Delete,
                transactions: 200,
                keys: order,
                ..spec()
            };
            let met: BTreeSet<i64> = keys(&spec).iter().map(|(_, keys)| keys[2]).collect();
            assert_eq!(met.len(), 200, "{order:?}");
            assert!(met.iter().all(|key| (0..296).contains(key)), "{order:?}");
        }
    }

    #[test]
    fn the_originals_updates_miss_and_ours_do_not() {
        let rows = i64::try_from(ROWS_MIN).unwrap();
        let misses = |keys_order| {
            let spec = SqliteSpec {
                operation: Operation::Update,
                transactions: 290,
                keys: keys_order,
                ..spec()
            };
            keys(&spec)
                .iter()
                .flat_map(|(_, keys)| keys.clone())
                .filter(|key| !(0..rows).contains(key))
                .count()
        };
        assert_eq!((misses(KeyOrder::Sequential), misses(KeyOrder::Random)), (0, 0));
        assert!(misses(KeyOrder::Original) > 0);
    }

    #[test]
    fn the_originals_updates_draw_after_seeding_with_the_transaction() {
        let spec = SqliteSpec {
            operation: Operation::Update,
            transactions: 3,
            keys: KeyOrder::Original,
            ..spec()
        };
        // srand(1): 1804289383, 846930886, 1681692777; 296 rows.
        let expected = [1_804_289_383_i64, 846_930_886, 1_681_692_777].map(|draw| draw % 296 + 1);
        let found = keys(&spec);
        assert_eq!(found[1].1, expected);
        assert_eq!(found[0].1, expected, "srand(0) is srand(1)");
    }

    #[test]
    fn a_mix_never_meets_a_row_that_is_gone_and_counts_its_rows() {
        for order in [KeyOrder::Sequential, KeyOrder::Random] {
            let operation = Operation::Mix {
                insert_percent: 20,
                update_percent: 40,
            };
            let spec = SqliteSpec {
                operation,
                transactions: 1000,
                keys: order,
                ..spec()
            };
            let mut plan = Plan::new(&spec, 3);
            let mut there: BTreeSet<i64> = (0..1000).collect();
            let mut counts = [0; 3];
            for _ in 0..1000 {
                let Step { kind, keys } = plan.next();
                let (kind, keys) = (kind, keys.to_vec());
                for (place, key) in keys.iter().enumerate() {
                    let met = match kind {
                        Kind::Update => there.contains(key),
                        // All tables have the same rows: only the first statement is checked.
                        Kind::Insert => place > 0 || there.insert(*key),
                        Kind::Delete => place > 0 || there.remove(key),
                    };
                    assert!(met, "{order:?}: {kind:?} of {key}");
                }
                counts[crate::sqlite::worker::place_of(kind)] += 1;
                assert_eq!(plan.rows(), u64::try_from(there.len()).unwrap());
            }
            assert!((150..250).contains(&counts[0]), "{counts:?}");
            assert!((340..460).contains(&counts[1]), "{counts:?}");
        }
    }

    #[test]
    fn distinct_values_differ_and_are_plain_text() {
        let stream = ValueStream::of_transactions(Values::Distinct, 7);
        let mut seen = BTreeSet::new();
        for number in 0..1000 {
            let mut value = [0; VALUE_BYTES];
            stream.fill(number, &mut value);
            assert!(value.iter().all(u8::is_ascii_hexdigit));
            assert!(seen.insert(value), "value {number} came before");
        }
    }
}
