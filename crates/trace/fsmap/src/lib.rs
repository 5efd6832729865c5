//! Maps blocks to owners: from byte ranges of an image, a device or a mounted file system to files and metadata.
//!
//! [`OwnerMap::open`] reads the structures of ext2, ext3, ext4 and FAT on an image or a device itself, including whole
//! disks with partitions, and asks the kernel (FIEMAP, GETFSMAP) about a mounted file system. [`OwnerMap::pieces`] then
//! answers in O(log n). Damaged or unknown parts are reported as a [`Finding`]; a path is never guessed.
//!
//! It is not a file system: it reads no content and writes nothing. Bounds: memory is proportional to files, names,
//! extents and groups; each byte of metadata is read at most twice. Layouts: docs/guide/trace-map.md.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod block_type;
mod bytes;
mod checksum;
mod ext4;
mod fat;
mod files;
mod finding;
pub mod listing;
mod mounted;
mod options;
mod owner_map;
mod partition;
mod probe;
mod resolve;
mod source;
mod volume;

pub use block_type::{BlockType, Class};
pub use files::{FileKind, Life, Path};
pub use finding::{Finding, FindingKind, Findings, KEPT_MAX, Place};
pub use mounted::{SystemOwner, SystemRegion, system_regions};
pub use options::{Flush, JournalDetail, OpenError, Options};
pub use owner_map::{Device, File, FileId, OwnerMap, Piece, Pieces, SECTOR_BYTES};
pub use probe::{Probed, probe};
pub use resolve::Content;
pub use source::ReadError;
pub use volume::{FileSystemKind, Total, Volume};
