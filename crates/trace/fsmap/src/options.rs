//! Options of a map, and errors of making one.

use std::path::PathBuf;

/// Options of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Offset of the file system in the image or device; `None` looks for partitions.
    pub offset: Option<u64>,
    /// Detail in which the journal is read.
    pub journal: JournalDetail,
    /// Whether delayed data of a mounted file system is written first, so that it has a position.
    pub flush: Flush,
}

/// Detail in which a journal is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalDetail {
    /// Its superblock, the log, and the area of fast commits.
    Areas,
    /// Each block: descriptor, commit, revoke, or a copy with its original block. Reads the whole journal.
    Blocks,
}

/// Whether delayed data is written first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Write it.
    Yes,
    /// Leave out data that has no position yet, and count it.
    No,
}

/// Error that prevents a map.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The input can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Unreadable {
        /// Path of the input.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The input contains nothing that can be mapped.
    #[error("{} can't be mapped: {reason}", path.display())]
    Unsupported {
        /// Path of the input.
        path: PathBuf,
        /// Its content, and the user's next step.
        reason: String,
    },
}
