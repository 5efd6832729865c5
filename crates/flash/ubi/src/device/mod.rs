//! An attached UBI device. The state machine behind one lock is in [`core`]; volumes are handles on it.
//!
//! There is no thread and no clock here. A chip does one thing at a time, so one lock a device costs nothing. Erasing what is not
//! needed any more, moving data off flipping or little worn blocks, and testing suspicious blocks happen in [`Ubi::work`], one
//! step a call: the owner decides when (a thread at the edge, the end of a command). If nobody calls it, writes erase what they
//! need themselves.

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
pub use format::FormatOptions;
pub use handle::Ubi;
pub use static_check::LebDamage;
pub use summary::{DeviceSummary, VolumeSummary};
pub use table::{NewVolume, SizeInLebs, VolumeTableError};
pub use update::Update;
pub use volume::UbiVolume;
pub use wear::Work;
