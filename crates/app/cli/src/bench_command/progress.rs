//! How far a run is: a bar for people, or lines of JSON for programs, both on standard error.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bench::job::estimate::{Done, Estimator, Shown};
use bench::job::rehearsal::Rehearsed;
use bench::{Phase, Progress};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

/// Lines of JSON come no more often than this.
const LINE_EVERY: Duration = Duration::from_millis(100);

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProgressForm {
    /// A bar where standard error is a terminal, else nothing
    #[default]
    Auto,
    /// One JSON object on each line: {"progress":{"title","phase","done","total","fraction","elapsed_s"}}; jobs add
    /// "overall":{"fraction","eta_s","step","steps"}
    Json,
    /// Nothing
    Off,
}

/// Shows on standard error how far a run is.
pub struct Bar {
    form: ProgressForm,
    bar: ProgressBar,
    lines: Mutex<Lines>,
}

struct Lines {
    title: String,
    began: Instant,
    printed: Option<(Phase, Instant)>,
    /// The last report of the work at hand: phase, done, total.
    reported: Option<(Phase, u64, u64)>,
    /// How far all steps of a job are, and not only the one at work.
    overall: Option<Estimator>,
}

/// Parts of the bar when it shows a job: fine enough for the widest terminal.
const OVERALL_PARTS: u64 = 1000;

impl Bar {
    /// A bar of which nothing is to be seen yet.
    pub fn new(form: ProgressForm) -> Self {
        let style =
            ProgressStyle::with_template("{prefix}{msg:<8} [{bar:40}] {percent:>3} %  {elapsed_precise}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if form == ProgressForm::Auto && stderr().is_terminal() {
            ProgressBar::new(0).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        let lines = Lines {
            title: String::new(),
            began: Instant::now(),
            printed: None,
            reported: None,
            overall: None,
        };
        Self {
            form,
            bar,
            lines: Mutex::new(lines),
        }
    }

    /// Says before the bar what is being done.
    pub fn title(&self, title: &str) {
        let gap = if title.is_empty() { "" } else { "  " };
        self.bar.set_prefix(format!("{title}{gap}"));
        title.clone_into(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner).title);
    }

    /// Takes the bar away until the next progress.
    pub fn hide(&self) {
        self.bar.finish_and_clear();
        self.bar.reset();
    }

    /// Shows from here on how far all the steps of a job are.
    pub fn follow(&self, estimator: Estimator) {
        if let Ok(style) = ProgressStyle::with_template("{prefix}{msg} [{bar:30}] {percent:>3} %") {
            self.bar.set_style(style);
        }
        let mut lines = self.lines();
        lines.began = Instant::now();
        lines.overall = Some(estimator);
    }

    /// False when nobody would see it.
    pub fn is_shown(&self) -> bool {
        self.form == ProgressForm::Json || !self.bar.is_hidden()
    }

    /// Until [`Self::begin`] steps are rehearsed.
    pub fn rehearse(&self) {
        let mut lines = self.lines();
        lines.reported = Some((Phase::Rehearse, 0, 0));
        if let Some(overall) = &mut lines.overall {
            overall.rehearse();
        }
    }

    /// What the rehearsal of a step found, which all rounds have.
    pub fn rehearsed(&self, step: usize, found: Rehearsed) {
        self.overall(|overall, elapsed| overall.rehearsed(elapsed, step, found));
    }

    /// The first step of the job begins.
    pub fn begin(&self) {
        self.overall(Estimator::begin);
        self.lines().reported = Some((Phase::Prepare, 0, 0));
    }

    /// Nothing was reported, and time went on: a job calls this several times a second.
    pub fn tick(&self) {
        self.overall(Estimator::tick);
    }

    /// A step of the job is over.
    pub fn step_done(&self, done: Done) {
        self.lines().printed = None;
        self.overall(|overall, elapsed| overall.step_done(elapsed, done));
        // What the step reported is not said again for the next one.
        self.lines().reported = Some((Phase::Prepare, 0, 0));
    }

    fn overall(&self, change: impl FnOnce(&mut Estimator, Duration) -> Shown) {
        let mut lines = self.lines();
        let elapsed = lines.began.elapsed();
        let shown = lines.overall.as_mut().map(|overall| change(overall, elapsed));
        self.show(&mut lines, shown);
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, lines: &mut Lines, shown: Option<Shown>) {
        if self.form == ProgressForm::Json {
            print_line(lines, shown);
        } else if let Some(shown) = shown {
            let phase = lines.reported.map_or("", |(phase, ..)| phase.name());
            let steps = lines.overall.as_ref().map_or(0, Estimator::steps);
            let left_s = shown.remaining.as_secs_f64().ceil();
            let message = format!("{}/{steps} {phase:<8} {left_s:>4.0} s left", shown.step + 1);
            self.bar.set_message(message);
            self.bar.set_length(OVERALL_PARTS);
            self.bar.set_position(in_parts(shown.fraction));
        } else if let Some((phase, done, total)) = lines.reported {
            self.bar.set_message(phase.name());
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }
}

fn in_parts(fraction: f64) -> u64 {
    // A second has a thousand milliseconds: the conversion that rounds and can't overflow.
    let parts = Duration::try_from_secs_f64(fraction).map_or(0, |share| share.as_millis());
    u64::try_from(parts).unwrap_or(OVERALL_PARTS).min(OVERALL_PARTS)
}

fn print_line(lines: &mut Lines, shown: Option<Shown>) {
    let Some((phase, done, total)) = lines.reported else {
        return;
    };
    let now = Instant::now();
    let is_due = lines.printed.is_none_or(|(printed, when)| {
        printed != phase || done == total && shown.is_none() || now.duration_since(when) >= LINE_EVERY
    });
    if !is_due {
        return;
    }
    lines.printed = Some((phase, now));
    let fraction = if total == 0 {
        0.0
    } else {
        results::nearest_f64(done) / results::nearest_f64(total)
    };
    let mut line = json!({ "progress": {
        "title": lines.title,
        "phase": phase.name(),
        "done": done,
        "total": total,
        "fraction": fraction,
        "elapsed_s": now.duration_since(lines.began).as_secs_f64(),
    }});
    if let (Some(shown), Some(overall)) = (shown, &lines.overall) {
        line["progress"]["overall"] = json!({
            "fraction": shown.fraction,
            "eta_s": shown.remaining.as_secs_f64(),
            "step": shown.step + 1,
            "steps": overall.steps(),
        });
    }
    // When nobody reads progress, the run goes on all the same.
    let _ = writeln!(stderr(), "{line}");
}

impl Progress for Bar {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        let mut lines = self.lines();
        lines.reported = Some((phase, done, total));
        let elapsed = lines.began.elapsed();
        let shown = lines
            .overall
            .as_mut()
            .map(|overall| overall.advance(elapsed, phase, done, total));
        self.show(&mut lines, shown);
    }
}
