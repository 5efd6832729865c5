//! Script replay (`-g`): replays a MobiGen script at its recorded times in the directory `mobigen_temp` of the path.
//!
//! Threads of the script become threads here, files keep their names and contents below the directory, and entries
//! that can't be replayed are counted and printed. The original opens a new empty file for each open, and reads at
//! paths of the phone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use bench::Cache;
use bench::replay::{DirectIo, ReplayOutcome, ReplaySpec, Speed};
use formats::calls::{Format, ReadOptions, read_trace};
use results::call_trace::{Action, Trace};
use results::nearest_f64;

use crate::folder::Folder;
use crate::{Ended, MobibenchError, Session, text};

/// Working directory of the original.
const FOLDER: &str = "mobigen_temp";

/// Seed of the written contents.
const SEED: u64 = 1;

/// Replays a script and prints its report.
pub fn run(session: &Session<'_>, script: &Path) -> Result<Ended, MobibenchError> {
    let path = &session.plan.path;
    if !path.is_dir() {
        return Err(MobibenchError::NoReplayFolder(path.clone()));
    }
    let trace = read_trace(script, Some(Format::Mobigen), ReadOptions::USUAL)?;
    let target = path.join(FOLDER);
    session.print(&introduction(&trace, &target))?;
    // Created for the run and removed afterwards: the files of the trace are not kept.
    let _folder = Folder::open(&target)?;
    let identity = session.identity(&target)?;
    let spec = ReplaySpec {
        directory: target.clone(),
        speed: Speed::REAL_TIME,
        direct: DirectIo::AsTraced,
        cache: match session.options.cache {
            Cache::Cold => Cache::Cold,
            Cache::Warm | Cache::Reopened | Cache::AsIs => Cache::AsIs,
        },
        seed: SEED,
        keep_files: false,
    };
    let outcome = session.measure(|progress, stop| bench::replay::run(&trace, &spec, progress, stop))?;
    session.print(&report(session, &outcome))?;
    let differences = outcome.differences();
    for difference in &differences {
        session.say(difference);
    }
    let ended = Ended::new(outcome.complete, differences.is_empty());
    session.record(outcome, identity)?;
    Ok(ended)
}

fn introduction(trace: &Trace, target: &Path) -> String {
    let opens = trace
        .calls
        .iter()
        .filter(|call| matches!(call.action, Action::Open { .. }));
    let last_ns = trace.calls.last().map_or(0, |call| call.at_ns);
    format!(
        "Write target : {}\nopen count : {}\noriginal execution time : {:.3} sec\n",
        target.display(),
        opens.count(),
        nearest_f64(last_ns) / 1e9,
    )
}

fn report(session: &Session<'_>, outcome: &ReplayOutcome) -> String {
    let response = outcome.response().summary();
    let (count, total_ns) = response.map_or((0, 0.0), |summary| {
        (summary.count, summary.mean_ns * nearest_f64(summary.count))
    });
    let (read, written) = outcome.moved();
    let mut report = text::result_heading();
    report.push_str(&text::processors(outcome.window.processor.as_ref()));
    // Writing to a string does not fail.
    let _ = writeln!(
        report,
        "Total IO time : {:.3} sec ({:.0} usec)\nTotal IO count : {count} \nTotal Write: {written} bytes, Read: {read} \
         bytes",
        total_ns / 1e9,
        total_ns / 1e3,
    );
    report.push_str(&text::context_switches(Some(&outcome.workers)));
    report.push_str(&text::window(session.plan.preset, session.options.final_sync));
    for (reason, count) in left_out(outcome) {
        let _ = writeln!(report, "[LEFT OUT] : {count} {reason}");
    }
    report
}

/// Entries of the script that were not replayed, by reason.
fn left_out(outcome: &ReplayOutcome) -> BTreeMap<&str, u64> {
    let skipped = outcome
        .skipped
        .iter()
        .map(|(reason, count)| (reason.as_str(), *count));
    let left_out = outcome.left_out.iter().map(|(reason, count)| (*reason, *count));
    skipped.chain(left_out).collect()
}
