//! An attached UBI device. The state machine behind one lock is in [`core`]; volumes are handles to it.
//!
//! There are no threads and no clock here. A chip executes one operation at a time, so one lock per device costs
//! nothing. Background work (erases of obsolete blocks, scrubbing, wear levelling, torture tests) happens in
//! [`Ubi::work`], one step per call: the owner decides when to call it (a background thread, the end of a command).
//! If it is never called, writes erase the blocks they need.

mod blocks;
mod build;
mod change;
mod core;
mod format;
mod handle;
mod mark;
mod order;
mod static_check;
mod summary;
mod table;
mod update;
mod volume;
mod wear;

pub use build::Unwritten;
pub use change::PreparedChange;
pub use format::{FormatOptions, lebs_after_format};
pub use handle::Ubi;
pub use static_check::LebDamage;
pub use summary::{DeviceSummary, VolumeSummary};
pub use table::{NewVolume, SizeInLebs, VolumeTableError};
pub use update::Update;
pub use volume::UbiVolume;
pub use wear::Work;
