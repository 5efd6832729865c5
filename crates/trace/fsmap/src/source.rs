//! Bounded reads of an image file or a block device, or of one partition of it.
//!
//! Nothing is mapped into memory: a medium may shrink or fail while it is read, and both are errors here. Nothing is
//! ever written. Offsets count from the start of the partition.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::OpenError;

/// An image, a device, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    file: Arc<File>,
    path: PathBuf,
    base: u64,
    length: u64,
}

/// Error of a read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The range extends beyond the medium.
    #[error("bytes {start}+{length} are past the end at {end}")]
    PastEnd {
        /// First byte requested.
        start: u64,
        /// Bytes requested.
        length: u64,
        /// End of the medium.
        end: u64,
    },
    /// The medium failed.
    #[error("bytes at {start} can't be read: {source}")]
    Failed {
        /// First byte requested.
        start: u64,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Source {
    /// Opens an image or a device for reading.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if length == 0 {
            // Neither an empty image nor a character device has anything to map.
            let mut one = [0];
            let found = file.read(&mut one).map_err(failed)?;
            let reason = if found == 0 {
                "it is empty"
            } else {
                "it has no size; only images and block devices can be mapped"
            };
            return Err(OpenError::Unsupported {
                path: path.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(Self {
            file: Arc::new(file),
            path: path.to_owned(),
            base: 0,
            length,
        })
    }

    /// The part from `start` of at most `length` bytes, limited to the medium.
    pub(crate) fn part(&self, start: u64, length: u64) -> Self {
        let start = start.min(self.length);
        Self {
            base: self.base + start,
            length: length.min(self.length - start),
            ..self.clone()
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `buffer` from byte `start`.
    pub(crate) fn read(&self, start: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let length = crate::bytes::count(buffer.len());
        if start.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(ReadError::PastEnd {
                start,
                length,
                end: self.length,
            });
        }
        self.file
            .read_exact_at(buffer, self.base + start)
            .map_err(|source| ReadError::Failed { start, source })
    }
}
