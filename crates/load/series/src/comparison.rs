//! Named workloads on several directories, side by side.
//!
//! Within a workload each round runs every target once, in an order that rotates by one each round, so that changes
//! of the machine over time affect all targets alike. Nothing is mounted: whatever is mounted at the directories is compared.
//! A target that fails in a workload is excluded from the rest of that workload, and reported.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::Progress;
use results::shown;
use results::words::expected;
use runner::{Measured, Schedule, Series, Turn, identity};

use crate::{Amount, Requirement, SeriesError, Target, Workload, measured};

/// Targets, workloads and amounts of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The directories.
    pub targets: Vec<Target>,
    /// Label of the target that ratios are formed with.
    pub baseline: String,
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// Limits that the ratios must keep.
    pub requirements: Vec<Requirement>,
    /// Number of rounds.
    pub rounds: u32,
    /// Amounts of work.
    pub amount: Amount,
    /// Seed of the first round.
    pub seed: u64,
}

impl Comparison {
    /// Default number of rounds.
    pub const USUAL_ROUNDS: u32 = 5;

    /// Default size of sequential files.
    pub const USUAL_FILE_BYTES: u64 = 512 << 20;

    /// The baseline unless another one is chosen: the target `native`, or else the first one.
    #[must_use]
    pub fn usual_baseline(targets: &[Target]) -> &str {
        let native = targets.iter().find(|target| target.label == "native");
        native
            .or(targets.first())
            .map_or("native", |target| target.label.as_str())
    }

    /// Schedule of each workload.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule::interleaved(self.rounds, self.targets.len())
    }

    /// Validates everything before anything is touched.
    ///
    /// # Errors
    /// [`SeriesError`] when a part can't be measured.
    pub fn check(&self) -> Result<(), SeriesError> {
        let labels: Vec<&str> = self.targets.iter().map(|target| target.label.as_str()).collect();
        for (index, label) in labels.iter().enumerate() {
            if labels[..index].contains(label) {
                return Err(SeriesError::SameLabel((*label).to_owned()));
            }
        }
        if !labels.contains(&self.baseline.as_str()) {
            return Err(SeriesError::NoBaseline {
                baseline: self.baseline.clone(),
                expected: expected(&self.baseline, &labels),
            });
        }
        for Requirement { label, workload, .. } in &self.requirements {
            if !labels.contains(&label.as_str()) {
                return Err(SeriesError::NoTarget {
                    label: label.clone(),
                    expected: expected(label, &labels),
                });
            }
            if !self.workloads.contains(workload) {
                return Err(SeriesError::NoWorkload(workload.name));
            }
        }
        for workload in &self.workloads {
            let described = workload.of(Path::new("."), self.amount);
            described.check().map_err(|source| SeriesError::Amount {
                workload: workload.name,
                source,
            })?;
        }
        for target in &self.targets {
            identity(Vec::new(), &target.label, &target.directory, 0)?;
        }
        Ok(())
    }
}

/// One workload of a comparison on every target, as a series.
pub struct Targets<'run> {
    /// The workload.
    pub workload: Workload,
    /// The comparison.
    pub comparison: &'run Comparison,
    /// Command line of the program, for the records.
    pub command: &'run [String],
    /// Receives the reports of the workload.
    pub progress: &'run dyn Progress,
    /// Ends a run early when it is raised.
    pub stop: &'run AtomicBool,
}

impl Series for Targets<'_> {
    type Error = SeriesError;

    fn title(&self, turn: Turn) -> String {
        let label = &self.comparison.targets[turn.side].label;
        format!("{} {label}, round {}", self.workload.name, turn.round + 1)
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>, SeriesError> {
        let (name, target) = (self.workload.name, &self.comparison.targets[turn.side]);
        let identity = identity(
            self.command.to_vec(),
            &target.label,
            &target.directory,
            turn.round,
        )?;
        let workload = self.workload.of(&target.directory, self.comparison.amount);
        let seed = self.comparison.seed.wrapping_add(u64::from(turn.round));
        let mut outcome = workload.run(seed, self.progress, self.stop)?;
        outcome.workload["name"] = name.into();
        for note in &mut outcome.notes {
            *note = format!("{name} {}: {note}", target.label);
        }
        Ok(vec![measured(outcome, identity)])
    }

    fn failed(&mut self, turn: Turn, error: SeriesError) -> Result<String, SeriesError> {
        let label = &self.comparison.targets[turn.side].label;
        let reason = shown::with_causes(&error);
        Ok(format!("{label} is left out of {}: {reason}", self.workload.name))
    }
}
