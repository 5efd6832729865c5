//! Phone applications as workloads: generators that meet the published characteristics exactly.
//!
//! A generator is a table (see [`Application`] and `apps/*.toml`) and a pure function of seed and scale that generates a trace from it;
//! the replayer runs the trace. Each number of a table is labelled published, derived, or assumed. Everything that a
//! source states is a [`Claim`], and [`Application::check`] compares any measured trace with all claims: the tests do
//! so for the generated trace, and for the calls that actually reached a file system.
//!
//! The two layers are never mixed: applications recorded as calls on files run as calls on files; those recorded as
//! block requests run on one image file that stands for the partition. Tables, output and records name the layer.
//!
//! The generated traces are not recordings: the order of reads and writes is random, gaps are independent of each
//! other, one thread makes all calls, and values that the sources do not give are borrowed or guessed, with the
//! reason in the label.

mod describe;
mod exact;
mod generate;
mod load;
mod run;
mod statistics;
mod table;

pub use describe::{describe, list};
pub use generate::Scale;
pub use run::{AppOutcome, AppSpec, BlockRequests, run};
pub use statistics::{Checked, Statistics};
pub use table::{
    Application, Claim, Direction, Labelled, Origin, Place, Relation, Spread, Statistic, Stream,
};

/// All applications, those recorded as calls on files first.
pub fn applications() -> impl Iterator<Item = &'static Application> {
    load::APPLICATIONS.iter()
}

/// Looks up an application by name.
#[must_use]
pub fn application(name: &str) -> Option<&'static Application> {
    applications().find(|application| application.name == name)
}
