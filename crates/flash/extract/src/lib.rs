//! Files of a UBIFS, and whole dumps of raw flash, to a folder of the host or a tar archive.
//!
//! - [`walk`]: resolves paths, and visits each file of a file system once.
//! - [`folder`], [`tar_archive`]: the destinations of a file system.
//! - [`dump`]: all partitions, volumes and file systems of a dump, with a report.
//! - [`texts`]: descriptions of a file system and of its files; [`ubireader`]: those of the tools of ubi_reader.
//! - [`content`]: the content of a file as runs between holes.
//! - [`Budget`], [`Losses`], [`Progress`]: limits of an extraction, its losses as lines, its counts.
//!
//! Images are not trusted: names, sizes, links and modes may be anything, and nothing is made outside of the destination.
//! Nothing is printed: lines go to the function that the caller gives to [`Losses`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod attributes;
mod budget;
pub mod content;
pub mod dump;
mod error;
pub mod folder;
mod folder_tree;
mod losses;
mod progress;
mod queue;
pub mod tar_archive;
pub mod texts;
pub mod ubireader;
pub mod walk;

pub use budget::Budget;
pub use error::ExtractError;
pub use losses::{Losses, SALVAGE_HINT, Tell, guess_lines};
pub use progress::{Progress, Watch};
