//! UBIFS in user space, on-flash compatible with Linux in both directions.
//!
//! - [`Ubifs::open`]: opens the file system of a [`ubi::Volume`] in the state that a mount by Linux would recover.
//!   The journal is replayed in memory; nothing is written. [`ReplayReport`] says what the replay did and why.
//! - [`Ubifs`]: inodes, names, contents, extended attributes. Methods are strict; where reading can go on past damage
//!   there is a lossy variant, which reports each loss as a [`Finding`] with its location on the medium.
//! - [`Writer`]: the write path: journal, commit, garbage collection, recovery.
//! - [`mkfs`]: creates file systems.
//! - [`MountedUbifs`] and [`MountedWriter`]: a read-only and a read-write [`vfs::FileSystem`].
//! - [`ImageVolume`]: a bare volume image in a file, as made by `mkfs.ubifs`.
//! - [`RescuedVolume`]: a volume whose superblock is damaged, or whose LEBs have another size than the file system's.
//! - [`salvage`]: reads a damaged volume by all nodes that a scan finds.
//! - [`check`]: an independent checker that reports each fault and its location.
//! - [`mod@format`]: the nodes on the medium. Spec: `docs/formats/ubifs.md`.
//!
//! Reading files uses neither the LPT nor any other space accounting; [`Ubifs::space`] reads the LPT. This crate
//! reads no clock, and starts no thread except for the scan of [`salvage`]. Readers may be shared between threads; a writer has one owner at a time.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bud;
pub mod check;
mod compress;
mod content;
mod decompress;
mod encryption;
mod fetch;
mod file_system;
mod finding;
pub mod format;
mod image;
mod index;
mod journal;
mod known_inodes;
mod log;
mod lpt;
mod lzo;
pub mod mkfs;
mod mounted;
mod open;
mod replay;
mod report;
mod rescue;
pub mod salvage;
mod scan;
mod space;
mod write;

pub use compress::Compressor;
pub use content::SeekTarget;
pub use decompress::{DecompressError, decompress};
pub use encryption::{Locked, MasterKey, MasterName};
pub use file_system::{Entry, Extended, Ubifs, UbifsError};
pub use finding::{Damage, Finding, Place, Subject};
pub use image::ImageVolume;
pub use lpt::{LptDefect, LptError, LptProblem};
pub use mounted::{Clock, LossListener, MountedOptions, MountedUbifs, MountedWriter};
pub use open::{OpenError, OpenOptions};
pub use report::{
    AppliedNode, BudEnd, BudReport, DropRule, DroppedNode, Effect, LogEntry, LogLeb, LogNode, LogVerdict,
    ReplayReport, TornRule,
};
pub use rescue::{RebuiltSuperblock, RescuedVolume};
pub use space::{LebSpace, SpaceSums, Watermarks};
pub use write::{HeadStatistics, NameIn, NewFile, SpaceUser, WriteError, Writer, WriterStatistics};
