//! What seeds/002 shows, drawn again: tables 1 to 3 and figures 7 to 15, ours beside the paper's.
//!
//! The paper's figures 7 to 15 are known here by the sentences about them alone; only its tables give numbers. Each claim
//! says whether it validates the model or was used to set it up (calibration): the numbers of the card that the paper
//! does not give were set so that the bandwidths of table 3 come near, and how often the file system writes in place so
//! that RAND of table 2 does.

mod exhibits;
mod loads;

pub use exhibits::exhibits;
pub use loads::{Mixes, PaperScale};

use serde::Serialize;

/// A table or figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exhibit {
    /// `table 1` and so on.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Headings, with units.
    pub columns: Vec<String>,
    /// Rows; the first cell is the row's name.
    pub rows: Vec<Vec<String>>,
    /// What the paper says about it.
    pub claims: Vec<PaperClaim>,
}

/// A sentence of the paper beside what came out here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperClaim {
    /// The sentence, shortened.
    pub paper: String,
    /// What came out.
    pub ours: String,
    /// Whether it holds here.
    pub holds: bool,
    /// What the claim is good for.
    pub basis: Basis,
}

/// What a claim is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The model was not set up by it.
    Validation,
    /// The model was set up by it.
    Calibration,
    /// It follows from the driver's rules or from the load, whatever the model's numbers.
    Structure,
}

impl Basis {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Calibration => "calibration",
            Self::Structure => "structure",
        }
    }
}

#[cfg(test)]
mod tests;
