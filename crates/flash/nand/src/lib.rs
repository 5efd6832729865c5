//! NAND chips behind [`media::Nand`]: simulated ones, in memory or in a file, and real ones at `/dev/mtdN`.
//!
//! - [`SimNand`]: a chip of any geometry that enforces the rules of the medium, takes exact virtual time, and fails
//!   according to its [`FaultModel`] and its [`PowerSupply`]. With [`RamCells`] it is sparse, and clones share blocks
//!   until one of them writes; with [`FileCells`] it outlives the process.
//! - [`ChipModel`] and [`Preset`]: geometry, timing and ECC strength, by name for chips from papers and data sheets.
//! - [`load`] and [`dump`]: write images to chips and back.
//! - [`RealTime`]: adapter that sleeps until the real clock reaches a chip's virtual clock.
//! - [`MtdNand`]: a real chip, accessed by the ioctls of `/dev/mtdN`.
//! - [`ecc`]: codes and layouts of dumps with OOB areas, found by trial, and their corrected data.
//!
//! This crate contains no array (`array`), and knows nothing about the stored data (`ubi`). Only [`RealTime`] and
//! [`MtdNand`] read a clock; all randomness comes from the seed of a [`FaultModel`].
//!
//! The files of a simulated chip are specified in `docs/formats/nand-image.md`, ECC in `docs/formats/nand-ecc.md`, the
//! assumptions in
//! `docs/reference/media.md`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod block;
pub mod ecc;
mod file;
mod hamming;
mod image;
mod lock;
mod model;
mod mtd;
mod pairing;
mod power;
mod real_time;
mod sidecar;
mod sim;
mod time_scale;

pub use block::{BlockState, Failing, LostPages, TornPage};
pub use file::{FileCells, FileError, PlainImage, sidecar_path};
pub use image::{
    BadBlocks, DumpOptions, Dumped, ImageError, LoadOptions, Loaded, Placement, RawNand, dump, load,
};
pub use model::{ChipModel, ModelError, Preset, Timing};
pub use mtd::{MtdError, MtdNand};
pub use pairing::Pairing;
pub use power::{CutPoint, CutTime, PowerCut, PowerSupply};
pub use real_time::{Lateness, RealClock, RealTime, TimeSource};
pub use sidecar::{ImageKind, SidecarError};
pub use sim::{Access, Cells, FaultModel, RamCells, SimNand, Statistics};
pub use time_scale::{TimeScale, TimeScaleError};

/// A simulated chip in a file.
pub type FileNand = SimNand<FileCells>;
