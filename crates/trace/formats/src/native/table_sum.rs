//! Length and checksum of a table: computed while it is written, checked before it is decoded.
//!
//! The Parquet decoder trusts its input, and a damaged page can make it panic; so no part of a table is decoded before
//! its sum has been verified. A table is the first `bytes` of its file: in a partial trace the bytes behind them were
//! not finished. This module does not know Parquet.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::reader::NativeReadError;

/// Bytes that are summed at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Length and checksum of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSum {
    /// Bytes from the start of its file.
    pub bytes: u64,
    /// CRC-32 (IEEE 802.3) of these bytes.
    pub crc32: u32,
}

/// Sums of a trace's three tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSums {
    /// Sum of `requests.parquet`.
    pub requests: TableSum,
    /// Sum of `runs.parquet`.
    pub runs: TableSum,
    /// Sum of `events.parquet`.
    pub events: TableSum,
}

/// Meaning of bytes behind a table in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Damage: the trace is complete.
    Nothing,
    /// Rows that an interrupted writer did not finish.
    Unfinished,
}

/// A file with a running sum of the bytes written to it.
#[derive(Debug)]
pub struct SummedFile {
    file: File,
    bytes: u64,
    hasher: crc32fast::Hasher,
}

impl SummedFile {
    pub fn new(file: File) -> Self {
        Self {
            file,
            bytes: 0,
            hasher: crc32fast::Hasher::new(),
        }
    }

    /// Sum of all bytes written so far.
    pub fn sum(&self) -> TableSum {
        TableSum {
            bytes: self.bytes,
            crc32: self.hasher.clone().finalize(),
        }
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

impl Write for SummedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += u64::try_from(written).unwrap_or(u64::MAX);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads the table in `file` once and compares it with its sum; returns the number of bytes behind it.
pub fn verify(path: &Path, file: &File, sum: TableSum, behind: Behind) -> Result<u64, NativeReadError> {
    let failed = |source| NativeReadError::Io {
        path: path.to_owned(),
        source,
    };
    let file_bytes = file.metadata().map_err(failed)?.len();
    if file_bytes < sum.bytes || (behind == Behind::Nothing && file_bytes > sum.bytes) {
        return Err(NativeReadError::Length {
            path: path.to_owned(),
            expected: sum.bytes,
            found: file_bytes,
        });
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut left = file.take(sum.bytes);
    loop {
        match left.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let found = hasher.finalize();
    if found != sum.crc32 {
        return Err(NativeReadError::Checksum {
            path: path.to_owned(),
            bytes: sum.bytes,
            expected: sum.crc32,
            found,
        });
    }
    Ok(file_bytes - sum.bytes)
}
