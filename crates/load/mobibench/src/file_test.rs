//! File tests (`-a`).

use bench::{
    DataPattern, FileOutcome, FilePlacement, FileSpec, FinalSync as SpecSync, Order, Pattern, WriteTarget,
};

use crate::folder::Folder;
use crate::log_files::LogFiles;
use crate::plan::{Access, FileTest, Plan};
use crate::{Ended, FinalSync, MobibenchError, Preset, Session, text};

/// Byte value that the original writes everywhere.
const CONTENT: u8 = 0xFE;

/// File names start with this, followed by the number of the thread.
const FILE_PREFIX: &str = "test.dat";

/// Runs a file test and prints its report.
pub fn run(session: &Session<'_>, test: &FileTest) -> Result<Ended, MobibenchError> {
    session.print(&text::file_setup(test))?;
    let (options, path) = (session.options, &session.plan.path);
    let logs = LogFiles::open(options.latency_file.as_deref(), options.iops_file.as_deref())?;
    let folder = Folder::open(path)?;
    let identity = session.identity(path)?;
    let mut spec = file_spec(session.plan, test, options.final_sync);
    spec.cache = options.cache;
    spec.log = logs.limits(test.threads);
    let outcome = session.measure(|progress, stop| bench::run(&spec, progress, stop))?;
    folder.keep();
    session.print(&report(session, test, &outcome))?;
    logs.write(
        test,
        &outcome.logs,
        &time_line(session, test, &outcome),
        outcome.operation_ns,
    )?;
    // Cached data does not make writes faster, but it does make reads faster that should be cold.
    let is_warm = test.access.reads() && !test.sync.is_direct() && outcome.cache.is_warmer_than_asked();
    if is_warm {
        session.say(&format!("the reads were not cold: {}", outcome.cache.describe()));
    }
    let ended = Ended::new(outcome.complete, !is_warm);
    session.record(outcome, identity)?;
    Ok(ended)
}

fn file_spec(plan: &Plan, test: &FileTest, final_sync: FinalSync) -> FileSpec {
    let record_bytes = test.record_kib * 1024;
    let pattern = match test.access {
        Access::Write | Access::Append => Pattern::SequentialWrite,
        Access::RandomWrite => Pattern::RandomWrite,
        Access::Read => Pattern::SequentialRead,
        Access::RandomRead => Pattern::RandomRead,
    };
    let mut spec = FileSpec::plain(
        plan.path.clone(),
        pattern,
        record_bytes,
        test.records * record_bytes,
    );
    spec.threads = test.threads;
    spec.mode = if test.access.reads() {
        test.sync.without_calls()
    } else {
        test.sync
    };
    spec.write_target = match (test.access, plan.preset) {
        (Access::Append, _) | (Access::Write, Preset::Paper) => WriteTarget::NewFile,
        (Access::Write | Access::RandomWrite | Access::Read | Access::RandomRead, _) => {
            WriteTarget::ExistingFile
        }
    };
    if test.access.is_random() {
        spec.order = Order::Mobibench;
        spec.overlap_percent = test.overlap_percent;
    }
    spec.final_sync = match final_sync {
        FinalSync::Inside => SpecSync::Timed,
        FinalSync::Outside => SpecSync::Untimed,
    };
    spec.data = DataPattern::Constant(CONTENT);
    spec.files = FilePlacement::Named {
        prefix: FILE_PREFIX.to_owned(),
    };
    spec
}

fn report(session: &Session<'_>, test: &FileTest, outcome: &FileOutcome) -> String {
    [
        text::result_heading(),
        text::processors(outcome.processor.as_ref()),
        time_line(session, test, outcome),
        text::context_switches(outcome.workers.as_ref()),
        text::window(session.plan.preset, session.options.final_sync),
        text::cache(&outcome.cache),
    ]
    .concat()
}

fn time_line(session: &Session<'_>, test: &FileTest, outcome: &FileOutcome) -> String {
    let elapsed_ns = timed_ns(session.options.final_sync, outcome);
    let record_kib = test.access.is_random().then_some(test.record_kib);
    text::file_time(elapsed_ns, done_bytes(outcome), record_kib)
}

/// The original's window: it ends when the last thread has synced; closing the files is not part of it.
const fn timed_ns(final_sync: FinalSync, outcome: &FileOutcome) -> u64 {
    match final_sync {
        FinalSync::Inside => outcome.operation_ns.saturating_add(outcome.sync_ns),
        FinalSync::Outside => outcome.operation_ns,
    }
}

const fn done_bytes(outcome: &FileOutcome) -> u64 {
    outcome.read.bytes.saturating_add(outcome.write.bytes)
}
