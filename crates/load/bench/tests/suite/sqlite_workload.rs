//! The SQLite workload on a real directory: its transactions, counters and cleanup.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bench::sqlite::{
    Journal, KeyOrder, LibraryChoice, Operation, Place, ROWS_MIN, SqliteOutcome, SqliteSpec, StatementStyle,
    Synchronous, TransactionShape, Values, counter, run,
};
use bench::window::CountCalls;
use bench::{BenchError, Cache, FilePlacement, Measurement, NoProgress, Phase, Progress};
use results::RunIdentity;
use runner::environment;
use rusqlite::Connection;

fn spec(directory: &Path, operation: Operation) -> SqliteSpec {
    SqliteSpec {
        directory: directory.to_owned(),
        library: LibraryChoice::Bundled,
        operation,
        journal: Journal::Wal,
        // Tests do not depend on the medium unless they say so.
        synchronous: Synchronous::Off,
        transactions: 50,
        time_limit_us: None,
        interval_us: 0,
        interval_place: Place::Inside,
        tables: 2,
        databases: 2,
        threads: 2,
        style: StatementStyle::Prepared,
        shape: TransactionShape::Explicit,
        keys: KeyOrder::Random,
        values: Values::Distinct,
        checkpoint: Place::Inside,
        count_calls: CountCalls::No,
        seed: 42,
        keep_files: false,
        files: FilePlacement::OwnDirectory,
        cache: Cache::AsIs,
    }
}

fn done(spec: &SqliteSpec) -> SqliteOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

fn refused(spec: &SqliteSpec) -> BenchError {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect_err("the workload must be refused")
}

/// A directory in memory if possible: most tests here do not depend on the medium, and are faster this way.
fn directory() -> tempfile::TempDir {
    let memory = tempfile::tempdir_in("/dev/shm");
    memory.unwrap_or_else(|_| real_directory())
}

/// A directory beside the build's own output, usually on a real file system.
fn real_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .expect("the directory exists")
        .map(|entry| entry.expect("the directory is readable").path())
        .collect();
    found.sort();
    found
}

