//! The Python module `tidegate._core`: dumps of raw flash, their volumes, and the file systems in them.
//!
//! The package in `python/tidegate` makes the classes for users out of it; nothing else imports it. All work happens
//! without the GIL, and a panic becomes an exception (`module/guard.rs`).
//!
//! - [`tree`]: a file system that is read leniently, or salvaged.
//! - [`ahead`]: files that are read before they are asked for.
//! - [`content`]: the content of a volume at any offset.
//! - [`failure`]: errors with their place and the next step.
//! - `module`, with the feature of this name: the classes of Python. The wheel has it, and the build of each commit not.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod ahead;
pub mod content;
pub mod failure;
#[cfg(feature = "module")]
mod module;
pub mod tree;
