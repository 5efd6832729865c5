//! UBI in user space: logical eraseblocks over raw NAND, on-flash compatible with Linux in both directions.
//!
//! - [`Volume`]: the contract with what is above: file systems and arrays know it alone. [`MemberVolume`] is what arrays need.
//! - [`scan`], [`Scanned::attach`]: from a [`media::Nand`] to a device, [`Ubi`], and its volumes, [`UbiVolume`].
//! - [`build_image`]: an image without a chip. [`guess_shape`]: the shape of the chip that an image is of.
//! - [`check`]: what is wrong on a device, block by block.
//! - [`mod@format`]: the structures on the medium, from bytes to values and back. Spec: `docs/formats/ubi.md`.
//!
//! There is no thread and no clock in here: background work is [`Ubi::work`], a step a call, and time is the chip's.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod attach;
mod device;
pub mod format;
mod guess;
mod image;
mod layout;
mod peb_table;
mod retry;
mod volume;

pub use attach::{
    Access, Anomaly, AnomalyKind, AttachError, AttachOptions, AttachedBy, Behind, Candidate, CheckReport,
    FastmapUse, Holes, Mark, MemberState, Scanned, Seal, VolumeId, check, scan,
};
pub use device::{
    DeviceSummary, FormatOptions, LebDamage, NewVolume, PreparedChange, SizeInLebs, Ubi, UbiVolume,
    Unwritten, Update, VolumeSummary, VolumeTableError, Work,
};
pub use guess::{GuessedShape, guess_shape};
pub use image::{ImageError, ImageOptions, ImageVolume, aligned_leb_bytes, build_image};
pub use layout::{Layout, LayoutError};
pub use peb_table::WearSummary;
pub use volume::{
    Appended, MemberVolume, ReadPart, UpdateMarker, Volume, VolumeError, VolumeGeometry, WritePart,
};
