//! Creates file systems, empty or with the files of a [`Tree`], like `mkfs.ubifs`.
//!
//! - [`MkfsOptions`]: geometry; [`MkfsOptions::new`] has the defaults of `mkfs.ubifs`.
//! - [`Tree`]: the content: a host directory, a device table, or built by the caller.
//! - [`LebSink`]: the destination: a file or a volume. Each LEB is written once, the superblock last: an interrupted
//!   run leaves no file system.
//!
//! Layout: data and inodes from the start of the main area, an empty LEB for garbage collection, then the index from
//! its leaves up. The same tree and options give the same bytes, except for a random UUID.

mod build;
mod device_table;
mod host;
mod index;
mod options;
mod sink;
mod tree;

use thiserror::Error;

pub use build::{MkfsReport, make};
pub use device_table::{DeviceTableError, apply_device_table};
pub use host::{HostError, tree_of_folder};
pub use options::{Identity, KeyHash, LebCount, MkfsOptions, OptionError};
pub use sink::{FileSink, LebSink, VolumeSink};
pub use tree::{Attributes, Content, FileNumber, Time, Tree, TreeFile};

/// Why a file system can't be made.
#[derive(Debug, Error)]
pub enum MkfsError {
    /// The options contradict each other, or the format.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The files need more space.
    #[error(
        "the files need more than the {lebs} LEBs of {leb_bytes} bytes that the file system may have; \
         raise the largest number of LEBs (-c), or compress better (-x)"
    )]
    Full {
        /// Maximum number of LEBs.
        lebs: u32,
        /// LEB size, bytes.
        leb_bytes: u32,
    },
    /// A file can't be stored.
    #[error("{path}: {why}")]
    File {
        /// Its path in the file system.
        path: String,
        /// Reason, and possible values.
        why: String,
    },
    /// A file of the host can't be read.
    #[error("{path}: {source}")]
    Read {
        /// Its path on the host.
        path: String,
        /// The host's error.
        source: std::io::Error,
    },
    /// The destination failed to write.
    #[error("LEB {leb} can't be written: {source}")]
    Write {
        /// LEB number.
        leb: u32,
        /// Error of the destination.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
