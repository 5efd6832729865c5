//! Test support, for `dev-dependencies` alone.
//!
//! - [`prng`]: seeded randomness, a stream of its own for each purpose.
//! - [`MemFs`]: a file system in memory, the model that others are compared with.
//! - [`FaultyFs`]: injects write errors and holds writes back, over any file system.
//! - [`contract`]: what every [`vfs::FileSystem`] must do.
//! - [`model`]: random operations from several threads on a file system and on the model, compared step by
//!   step.
//! - [`heap`]: how much memory a piece of a test takes.
//! - [`is_full`]: whether the long variants of tests run.
//! - [`lab`]: the distribution's kernel in QEMU, as a judge of flash images and a place for its file systems.
//!
//! It is not used by anything that ships: failures here are panics.

pub mod contract;
mod depth;
mod faulty_fs;
pub mod heap;
pub mod lab;
mod mem_fs;
pub mod model;
pub mod prng;

pub use depth::{is_full, left_to_full};
pub use faulty_fs::{Faults, FaultyFs, WriteRecord};
pub use mem_fs::MemFs;
