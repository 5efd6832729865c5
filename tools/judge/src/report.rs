//! What a suite found.

use crate::contest::Match;
use crate::verdict::{Outcome, Row};

/// What a suite found.
#[derive(Debug)]
pub struct Report {
    /// In Markdown.
    pub text: String,
    /// The rows of its table.
    pub rows: Vec<Row>,
}

impl Report {
    /// The names of the matches, with nothing measured.
    pub fn list(matches: &[Match<'_>]) -> Self {
        let names = matches.iter().map(|one| format!("{}\n", one.name));
        Self {
            text: names.collect(),
            rows: Vec::new(),
        }
    }

    /// A suite that can't be played here, and why.
    pub fn left_out(suite: &str, reason: &str) -> Self {
        Self {
            text: format!("## {suite}\n\nLeft out: {reason}\n\n"),
            rows: Vec::new(),
        }
    }

    /// True when no difference is without a reason.
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(|row| row.outcome != Outcome::Differs)
    }
}
