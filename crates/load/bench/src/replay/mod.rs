//! Replays a trace of calls on any directory, and measures the response to each call.
//!
//! Before the window, the directories and files that the trace uses and does not create are prepared, with data in
//! the ranges that it reads. In the window each traced thread has a thread here (threads of the trace whose lifetimes
//! do not overlap may share one), which makes the calls of its trace in order. Order between threads is preserved for
//! dependent calls: a descriptor is used after its open and closed after its last use; calls that move one file
//! position stay in order, and so do calls that create or remove a name.
//!
//! The replay does not repeat the computation between calls (a late thread does not wait longer), follow symbolic
//! links, leave its own directory, or hide anything. Calls that were skipped, and calls that failed although they had
//! succeeded in the trace, are counted by reason.
//!
//! A trace is of one layer. Requests of the block layer go to one image file, with direct I/O if the file system
//! supports it; their numbers are as little comparable to those of system calls as the traces are.

mod context;
mod dependencies;
mod descriptor;
mod initial;
mod outcome;
mod plan;
mod prepare;
mod replay_thread;
mod syscall;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use results::call_trace::{Layer, Trace};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use self::context::ReplayContext;
use self::plan::Plan;
use self::replay_thread::ReplayThread;
use crate::cache;
use crate::error::BenchError;
use crate::file::unix_ns;
use crate::prepare::{allow_descriptors, check_bytes};
use crate::progress::{Phase, Progress};
use crate::scratch::Scratch;
use crate::spec::Cache;
use crate::threads::PROGRESS_EVERY;
use crate::window::{CountCalls, Moved, Window};

pub use self::outcome::{CallError, KindOutcome, Replay, ReplayOutcome};
pub(crate) use self::replay_thread::BUFFERED;

/// Stack size: a replay allocates little on its threads' stacks.
const STACK_BYTES: usize = 256 << 10;

/// The timing of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// Each call as soon as the previous ones of its thread, and those it depends on, have completed.
    AsFastAsPossible,
    /// Each call at its time in the trace divided by this factor, counted from the start of the window: 1 is real
    /// time.
    Scaled(f64),
}

impl Speed {
    /// The speed of the trace itself.
    pub const REAL_TIME: Self = Self::Scaled(1.0);
}

/// Parses `asap`, `real`, or a factor of the trace's speed such as `2`, `x2` or `x0.5`.
impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let factor = || text.strip_prefix('x').unwrap_or(text).parse().ok();
        match (text, factor()) {
            ("asap", _) => Ok(Self::AsFastAsPossible),
            ("real", _) => Ok(Self::REAL_TIME),
            (_, Some(factor)) if f64::is_finite(factor) && factor > 0.0 => Ok(Self::Scaled(factor)),
            _ => Err(format!(
                "`{text}` is none of asap, real, or a factor above 0 such as x2 or x0.5"
            )),
        }
    }
}

/// The use of `O_DIRECT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectIo {
    /// System calls as in the trace; block requests with direct I/O.
    AsTraced,
    /// Everything goes through the page cache.
    Never,
}

/// The specification of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplaySpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// The timing of the calls.
    pub speed: Speed,
    /// The use of `O_DIRECT`.
    pub direct: DirectIo,
    /// Page cache state when the window begins: `Cold` or `AsIs`.
    pub cache: Cache,
    /// Seed of the contents.
    pub seed: u64,
    /// Keeps the files after the run.
    pub keep_files: bool,
}

