//! UBIFS in user space, on-flash compatible with Linux: the reading half.
//!
//! - [`Ubifs::open`]: from an [`ubi::Volume`] to a file system as a mount by Linux would recover it; the journal is replayed in
//!   memory and nothing is written. [`ReplayReport`] says what the replay did and why.
//! - [`Ubifs`]: inodes, names, contents, extended attributes. Each method comes strict, and lossy where it can go on: what is
//!   lost is a [`Finding`] then, with its place on the medium.
//! - [`ImageVolume`]: a bare image of a volume in a file, as `mkfs.ubifs` makes it.
//! - [`format`]: the nodes on the medium. Spec: `docs/formats/ubifs.md`.
//!
//! The LPT and all other accounting of space is not read: files need none of it. There is no thread and no clock in here; all
//! methods may be called from several threads.

mod decompress;
mod fetch;
mod file_system;
mod finding;
pub mod format;
mod image;
mod index;
mod journal;
mod open;
mod replay;
mod scan;

pub use decompress::{DecompressError, decompress};
pub use file_system::{Entry, Extended, Ubifs, UbifsError};
pub use finding::{Damage, Finding, Place, Subject};
pub use image::ImageVolume;
pub use open::{OpenError, OpenOptions};
pub use replay::{BudEnd, BudReport, ReplayReport};
