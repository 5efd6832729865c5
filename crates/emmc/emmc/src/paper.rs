//! Reproduces tables 1 to 3 and figures 7 to 15 of seeds/002, our results beside the paper's.
//!
//! Figures 7 to 15 are known here only by the paper's sentences about them; only its tables give numbers. Each claim
//! says whether it validates the model or was used for calibration: the parameters of the card that the paper does
//! not give were chosen to approximate the bandwidths of table 3, and the rate of in-place writes of the file system
//! to approximate RAND of table 2.

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
    /// Title.
    pub title: String,
    /// Column headings, with units.
    pub columns: Vec<String>,
    /// Rows; the first cell is the row's name.
    pub rows: Vec<Vec<String>>,
    /// The paper's claims about it.
    pub claims: Vec<PaperClaim>,
}

/// A sentence of the paper, and our result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperClaim {
    /// The sentence, shortened.
    pub paper: String,
    /// Our result.
    pub ours: String,
    /// Whether the sentence holds for our result.
    pub holds: bool,
    /// Evidential value of the claim.
    pub basis: Basis,
}

/// Evidential value of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Validation: the model was not fitted to it.
    Validation,
    /// Calibration: the model was fitted to it.
    Calibration,
    /// Structure: it follows from the driver's rules or from the workload, whatever the parameters of the model.
    Structure,
}

impl Basis {
    /// Name in output.
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
