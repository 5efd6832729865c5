//! Progress of a run on standard error: a bar on a terminal, else a line per finished step, or JSON lines.
//!
//! Showing progress does not affect the measurement: it only displays reports that a workload makes in any case.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bench::{Phase, Progress};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use results::nearest_f64;
use serde_json::json;

/// Minimum interval between two JSON lines of one phase.
const LINE_EVERY: Duration = Duration::from_millis(100);

/// Progress format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressForm {
    /// Show a bar on a terminal; elsewhere print a line for each finished step, if there are several
    #[default]
    Auto,
    /// Print one JSON object per line: {"progress":{"title","phase","done","total","fraction","elapsed_s",
    /// "overall":{"fraction","step","steps"}}}
    Json,
    /// Show nothing
    Off,
}

/// Displays the progress of a run of one or more steps.
pub struct Bar {
    form: ProgressForm,
    bar: ProgressBar,
    state: Mutex<State>,
}

struct State {
    steps: usize,
    /// Number of completed steps.
    done_steps: usize,
    is_in_step: bool,
    title: String,
    began: Instant,
    step_began: Instant,
    printed: Option<(Phase, Instant)>,
    /// The last report of the current step: phase, done, total.
    reported: Option<(Phase, u64, u64)>,
    /// Largest fraction of the run reported so far; each phase of a step may start again at 0.
    fraction: f64,
}

impl Bar {
    /// Progress of a run with `steps` steps; nothing is shown yet.
    pub fn new(form: ProgressForm, steps: usize) -> Self {
        let style =
            ProgressStyle::with_template("{prefix}{msg:<8} [{bar:40}] {percent:>3} %  {elapsed}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if form == ProgressForm::Auto && stderr().is_terminal() {
            ProgressBar::new(0).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        let state = State {
            steps: steps.max(1),
            done_steps: 0,
            is_in_step: false,
            title: String::new(),
            began: Instant::now(),
            step_began: Instant::now(),
            printed: None,
            reported: None,
            fraction: 0.0,
        };
        Self {
            form,
            bar,
            state: Mutex::new(state),
        }
    }

    /// Begins the next step.
    pub fn begin(&self, title: &str) {
        let mut state = self.state();
        title.clone_into(&mut state.title);
        state.step_began = Instant::now();
        state.is_in_step = true;
        state.printed = None;
        state.reported = Some((Phase::Prepare, 0, 0));
        let gap = if title.is_empty() { "" } else { "  " };
        let step = match state.steps {
            1 => String::new(),
            steps => format!("step {}/{steps}  ", state.done_steps + 1),
        };
        self.bar.set_prefix(format!("{step}{title}{gap}"));
    }

    /// Ends the step.
    pub fn end(&self) {
        let mut state = self.state();
        state.done_steps += 1;
        state.is_in_step = false;
        match self.form {
            ProgressForm::Json => {
                state.printed = None;
                state.print();
            }
            ProgressForm::Auto if self.bar.is_hidden() && state.steps > 1 => {
                let (step, steps, title) = (state.done_steps, state.steps, &state.title);
                let seconds = state.step_began.elapsed().as_secs_f64();
                // A closed stderr does not stop the run.
                let _ = writeln!(stderr(), "step {step}/{steps} {title}: done in {seconds:.1} s");
            }
            ProgressForm::Auto | ProgressForm::Off => {}
        }
        self.hide();
    }

    /// Removes the bar until the next report.
    pub fn hide(&self) {
        self.bar.finish_and_clear();
        self.bar.reset();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Prints a JSON line if one is due.
    fn print(&mut self) {
        let Some((phase, done, total)) = self.reported else {
            return;
        };
        let now = Instant::now();
        let is_due = self.printed.is_none_or(|(printed, when)| {
            printed != phase || done == total || now.duration_since(when) >= LINE_EVERY
        });
        if !is_due {
            return;
        }
        self.printed = Some((phase, now));
        let fraction = share(done, total);
        let of_step = match phase {
            Phase::Prepare | Phase::Cache | Phase::Verify => 0.0,
            _ => fraction,
        };
        let done_steps = u64::try_from(self.done_steps).unwrap_or(u64::MAX);
        let steps = u64::try_from(self.steps).unwrap_or(u64::MAX);
        let ended_share = share(done_steps, steps);
        // The last report of a completed step does not apply to the next one.
        let of_step = if self.is_in_step { of_step } else { 0.0 };
        let overall = ended_share + of_step / nearest_f64(steps);
        self.fraction = self.fraction.max(overall).min(1.0);
        let line = json!({ "progress": {
            "title": self.title,
            "phase": phase.name(),
            "done": done,
            "total": total,
            "fraction": fraction,
            "elapsed_s": now.duration_since(self.began).as_secs_f64(),
            "overall": {
                "fraction": self.fraction,
                "step": (self.done_steps + 1).min(self.steps),
                "steps": self.steps,
            },
        }});
        // A closed stderr does not stop the run.
        let _ = writeln!(stderr(), "{line}");
    }
}

fn share(done: u64, total: u64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    nearest_f64(done) / nearest_f64(total)
}

impl Progress for Bar {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        let mut state = self.state();
        let is_new = state.reported.is_none_or(|(reported, ..)| reported != phase);
        state.reported = Some((phase, done, total));
        if self.form == ProgressForm::Json {
            return state.print();
        }
        self.bar.set_message(phase.name());
        self.bar.set_length(total);
        self.bar.set_position(done);
        if is_new {
            self.bar.reset_elapsed();
            self.bar.reset_eta();
        }
    }
}
