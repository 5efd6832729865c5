//! How far a job is, in time: the share of the whole run that is over, and what is left.
//!
//! A share of bytes or of steps would run ahead and fall behind, because a step that reads 32 MiB and one that syncs
//! each of its writes take different times. So each step is weighted by the time that it is expected to take: exactly
//! known where a step runs by the clock; else found by a small run of it before ([`super::rehearsal`]), or guessed from
//! amounts; and corrected by what was measured. What earlier steps of a kind took, compared with what was expected,
//! scales the expectation of the later ones; within a step its own progress decides. The shown share never goes back.
//!
//! This is the only estimate: whoever shows a job (terminal, lines of JSON, the web page) shows this share.

mod estimator;
mod expectation;
#[cfg(test)]
mod tests;

pub use self::estimator::{Done, Estimator, Shown};
pub use self::expectation::{Expectation, Medium, Timed};
pub(super) use self::expectation::{GUESSED_CACHE_S, compared_s};
