//! A report: every analysis of a session, and pictures of where and when the devices were used.

use serde::Serialize;

use crate::density::{self, DensityGrid};
use crate::named::{self, Analysis};
use crate::session::Session;
use crate::table::Table;
use crate::trace_folder::StoredTrace;
use crate::{AnalysisError, page, text};

/// Version of the document that [`Report::to_json`] gives.
const DOCUMENT_SCHEMA: u32 = 1;

/// The results of all analyses over some traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The traces, in the order given.
    pub traces: Vec<StoredTrace>,
    /// One table for each analysis that had something to say, in the order of the report.
    pub tables: Vec<Table>,
    /// Pictures; they are for the page alone.
    #[serde(skip)]
    pub densities: Vec<DensityGrid>,
}

/// A step of the work, for who shows its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Steps that are done.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
    /// What comes next.
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

impl Report {
    /// Runs every analysis. `progress` is told before each step.
    pub fn of(
        session: &Session,
        pictures: Pictures,
        mut progress: impl FnMut(Step<'_>),
    ) -> Result<Self, AnalysisError> {
        let analyses: Vec<Analysis> = named::all();
        let total = analyses.len() + usize::from(pictures == Pictures::Drawn);
        let mut tables = Vec::new();
        for (done, analysis) in analyses.iter().enumerate() {
            progress(Step {
                done,
                total,
                next: &analysis.title,
            });
            let table = session.run(analysis)?;
            if !table.rows.is_empty() {
                tables.push(table);
            }
        }
        let densities = match pictures {
            Pictures::LeftOut => Vec::new(),
            Pictures::Drawn => {
                progress(Step {
                    done: analyses.len(),
                    total,
                    next: "Pictures",
                });
                density::grids(session)?
            }
        };
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

    /// What the traces can't tell, each with its reason, in words for the user.
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

    /// A page of its own, without anything from outside.
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
