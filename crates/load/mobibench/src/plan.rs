//! Interpretation of the original's numbers: validated, clamped where the original clamps them, and divided by the
//! threads. Nothing here touches the system.

use std::path::PathBuf;

use bench::Mode;
use bench::sqlite::{Journal, Operation, Synchronous};
use thiserror::Error;

use crate::{Options, Preset};

/// Maximum threads, as in the original.
const THREADS_MAX: u32 = 100;

/// Maximum tables and maximum databases, as in the original.
const TABLES_MAX: u32 = 20;

/// Maximum wait after a transaction, as in the original.
const INTERVAL_MS_MAX: u32 = 10_000;

/// Default number of tables per database in the last version of the original.
const TABLES_HEAD: u32 = 3;

/// Reasons to reject a command line. Nothing was touched.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlanError {
    /// A number outside the valid range.
    #[error("-{option} {found} is {meaning}, expected {expected}")]
    OutOfRange {
        /// The option.
        option: char,
        /// Meaning of the number.
        meaning: &'static str,
        /// Number as given.
        found: i64,
        /// Valid numbers.
        expected: String,
    },
    /// Not even one record fits into a file.
    #[error(
        "-f {file_kib} over {threads} threads leaves {share_kib} KiB for each file, \
         less than one record of {record_kib} KiB (-r)"
    )]
    NoRecord {
        /// File size as given.
        file_kib: u64,
        /// Threads after clamping.
        threads: u32,
        /// Size per thread.
        share_kib: u64,
        /// Record size as given.
        record_kib: u64,
    },
    /// Fewer transactions than threads.
    #[error("-n {transactions} over {threads} threads leaves nothing to do for each")]
    NoTransaction {
        /// Transactions as given.
        transactions: u64,
        /// Threads after clamping.
        threads: u32,
    },
    /// The version of 2013 has one table in one database.
    #[error(
        "-{option} {found} is not in mobibench-2013, which has one table in one database; use --preset mobibench-head"
    )]
    NotIn2013 {
        /// The option.
        option: char,
        /// Number as given.
        found: u32,
    },
}

/// A validated command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Version of the original.
    pub preset: Preset,
    /// Folder of the test files.
    pub path: PathBuf,
    /// The test.
    pub test: Test,
    /// Deviations from the command line, for standard error.
    pub notes: Vec<String>,
}

/// The selected test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Reads or writes files.
    File(FileTest),
    /// Runs SQLite transactions.
    Database(DatabaseTest),
    /// Replays a MobiGen script.
    Script(PathBuf),
}

/// Parameters of a file test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTest {
    /// `-a`.
    pub access: Access,
    /// `-y`.
    pub sync: Mode,
    /// `-t`.
    pub threads: u32,
    /// `-f` divided by the threads.
    pub share_kib: u64,
    /// `-r`.
    pub record_kib: u64,
    /// Whole records in the share of a thread.
    pub records: u64,
    /// `-v`.
    pub overlap_percent: u8,
}

/// Parameters of an SQLite test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseTest {
    /// `-d`.
    pub operation: Operation,
    /// `-t`.
    pub threads: u32,
    /// `-n` divided by the threads.
    pub transactions: u64,
    /// `-j`.
    pub journal: Journal,
    /// `-s`.
    pub synchronous: Synchronous,
    /// `-i`.
    pub interval_ms: u32,
    /// `-T`.
    pub tables: u32,
    /// `-D`.
    pub databases: u32,
    /// `-R`.
    pub random_keys: bool,
}

/// Access pattern of a file test (`-a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Sequential write: overwrites a file of full length, or allocates with the preset of 2013.
    Write,
    /// Random write over a file of full length.
    RandomWrite,
    /// Sequential read.
    Read,
    /// Random read.
    RandomRead,
    /// Allocating sequential write.
    Append,
}

impl Access {
    const ALL: [Self; 5] = [
        Self::Write,
        Self::RandomWrite,
        Self::Read,
        Self::RandomRead,
        Self::Append,
    ];

    /// The original's number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Write => 0,
            Self::RandomWrite => 1,
            Self::Read => 2,
            Self::RandomRead => 3,
            Self::Append => 4,
        }
    }

    /// True for the two read patterns.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandomRead)
    }

    /// True for the two random patterns.
    pub const fn is_random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::RandomRead)
    }
}

/// Sync modes (`-y`), ordered by the original's numbers.
const SYNC_MODES: [Mode; 11] = [
    Mode::BUFFERED,
    Mode::SYNC,
    Mode::FSYNC,
    Mode::DIRECT,
    Mode::DIRECT_SYNC,
    Mode::MMAP,
    Mode::MMAP_ASYNC,
    Mode::MMAP_SYNC,
    Mode::FDATASYNC,
    Mode::FBARRIER,
    Mode::FDATABARRIER,
];

/// SQLite operations (`-d`), ordered by the original's numbers.
const OPERATIONS: [Operation; 3] = [Operation::Insert, Operation::Update, Operation::Delete];

