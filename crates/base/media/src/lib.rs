//! The contract of the media: the interface of every raw NAND device in this project, and its guarantees to the
//! layers above.
//!
//! It contains the units that cross crate boundaries ([`Peb`], [`Leb`], [`Page`], [`Sector`], [`ByteCount`],
//! [`Nanos`]), the [`NandGeometry`] with all conversions between them, the trait [`Nand`], its errors, and the
//! [`Clock`] that models time. It contains no device (those are in `nand` and `array`), no block layer, and nothing
//! that knows UBI. It imports no crate of ours. Its assumptions about real flash are in `docs/reference/media.md`.
//!
//! # Time
//!
//! Each device has its own [`Clock`]: the time at which it has finished all operations so far. An operation starts at
//! that time and moves the clock to its end; no operation takes or returns a time. Consequences:
//!
//! - The user of a single device (UBI) does not deal with time at all, and the clock still gives the total duration.
//! - The user of several devices (an array) keeps handles of their clocks, which work through any layer in between. A
//!   request that starts at `t` moves each member's clock to at least `t` ([`Clock::advance_to`]), runs the members'
//!   work one after another, and ends at the maximum of their clocks. The members have worked in parallel in virtual
//!   time, and the result does not depend on the order of threads.
//! - An adapter to real time moves the clock to the real clock before an operation, and afterwards sleeps until the
//!   real clock reaches the device's clock (`nand::RealTime`). Deadlines are absolute; errors do not accumulate.
//! - A real device (`/dev/mtdN`) moves its clock by the measured duration of an operation.
//!
//! The alternative, `now` as an argument and a completion time as a result of each operation, would have put time
//! into the signature of everything between a file system and a chip.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "testing")]
pub mod contract;
mod error;
mod geometry;
mod nand;
pub mod quantity;
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
