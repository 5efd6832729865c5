//! Reproduces tables 1 to 3 and figures 7 to 15 of seeds/002, and says of each claim what kind of evidence it is.
//!
//! Figures 7 to 15 are known here only by the paper's sentences about them; only its tables give numbers. A claim is one
//! number of the model and a range for it that was stated beforehand ([`claims`]). It is measured once with the numbers
//! of the presets, and again with each assumed number at the ends of its plausible range ([`World::variations`]): it
//! holds if it does in all of them, and it is open if that depends on an assumption.

mod claims;
mod exhibits;
mod fit;
mod loads;
mod measured;
mod other_sources;
mod world;

pub use exhibits::{EXHIBITS, Exhibit, exhibits};
pub use fit::{Fit, FitRules, Parameter, Residual, fit};
pub use loads::{Mixes, PaperScale};
pub use measured::{Extent, Measured};
pub use world::{Variation, World};

use serde::Serialize;

/// Kind of evidence that a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The paper's statement went into the model or its load, follows from rules that did, or was a goal of the model.
    Input,
    /// A parameter was moved until it came out.
    Fitted,
    /// Predicted: the model was made without it.
    HeldOut,
}

impl Kind {
    /// Name in output.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Fitted => "fitted",
            Self::HeldOut => "held out",
        }
    }
}

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is within its range for all plausible values of the assumed numbers.
    Holds,
    /// It depends on an assumed number.
    Open,
    /// It is outside for all of them.
    Fails,
    /// It is within its range in the one world that was measured; the assumed numbers were not varied.
    Inside,
    /// It is outside in the one world that was measured.
    Outside,
}

impl Verdict {
    /// Name in output.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Open => "open",
            Self::Fails => "fails",
            Self::Inside => "inside",
            Self::Outside => "outside",
        }
    }
}

/// A claim with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Short name, unique.
    pub name: &'static str,
    /// `table 1` and so on.
    pub exhibit: &'static str,
    /// The paper's sentence, shortened.
    pub paper: &'static str,
    /// The number that is compared.
    pub quantity: &'static str,
    /// Kind of evidence.
    pub kind: Kind,
    /// The range stated beforehand; no end means none.
    pub expected: (Option<f64>, Option<f64>),
    /// The model's number.
    pub found: f64,
    /// The lowest and the highest number over all variations.
    pub band: (f64, f64),
    /// Variations in which the claim has another result than with the presets.
    pub sensitive_to: Vec<String>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Judges all claims, or only those of one exhibit: `base` was measured with the presets, the others with one number
/// changed each. Without the others no claim holds or fails: it is [`Verdict::Inside`] or [`Verdict::Outside`].
#[must_use]
pub fn judge(base: &Measured, variations: &[(String, Measured)], only: Option<&str>) -> Vec<Claim> {
    let stated = claims::CLAIMS.iter().chain(&claims::OF_OTHERS);
    let wanted = stated.filter(|stated| only.is_none_or(|only| only == stated.exhibit));
    wanted.map(|stated| stated.judge(base, variations)).collect()
}

#[cfg(test)]
mod tests;
