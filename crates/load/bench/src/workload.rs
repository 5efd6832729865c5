//! The contract of a workload: it is checked, runs, and gives one form of outcome.
//!
//! A new workload implements [`Workload`] for its description in its own file; commands, jobs, rounds, records and the
//! history need nothing else of it.

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

/// A workload on one target.
pub trait Workload {
    /// Looks for contradictions in the description; touches nothing.
    ///
    /// # Errors
    /// The first one found.
    fn check(&self) -> Result<(), BenchError> {
        Ok(())
    }

    /// Runs once. The seed decides orders and contents. Raising `stop` ends the run early with a partial outcome; the
    /// files of the run are removed in every case, unless the workload keeps them.
    ///
    /// # Errors
    /// Before anything is touched: a contradiction, a target of another kind, too little space. Later: any operation
    /// that failed.
    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError>;

    /// The workload as one that can run at the same time as others.
    fn as_file(&self) -> Option<&FileSpec> {
        None
    }
}

/// How the text of an outcome stands to the summary of its samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextForm {
    /// It comes before the summary; it may be empty.
    #[default]
    Beside,
    /// It takes the place of the summary.
    Table,
    /// The same, also in a job: its samples are points of a curve, which have no line in a table of steps.
    Curve,
}

/// What a run of any workload gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// False when the run was stopped: everything else is partial.
    pub complete: bool,
    /// When the first timed window began (wall clock).
    pub started_unix_ns: u64,
    /// The description with its kind, and what the run found out about its circumstances.
    pub workload: Value,
    /// One for each kind of operation.
    pub samples: Vec<Sample>,
    /// Further numbers; the unit is the last word of the name.
    pub counters: BTreeMap<String, f64>,
    /// What was not measured as asked, each a line for people.
    pub notes: Vec<String>,
    /// Where the files are, when they were kept.
    pub kept_directory: Option<PathBuf>,
    /// A table of the workload's own.
    pub text: String,
    /// How it stands to the summary.
    pub text_form: TextForm,
}

impl Outcome {
    /// An outcome without numbers. A directory name that is not UTF-8 is written with replacement characters: the record
    /// is for people, and JSON has no other way.
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

    /// Adds a whole number to the counters.
    pub(crate) fn count(&mut self, name: &str, value: u64) {
        self.counters.insert(name.to_owned(), nearest_f64(value));
    }

    /// Notes why the directory of the run is still there, if removing it failed.
    pub(crate) fn leftover(&mut self, reason: Option<&String>) {
        let note = reason.map(|reason| format!("files were left behind: {reason}"));
        self.notes.extend(note);
    }

    /// The outcome as a record. The caller may add counters, such as those of a mount.
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

/// The outcome of one workload, with fields of its own.
pub trait Measurement: Sized {
    /// The common form.
    ///
    /// # Errors
    /// When a latency is longer than its window.
    fn outcome(self) -> Result<Outcome, ImpossibleLatency>;

    /// The record.
    ///
    /// # Errors
    /// When a latency is longer than its window.
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
