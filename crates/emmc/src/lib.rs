//! An eMMC card, the driver of its host and the block layer above it, as discrete-event models in virtual time.
//!
//! What it is: state machines that compute when things end. NAND banks with paired pages and LSB backup ([`nand_array`],
//! [`cell`]), cards from files ([`card`]).
//!
//! What it is not: a store (there is no data), a recorder, or anything that waits. No thread, no clock, no randomness but
//! from a seed: the same input gives the same output to the nanosecond.

pub mod card;
pub mod cell;
mod error;
pub mod geometry;
pub mod nand_array;

pub use error::CardError;
