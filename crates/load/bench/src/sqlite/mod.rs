//! Transactions on SQLite databases, timed one by one.
//!
//! Each thread has its own connection to its own databases (one opened, the others attached), so that threads share
//! only the file system. The library is the bundled one or one that is loaded; its version and options are part of
//! the outcome.
//!
//! The timed window includes all transactions; the think time between them, unless it is configured to be outside; in
//! WAL mode the checkpoint at the end, unless configured to be outside (it is reported separately in either case). It
//! excludes creating and filling the databases, preparing statements, counting rows after the run, and closing. The
//! latency of a transaction covers only the library's calls.
//!
//! Any SQLite error ends the run. After each complete run the rows of every table are counted and compared with the
//! result expected from the statements; statements that changed no row are counted separately.

mod connection;
mod describe;
mod files;
mod libc_random;
mod library;
mod outcome;
mod plan;
mod prepare;
mod spec;
mod vfs;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

pub use self::library::LibraryInfo;
pub use self::outcome::{SqliteOutcome, counter};
pub use self::plan::Kind;
pub use self::spec::{
    Journal, KeyOrder, LibraryChoice, Operation, Place, ROWS_MIN, SqliteSpec, StatementStyle, Synchronous,
    TransactionShape, Values,
};

use self::files::NamedDatabases;
use self::library::Library;
use self::prepare::Databases;
use self::worker::{Worker, WorkerOutcome};
use crate::cache::{self, CacheMethod};
use crate::error::BenchError;
use crate::file::unix_ns;
use crate::file_outcome::OperationOutcome;
use crate::placement::FilePlacement;
use crate::prepare::{check_bytes, kind_name};
use crate::processor::WorkerUse;
use crate::progress::{Phase, Progress};
use crate::scratch::Scratch;
use crate::spec::Cache;
use crate::threads::Shared;
use crate::window::{Finished, Moved, Window, WindowOutcome};
use crate::workload::{Measurement, Outcome, Workload};

impl Workload for SqliteSpec {
    fn check(&self) -> Result<(), BenchError> {
        self.validate()
    }

    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = Self { seed, ..self.clone() };
        Ok(run(&spec, progress, stop)?.outcome()?)
    }
}

