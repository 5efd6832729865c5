//! What a map is made with, and why one could not be made.

use std::path::PathBuf;

/// How a map is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// First byte of the file system within what is opened; `None` looks for partitions.
    pub offset: Option<u64>,
    /// How closely the journal is looked at.
    pub journal: JournalDetail,
    /// Whether delayed data of a mounted file system is written first, so that it has a place.
    pub flush: Flush,
}

/// How closely a journal is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalDetail {
    /// Its superblock, the log, and the area of fast commits.
    Areas,
    /// Each block: descriptor, commit, revoke, or a copy, and of which block. Reads the whole journal.
    Blocks,
}

/// Whether delayed data is written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// It is.
    Yes,
    /// What has no place yet is left out, and counted.
    No,
}

/// Why there is no map at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// What was opened.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It holds nothing that can be mapped.
    #[error("{} can't be mapped: {reason}", path.display())]
    Unsupported {
        /// What was opened.
        path: PathBuf,
        /// What was found, and what to do.
        reason: String,
    },
}
