//! How far a run is: a bar for people, or lines of JSON for programs, both on standard error.

use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// One JSON object on each line: {"progress":{"title","phase","done","total","fraction","elapsed_s"}}
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
}

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

    fn print_line(&self, phase: Phase, done: u64, total: u64) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_due = lines.printed.is_none_or(|(printed, when)| {
            printed != phase || done == total || now.duration_since(when) >= LINE_EVERY
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
        let line = json!({ "progress": {
            "title": lines.title,
            "phase": phase.name(),
            "done": done,
            "total": total,
            "fraction": fraction,
            "elapsed_s": now.duration_since(lines.began).as_secs_f64(),
        }});
        // When nobody reads progress, the run goes on all the same.
        let _ = writeln!(stderr(), "{line}");
    }
}

impl Progress for Bar {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        if self.form == ProgressForm::Json {
            self.print_line(phase, done, total);
        } else {
            self.bar.set_message(phase.name());
            self.bar.set_length(total);
            self.bar.set_position(done);
        }
    }
}
