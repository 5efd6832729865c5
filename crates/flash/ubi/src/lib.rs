//! UBI in user space: logical eraseblocks over raw NAND, on-flash compatible with Linux in both directions.
//!
//! - [`Volume`]: the contract for the layer above. File systems and arrays use nothing else. [`MemberVolume`] adds
//!   the operations that arrays need.
//! - [`scan`], [`Scanned::attach`]: from a [`media::Nand`] to a device, [`Ubi`], and its volumes, [`UbiVolume`].
//! - [`build_image`]: builds an image without a chip. [`guess_shape`]: guesses the geometry of the chip behind an
//!   image.
//! - [`check`]: lists the faults of a device, block by block.
//! - [`mod@format`]: codecs of the on-flash structures. Spec: `docs/formats/ubi.md`.
//!
//! This crate has no threads and no clock: each call of [`Ubi::work`] does one step of background work, and time is
//! the chip's.

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
    FastmapUse, Holes, Mark, MemberState, Scanned, Seal, VolumeId, check, scan, volume_table,
};
pub use device::{
    DeviceSummary, FormatOptions, LebDamage, NewVolume, PreparedChange, SizeInLebs, Ubi, UbiVolume,
    Unwritten, Update, VolumeSummary, VolumeTableError, Work, lebs_after_format,
};
pub use guess::{GuessedShape, guess_shape};
pub use image::{ImageError, ImageOptions, ImageVolume, aligned_leb_bytes, build_image};
pub use layout::{Layout, LayoutError};
pub use peb_table::WearSummary;
pub use volume::{
    Appended, MemberVolume, ReadPart, TornEnd, UpdateMarker, Volume, VolumeError, VolumeGeometry, WritePart,
};
