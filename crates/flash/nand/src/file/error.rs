//! Why chips in files can't be made or opened.

use std::io;
use std::path::{Path, PathBuf};

use media::NandGeometry;
use thiserror::Error;

use super::sidecar_path;
use crate::SidecarError;

/// Why a chip in a file can't be made or opened.
#[derive(Debug, Error)]
pub enum FileError {
    /// The host refused.
    #[error("{}: {action} failed: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// There is something already.
    #[error("{} exists already; choose another name, or give --force to replace it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process has the chip open.
    #[error("{} is in use by another process, which holds its lock", path.display())]
    Locked {
        /// The image.
        path: PathBuf,
    },
    /// It has no side-car, and nobody said what chip it is of.
    #[error(
        "{} has no side-car {}; say what chip it is of, with --preset or --page and --pages-per-block",
        path.display(), sidecar_path(path).display()
    )]
    UnknownChip {
        /// The image.
        path: PathBuf,
    },
    /// The side-car is damaged or of another version.
    #[error("{}: {source}; move it away and say what chip the image is of, to go on without its counters", path.display())]
    Sidecar {
        /// The side-car.
        path: PathBuf,
        /// What is wrong.
        source: SidecarError,
    },
    /// The image is cut off, or its chip is another one.
    #[error(
        "{}: {found} bytes are no whole number of blocks of {block_bytes} bytes; \
         check the geometry, and give --with-oob exactly when the image holds OOB areas", path.display()
    )]
    PartialBlock {
        /// The image.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// Bytes of one block in the image.
        block_bytes: u64,
    },
    /// The image is not as long as its side-car says.
    #[error("{}: the image has {found} bytes, the chip by its side-car {expected}", path.display())]
    Length {
        /// The image.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The length by the side-car.
        expected: u64,
    },
    /// The side-car says something else than the user.
    #[error(
        "{} is of another chip by its side-car: {recorded:?}, not {asked:?}; leave the geometry out", path.display()
    )]
    Contradiction {
        /// The image.
        path: PathBuf,
        /// By the side-car.
        recorded: Box<NandGeometry>,
        /// By the caller.
        asked: Box<NandGeometry>,
    },
}

pub(super) fn host(path: &Path, action: &'static str, source: io::Error) -> FileError {
    FileError::Host {
        path: path.into(),
        action,
        source,
    }
}