/// Every row of a table, by key.
fn rows(database: &Path, table: &str) -> BTreeMap<i64, String> {
    let read = || {
        let connection = Connection::open(database)?;
        let mut statement = connection.prepare(&format!("SELECT id, value FROM {table}"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<_>>()
    };
    read().unwrap_or_else(|error| panic!("{}: {error}", database.display()))
}

const MIX: Operation = Operation::Mix {
    insert_percent: 30,
    update_percent: 40,
};

#[test]
fn every_operation_in_every_journal_mode_leaves_the_rows_that_it_should() {
    for journal in Journal::ALL {
        for operation in [Operation::Insert, Operation::Update, Operation::Delete, MIX] {
            for style in StatementStyle::ALL {
                let directory = directory();
                let spec = SqliteSpec {
                    journal: *journal,
                    style: *style,
                    keep_files: true,
                    ..spec(directory.path(), operation)
                };
                let outcome = done(&spec);
                assert!(outcome.complete, "{spec:?}");
                assert_eq!(outcome.transactions(), 100, "{spec:?}");
                assert_eq!(outcome.unchanged_statements, 0, "{spec:?}");
                let latencies = [&outcome.insert, &outcome.update, &outcome.delete];
                let recorded: u64 = latencies.iter().map(|kind| kind.latency.count()).sum();
                assert_eq!(recorded, 100);
                let kept = outcome.kept_directory.unwrap();
                let databases = entries(&kept);
                // Truncated and cleared journals remain, logs do not.
                assert!(
                    databases
                        .iter()
                        .all(|path| !path.to_string_lossy().ends_with("-wal")),
                    "{databases:?}"
                );
                let databases = databases
                    .iter()
                    .filter(|path| path.extension().is_some_and(|extension| extension == "db"));
                assert_eq!(databases.clone().count(), 4);
                for database in databases {
                    for table in ["list_0", "list_1"] {
                        let found = rows(database, table).len();
                        let expected = match operation {
                            Operation::Insert => 50..=50,
                            Operation::Update => 296..=296,
                            Operation::Delete => 246..=246,
                            Operation::Mix { .. } => 246..=346,
                        };
                        assert!(expected.contains(&found), "{spec:?}: {found} rows");
                    }
                }
            }
        }
    }
}

#[test]
fn text_and_prepared_statements_leave_the_same_databases() {
    let contents = |style, operation| {
        let directory = directory();
        let spec = SqliteSpec {
            style,
            keep_files: true,
            ..spec(directory.path(), operation)
        };
        let kept = done(&spec).kept_directory.unwrap();
        let tables = entries(&kept)
            .iter()
            .flat_map(|database| [rows(database, "list_0"), rows(database, "list_1")])
            .collect::<Vec<_>>();
        assert_eq!(tables.len(), 8);
        tables
    };
    for operation in [Operation::Insert, Operation::Update, Operation::Delete, MIX] {
        let prepared = contents(StatementStyle::Prepared, operation);
        let text = contents(StatementStyle::Text, operation);
        assert!(prepared == text, "{operation}");
        // Distinct values: no two rows of a run are equal.
        let all: Vec<&String> = text.iter().flat_map(BTreeMap::values).collect();
        let distinct: std::collections::BTreeSet<&String> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "{operation}");
    }
}

#[test]
fn autocommit_transactions_leave_keys_to_sqlite() {
    for style in StatementStyle::ALL {
        for operation in [Operation::Insert, Operation::Update, Operation::Delete] {
            let directory = directory();
            let spec = SqliteSpec {
                style: *style,
                shape: TransactionShape::Autocommit,
                tables: 1,
                databases: 1,
                threads: 1,
                keep_files: true,
                ..spec(directory.path(), operation)
            };
            let outcome = done(&spec);
            assert_eq!(outcome.unchanged_statements, 0, "{operation}");
            let kept = outcome.kept_directory.unwrap();
            let found = rows(&entries(&kept)[0], "list_0");
            assert_eq!(found.first_key_value().map(|(key, _)| *key >= 1), Some(true));
            let sequence: i64 = Connection::open(&entries(&kept)[0])
                .unwrap()
                .query_row("SELECT seq FROM sqlite_sequence", [], |row| row.get(0))
                .unwrap();
            assert_eq!(sequence, if operation == Operation::Insert { 50 } else { 296 });
        }
    }
}

#[test]
fn updates_of_the_original_order_that_hit_no_row_are_counted_apart() {
    let directory = directory();
    let spec = SqliteSpec {
        keys: KeyOrder::Original,
        transactions: 2000,
        tables: 3,
        databases: 1,
        threads: 1,
        ..spec(directory.path(), Operation::Update)
    };
    let outcome = done(&spec);
    // One key in 2000 does not exist: 6000 draws miss it with a probability of 1 in 20.
    assert!(outcome.unchanged_statements > 0 && outcome.unchanged_statements < 20);
    let expected = outcome.unchanged_statements;
    let record = outcome.into_record(identity(directory.path())).unwrap();
    assert_eq!(
        record.counters[counter::UNCHANGED_STATEMENTS],
        f64::from(u32::try_from(expected).unwrap())
    );
}

#[test]
fn tables_to_update_are_as_large_as_those_of_the_original() {
    let directory = directory();
    let spec = SqliteSpec {
        transactions: 1,
        tables: 1,
        databases: 1,
        threads: 1,
        journal: Journal::Delete,
        keep_files: true,
        ..spec(directory.path(), Operation::Update)
    };
    let kept = done(&spec).kept_directory.unwrap();
    let database = &entries(&kept)[0];
    assert_eq!(rows(database, "list_0").len(), usize::try_from(ROWS_MIN).unwrap());
    assert!(fs::metadata(database).unwrap().len() >= 40 << 10);
}

#[test]
fn think_time_is_in_the_window_or_not_and_never_in_a_latency() {
    let directory = directory();
    let mut spec = SqliteSpec {
        transactions: 10,
        interval_us: 20_000,
        threads: 1,
        ..spec(directory.path(), Operation::Insert)
    };
    let inside = done(&spec);
    assert!(inside.elapsed_ns() >= 200_000_000 && inside.think_ns >= 200_000_000);
    assert!(inside.insert.latency.summary().unwrap().p50_ns < 20_000_000);
    spec.interval_place = Place::Outside;
    let outside = done(&spec);
    assert!(outside.think_ns >= 200_000_000);
    assert!(outside.elapsed_ns() < 200_000_000);
}

#[test]
fn a_record_says_which_library_ran_it_and_what_it_cost() {
    let directory = directory();
    let spec = SqliteSpec {
        synchronous: Synchronous::Full,
        transactions: 5,
        ..spec(directory.path(), Operation::Insert)
    };
    let record = done(&spec).into_record(identity(directory.path())).unwrap();
    assert!(record.complete);
    assert_eq!(record.workload["kind"], "sqlite");
    assert_eq!(record.workload["journal"], "wal");
    assert_eq!(record.workload["sqlite"]["origin"], "bundled");
    assert_eq!(record.workload["sqlite"]["version"], rusqlite::version());
    assert!(
        record.workload["sqlite"]["compile_options"]
            .as_array()
            .unwrap()
            .len()
            > 5
    );
    let insert = record.sample("insert").unwrap();
    assert_eq!((insert.operations_count, insert.bytes), (10, 10 * 4 * 100));
    assert!(insert.sync_ns > 0, "the checkpoint is a part of the window");
    assert!(record.sample("sync").unwrap().operations_count >= 10);
    assert_eq!(record.counters[counter::STATEMENTS], 40.0);
    assert_eq!(record.counters[counter::ROWS], 40.0);
    assert!(record.counters[counter::FILE_WRITES] >= 40.0);
}

#[test]
fn a_checkpoint_outside_the_window_costs_it_nothing() {
    let directory = directory();
    let spec = SqliteSpec {
        checkpoint: Place::Outside,
        keep_files: true,
        ..spec(directory.path(), Operation::Insert)
    };
    let outcome = done(&spec);
    assert_eq!(outcome.checkpoint_ns, 0);
    assert_eq!(
        entries(&outcome.kept_directory.unwrap()).len(),
        4,
        "the logs are gone"
    );
}

#[test]
fn the_systems_library_runs_the_same_workload() {
    let directory = directory();
    let spec = SqliteSpec {
        library: LibraryChoice::System,
        ..spec(directory.path(), MIX)
    };
    match run(&spec, &NoProgress, &AtomicBool::new(false)) {
        Ok(outcome) => {
            assert_eq!(outcome.transactions(), 100);
            assert_eq!(outcome.library.origin, "libsqlite3.so.0");
            assert!(outcome.library.version.starts_with("3."));
        }
        Err(BenchError::Library { library, reason }) => {
            testkit::report_left_out(format!("{library}: {reason}"))
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_stopped_run_is_partial_and_leaves_nothing() {
    let directory = directory();
    /// Raises the flag after a number of transactions.
    struct StopAt<'run>(u64, &'run AtomicBool, AtomicU64);
    impl Progress for StopAt<'_> {
        fn advance(&self, phase: Phase, done: u64, _total: u64) {
            if phase == Phase::Measure && done >= self.0 {
                self.1.store(true, Ordering::Relaxed);
                self.2.fetch_max(done, Ordering::Relaxed);
            }
        }
    }
    let stop = AtomicBool::new(false);
    let progress = StopAt(1, &stop, AtomicU64::new(0));
    let spec = SqliteSpec {
        transactions: 1_000_000,
        interval_us: 1000,
        ..spec(directory.path(), Operation::Insert)
    };
    let outcome = run(&spec, &progress, &stop).unwrap();
    assert!(!outcome.complete);
    assert!(outcome.transactions() >= progress.2.load(Ordering::Relaxed));
    assert!(outcome.rows > 0, "rows are counted in partial runs too");
    assert!(!outcome.into_record(identity(directory.path())).unwrap().complete);
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());

    // Stopped during preparation: no transaction was measured.
    let outcome = run(
        &SqliteSpec {
            operation: MIX,
            transactions: 1000,
            ..spec
        },
        &NoProgress,
        &AtomicBool::new(true),
    );
    let outcome = outcome.unwrap();
    assert!(!outcome.complete && outcome.transactions() == 0);
    assert_eq!(entries(directory.path()), Vec::<PathBuf>::new());
}

#[test]
fn bad_input_is_one_clear_error_and_leaves_nothing() {
    let directory = directory();
    let path = directory.path();
    let refused_as = |change: &dyn Fn(&mut SqliteSpec)| {
        let mut spec = spec(path, Operation::Insert);
        change(&mut spec);
        let message = refused(&spec).to_string();
        assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
        assert_eq!(entries(path), Vec::<PathBuf>::new(), "{message}");
        message
    };
    let message = refused_as(&|spec| spec.threads = 10_000_000);
    assert!(
        message.contains("threads: 10000000, expected 1 to 1024"),
        "{message}"
    );
    let message = refused_as(&|spec| spec.transactions = 1 << 40);
    assert!(message.contains("bytes are free"), "{message}");
    let message = refused_as(&|spec| spec.directory = PathBuf::from("/nowhere"));
    assert!(
        message.contains("/nowhere") && message.contains("No such file"),
        "{message}"
    );
    let message = refused_as(&|spec| spec.directory = PathBuf::from("/proc/version"));
    assert!(message.contains("expected a directory"), "{message}");
    // More attached databases than this library was built for.
    let message = refused_as(&|spec| spec.databases = 100);
    assert!(
        message.contains("databases: 100, expected at most 11"),
        "{message}"
    );
    let message = refused_as(&|spec| spec.library = LibraryChoice::File(PathBuf::from("/proc/version")));
    assert!(message.contains("/proc/version"), "{message}");
}

#[test]
fn a_full_file_system_is_an_error_with_statement_code_and_path() {
    let Some(small) = SmallFileSystem::mount() else {
        return;
    };
    // The check of free space includes the rows; it cannot foresee that another program uses the space meanwhile.
    struct FillDisk(PathBuf, AtomicBool);
    impl Progress for FillDisk {
        fn advance(&self, phase: Phase, _done: u64, _total: u64) {
            if phase == Phase::Measure && !self.1.swap(true, Ordering::Relaxed) {
                let mut file = fs::File::create(self.0.join("other")).unwrap();
                while file.write_all(&[1; 4096]).is_ok() {}
            }
        }
    }
    let filler = FillDisk(small.path().to_owned(), AtomicBool::new(false));
    let spec = SqliteSpec {
        transactions: 20_000,
        interval_us: 500,
        tables: 1,
        databases: 1,
        threads: 1,
        ..spec(small.path(), Operation::Insert)
    };
    let message = match run(&spec, &filler, &AtomicBool::new(false)) {
        Err(error) => error.to_string(),
        Ok(outcome) => panic!("it fitted: {} transactions", outcome.transactions()),
    };
    assert!(
        message.contains("data-") && message.contains("SQLite error"),
        "{message}"
    );
    // SQLITE_FULL, or the extended codes of an I/O error of the log or of its index.
    assert!(
        message.contains("error 13 (")
            || message.contains("full")
            || message.contains("error 778 (")
            || message.contains("error 4874 ("),
        "{message}"
    );
    fs::remove_file(small.path().join("other")).unwrap();
    let left: Vec<PathBuf> = entries(small.path());
    assert!(left.iter().all(|path| path.ends_with("lost+found")), "{left:?}");
}

/// A tmpfs of 16 MiB, unmounted when dropped.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().expect("temporary folders can be made");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16m", "none"])
            .arg(place.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(place));
        }
        testkit::report_left_out("a small file system can't be mounted: needs root");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

