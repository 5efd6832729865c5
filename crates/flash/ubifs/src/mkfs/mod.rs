//! New file systems: empty, or with the files of a [`Tree`]. The job of `mkfs.ubifs`.
//!
//! - [`MkfsOptions`]: its shape; [`MkfsOptions::new`] has the defaults of `mkfs.ubifs`.
//! - [`Tree`]: what is to be in it: a folder of the host, a device table, or made by hand.
//! - [`LebSink`]: where it goes: a file, a volume. Every LEB is written once, the superblock last: what was interrupted is no
//!   file system.
//!
//! Layout: data and inodes from the start of the main area, an empty LEB for garbage collection, the index from its leaves up.
//! The same tree and options give the same bytes, but for the UUID where that is random.

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
    /// The options contradict one another, or the format.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The files need more space.
    #[error(
        "the files need more than the {lebs} LEBs of {leb_bytes} bytes that the file system may have; \
         raise the largest number of LEBs (-c), or compress better (-x)"
    )]
    Full {
        /// All that it may have.
        lebs: u32,
        /// Of each.
        leb_bytes: u32,
    },
    /// A file can't be stored.
    #[error("{path}: {why}")]
    File {
        /// Its path in the file system.
        path: String,
        /// Why, and what can be.
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
    /// What is written to does not take it.
    #[error("LEB {leb} can't be written: {source}")]
    Write {
        /// Which.
        leb: u32,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
