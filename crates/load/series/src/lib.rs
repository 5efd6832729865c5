//! Workloads of `bench` as series of the `runner`: named workloads on several directories side by side, with the requirements
//! that their ratios must meet.
//!
//! Contents differ between rounds, because a device that recognises known blocks would look too fast.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod comparison;
mod error;
mod requirement;
mod target;
mod workload;

use bench::Outcome;
use results::RunIdentity;
use runner::Measured;

pub use self::comparison::{Comparison, Targets};
pub use self::error::SeriesError;
pub use self::requirement::{Bound, Requirement};
pub use self::target::Target;
pub use self::workload::{Amount, WORKLOADS, Workload};

/// Combines the outcome of a run with its identity.
#[must_use]
pub fn measured(outcome: Outcome, identity: RunIdentity) -> Measured {
    let kept = outcome.kept_directory.as_ref();
    Measured {
        notes: outcome.notes.clone(),
        remarks: kept
            .map(|kept| format!("files are kept in {}", kept.display()))
            .into_iter()
            .collect(),
        text: outcome.text.clone(),
        record: outcome.into_record(identity),
    }
}