fn count(number: u64) -> f64 {
    f64::from(u32::try_from(number).expect("counts of tests are small"))
}

/// Mean number of syncs per insert transaction on three tables, computed from the difference of two runs of different
/// length: SQLite's sync requests, and the kernel's fdatasync calls if they can be counted.
fn syncs_of_a_transaction(
    journal: Journal,
    synchronous: Synchronous,
    (few, many): (u64, u64),
) -> (f64, Option<f64>) {
    let directory = real_directory();
    let counted = |transactions| {
        let outcome = done(&SqliteSpec {
            journal,
            synchronous,
            transactions,
            tables: 3,
            databases: 1,
            threads: 1,
            keys: KeyOrder::Sequential,
            count_calls: CountCalls::Yes,
            ..spec(directory.path(), Operation::Insert)
        });
        let calls = outcome
            .window
            .counters
            .get("system_calls_fdatasync_count")
            .copied();
        if let Some(fsyncs) = outcome.window.counters.get("system_calls_fsync_count") {
            assert_eq!(*fsyncs, 0.0, "SQLite was built without fdatasync");
        }
        (count(outcome.sync.count), calls)
    };
    let ((syncs_few, calls_few), (syncs_many, calls_many)) = (counted(few), counted(many));
    let more = count(many - few);
    let calls = calls_many.zip(calls_few).map(|(many, few)| (many - few) / more);
    ((syncs_many - syncs_few) / more, calls)
}

