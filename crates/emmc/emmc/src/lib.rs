//! An eMMC card, the driver of its host and the block layer above it, as discrete-event models in virtual time.
//!
//! What it is: state machines that compute when things end. From below: NAND banks with paired pages and LSB backup
//! ([`cell`], [`nand_array`]), translation layers ([`translation`]), the card ([`device`], from files: [`card`]), its
//! host ([`host`]), packed commands ([`packing`], [`pack_header`]), the block layer ([`block`]), loads ([`workload`]),
//! and the run that puts them together ([`simulation`], [`outcome`]). [`command_log`] makes a block trace of what was
//! sent, [`paper`] draws what seeds/002 shows.
//!
//! What it is not: a store (there is no data), a recorder, or anything that waits. No thread, no clock, no randomness but
//! from a seed: the same input gives the same output to the nanosecond.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod block;
pub mod card;
pub mod cell;
pub mod command_log;
pub mod device;
mod error;
pub mod geometry;
pub mod host;
pub mod nand_array;
pub mod outcome;
pub mod pack_header;
pub mod packing;
pub mod paper;
mod presets;
pub mod simulation;
pub mod translation;
pub mod workload;

pub use error::CardError;
