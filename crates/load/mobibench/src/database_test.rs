//! SQLite tests (`-d`).

use std::io::ErrorKind;
use std::path::Path;

use bench::sqlite::{
    KeyOrder, LibraryChoice, Operation, Place, SqliteOutcome, SqliteSpec, StatementStyle, TransactionShape,
    Values,
};
use bench::window::CountCalls;
use bench::{Cache, FilePlacement};

use crate::folder::Folder;
use crate::plan::{DatabaseTest, Plan};
use crate::{Ended, FinalSync, MobibenchError, Preset, Session, text};

/// Database file names start with this, followed by the numbers of thread and database.
const FILE_PREFIX: &str = "test.db";

/// Seed of the stored values: every run stores the same.
const SEED: u64 = 1;

/// Runs an SQLite test and prints its report.
pub fn run(session: &Session<'_>, test: &DatabaseTest) -> Result<Ended, MobibenchError> {
    session.print(&text::database_setup(test))?;
    let (options, path) = (session.options, &session.plan.path);
    if options.latency_file.is_some() || options.iops_file.is_some() {
        session.say("-L and -k are of tests of files; latencies of transactions are in the record (--json)");
    }
    let folder = Folder::open(path)?;
    let identity = session.identity(path)?;
    let spec = sqlite_spec(session.plan, test, options.final_sync, options.cache);
    let outcome = session.measure(|progress, stop| bench::sqlite::run(&spec, progress, stop))?;
    folder.keep();
    if test.operation == Operation::Delete && outcome.complete {
        remove_databases(path, test)?;
    }
    session.print(&report(session, test, &outcome))?;
    if options.cache == Cache::Cold && !outcome.caches_were_dropped {
        session.say("the caches of the machine were not dropped: that needs root");
    }
    let ended = Ended::new(outcome.complete, true);
    session.record(outcome, identity)?;
    Ok(ended)
}

fn sqlite_spec(plan: &Plan, test: &DatabaseTest, final_sync: FinalSync, cache: Cache) -> SqliteSpec {
    SqliteSpec {
        directory: plan.path.clone(),
        library: LibraryChoice::Bundled,
        operation: test.operation,
        journal: test.journal,
        synchronous: test.synchronous,
        transactions: test.transactions,
        time_limit_us: None,
        interval_us: u64::from(test.interval_ms) * 1000,
        interval_place: Place::Inside,
        tables: test.tables,
        databases: test.databases,
        threads: test.threads,
        style: StatementStyle::Text,
        shape: match plan.preset {
            Preset::Paper => TransactionShape::Autocommit,
            Preset::Head => TransactionShape::Explicit,
        },
        keys: key_order(plan.preset, test),
        // The original's values are constant, but SQLite skips the write of a row that an update leaves unchanged.
        values: Values::Distinct,
        checkpoint: match final_sync {
            FinalSync::Inside => Place::Inside,
            FinalSync::Outside => Place::Outside,
        },
        count_calls: CountCalls::No,
        seed: SEED,
        keep_files: false,
        files: FilePlacement::Named {
            prefix: FILE_PREFIX.to_owned(),
        },
        cache,
    }
}

/// Key order of each version of the original.
const fn key_order(preset: Preset, test: &DatabaseTest) -> KeyOrder {
    match (preset, test.operation) {
        (_, Operation::Insert) if test.random_keys => KeyOrder::Original,
        (_, Operation::Insert) | (Preset::Paper, Operation::Delete) => KeyOrder::Sequential,
        // This version never seeds its generator, so there is no order of the original to follow.
        (Preset::Paper, _) => KeyOrder::Random,
        (Preset::Head, _) => KeyOrder::Original,
    }
}

/// Removes the databases after a delete test, like the original.
fn remove_databases(folder: &Path, test: &DatabaseTest) -> Result<(), MobibenchError> {
    for (thread, database) in
        (0..test.threads).flat_map(|thread| (0..test.databases).map(move |of| (thread, of)))
    {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let path = folder.join(format!("{FILE_PREFIX}{thread}_{database}{suffix}"));
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(MobibenchError::file(path, "can't be removed")(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn report(session: &Session<'_>, test: &DatabaseTest, outcome: &SqliteOutcome) -> String {
    let path = session.plan.path.join(format!("{FILE_PREFIX}0_0"));
    [
        text::database_information(&path, &outcome.library.version, test),
        text::result_heading(),
        text::processors(outcome.window.processor.as_ref()),
        text::database_time(outcome.elapsed_ns(), outcome.transactions()),
        text::context_switches(outcome.workers.as_ref()),
        text::window(session.plan.preset, session.options.final_sync),
        text::unchanged(
            outcome.unchanged_statements,
            outcome.transactions().saturating_mul(outcome.spec.statements()),
        ),
    ]
    .concat()
}
