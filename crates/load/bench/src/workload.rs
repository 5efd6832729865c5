//! The interface of a workload: check, run, and a common form of outcome.
//!
//! A new workload implements [`Workload`] for its specification in its own file; commands, jobs, rounds, records and
//! the history need nothing else from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use results::{ImpossibleLatency, RunIdentity, RunRecord, SCHEMA, Sample, counter, nearest_f64};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::processor::{ProcessorUse, WorkerUse};
use crate::progress::Progress;
use crate::spec::FileSpec;
use crate::window::WindowOutcome;

/// A workload on one target.
pub trait Workload {
    /// Checks the specification for contradictions, without touching anything.
    ///
    /// # Errors
    /// The first contradiction found.
    fn check(&self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Runs once. The seed determines orders and contents. Raising `stop` ends the run early with a partial outcome;
    /// the run's files are always removed, unless the workload keeps them.
    ///
    /// # Errors
    /// Before anything is touched: a contradiction, a target of the wrong type, too little space. Later: any
    /// operation that failed.
    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError>;

    /// The file workload, if this workload can run at the same time as others.
    fn as_file(&self) -> Option<&FileSpec> {
        None
    }
}

/// The relation of an outcome's text to the summary of its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextForm {
    /// Printed before the summary; may be empty.
    #[default]
    Beside,
    /// Replaces the summary.
    Table,
    /// Replaces the summary, also in a job: its samples are points of a curve, which have no line in a table of
    /// steps.
    Curve,
}

/// The outcome of a run of any workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// False if the run was stopped: everything else is partial.
    pub complete: bool,
    /// Start of the first timed window (wall clock).
    pub started_unix_ns: u64,
    /// The specification with its kind, and facts determined during the run.
    pub workload: Value,
    /// One sample per kind of operation. The first one represents the run in comparisons.
    pub samples: Vec<Sample>,
    /// Additional counters; the unit is the last word of the name.
    pub counters: BTreeMap<String, f64>,
    /// Caveats for people, one per line: measurements that differ from the request.
    pub notes: Vec<String>,
    /// The directory of the files, if they were kept.
    pub kept_directory: Option<PathBuf>,
    /// The workload's own table.
    pub text: String,
    /// Its relation to the summary.
    pub text_form: TextForm,
}

impl Outcome {
    /// An outcome without results. A directory name that is not UTF-8 is written with replacement characters: the
    /// record is for people, and JSON has no alternative.
    pub(crate) fn new(kind: &str, spec: &impl Serialize, directory: &Path) -> Self {
        let mut workload = serde_json::to_value(spec).unwrap_or_else(|_| json!({}));
        workload["kind"] = json!(kind);
        workload["directory"] = json!(directory.to_string_lossy());
        Self {
            workload,
            ..Self::default()
        }
    }

    /// Adds a fact about the run.
    pub(crate) fn fact(&mut self, name: &str, value: impl Serialize) {
        self.workload[name] = json!(value);
    }

    /// Adds an integer to the counters.
    pub(crate) fn count(&mut self, name: &str, value: u64) {
        self.counters.insert(name.to_owned(), nearest_f64(value));
    }

    /// Adds the counters of the window and of the workers, and the reasons of those that are absent.
    pub(crate) fn add_window(&mut self, window: &WindowOutcome, workers: Option<WorkerUse>) {
        self.counters.extend(usage_counters(window.processor, workers));
        self.counters.extend(window.counters.clone());
        self.fact("absent", &window.absent);
    }

    /// Notes why the run's directory could not be removed, if so.
    pub(crate) fn leftover(&mut self, reason: Option<&String>) {
        let note = reason.map(|reason| format!("files were left behind: {reason}"));
        self.notes.extend(note);
    }

    /// Converts the outcome to a record. The caller may add counters, such as those of a mount.
    #[must_use]
    pub fn into_record(self, identity: RunIdentity) -> RunRecord {
        RunRecord {
            schema: SCHEMA.to_owned(),
            command: identity.command,
            tool_version: identity.tool_version,
            started_unix_ns: self.started_unix_ns,
            host: identity.host,
            target: identity.target,
            label: identity.label,
            round: identity.round,
            workload: self.workload,
            samples: self.samples,
            counters: self.counters,
            complete: self.complete,
        }
    }
}

/// The outcome of one workload, with its own fields.
pub trait Measurement: Sized {
    /// Converts to the common form.
    ///
    /// # Errors
    /// If a latency is longer than its window.
    fn outcome(self) -> Result<Outcome, ImpossibleLatency>;

    /// Converts to a record.
    ///
    /// # Errors
    /// If a latency is longer than its window.
    fn into_record(self, identity: RunIdentity) -> Result<RunRecord, ImpossibleLatency> {
        Ok(self.outcome()?.into_record(identity))
    }
}

/// Counters of processors and threads.
pub(crate) fn usage_counters(
    machine: Option<ProcessorUse>,
    workers: Option<WorkerUse>,
) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    let mut insert = |name: &str, value: f64| counters.insert(name.to_owned(), value);
    if let Some(machine) = machine {
        insert(counter::CPU_ACTIVE, machine.active_percent());
        insert("cpu_user_percent", machine.user_percent);
        insert("cpu_system_percent", machine.system_percent);
        insert("cpu_interrupt_percent", machine.interrupt_percent);
        insert(counter::CPU_IDLE, machine.idle_percent);
        insert(counter::CPU_IOWAIT, machine.iowait_percent);
        insert(counter::CPU_STEAL, machine.steal_percent);
        let switches = nearest_f64(machine.context_switches_count);
        insert(counter::CONTEXT_SWITCHES_SYSTEM, switches);
    }
    if let Some(workers) = workers {
        for (name, value) in [
            (
                counter::CONTEXT_SWITCHES_VOLUNTARY,
                workers.context_switches_voluntary_count,
            ),
            (
                counter::CONTEXT_SWITCHES_INVOLUNTARY,
                workers.context_switches_involuntary_count,
            ),
            (counter::WORKER_CPU, workers.cpu_ns),
            (counter::WORKER_CPU_USER, workers.cpu_user_ns),
        ] {
            insert(name, nearest_f64(value));
        }
    }
    counters
}
