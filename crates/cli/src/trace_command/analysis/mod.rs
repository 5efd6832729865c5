//! `tidegate trace report`, `query` and `compare`: block traces analysed.

pub mod compare;
mod foreign;
pub mod query;
pub mod report;

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::time::Duration;

use analysis::{Limits, Session, Step};
use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use self::foreign::Copies;
use crate::quantity;

/// A bar comes after so long; what is done sooner needs none.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// What the queries may use.
#[derive(Args, Debug)]
pub struct LimitArguments {
    /// Memory of all queries that run side by side; what does not fit is sorted in temporary files
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_bytes, default_value = "192m")]
    pub memory: u64,
    /// Analyses of a report that run side by side [default: one for each processor, 4 at most]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: Option<u8>,
}

impl LimitArguments {
    /// The limits.
    pub fn limits(&self) -> Limits {
        Limits {
            memory_bytes: usize::try_from(self.memory).unwrap_or(usize::MAX),
            threads: self.threads.map_or_else(processors, usize::from),
        }
    }

    /// Opens traces of any format; the copies of foreign ones must live as long as the session.
    fn open(&self, traces: &[PathBuf]) -> Result<Opened> {
        let mut copies = Copies::new();
        let native: Vec<PathBuf> = traces
            .iter()
            .map(|path| copies.native(path))
            .collect::<Result<_>>()?;
        Ok(Opened {
            session: Session::open(&native, self.limits())?,
            _copies: copies,
        })
    }
}

/// Processors, as far as a report has use for them: each has its share of the queries' memory.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(4))
}

/// Traces open for queries.
struct Opened {
    // Order of drop: the session closes its files before the copies go.
    session: Session,
    _copies: Copies,
}

/// How far a report is, for people.
struct Bar {
    bar: ProgressBar,
    began: std::time::Instant,
    prefix: String,
}

impl Bar {
    fn new(prefix: &str) -> Self {
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

    fn show(&self, step: Step<'_>) {
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
