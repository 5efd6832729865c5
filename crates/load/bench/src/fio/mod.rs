//! Meeting fio: its job files read and written, and results in the form of its JSON.
//!
//! Import takes the common subset of fio 3 job files and turns each section into a step of a [`crate::job::Job`], so that
//! everything else about the run is that of any job. Nothing is dropped in silence: each option is taken, approximated
//! or ignored with a [`Note`], or refused with section, line, and what it would need. Export writes the job that does
//! what a workload of ours does, with the flags that make the two comparable. The JSON has the layout of fio 3.
//!
//! What it does not do: run fio, or read the environment (fio expands `${NAME}` in job files; here that is refused).
//!
//! Facts about fio come from its documentation and from what fio 3.33 prints.

mod error;
pub mod export;
mod import;
mod ini;
mod options;
mod quantity;
pub mod report;

pub use error::FioError;
pub use import::{Imported, Note, Treatment, import};
