//! Errors of creating and opening chips in files.

use std::io;
use std::path::{Path, PathBuf};

use media::NandGeometry;
use thiserror::Error;

use super::sidecar_path;
use crate::SidecarError;

/// Error of creating or opening a chip in a file.
#[derive(Debug, Error)]
pub enum FileError {
    /// The host's operation failed.
    #[error("{}: {action} failed: {source}", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The host's error.
        source: io::Error,
    },
    /// The file exists already.
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
    /// The image has no side-car, and the caller did not specify the chip.
    #[error(
        "{} has no side-car {}; say what chip it is of, with --preset or --page and --pages-per-block",
        path.display(), sidecar_path(path).display()
    )]
    UnknownChip {
        /// The image.
        path: PathBuf,
    },
    /// The side-car is damaged or has an unsupported version.
    #[error("{}: {source}; move it away and say what chip the image is of, to go on without its counters", path.display())]
    Sidecar {
        /// The side-car.
        path: PathBuf,
        /// The damage.
        source: SidecarError,
    },
    /// The file size is not a whole number of blocks.
    #[error(
        "{}: {found} bytes are no whole number of blocks of {block_bytes} bytes: the geometry or the size of OOB areas is \
         wrong, or the image is truncated; a copy that `truncate -s {}` has filled up can be read", path.display(),
        found.div_ceil(*block_bytes) * block_bytes
    )]
    PartialBlock {
        /// The image.
        path: PathBuf,
        /// File size in bytes.
        found: u64,
        /// Size of a block in the image, bytes.
        block_bytes: u64,
    },
    /// The length of the image differs from that in its side-car.
    #[error(
        "{}: the image has {found} bytes, the chip by its side-car {expected}; move {} away to read the image without it",
        path.display(), sidecar_path(path).display()
    )]
    Length {
        /// The image.
        path: PathBuf,
        /// File size in bytes.
        found: u64,
        /// Length by the side-car.
        expected: u64,
    },
    /// The side-car contradicts the caller's specification.
    #[error(
        "{} is of another chip by its side-car: {recorded:?}, not {asked:?}; leave the geometry out", path.display()
    )]
    Contradiction {
        /// The image.
        path: PathBuf,
        /// Geometry in the side-car.
        recorded: Box<NandGeometry>,
        /// Geometry specified by the caller.
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