/// The original's number of a sync mode.
pub fn sync_number(mode: Mode) -> usize {
    number_in(&SYNC_MODES, mode)
}

/// The original's number of an SQLite operation.
pub fn operation_number(operation: Operation) -> usize {
    number_in(&OPERATIONS, operation)
}

fn number_in<T: PartialEq>(all: &[T], wanted: T) -> usize {
    all.iter().position(|one| *one == wanted).unwrap_or_default()
}

/// Validates a command line. Options that the test does not use are not checked.
///
/// # Errors
/// [`PlanError`] for an invalid option value.
pub fn plan(options: &Options) -> Result<Plan, PlanError> {
    let mut notes = Vec::new();
    if !options.operands.is_empty() {
        let words: Vec<_> = options
            .operands
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        notes.push(format!("no option takes these words: {}", words.join(" ")));
    }
    let test = match (&options.script, options.database) {
        (Some(script), _) => Test::Script(script.clone()),
        (None, Some(operation)) => Test::Database(database_test(options, operation, &mut notes)?),
        (None, None) => Test::File(file_test(options, &mut notes)?),
    };
    Ok(Plan {
        preset: options.preset,
        path: options.path.clone().unwrap_or_else(|| "./mobibench".into()),
        test,
        notes,
    })
}

fn file_test(options: &Options, notes: &mut Vec<String>) -> Result<FileTest, PlanError> {
    let threads = moved('t', options.threads, THREADS_MAX, notes);
    let file_kib = positive('f', "a file size in KiB", options.file_kib)?;
    let record_kib = positive('r', "a record size in KiB", options.record_kib)?;
    let access = chosen('a', "an access mode", options.access, &Access::ALL)?;
    let sync = chosen('y', "a sync mode", options.sync, &SYNC_MODES)?;
    let overlap_max = bench::mersenne::OVERLAP_PERCENT_MAX;
    let overlap_percent = u8::try_from(options.overlap_percent)
        .ok()
        .filter(|percent| *percent <= overlap_max)
        .ok_or_else(|| PlanError::OutOfRange {
            option: 'v',
            meaning: "a share of repeated records",
            found: options.overlap_percent,
            expected: format!("0 to {overlap_max} percent"),
        })?;
    let share_kib = file_kib / u64::from(threads);
    let records = share_kib / record_kib;
    if records == 0 {
        return Err(PlanError::NoRecord {
            file_kib,
            threads,
            share_kib,
            record_kib,
        });
    }
    if access.reads() && sync.without_calls() != sync {
        notes.push(format!(
            "-y {} syncs after writes, and -a {} writes nothing: it reads as with -y {}",
            sync_number(sync),
            access.number(),
            sync_number(sync.without_calls()),
        ));
    }
    Ok(FileTest {
        access,
        sync,
        threads,
        share_kib,
        record_kib,
        records,
        overlap_percent,
    })
}

fn database_test(
    options: &Options,
    operation: i64,
    notes: &mut Vec<String>,
) -> Result<DatabaseTest, PlanError> {
    let threads = moved('t', options.threads, THREADS_MAX, notes);
    let tables = match (options.tables, options.preset) {
        (Some(tables), _) => moved('T', tables, TABLES_MAX, notes),
        (None, Preset::Head) => TABLES_HEAD,
        (None, Preset::Paper) => 1,
    };
    let databases = moved('D', options.databases, TABLES_MAX, notes);
    if options.preset == Preset::Paper {
        for (option, found) in [('T', tables), ('D', databases)] {
            if found != 1 {
                return Err(PlanError::NotIn2013 { option, found });
            }
        }
    }
    if options.preset == Preset::Paper && options.random_keys {
        notes.push("-R changes nothing in mobibench-2013, where SQLite gives the keys".to_owned());
    }
    let transactions = positive('n', "a number of transactions", options.transactions)?;
    let share = transactions / u64::from(threads);
    if share == 0 {
        return Err(PlanError::NoTransaction {
            transactions,
            threads,
        });
    }
    let mut interval_ms = within('i', "a wait in milliseconds", options.interval_ms, u32::MAX)?;
    if interval_ms > INTERVAL_MS_MAX {
        notes.push(format!(
            "-i {interval_ms} is taken as {INTERVAL_MS_MAX}, as the original does"
        ));
        interval_ms = INTERVAL_MS_MAX;
    }
    Ok(DatabaseTest {
        operation: chosen('d', "an operation", operation, &OPERATIONS)?,
        threads,
        transactions: share,
        journal: chosen('j', "a journal mode", options.journal, Journal::ALL)?,
        synchronous: chosen('s', "a synchronous mode", options.synchronous, Synchronous::ALL)?,
        interval_ms,
        tables,
        databases,
        random_keys: options.random_keys,
    })
}

