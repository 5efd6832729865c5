//! Applications of phones as workloads: generators that meet the published characteristics exactly.
//!
//! A generator is a table (see [`Application`]) and a pure function of seed and scale that makes a trace of it; the
//! replayer runs the trace. Each number of a table carries a label: published, derived, or assumed. Everything that a
//! source states is a [`Claim`], and [`Application::check`] holds any measured trace against all of them: tests do so
//! with the generated trace, and with what really arrived at a file system.
//!
//! Two layers are never mixed: applications recorded as calls on files run as calls on files, those recorded as block
//! requests run on one image file that stands for the partition. Each says in tables, output and records which it is.
//!
//! What it is not: a recording. The order of reads and writes is random, gaps do not depend on each other, one thread
//! makes all calls, and what the sources do not say is borrowed or guessed, with the reason in the label.

mod blocks;
mod calls;
mod describe;
mod exact;
mod generate;
mod run;
mod shapes;
mod statistics;
mod table;

pub use describe::{describe, list};
pub use generate::Scale;
pub use run::{AppOutcome, AppSpec, BlockRequests, run};
pub use statistics::{Checked, Statistics};
pub use table::{
    Application, Claim, Direction, Labelled, Origin, Place, Relation, Spread, Statistic, Stream,
};

/// Every application, those of calls on files first.
pub fn applications() -> impl Iterator<Item = &'static Application> {
    calls::APPLICATIONS.iter().chain(&blocks::APPLICATIONS)
}

/// The application of this name.
#[must_use]
pub fn application(name: &str) -> Option<&'static Application> {
    applications().find(|application| application.name == name)
}
