//! NAND chips behind [`media::Nand`]: simulated ones, in memory or in a file, and the ones at `/dev/mtdN`.
//!
//! - [`SimNand`]: a chip of any geometry that enforces the medium's rules, takes exact virtual time, and fails as its
//!   [`FaultModel`] and its [`PowerSupply`] say. Over [`RamCells`] it is sparse and its clones share blocks until one
//!   of them writes.
//! - [`ChipModel`] and [`Preset`]: geometry, timing and ECC strength, by name where a paper or a data sheet gives them.
//!
//! It is not an array (`array`), and knows nothing of what is stored (`ubi`). It reads no clock; nothing draws random numbers but from the seed of a [`FaultModel`].
//!
//! The assumptions are in `docs/media.md`.

mod block;
mod model;
mod power;
mod sim;

pub use block::BlockState;
pub use model::{ChipModel, ModelError, Preset, Timing};
pub use power::{CutPoint, CutTime, PowerCut, PowerSupply};
pub use sim::{Access, Cells, FaultModel, RamCells, SimNand, Statistics};