/// Clamps a count, which the original clamps instead of rejecting.
fn moved(option: char, found: i64, most: u32, notes: &mut Vec<String>) -> u32 {
    let taken = u32::try_from(found.max(1)).map_or(most, |found| found.min(most));
    if i64::from(taken) != found {
        notes.push(format!(
            "-{option} {found} is taken as {taken}, as the original does"
        ));
    }
    taken
}

fn positive(option: char, meaning: &'static str, found: i64) -> Result<u64, PlanError> {
    // Sizes are in KiB; values too large for a file are rejected before the multiplication.
    let most = i64::MAX / 1024;
    u64::try_from(found)
        .ok()
        .filter(|_| (1..=most).contains(&found))
        .ok_or_else(|| PlanError::OutOfRange {
            option,
            meaning,
            found,
            expected: format!("1 to {most}"),
        })
}

fn within(option: char, meaning: &'static str, found: i64, most: u32) -> Result<u32, PlanError> {
    u32::try_from(found)
        .ok()
        .filter(|number| *number <= most)
        .ok_or_else(|| PlanError::OutOfRange {
            option,
            meaning,
            found,
            expected: format!("0 to {most}"),
        })
}

/// Selects a choice by its number.
fn chosen<T: Copy>(option: char, meaning: &'static str, found: i64, all: &[T]) -> Result<T, PlanError> {
    let choice = usize::try_from(found).ok().and_then(|place| all.get(place));
    choice.copied().ok_or_else(|| PlanError::OutOfRange {
        option,
        meaning,
        found,
        expected: format!("0 to {}", all.len().saturating_sub(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insertions() -> Options {
        Options {
            database: Some(0),
            ..Options::DEFAULT
        }
    }

    fn database(options: &Options) -> DatabaseTest {
        match plan(options).unwrap().test {
            Test::Database(test) => test,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_original() {
        let plan = plan(&Options::DEFAULT).unwrap();
        assert_eq!(
            (plan.path.as_path(), plan.preset),
            ("./mobibench".as_ref(), Preset::Head)
        );
        let Test::File(test) = plan.test else {
            panic!("{:?}", plan.test)
        };
        assert_eq!(
            (test.access, test.sync, test.threads),
            (Access::Write, Mode::BUFFERED, 1)
        );
        assert_eq!(
            (test.share_kib, test.record_kib, test.overlap_percent),
            (1024, 4, 0)
        );
        let test = database(&insertions());
        assert_eq!((test.transactions, test.tables, test.databases), (10, 3, 1));
        assert_eq!(
            (test.journal, test.synchronous),
            (Journal::Truncate, Synchronous::Full)
        );
        assert_eq!((test.interval_ms, test.random_keys), (0, false));
        let paper = Options {
            preset: Preset::Paper,
            ..insertions()
        };
        assert_eq!(database(&paper).tables, 1);
    }

    #[test]
    fn a_wait_of_more_than_ten_seconds_is_taken_as_ten_with_a_note() {
        let waits = |interval_ms| Options {
            interval_ms,
            ..insertions()
        };
        assert_eq!(database(&waits(99_999)).interval_ms, 10_000);
        assert_eq!(
            plan(&waits(99_999)).unwrap().notes,
            ["-i 99999 is taken as 10000, as the original does"]
        );
        assert!(plan(&waits(10_000)).unwrap().notes.is_empty());
    }

    #[test]
    fn sizes_that_no_file_has_are_refused_before_they_are_multiplied() {
        for record_kib in [4, i64::MAX] {
            let options = Options {
                file_kib: i64::MAX,
                record_kib,
                ..Options::DEFAULT
            };
            assert!(
                matches!(plan(&options), Err(PlanError::OutOfRange { option: 'f', .. })),
                "{record_kib}"
            );
        }
    }

    #[test]
    fn reading_has_nothing_to_sync_and_says_so() {
        let notes = |access, sync| {
            let options = Options {
                access,
                sync,
                ..Options::DEFAULT
            };
            plan(&options).unwrap().notes
        };
        for (access, sync, same_as) in [(2, 2, "-y 0"), (3, 7, "-y 5"), (2, 10, "-y 0")] {
            let notes = notes(access, sync);
            assert!(
                notes.iter().any(|note| note.ends_with(same_as)),
                "-a{access} -y{sync}: {notes:?}"
            );
        }
        assert!(notes(2, 3).is_empty());
    }

    #[test]
    fn the_numbers_of_modes_are_those_of_the_original() {
        assert!(Access::ALL.iter().map(|access| access.number()).eq(0..=4));
        assert!(OPERATIONS.into_iter().map(operation_number).eq(0..=2));
        assert!(SYNC_MODES.into_iter().map(sync_number).eq(0..=10));
        assert_eq!(sync_number(Mode::FDATASYNC), 8);
        let journals = ["delete", "truncate", "persist", "wal", "memory", "off"];
        assert!(Journal::ALL.iter().map(|journal| journal.name()).eq(journals));
        let levels = ["off", "normal", "full", "extra"];
        assert!(Synchronous::ALL.iter().map(|level| level.name()).eq(levels));
    }
}