/// Runs an SQLite workload.
///
/// Raising `stop` ends it early with a partial outcome. The test directory is always removed unless the workload
/// keeps it.
///
/// # Errors
/// Before anything is touched: a contradiction in the specification, an unusable library, too little space. Later:
/// any statement that failed, with the database and SQLite's extended code; a pragma that SQLite did not accept; a
/// table whose row count differs from the expected one.
pub fn run(
    spec: &SqliteSpec,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<SqliteOutcome, BenchError> {
    spec.validate()?;
    let library = Library::open(&spec.library)?;
    check_directory(&spec.directory)?;
    check_bytes(&spec.directory, spec.space_bytes())?;
    if let FilePlacement::Named { prefix } = &spec.files {
        return run_named(spec, library, prefix, progress, stop);
    }
    let scratch = Scratch::create(&spec.directory)?;
    let path = |thread: u32, database: u32| scratch.path().join(format!("data-{thread}-{database}.db"));
    let mut outcome = run_in(spec, library, &path, progress, stop)?;
    (outcome.kept_directory, outcome.leftover) = match spec.keep_files {
        true => (Some(scratch.keep()), None),
        false => (None, scratch.remove()),
    };
    Ok(outcome)
}

fn run_named(
    spec: &SqliteSpec,
    library: &'static Library,
    prefix: &str,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<SqliteOutcome, BenchError> {
    let named = NamedDatabases::claim(spec, prefix)?;
    let path = |thread: u32, database: u32| named.path(thread, database);
    match run_in(spec, library, &path, progress, stop) {
        Ok(mut outcome) => {
            outcome.kept_directory = Some(spec.directory.clone());
            Ok(outcome)
        }
        Err(error) => {
            // The first error says more than one about the cleanup.
            let _ = named.remove();
            Err(error)
        }
    }
}

fn check_directory(path: &Path) -> Result<(), BenchError> {
    let kind = std::fs::metadata(path)
        .map_err(|error| BenchError::io("stat", path, error))?
        .file_type();
    if kind.is_dir() {
        return Ok(());
    }
    Err(BenchError::NotADirectory {
        path: path.to_owned(),
        kind: kind_name(kind),
    })
}

fn run_in(
    spec: &SqliteSpec,
    library: &'static Library,
    path: &PathOf<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<SqliteOutcome, BenchError> {
    let mut outcome = nothing_done(spec, library);
    let mut databases = Vec::new();
    for index in 0..spec.threads {
        match prepare::databases(spec, library, index, path, progress, stop)? {
            Some(ready) => databases.push(ready),
            None => return Ok(outcome),
        }
    }
    if spec.cache == Cache::Cold {
        // Without file names: opening and closing a database file here would drop the locks that SQLite holds on it.
        outcome.caches_were_dropped = cache::make_cold(&[])? == CacheMethod::DropCaches;
    }
    let measured = measure(spec, databases, progress, stop)?;
    outcome.started_unix_ns = measured.started_unix_ns;
    summarise(&mut outcome, &measured.workers);
    outcome.complete = measured.workers.len() == usize::try_from(spec.threads).unwrap_or(usize::MAX)
        && measured.workers.iter().all(|worker| worker.work.complete);
    outcome.window = measured.window.outcome(Moved {
        read_bytes: 0,
        written_bytes: outcome.insert.bytes + outcome.update.bytes,
    });
    outcome.samples()?;
    for worker in measured.workers {
        outcome.rows += finish(spec, worker)?;
    }
    Ok(outcome)
}

fn nothing_done(spec: &SqliteSpec, library: &Library) -> SqliteOutcome {
    SqliteOutcome {
        spec: spec.clone(),
        library: library.info().clone(),
        complete: false,
        started_unix_ns: unix_ns(),
        insert: OperationOutcome::default(),
        update: OperationOutcome::default(),
        delete: OperationOutcome::default(),
        sync: OperationOutcome::default(),
        unchanged_statements: 0,
        file_writes: 0,
        file_written_bytes: 0,
        operation_ns: 0,
        checkpoint_ns: 0,
        think_ns: 0,
        rows: 0,
        window: WindowOutcome::default(),
        workers: None,
        caches_were_dropped: false,
        kept_directory: None,
        leftover: None,
    }
}

/// The timed window.
struct Measured {
    started_unix_ns: u64,
    workers: Vec<WorkerOutcome>,
    window: Finished,
}

fn measure(
    spec: &SqliteSpec,
    mut databases: Vec<Databases>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Measured, BenchError> {
    let shared = Shared::new(databases.len(), stop);
    let window = Window::prepare(&spec.directory, spec.count_calls);
    match databases.pop() {
        Some(only) if databases.is_empty() => measure_here(spec, only, &shared, window, progress),
        last => {
            databases.extend(last);
            measure_in_threads(spec, databases, &shared, window, progress)
        }
    }
}

/// A single worker runs in this thread. In a process with a second thread, every allocation and every system call on
/// a descriptor costs an additional atomic operation, which is 7 % of a transaction in memory: single-threaded
/// applications do not pay that, and neither does a loop in C.
fn measure_here(
    spec: &SqliteSpec,
    databases: Databases,
    shared: &Shared<'_>,
    window: Window,
    progress: &dyn Progress,
) -> Result<Measured, BenchError> {
    let worker = Worker {
        spec,
        index: 0,
        databases,
    };
    let mut began = None;
    let start = || {
        report(spec, shared, progress);
        began = Some((unix_ns(), window.begin()));
        true
    };
    let answer = worker.run(shared, start, || report(spec, shared, progress))?;
    let (started_unix_ns, running) = began.expect("a worker that has worked was started");
    let window = running.finish();
    report(spec, shared, progress);
    Ok(Measured {
        started_unix_ns,
        workers: answer.into_iter().collect(),
        window,
    })
}

fn measure_in_threads(
    spec: &SqliteSpec,
    databases: Vec<Databases>,
    shared: &Shared<'_>,
    window: Window,
    progress: &dyn Progress,
) -> Result<Measured, BenchError> {
    let work = (0..).zip(databases).map(|(index, databases)| {
        let worker = Worker {
            spec,
            index,
            databases,
        };
        move || worker.run(shared, || shared.wait(), || ())
    });
    let report = |_| report(spec, shared, progress);
    let timed = shared.run_timed(work.collect(), window, report)?;
    Ok(Measured {
        started_unix_ns: timed.started_unix_ns,
        workers: timed.results,
        window: timed.window,
    })
}

/// Returns the path of a thread's database by thread and database number.
type PathOf<'run> = dyn Fn(u32, u32) -> PathBuf + 'run;

fn report(spec: &SqliteSpec, shared: &Shared<'_>, progress: &dyn Progress) {
    let total = spec.transactions.saturating_mul(u64::from(spec.threads));
    progress.advance(Phase::Measure, shared.done(), total);
}

fn summarise(outcome: &mut SqliteOutcome, workers: &[WorkerOutcome]) {
    let Some(first) = workers.iter().map(|worker| worker.work.began_ns).min() else {
        return;
    };
    let thought_outside = outcome.spec.interval_place == Place::Outside;
    let latest = |point: fn(&WorkerOutcome) -> u64| {
        let reached = workers.iter().map(|worker| {
            let left_out_ns = if thought_outside {
                worker.work.thought_ns
            } else {
                0
            };
            point(worker).saturating_sub(first).saturating_sub(left_out_ns)
        });
        reached.max().unwrap_or(0)
    };
    outcome.operation_ns = latest(|worker| worker.work.worked_ns);
    let checkpointed_ns = latest(|worker| worker.checkpointed_ns);
    outcome.checkpoint_ns = match outcome.spec.checkpoint {
        Place::Inside => checkpointed_ns.saturating_sub(outcome.operation_ns),
        Place::Outside => 0,
    };
    for worker in workers {
        outcome.add_kinds(&worker.work.kinds);
        outcome.sync.count += worker.files.syncs.count();
        outcome.sync.latency.merge(&worker.files.syncs);
        outcome.unchanged_statements += worker.work.unchanged_statements;
        outcome.file_writes += worker.files.writes;
        outcome.file_written_bytes += worker.files.written_bytes;
        outcome.think_ns += worker.work.thought_ns;
    }
    outcome.workers = workers
        .iter()
        .map(|worker| worker.usage)
        .try_fold(WorkerUse::default(), |sum, usage| Some(sum.plus(usage?)));
}

/// Finishes a worker after the window: a checkpoint configured to be outside it, the row count, the close. Returns
/// the number of rows.
fn finish(spec: &SqliteSpec, worker: WorkerOutcome) -> Result<u64, BenchError> {
    let WorkerOutcome { databases, work, .. } = worker;
    let connection = databases.connection;
    if spec.journal == Journal::Wal && spec.checkpoint == Place::Outside && work.complete {
        worker::checkpoint(spec, &connection)?;
    }
    let mut rows = 0;
    for database in 0..spec.databases {
        for number in 0..spec.tables {
            let table = prepare::table(database, number);
            let found = connection.value(&format!("SELECT count(*) FROM {table}"))?;
            let found = found.and_then(|text| text.parse().ok()).unwrap_or(0);
            if found != work.rows {
                return Err(BenchError::WrongRows {
                    path: connection.path().to_owned(),
                    table,
                    expected: work.rows,
                    found,
                });
            }
            rows += found;
        }
    }
    connection.close()?;
    Ok(rows)
}
