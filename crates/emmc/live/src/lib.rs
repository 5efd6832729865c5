//! An eMMC model attached to this machine: a block device whose requests take as long as the model says.
//!
//! What it is: the edge between [`emmc`], which has no data and no clock, and a running kernel. [`Store`] keeps the data,
//! [`UndoLog`] what a power cut takes back of it, [`LiveDevice`] waits until the model's times, [`CardFileSystem`] shows all this as
//! one file of a [`vfs::FileSystem`], and [`LoopDevice`] makes a block device of that file.
//!
//! What it is not: a FUSE mount (`fuse` mounts the file system), a model (`emmc` says when), or a command.
//!
//! Invariants: a client sees its request done no earlier than the model says (as well as the way to it is known); what was answered survives a power cut exactly when the
//! model had programmed it by then.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod device;
mod engine;
mod error;
mod file_system;
mod issued_flags;
mod kept_file;
mod loop_device;
mod path_cost;
mod priority;
mod rehearsal;
mod store;
mod undo;

pub use device::{LiveDevice, LiveStatistics, Power, PowerReport};
pub use error::LiveError;
pub use file_system::{CARD_FILE, CardFileSystem, POWER_ATTRIBUTE, PowerOrder};
pub use issued_flags::{FlagCounts, IssuedFlags};
pub use kept_file::{KeptCard, KeptError};
pub use loop_device::{Claim, LoopDevice, QueueLimits};
pub use path_cost::{PathCost, Way};
pub use priority::run_before_others;
pub use store::{Description, Store};
pub use undo::{CutKind, CutReport, UndoLog};
