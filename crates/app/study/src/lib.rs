//! Studies: a plan in TOML becomes cells, the cells become records, and the records become figures and verdicts.
//!
//! [`plan`] parses, [`cell`] expands, [`measure`] runs the cells in blocks that share a newly made file system, as sides
//! of the rounds of [`runner`]; [`evidence`] estimates and judges, [`page`] draws. [`gate`] decides whether
//! something became slower, [`tune`] races settings, [`guest`] measures file systems that this machine lacks. Each step of a cell is a child process
//! of this program or a system program; this crate knows no file system, no device and no workload.
//!
//! Invariants:
//! - A ratio is formed from records of one round; a share of MAX also from records of one block.
//! - The records of a block and round are stored together or not at all.
//! - Everything made while measuring lies below the study's folder, where [`folder::clean`] finds it. Nothing is removed
//!   from a folder that no study has claimed.
//! - A stored record is replaced only by a new measurement of its block and round, never just removed.
//! - The same records give the same page, byte for byte.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bed;
mod calibrate;
pub mod cell;
pub mod check;
mod child;
mod claim;
mod clean;
mod dirty_limit;
pub mod evidence;
mod figure;
mod fingerprint;
pub mod folder;
pub mod gate;
pub mod guest;
mod measure;
pub mod page;
mod panel;
pub mod plan;
mod progress;
mod study;
mod sysfs;
mod traced;
pub mod tune;
mod warm;
pub mod words;

pub use child::this_program;
pub use measure::Limits;
pub use progress::progress;
pub use study::{Options, resume, run, stored, tune as run_tune};
pub use words::bench_words;
