//! An eMMC model attached to this machine: a block device whose requests take the time given by the model.
//!
//! This crate connects [`emmc`], which has neither data nor a clock, to a running kernel. [`Store`] holds the data,
//! [`UndoLog`] the old data that a power cut restores, [`LiveDevice`] waits for the model's times, [`CardFileSystem`]
//! presents all this as one file of a [`vfs::FileSystem`], and [`LoopDevice`] makes a block device of that file.
//!
//! It contains no FUSE mount (`fuse` mounts the file system), no model (`emmc` computes the times), and no command.
//!
//! Invariants: a client sees its request complete no earlier than the model says (as far as the latency of its way is
//! known); an answered write survives a power cut exactly if the model had programmed it by then.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod attached;
pub mod counters;
mod device;
mod dirty_limit;
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

pub use attached::{Attached, AttachedError, Card, DirtyLimit, RUN_FOLDER};
pub use device::{LiveDevice, LiveStatistics, Power, PowerReport};
pub use dirty_limit::DirtyRules;
pub use error::LiveError;
pub use file_system::{CARD_FILE, CardFileSystem, POWER_ATTRIBUTE, PowerOrder};
pub use issued_flags::{FlagCounts, IssuedFlags};
pub use kept_file::{KeptCard, KeptError};
pub use loop_device::{Claim, LoopDevice, QueueLimits};
pub use path_cost::{PathCost, Way};
pub use priority::set_sched_fifo;
pub use store::{Description, Store};
pub use undo::{CutKind, CutReport, UndoLog};
