//! UBIFS in user space, on-flash compatible with Linux in both directions.
//!
//! - [`Ubifs::open`]: from an [`ubi::Volume`] to a file system as a mount by Linux would recover it; the journal is replayed in
//!   memory and nothing is written. [`ReplayReport`] says what the replay did and why.
//! - [`Ubifs`]: inodes, names, contents, extended attributes. Each method comes strict, and lossy where it can go on: what is
//!   lost is a [`Finding`] then, with its place on the medium.
//! - [`Writer`]: the same for writing: journal, commit, garbage collection, recovery.
//! - [`mkfs`]: new file systems.
//! - [`MountedUbifs`]: the same as a [`vfs::FileSystem`], for a mount; [`MountedWriter`] for one that is written to.
//! - [`ImageVolume`]: a bare image of a volume in a file, as `mkfs.ubifs` makes it.
//! - [`check`]: a walker of its own that says what is wrong with a volume and where.
//! - [`mod@format`]: the nodes on the medium. Spec: `docs/formats/ubifs.md`.
//!
//! Files are read without the LPT and all other accounting of space; [`Ubifs::space`] reads it. There is no thread and no clock
//! in here. All methods of what reads may be called from several threads; a writer has one owner at a time.

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
pub use space::{LebSpace, SpaceSums, Watermarks};
pub use write::{HeadStatistics, NameIn, NewFile, SpaceUser, WriteError, Writer, WriterStatistics};
