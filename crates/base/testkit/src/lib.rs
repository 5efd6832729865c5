//! Test support, for `dev-dependencies` alone.
//!
//! - [`prng`]: seeded randomness, a stream of its own for each purpose.
//! - [`MemFs`]: a file system in memory, the model that others are compared with.
//! - [`FaultyFs`]: injects faults, holds writes back and models power cuts, over any file system.
//! - [`Ext4`]: a real file system whose medium can be looked at as a power cut would leave it.
//! - [`contract`]: what every [`vfs::FileSystem`] must do.
//! - [`model`]: random operations from several threads on a file system and on the model, compared step by
//!   step.
//! - [`hostile`]: good inputs of decoders, changed at random, and what has to hold for each.
//! - [`heap`]: how much memory a piece of a test takes.
//! - [`is_full`]: whether the long variants of tests run.
//! - [`lab`]: the distribution's kernel in QEMU, as a judge of flash images and a place for its file systems.
//!
//! It is not used by anything that ships: failures here are panics.

pub mod contract;
mod depth;
mod ext4;
mod faulty_fs;
pub mod heap;
pub mod hostile;
pub mod lab;
mod mem_fs;
pub mod model;
pub mod prng;

pub use depth::{is_full, left_to_full, report_left_out};
pub use ext4::{Ext4, OnExt4};
pub use faulty_fs::{Call, Faults, FaultyFs, Times, WriteRecord};
pub use mem_fs::MemFs;