/// Journal mode, then syncs per transaction at OFF, NORMAL and FULL: SQLite's requests, and fdatasync calls. The
/// difference is directory syncs, which SQLite's default VFS makes by itself when a journal is created.
const SYNCS: [(Journal, [f64; 3], [f64; 3]); 5] = [
    (Journal::Delete, [0.0, 2.0, 3.0], [0.0, 3.0, 4.0]),
    (Journal::Truncate, [0.0, 2.0, 4.0], [0.0, 3.0, 5.0]),
    (Journal::Persist, [0.0, 3.0, 4.0], [0.0, 4.0, 5.0]),
    (Journal::Memory, [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]),
    (Journal::Off, [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]),
];

const LEVELS: [Synchronous; 3] = [Synchronous::Off, Synchronous::Normal, Synchronous::Full];

#[test]
fn an_insert_transaction_syncs_as_often_as_that_of_the_original() {
    for (journal, syncs, calls) in SYNCS {
        for ((level, expected_syncs), expected_calls) in LEVELS.into_iter().zip(syncs).zip(calls) {
            let (found_syncs, found_calls) = syncs_of_a_transaction(journal, level, (5, 15));
            assert_eq!(found_syncs, expected_syncs, "{journal} {level}");
            match found_calls {
                Some(found_calls) => assert_eq!(found_calls, expected_calls, "{journal} {level}"),
                None => testkit::report_left_out("fdatasync calls: they can't be counted here"),
            }
        }
    }
    // One more directory sync, after the journal was removed.
    let (syncs, calls) = syncs_of_a_transaction(Journal::Delete, Synchronous::Extra, (5, 15));
    assert_eq!((syncs, calls.unwrap_or(5.0)), (3.0, 5.0));
}

#[test]
fn a_write_ahead_log_syncs_once_a_transaction_and_at_checkpoints() {
    for (level, commit) in LEVELS.into_iter().zip([0.0, 0.0, 1.0]) {
        // A checkpoint occurs about every 160 transactions.
        let (syncs, calls) = syncs_of_a_transaction(Journal::Wal, level, (10, 410));
        let checkpoints = if level == Synchronous::Off {
            0.0..=0.0
        } else {
            0.005..=0.03
        };
        assert!(checkpoints.contains(&(syncs - commit)), "{level}: {syncs} syncs");
        assert_eq!(calls.unwrap_or(syncs), syncs, "{level}");
    }
}

fn identity(directory: &Path) -> RunIdentity {
    RunIdentity {
        command: vec!["test".to_owned()],
        tool_version: "0".to_owned(),
        label: "test".to_owned(),
        round: 0,
        host: environment::host(),
        target: environment::target(directory).expect("the directory exists"),
    }
}
