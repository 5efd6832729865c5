//! The contract of the media: what every raw NAND device of this project offers, and what those above may rely on.
//!
//! It is: the units that cross crate boundaries ([`Peb`], [`Leb`], [`Page`], [`Sector`], [`ByteCount`], [`Nanos`]), the
//! [`NandGeometry`] with all conversions between them, the trait [`Nand`], its errors, and the [`Clock`] by which time
//! passes. It is not: a device (those are in `nand` and `array`), a block layer, or anything that knows UBI. It imports
//! no crate of ours. What it assumes of real flash is in `docs/reference/media.md`.
//!
//! # Time
//!
//! Each device has a [`Clock`] of its own: the moment at which it has finished everything that was asked of it. An operation
//! starts at that moment and moves the clock to its end; no operation takes or returns a time. From that follows:
//!
//! - Whoever uses one device (UBI) never meets time at all, and the clock still says how long everything took.
//! - Whoever drives several (an array) keeps handles of their clocks, which work through any layer between. A request that
//!   starts at `t` moves each member's clock to at least `t` ([`Clock::advance_to`]), has the members work one after the
//!   other, and has ended at the largest of their clocks. Members have overlapped, and the answer does not depend on
//!   the order of threads.
//! - An edge that lives in real time moves the clock to what the real clock says before an operation, and sleeps until the real
//!   clock says what the device's clock says after it (`nand::RealTime`). Deadlines are absolute; errors don't add up.
//! - A device that exists (`/dev/mtdN`) moves its clock by what an operation took.
//!
//! The alternative, `now` as an argument and a completion as a result of each operation, would have put time into the
//! signature of everything between a file system and a chip.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "testing")]
pub mod contract;
mod error;
mod geometry;
mod nand;
#[cfg(feature = "testing")]
mod ram_nand;
mod time;
mod units;

pub use error::{GeometryError, NandError};
pub use geometry::{NandGeometry, PagePart, index};
pub use nand::{Host, Nand, ReadReport};
#[cfg(feature = "testing")]
pub use ram_nand::RamNand;
pub use time::{Clock, Nanos};
pub use units::{ByteCount, Leb, Page, Peb, Sector};
