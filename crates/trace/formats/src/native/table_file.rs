//! The bytes of an open table, at any place for any number of readers at a time.
//!
//! The crate parquet reads a [`File`] by seeking, and its clones share one position: two readers of a file would
//! read at each other's places.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// The first bytes of a file.
#[derive(Clone, Debug)]
pub struct TableFile {
    file: Arc<File>,
    bytes: u64,
}

impl TableFile {
    /// The first `bytes` of `file`.
    pub fn new(file: File, bytes: u64) -> Self {
        let file = Arc::new(file);
        Self { file, bytes }
    }

    /// Reads all of `buffer` from this place on.
    pub fn read_exact_at(&self, buffer: &mut [u8], start: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, start)
    }
}

impl Length for TableFile {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for TableFile {
    type T = BufReader<ReadAt>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(ReadAt {
            file: Arc::clone(&self.file),
            at: start,
            end: self.bytes,
        }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let left = self.bytes.saturating_sub(start);
        if u64::try_from(length).is_ok_and(|length| length <= left) {
            let mut bytes = vec![0; length];
            self.read_exact_at(&mut bytes, start)?;
            return Ok(bytes.into());
        }
        Err(ParquetError::EOF(format!(
            "{length} bytes at {start} of a table of {}",
            self.bytes
        )))
    }
}

/// Reads from a place on.
pub struct ReadAt {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for ReadAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += u64::try_from(read).map_err(io::Error::other)?;
        Ok(read)
    }
}
