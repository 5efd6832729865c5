//! What the page shows of a run: its steps, how far it is, its speed over time, its results.

use serde::{Deserialize, Serialize};

use crate::plan::Preset;
use crate::rows::ResultRow;
use crate::settings::StepKind;

/// Points of one step that are kept; beyond that, every second one is dropped.
const POINTS_MAX: usize = 240;

/// What became of a step or of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Not begun.
    Waiting,
    /// Being measured.
    Running,
    /// Measured to its end.
    Done,
    /// Stopped before its end; what was measured is partial.
    Stopped,
    /// Could not be measured.
    Failed,
}

/// A moment of a step's timed window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Since the step began.
    pub at_s: f64,
    /// Bytes or transactions a second since the point before.
    pub per_s: f64,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepState {
    /// What it is.
    pub kind: StepKind,
    /// What became of it.
    pub status: Status,
    /// Speed over time.
    pub points: Vec<Point>,
    /// What was measured.
    pub rows: Vec<ResultRow>,
    #[serde(skip)]
    last: Option<(f64, f64)>,
    #[serde(skip)]
    round: u32,
    #[serde(skip)]
    of_round: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunState {
    /// Counts the runs of this server.
    pub number: u64,
    /// The button.
    pub preset: Preset,
    /// Where it measures.
    pub directory: String,
    /// What became of it.
    pub status: Status,
    /// Its steps.
    pub steps: Vec<StepState>,
    /// How often each step is run.
    pub rounds: u32,
    /// Index of the step that is being measured.
    pub current: usize,
    /// Part of that step's work: prepare, cache, measure ...
    pub phase: String,
    /// How far the whole run is, 0 to 1.
    pub fraction: f64,
    /// Its number in the history, once something is stored.
    pub history_id: Option<i64>,
    /// What else is to be said.
    pub messages: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// A line of `--progress json`.
#[derive(Debug, Deserialize)]
pub struct ProgressLine {
    /// The only field.
    pub progress: ProgressValues,
}

/// What it says; fields that are not needed here are left out.
#[derive(Debug, Deserialize)]
pub struct ProgressValues {
    /// Part of the run.
    pub phase: String,
    /// Bytes or transactions done in this phase.
    pub done: f64,
    /// 0 to 1 of this phase.
    pub fraction: f64,
    /// Since the child began.
    pub elapsed_s: f64,
}

impl RunState {
    /// A run of which nothing is done.
    pub fn new(number: u64, preset: Preset, directory: &str, rounds: u32, kinds: &[StepKind]) -> Self {
        let step = |kind: &StepKind| StepState {
            kind: *kind,
            status: Status::Waiting,
            points: Vec::new(),
            rows: Vec::new(),
            last: None,
            round: 0,
            of_round: 0.0,
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

    /// Begins a step.
    pub fn begin(&mut self, index: usize) {
        self.current = index;
        "start".clone_into(&mut self.phase);
        self.steps[index].status = Status::Running;
        self.advance(0.0);
    }

    /// Takes in a line of progress. A round is its timed window and, before that, the making of files: each a half. The
    /// next round has begun where a phase comes again that was over.
    pub fn progress(&mut self, values: &ProgressValues) {
        self.phase.clone_from(&values.phase);
        let fraction = values.fraction.clamp(0.0, 1.0);
        let of_round = match values.phase.as_str() {
            "prepare" => fraction / 2.0,
            "cache" => 0.5,
            "measure" => 0.5 + fraction / 2.0,
            _ => 1.0,
        };
        let rounds = self.rounds;
        let step = &mut self.steps[self.current];
        if of_round < step.of_round {
            step.round = (step.round + 1).min(rounds - 1);
            step.last = None;
        }
        step.of_round = of_round;
        let of_step = (f64::from(step.round) + of_round) / f64::from(rounds);
        self.advance(of_step);
        if values.phase == "measure" {
            self.steps[self.current].point(values);
        }
    }

    /// Ends the step that is being measured.
    pub fn end(&mut self, status: Status, rows: Vec<ResultRow>) {
        let step = &mut self.steps[self.current];
        step.status = status;
        step.rows = rows;
        if status == Status::Done {
            self.advance(1.0);
        }
    }

    /// Never goes back within a run.
    fn advance(&mut self, of_step: f64) {
        let count = u32::try_from(self.steps.len().max(1)).unwrap_or(u32::MAX);
        let current = u32::try_from(self.current).unwrap_or(u32::MAX);
        let fraction = (f64::from(current) + of_step) / f64::from(count);
        self.fraction = self.fraction.max(fraction.min(1.0));
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
            at_s: values.elapsed_s,
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

    fn values(phase: &str, done: f64, fraction: f64, elapsed_s: f64) -> ProgressValues {
        ProgressValues {
            phase: phase.to_owned(),
            done,
            fraction,
            elapsed_s,
        }
    }

    fn run() -> RunState {
        RunState::new(1, Preset::File, "/", 1, &StepKind::ALL[..4])
    }

    #[test]
    fn the_whole_run_goes_forward_over_steps_and_phases() {
        let mut run = run();
        run.begin(0);
        run.progress(&values("prepare", 1.0, 1.0, 0.1));
        assert_eq!(run.fraction, 0.125);
        run.progress(&values("measure", 1.0, 0.5, 0.2));
        assert_eq!(run.fraction, 0.1875);
        run.end(Status::Done, Vec::new());
        assert_eq!(run.fraction, 0.25);
        run.begin(1);
        run.progress(&values("measure", 1.0, 7.0, 0.2));
        assert_eq!(run.fraction, 0.5, "more than all is all");
        run.progress(&values("prepare", 1.0, 0.0, 0.2));
        assert_eq!(run.fraction, 0.5, "it never goes back");
    }

    #[test]
    fn rounds_share_their_step() {
        let mut run = RunState::new(1, Preset::Custom, "/", 2, &StepKind::ALL[..1]);
        run.begin(0);
        run.progress(&values("measure", 1.0, 1.0, 0.1));
        assert_eq!(run.fraction, 0.5);
        run.progress(&values("prepare", 0.0, 0.0, 0.2));
        run.progress(&values("measure", 1.0, 0.0, 0.3));
        assert_eq!(run.fraction, 0.75);
        run.progress(&values("measure", 1.0, 1.0, 0.4));
        assert_eq!(run.fraction, 1.0);
    }

    #[test]
    fn speed_is_that_since_the_point_before_and_points_stay_few() {
        let mut run = run();
        run.begin(0);
        for step in 0..1000_u32 {
            let at = f64::from(step);
            run.progress(&values("measure", at * 50.0, 0.1, at * 0.1));
        }
        let points = &run.steps[0].points;
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 4);
        assert!(points.iter().all(|point| (point.per_s - 500.0).abs() < 1e-6));
    }
}
