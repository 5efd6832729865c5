//! Opens traces of any format for queries, within limits, and shows a progress bar.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::time::Duration;

use analysis::{AnalysisError, Limits, Session, Step};
use anyhow::{Error, Result};
use indicatif::{ProgressBar, ProgressStyle};
use programs::analysis_arguments::LimitArguments;

use crate::MEMORY;
use crate::foreign::Copies;

/// Delay before the progress bar appears; shorter work needs none.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// Limits of the queries, which the process keeps from here on.
pub fn limits(arguments: &LimitArguments) -> Limits {
    let memory_bytes = usize::try_from(arguments.memory).unwrap_or(usize::MAX);
    MEMORY.set_for(memory_bytes);
    Limits {
        memory_bytes,
        threads: arguments.threads.map_or_else(processors, usize::from),
    }
}

/// Opens traces of any format; the copies of foreign ones must live as long as the session.
pub fn open(arguments: &LimitArguments, traces: &[PathBuf]) -> Result<Opened> {
    let mut copies = Copies::new();
    let native: Vec<PathBuf> = traces
        .iter()
        .map(|path| copies.native(path))
        .collect::<Result<_>>()?;
    Ok(Opened {
        session: Session::open(&native, limits(arguments)).map_err(advised)?,
        _copies: copies,
    })
}

/// The error with the next step if there are too few descriptors: each trace takes three.
fn advised(error: AnalysisError) -> Error {
    let error = Error::new(error);
    let lacks = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.and_then(std::io::Error::raw_os_error) == Some(rustix::io::Errno::MFILE.raw_os_error())
    };
    if error.chain().any(lacks) {
        return error.context(
            "too few files may be open: each trace takes three, and sorts some; raise the limit (ulimit -n), or name fewer \
             traces",
        );
    }
    error
}

/// Number of processors that a report can use: each gets a share of the queries' memory.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(4))
}

/// Traces open for queries.
pub struct Opened {
    // Drop order: the session closes its files before the copies are removed.
    /// The traces.
    pub session: Session,
    _copies: Copies,
}

/// Progress bar of a report.
pub struct Bar {
    bar: ProgressBar,
    began: std::time::Instant,
    prefix: String,
}

impl Bar {
    /// A bar whose line begins with `prefix`; hidden if standard error is not a terminal.
    pub fn new(prefix: &str) -> Self {
        let style = ProgressStyle::with_template("{prefix}[{bar:40}] {pos}/{len}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = if stderr().is_terminal() {
            ProgressBar::new(0).with_style(style)
        } else {
            ProgressBar::hidden()
        };
        Self {
            bar,
            began: std::time::Instant::now(),
            prefix: prefix.to_owned(),
        }
    }

    /// Shows the next step.
    pub fn show(&self, step: Step<'_>) {
        if self.began.elapsed() < BAR_AFTER {
            return;
        }
        self.bar.set_prefix(self.prefix.clone());
        self.bar.set_length(u64::try_from(step.total).unwrap_or(u64::MAX));
        self.bar.set_position(u64::try_from(step.done).unwrap_or(0));
        self.bar.set_message(step.next.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
