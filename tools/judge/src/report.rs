//! Report of a suite.

use crate::contest::Match;
use crate::verdict::{Outcome, Row};

/// Results of a suite.
#[derive(Debug)]
pub struct Report {
    /// The report in Markdown.
    pub text: String,
    /// The rows of its table.
    pub rows: Vec<Row>,
}

impl Report {
    /// Lists the names of the matches without measuring.
    pub fn list(matches: &[Match<'_>]) -> Self {
        let names = matches.iter().map(|one| format!("{}\n", one.name));
        Self {
            text: names.collect(),
            rows: Vec::new(),
        }
    }

    /// Report of a suite that can't run here, with the reason.
    pub fn left_out(suite: &str, reason: &str) -> Self {
        Self {
            text: format!("## {suite}\n\nLeft out: {reason}\n\n"),
            rows: Vec::new(),
        }
    }

    /// True when no difference is unexplained.
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(|row| row.outcome != Outcome::Differs)
    }
}
