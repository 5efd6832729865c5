//! One workload, repeated.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::{Progress, TextForm, Workload};
use runner::{Measured, Series, Turn, identity};

use crate::{SeriesError, measured};

/// One workload as a series of rounds.
pub struct Repeated<'run> {
    /// The workload.
    pub workload: &'run dyn Workload,
    /// Command line of the program, for the records.
    pub command: &'run [String],
    /// Name of the configuration in the records.
    pub label: &'run str,
    /// Number of rounds.
    pub rounds: u32,
    /// Seed of the first round.
    pub seed: u64,
    /// The directory or device that is measured.
    pub directory: &'run Path,
    /// Receives the reports of the workload.
    pub progress: &'run dyn Progress,
    /// Ends a run early when it is raised.
    pub stop: &'run AtomicBool,
    /// Form of the table of the last run.
    pub form: TextForm,
}

impl Series for Repeated<'_> {
    type Error = SeriesError;

    fn title(&self, turn: Turn) -> String {
        match turn.is_kept {
            false => "warm-up".to_owned(),
            true if self.rounds == 1 => String::new(),
            true => format!("round {}", turn.round + 1),
        }
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>, SeriesError> {
        let seed = self.seed.wrapping_add(u64::from(turn.round));
        let identity = identity(self.command.to_vec(), self.label, self.directory, turn.round)?;
        let outcome = self.workload.run(seed, self.progress, self.stop)?;
        self.form = outcome.text_form;
        Ok(vec![measured(outcome, identity)])
    }
}