/// Replays `trace`.
///
/// Raising `stop` ends it early with a partial outcome. The run's directory is always removed, unless the
/// specification keeps it.
///
/// # Errors
/// Before anything is touched: a contradiction in specification or trace, too little space, too many open files.
/// Later: a failed preparation, or a file system that accepts no more calls (full, read-only, gone). Any other failed
/// call is counted in the outcome.
pub fn run(
    trace: &Trace,
    spec: &ReplaySpec,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<ReplayOutcome, BenchError> {
    validate(trace, spec)?;
    let mut plan = Plan::of(trace)?;
    if spec.direct == DirectIo::Never {
        plan.initial.fill_written_blocks(trace);
    }
    allow_descriptors("trace", plan.open_files_max)?;
    check_bytes(&spec.directory, plan.initial.bytes_needed())?;
    let scratch = Scratch::create(&spec.directory)?;
    let prepared = prepare::prepare(&plan.initial, scratch.path(), spec, progress, stop)?;
    let cache_method = if spec.cache == Cache::Cold {
        cache::make_cold(&prepared.files)?
    } else {
        cache::CacheMethod::None
    };
    let mut outcome = ReplayOutcome::new(trace, spec, &plan, cache_method);
    if !stop.load(Ordering::Relaxed) {
        let context = ReplayContext::new(trace, spec, &plan, scratch.path(), stop)?;
        measure(&context, &mut outcome, progress)?;
    }
    (outcome.kept_directory, outcome.leftover) = match spec.keep_files {
        true => (Some(scratch.keep()), None),
        false => (None, scratch.remove()),
    };
    Ok(outcome)
}

fn validate(trace: &Trace, spec: &ReplaySpec) -> Result<(), BenchError> {
    if trace.calls.is_empty() {
        let skipped: u64 = trace.skipped.values().sum();
        let problem = format!("no call that can be replayed; {skipped} entries were left out");
        return Err(BenchError::spec("trace", problem));
    }
    if let Speed::Scaled(factor) = spec.speed
        && !(factor.is_finite() && factor > 0.0)
    {
        let problem = format!("{factor}, expected a number above 0");
        return Err(BenchError::spec("speed", problem));
    }
    if spec.cache.reads_files() {
        return Err(BenchError::spec(
            "cache",
            format!("`{}`, expected `as-is` or `cold` for a replay", spec.cache),
        ));
    }
    let unordered = trace
        .calls
        .windows(2)
        .position(|pair| pair[0].at_ns > pair[1].at_ns);
    if let Some(place) = unordered {
        let problem = format!("call {} starts before the one that precedes it", place + 1);
        return Err(BenchError::spec("trace", problem));
    }
    let foreign = trace
        .calls
        .iter()
        .position(|call| call.action.layer() != trace.layer);
    if let Some(place) = foreign {
        let problem = format!("call {place} is not of the layer `{}`", trace.layer.describe());
        return Err(BenchError::spec("trace", problem));
    }
    Ok(())
}

/// The timed window.
fn measure(
    context: &ReplayContext<'_>,
    outcome: &mut ReplayOutcome,
    progress: &dyn Progress,
) -> Result<(), BenchError> {
    let total = u64::try_from(context.trace.calls.len()).unwrap_or(u64::MAX);
    let shared = &context.shared;
    let start = &OnceLock::new();
    let threads = (0_u32..).zip(&context.plan.replay_threads);
    let work = threads.map(|(index, calls)| {
        move || {
            let replay_thread = ReplayThread::new(context, index, calls);
            if !shared.wait() {
                return Ok(None);
            }
            let start = *start.get().expect("it is set before the barrier opens");
            replay_thread.run(start).map(Some)
        }
    });
    let window = Window::prepare(context.root_path, CountCalls::No);
    let ready = || {
        let began = (unix_ns(), window.begin());
        let _ = start.set(clock_gettime(ClockId::Monotonic));
        began
    };
    let watch = |_: &mut _| {
        progress.advance(Phase::Measure, shared.done(), total);
        if context.stopped() {
            context.tracker.wake_all();
        }
        PROGRESS_EVERY
    };
    let ((started_unix_ns, running), answers) =
        shared.run(("replay", STACK_BYTES), work.collect(), ready, watch)?;
    let counted = running.finish();
    progress.advance(Phase::Measure, shared.done(), total);
    outcome.started_unix_ns = started_unix_ns;
    outcome.complete = !context.stopped() && context.trace.complete;
    for answer in answers {
        outcome.merge(answer);
    }
    outcome.samples()?;
    let (read_bytes, written_bytes) = outcome.moved();
    outcome.window = counted.outcome(Moved {
        read_bytes,
        written_bytes,
    });
    Ok(())
}

/// Name of the layer in records.
fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::SystemCalls => "system_calls",
        Layer::Block => "block",
    }
}

#[cfg(test)]
mod tests;
