//! Readers of other tools' traces.
//!
//! Each format is a parser of lines (or of binary records) that feeds an [`assembly::Assembly`]; [`join::Join`] joins
//! steps into requests. The header's limitations list the information that a source lacks, and lines that could not be
//! parsed are counted and shown.

mod alibaba;
mod assembly;
mod biotracer;
pub(crate) mod blkparse;
mod blktrace;
mod block_event;
mod clock;
mod detect;
pub(crate) mod fio_iolog;
mod ftrace;
pub mod ftrace_line;
mod join;
mod json_lines;
pub(crate) mod lines;
mod most;
mod msr;
mod pixel_csv;
mod ready;
pub(crate) mod rwbs;
pub(crate) mod text_source;

pub use detect::{Format, ReadOptions, detect, open, open_reader};
pub use lines::{BadLines, Skipped, SkippedLine, SkippedPlace};
