//! NAND chips behind [`media::Nand`]: simulated ones, in memory or in a file, and the ones at `/dev/mtdN`.
//!
//! - [`SimNand`]: a chip of any geometry that enforces the medium's rules, takes exact virtual time, and fails as its
//!   [`FaultModel`] and its [`PowerSupply`] say. Over [`RamCells`] it is sparse and its clones share blocks until one
//!   of them writes; over [`FileCells`] it survives the process.
//! - [`ChipModel`] and [`Preset`]: geometry, timing and ECC strength, by name where a paper or a data sheet gives them.
//! - [`load`] and [`dump`]: images onto chips and back.
//! - [`RealTime`]: the edge that sleeps until the real clock says what a chip's virtual clock says.
//! - [`MtdNand`]: a chip that exists, by the ioctls of `/dev/mtdN`.
//!
//! It is not an array (`array`), and knows nothing of what is stored (`ubi`). Nothing but [`RealTime`] and [`MtdNand`] reads a clock; nothing draws
//! random numbers but from the seed of a [`FaultModel`].
//!
//! The files of a simulated chip are specified in `docs/formats/nand-image.md`, the assumptions in `docs/reference/media.md`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod block;
mod file;
mod hamming;
mod image;
mod model;
mod mtd;
mod pairing;
mod power;
mod real_time;
mod sidecar;
mod sim;

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

/// A simulated chip in a file.
pub type FileNand = SimNand<FileCells>;
