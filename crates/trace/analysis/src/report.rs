//! A report: every analysis of a session, and density pictures of the devices.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::density::{self, DensityGrid};
use crate::named::{self, Analysis};
use crate::session::Session;
use crate::table::Table;
use crate::trace_folder::StoredTrace;
use crate::{AnalysisError, page, text};

/// The analyses that take longest.
const LONG: [&str; 6] = [
    "locality",
    "latencies",
    "hot_files",
    "rewrites",
    "short_lived_files",
    "queue_depth",
];

/// Version of the document that [`Report::to_json`] gives.
const DOCUMENT_SCHEMA: u32 = 1;

/// The results of all analyses over some traces.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The traces, in the order given.
    pub traces: Vec<StoredTrace>,
    /// One table for each analysis with rows, in the order of the report.
    pub tables: Vec<Table>,
    /// Pictures, used only on the page.
    #[serde(skip)]
    pub densities: Vec<DensityGrid>,
}

/// A step of the work, for progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Number of finished steps.
    pub done: usize,
    /// Total number of steps.
    pub total: usize,
    /// Title of the next step.
    pub next: &'a str,
}

/// Whether a report has pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pictures {
    /// For a page.
    Drawn,
    /// For text and documents.
    LeftOut,
}

/// A part of a report's work.
enum Job<'a> {
    Analysis(&'a Analysis),
    Pictures,
}

/// Result of a [`Job`].
enum Done {
    Table(Table),
    Pictures(Vec<DensityGrid>),
}

impl Job<'_> {
    fn title(&self) -> &str {
        match self {
            Self::Analysis(analysis) => &analysis.title,
            Self::Pictures => "Pictures",
        }
    }

    fn run(&self, session: &Session) -> Result<Done, AnalysisError> {
        match self {
            Self::Analysis(analysis) => session.run(analysis).map(Done::Table),
            Self::Pictures => density::grids(session).map(Done::Pictures),
        }
    }
}

/// Runs one job after the other until none is left or one fails.
fn work<'a>(
    session: &Session,
    mut next: impl FnMut() -> Option<Job<'a>>,
) -> Result<Vec<Done>, AnalysisError> {
    std::iter::from_fn(|| next().map(|job| job.run(session))).collect()
}

impl Report {
    /// Runs every analysis, in parallel on the number of threads in the session's limits. `progress` is called before
    /// each step.
    pub fn of(
        session: &Session,
        pictures: Pictures,
        progress: impl FnMut(Step<'_>) + Send,
    ) -> Result<Self, AnalysisError> {
        let analyses = named::all();
        // The longest ones come first, so that no thread runs one by itself at the end.
        let pictures = (pictures == Pictures::Drawn).then_some(Job::Pictures);
        let (long, short): (Vec<&Analysis>, _) = analyses.iter().partition(|it| LONG.contains(&it.name));
        let jobs: Vec<Job<'_>> = pictures
            .into_iter()
            .chain(long.into_iter().chain(short).map(Job::Analysis))
            .collect();
        let total = jobs.len();
        let waiting = Mutex::new((jobs.into_iter().enumerate(), progress));
        let next = || {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let (done, job) = waiting.0.next()?;
            let next = job.title();
            waiting.1(Step { done, total, next });
            Some(job)
        };
        let lanes = session.split()?;
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> = lanes
                .iter()
                .map(|lane| scope.spawn(|| work(lane, next)))
                .collect();
            let results = threads.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.collect::<Result<Vec<_>, _>>()
        })?;
        let mut tables = Vec::new();
        let mut densities = Vec::new();
        for done in done.into_iter().flatten() {
            match done {
                Done::Table(table) if table.rows.is_empty() => (),
                Done::Table(table) => tables.push(table),
                Done::Pictures(grids) => densities = grids,
            }
        }
        let place = |table: &Table| analyses.iter().position(|it| it.name == table.name);
        tables.sort_by_key(place);
        Ok(Self {
            traces: session.traces().to_vec(),
            tables,
            densities,
        })
    }

    /// The table of an analysis, if it had rows.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Limitations of the traces, each with its reason, as text for the user.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for trace in &self.traces {
            let name = trace.name();
            let header = &trace.header;
            if !header.complete {
                warnings.push(format!(
                    "{name}: the trace was interrupted; it holds what was recorded until then"
                ));
            }
            if header.lost_records > 0 {
                warnings.push(format!(
                    "{name}: {} records were lost on their way from the kernel; counts are too low, owners may be missing",
                    header.lost_records
                ));
            } else if header.ring_was_tight {
                warnings.push(format!(
                    "{name}: the ring was over half full at some time, but nothing was lost"
                ));
            }
            for limitation in &header.limitations {
                warnings.push(format!("{name}: no {}: {}", limitation.what, limitation.why));
            }
        }
        warnings
    }

    /// A self-contained page.
    #[must_use]
    pub fn to_html(&self) -> String {
        page::render(self)
    }

    /// Tables for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        text::report(self)
    }

    /// A document for programs: `schema`, `traces` and `tables`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut document = serde_json::json!(self);
        document["schema"] = DOCUMENT_SCHEMA.into();
        document["warnings"] = self.warnings().into();
        document.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_has_the_names_of_analyses() {
        for name in LONG {
            assert!(named::find(name).is_ok(), "{name}");
        }
    }
}
