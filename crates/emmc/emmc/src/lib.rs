//! An eMMC card, the driver of its host and the block layer above it, as discrete-event models in virtual time.
//!
//! It consists of state machines that compute when operations end. From bottom to top: NAND banks with paired pages
//! and LSB backup ([`cell`], [`nand_array`]), translation layers ([`translation`]), the card ([`device`], from files:
//! [`card`]), its host ([`host`]), packed commands ([`packing`], [`pack_header`]), the block layer ([`block`]),
//! workloads ([`workload`]), and the run that connects them ([`simulation`], [`outcome`]). [`command_log`] makes a
//! block trace of the commands, [`paper`] reproduces the results of seeds/002.
//!
//! It does not store data, record results, or wait. It has no threads, no clock, and no randomness except from a
//! seed: the same input gives the same output to the nanosecond.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod block;
pub mod card;
pub mod cell;
pub mod command_list;
pub mod command_log;
pub mod device;
mod error;
pub mod geometry;
pub mod host;
mod invariants;
pub mod nand_array;
pub mod outcome;
pub mod pack_header;
pub mod packing;
pub mod paper;
mod presets;
mod read_ahead;
pub mod simulation;
pub mod translation;
pub mod workload;

pub use error::CardError;
