//! Dumps of raw flash, read leniently: from the bytes of a chip to its UBI partitions, volumes and file systems.
//!
//! - [`Dump`]: a file, a block device, a stream or a [`ByteSource`], or a part of one.
//! - [`survey`]: finds the [`Partition`]s in a dump, at any byte offset, with or without OOB, between bootloaders, noise
//!   and erased areas, and bare UBIFS volumes outside of UBI.
//! - [`Volume`]: a volume of a partition, and its [`Content`]. [`Volume::open`] gives a readable [`ubi::Volume`].
//! - [`open_ubifs`]: the file system of a volume, also when its superblock is damaged or made for LEBs of another size.
//!   [`salvage_ubifs`]: the same by all nodes that a scan finds.
//! - [`Finding`]: each thing that was lost or decided, with its location in the dump.
//!
//! [`in_parallel`] divides work among the processors, for the search of headers and for readers of files.
//!
//! Dumps with OOB areas are corrected by their ECC, whose layout is found by trial or given ([`EccHint`]).
//!
//! Nothing is written, and nothing damaged is an error: a block that can't be understood is left out with a finding. The
//! attach of `ubi`, which decides as Linux does, stays the way for everything that writes. Arrays of several chips are not
//! assembled here.
//!
//! Memory: a few hundred bytes per block of the dump, and some megabytes of its content.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod blocks;
mod content;
mod correct;
mod dump;
mod ecc;
mod finding;
mod group;
mod open;
mod parallel;
mod partition;
mod scan;
mod shape;
mod survey;
mod table;
mod volume;

pub use blocks::BlockCounts;
pub use content::Content;
pub use correct::Correction;
pub use dump::{ByteSource, Dump, Window};
pub use finding::{Finding, Severity, What};
pub use open::{Opened, Salvaged, open_ubifs, salvage_ubifs};
pub use parallel::{Threads, in_parallel};
pub use partition::{Blocks, Partition};
pub use shape::{EccHint, Hints, HintsError, Shape};
pub use survey::{Area, BareVolume, Part, Survey, survey, unreadable_since};
pub use volume::{ContentStream, DumpVolume, Volume};
