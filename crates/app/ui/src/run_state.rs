//! The state of a run for the page: its steps, progress, throughput over time, results.

use results::RunRecord;
use serde::{Deserialize, Serialize};

use crate::plan::Preset;
use crate::rows::{ResultRow, result_rows};
use crate::settings::StepKind;

/// Maximum number of points per step; beyond that, every second point is dropped.
const POINTS_MAX: usize = 240;

/// Status of a step or of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Not started.
    Waiting,
    /// Being measured.
    Running,
    /// Complete.
    Done,
    /// Stopped early; its results are partial.
    Stopped,
    /// Failed.
    Failed,
}

/// A sample of the throughput over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the step began.
    pub at_s: f64,
    /// Bytes or transactions per second since the previous point.
    pub per_s: f64,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepState {
    /// Kind of the step.
    pub kind: StepKind,
    /// Status of the step.
    pub status: Status,
    /// Throughput over time.
    pub points: Vec<Point>,
    /// Results.
    pub rows: Vec<ResultRow>,
    #[serde(skip)]
    records: Vec<RunRecord>,
    /// Time and amount of the previous point.
    #[serde(skip)]
    last: Option<(f64, f64)>,
    #[serde(skip)]
    began_s: Option<f64>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunState {
    /// Number of the run on this server.
    pub number: u64,
    /// Preset of the Measure tab.
    pub preset: Preset,
    /// Directory to measure in.
    pub directory: String,
    /// Status of the run.
    pub status: Status,
    /// Its steps.
    pub steps: Vec<StepState>,
    /// Rounds of each step.
    pub rounds: u32,
    /// Index of the step being measured.
    pub current: usize,
    /// Phase of that step: prepare, cache, measure ...
    pub phase: String,
    /// Progress of the whole run, 0 to 1.
    pub fraction: f64,
    /// Its number in the history, once a record is stored.
    pub history_id: Option<i64>,
    /// Further messages.
    pub messages: Vec<String>,
    /// Reason of the failure.
    pub error: Option<String>,
}

/// A line of `--progress json`.
#[derive(Debug, Deserialize)]
pub struct ProgressLine {
    /// The only field.
    pub progress: ProgressValues,
}

/// Content of a progress line, without the fields that are not needed here.
#[derive(Debug, Deserialize)]
pub struct ProgressValues {
    /// The step that reported last.
    pub title: String,
    /// Phase of the step.
    pub phase: String,
    /// Bytes or transactions done in this phase.
    pub done: f64,
    /// Seconds since the start of the child process.
    pub elapsed_s: f64,
    /// Progress of the whole run.
    pub overall: OverallValues,
}

/// Progress over all steps and rounds.
#[derive(Debug, Deserialize)]
pub struct OverallValues {
    /// Fraction of the steps, 0 to 1; each counts the same.
    pub fraction: f64,
    /// The current step, counted from 1; each round counts all steps again.
    pub step: usize,
}

impl RunState {
    /// A run that has not started.
    pub fn new(number: u64, preset: Preset, directory: &str, rounds: u32, kinds: &[StepKind]) -> Self {
        let step = |kind: &StepKind| StepState {
            kind: *kind,
            status: Status::Waiting,
            points: Vec::new(),
            rows: Vec::new(),
            records: Vec::new(),
            last: None,
            began_s: None,
        };
        Self {
            number,
            preset,
            directory: directory.to_owned(),
            status: Status::Running,
            steps: kinds.iter().map(step).collect(),
            rounds: rounds.max(1),
            current: 0,
            phase: "start".to_owned(),
            fraction: 0.0,
            history_id: None,
            messages: Vec::new(),
            error: None,
        }
    }

    /// Applies a progress line.
    pub fn progress(&mut self, values: &ProgressValues) {
        self.fraction = self.fraction.max(values.overall.fraction.clamp(0.0, 1.0));
        self.current = values.overall.step.saturating_sub(1) % self.steps.len().max(1);
        let step = &mut self.steps[self.current];
        step.status = Status::Running;
        // The last report of a step may arrive when the next one has begun.
        if values.title != step.kind.name() {
            "start".clone_into(&mut self.phase);
            return;
        }
        self.phase.clone_from(&values.phase);
        step.began_s.get_or_insert(values.elapsed_s);
        if values.phase == "measure" {
            step.point(values);
        }
    }

    /// Adds the record of one round of a step.
    pub fn record(&mut self, record: RunRecord) {
        let name = record.workload.get("name").and_then(|name| name.as_str());
        let Some(step) = self.steps.iter_mut().find(|step| Some(step.kind.name()) == name) else {
            return;
        };
        step.status = if record.complete {
            Status::Done
        } else {
            Status::Stopped
        };
        step.records.push(record);
        step.rows = result_rows(&step.records);
    }

    /// Ends the run and its current step.
    pub fn end(&mut self, status: Status) {
        self.status = status;
        for step in self
            .steps
            .iter_mut()
            .filter(|step| step.status == Status::Running)
        {
            step.status = status;
        }
        if status == Status::Failed && self.steps.iter().all(|step| step.status == Status::Waiting) {
            self.steps[self.current].status = status;
        }
        if status == Status::Done {
            self.fraction = 1.0;
        }
    }
}

impl StepState {
    fn point(&mut self, values: &ProgressValues) {
        let (before_s, before) = self.last.unwrap_or((values.elapsed_s, values.done));
        let (passed_s, more) = (values.elapsed_s - before_s, values.done - before);
        self.last = Some((values.elapsed_s, values.done));
        if passed_s <= 0.0 || more < 0.0 {
            return;
        }
        self.points.push(Point {
            at_s: values.elapsed_s - self.began_s.unwrap_or(0.0),
            per_s: more / passed_s,
        });
        if self.points.len() > POINTS_MAX {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(title: &str, phase: &str, done: f64, elapsed_s: f64, overall: (f64, usize)) -> ProgressValues {
        ProgressValues {
            title: title.to_owned(),
            phase: phase.to_owned(),
            done,
            elapsed_s,
            overall: OverallValues {
                fraction: overall.0,
                step: overall.1,
            },
        }
    }

    fn run() -> RunState {
        RunState::new(1, Preset::File, "/", 1, &StepKind::ALL[..4])
    }

    #[test]
    fn the_share_shown_is_that_of_the_child_and_never_goes_back() {
        let mut run = run();
        run.progress(&values("sequential-write", "prepare", 1.0, 0.1, (0.07, 1)));
        assert_eq!((run.fraction, run.phase.as_str()), (0.07, "prepare"));
        run.progress(&values("sequential-write", "measure", 1.0, 0.2, (0.05, 1)));
        assert_eq!(run.fraction, 0.07);
        run.end(Status::Done);
        assert_eq!(run.fraction, 1.0);
    }

    #[test]
    fn steps_begin_as_the_child_says_also_in_later_rounds() {
        let mut run = run();
        run.progress(&values("sequential-write", "measure", 1.0, 0.1, (0.1, 1)));
        run.progress(&values("sequential-write", "measure", 2.0, 0.2, (0.2, 2)));
        assert_eq!((run.current, run.phase.as_str()), (1, "start"));
        assert!(run.steps[1].points.is_empty(), "the report is of the step before");
        run.progress(&values("sequential-write", "measure", 0.0, 0.2, (0.6, 5)));
        assert_eq!(run.current, 0, "the second round begins");
    }

    #[test]
    fn what_was_being_measured_ends_as_the_run_does() {
        let mut run = run();
        run.progress(&values("sequential-read", "measure", 1.0, 0.1, (0.1, 2)));
        run.end(Status::Failed);
        assert_eq!(run.steps[1].status, Status::Failed);
        assert_eq!(run.steps[2].status, Status::Waiting);
        let mut none_begun = self::run();
        none_begun.end(Status::Failed);
        assert_eq!(none_begun.steps[0].status, Status::Failed);
    }

    #[test]
    fn speed_is_that_since_the_point_before_and_points_stay_few() {
        let mut run = run();
        for step in 0..1000_u32 {
            let at = f64::from(step);
            run.progress(&values(
                "sequential-write",
                "measure",
                at * 50.0,
                at * 0.1,
                (0.1, 1),
            ));
        }
        let points = &run.steps[0].points;
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 4);
        assert!(points.iter().all(|point| (point.per_s - 500.0).abs() < 1e-6));
    }
}
