//! File tests (`-a`).

use anyhow::Result;
use bench::{
    DataPattern, FileOutcome, FilePlacement, FileSpec, FinalSync as SpecSync, Measurement, Order, Pattern,
    WriteTarget,
};

use super::arguments::{FinalSync, Preset};
use super::folder::Folder;
use super::log_files::LogFiles;
use super::plan::{Access, FileTest, Plan};
use super::{Ended, STOPPED, Session, text};
use crate::Finding;
use crate::bench_command::terminal::identity;
use crate::output::{print_error, print_line};

/// Byte value that the original writes everywhere.
const CONTENT: u8 = 0xFE;

/// File names start with this, followed by the number of the thread.
const FILE_PREFIX: &str = "test.dat";

/// Runs a file test and prints its report.
pub fn run(session: &Session<'_>, test: &FileTest) -> Result<Ended> {
    session.print(&text::file_setup(test))?;
    let arguments = session.arguments;
    let logs = LogFiles::open(arguments.latency_file.as_deref(), arguments.iops_file.as_deref())?;
    let folder = Folder::open(&session.plan.path)?;
    let identity = identity(session.plan.preset.name(), &session.plan.path, 0)?;
    let mut spec = file_spec(session.plan, test, arguments.final_sync);
    spec.cache = arguments.cache;
    spec.log = logs.limits(test.threads);
    let outcome = bench::run(&spec, &session.bar, &session.stop);
    session.bar.hide();
    let outcome = outcome?;
    folder.keep();
    session.print(&report(session, test, &outcome))?;
    logs.write(
        test,
        &outcome.logs,
        &time_line(session, test, &outcome),
        outcome.operation_ns,
    )?;
    let ended = ended(test, &outcome);
    if arguments.json {
        print_line(&serde_json::to_string(&outcome.into_record(identity)?)?)?;
    }
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
        text::window(session.plan.preset, session.arguments.final_sync),
        text::cache(&outcome.cache),
    ]
    .concat()
}

fn time_line(session: &Session<'_>, test: &FileTest, outcome: &FileOutcome) -> String {
    let elapsed_ns = timed_ns(session.arguments.final_sync, outcome);
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

fn ended(test: &FileTest, outcome: &FileOutcome) -> Ended {
    // Cached data does not make writes faster, but it does make reads faster that should be cold.
    let warm = test.access.reads() && !test.sync.is_direct() && outcome.cache.is_warmer_than_asked();
    if warm {
        print_error(&format!("the reads were not cold: {}", outcome.cache.describe()));
    }
    let problem = (!outcome.complete).then(|| STOPPED.to_owned());
    let finding = if warm || problem.is_some() {
        Finding::Something
    } else {
        Finding::Nothing
    };
    Ended { finding, problem }
}
