//! Calls on small files, counted and timed by kind.
//!
//! The kind of a call names its sample. An error names the call, the file and, for data, the offset; close is checked
//! too, as a file system may flush there.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::access::close;
use crate::data::{Content, in_file};
use crate::error::BenchError;
use crate::file::elapsed_ns;
use crate::file_outcome::OperationOutcome;
use crate::spec::DataPattern;

/// Size of each call that reads or writes a file whole.
pub const WHOLE_BYTES: usize = 1 << 20;

/// Outcomes by kind.
pub type Kinds = BTreeMap<&'static str, OperationOutcome>;

/// The calls of one thread, with its buffers.
#[derive(Debug)]
pub struct FileCalls {
    pub kinds: Kinds,
    content: Content,
    /// Number of written blocks of 4 KiB: no two have the same content.
    blocks: u64,
    buffer: Vec<u8>,
}

/// An open file.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    pub path: PathBuf,
}

impl FileCalls {
    /// Longer writes than `write_bytes`, rounded up to blocks of 4 KiB, are several calls.
    pub fn new(seed: u64, write_bytes: usize) -> Self {
        Self {
            kinds: Kinds::new(),
            // Records of whole blocks need no copy.
            content: Content::written(write_bytes.next_multiple_of(4096), DataPattern::Random, seed),
            blocks: 0,
            buffer: vec![0; WHOLE_BYTES],
        }
    }

    pub fn delete(&mut self, path: &Path) -> Result<(), BenchError> {
        let start = Instant::now();
        fs::remove_file(path).map_err(|error| BenchError::io("unlink", path, error))?;
        self.count("delete", start, 0);
        Ok(())
    }

    /// Opens an existing file, or creates a new one.
    pub fn open(&mut self, path: PathBuf, creates: bool) -> Result<OpenFile, BenchError> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create_new(creates);
        let start = Instant::now();
        let opened = options.open(&path);
        let file = opened.map_err(|error| BenchError::io("open", &path, error))?;
        self.count(if creates { "create" } else { "open" }, start, 0);
        Ok(OpenFile { file, path })
    }

    /// Reads a file that was just opened and has this length.
    pub fn read_whole(&mut self, open: &OpenFile, bytes: u64) -> Result<(), BenchError> {
        let start = Instant::now();
        let mut left = bytes;
        while left > 0 {
            let length = usize::try_from(left).map_or(WHOLE_BYTES, |left| left.min(WHOLE_BYTES));
            let read = (&open.file).read_exact(&mut self.buffer[..length]);
            read.map_err(|error| BenchError::io("read", &open.path, error))?;
            left -= in_file(length);
        }
        self.count("read", start, bytes);
        Ok(())
    }

    pub fn append(&mut self, open: &OpenFile, bytes: u64) -> Result<(), BenchError> {
        self.write("append", open, bytes, usize::MAX)
    }

    /// Writes a file that was just created, in calls of at most 1 MiB.
    pub fn write_whole(&mut self, open: &OpenFile, bytes: u64) -> Result<(), BenchError> {
        self.write("write", open, bytes, WHOLE_BYTES)
    }

    fn write(
        &mut self,
        kind: &'static str,
        open: &OpenFile,
        bytes: u64,
        call_bytes: usize,
    ) -> Result<(), BenchError> {
        let start = Instant::now();
        let mut left = bytes;
        while left > 0 {
            let length = usize::try_from(left).map_or(call_bytes, |left| left.min(call_bytes));
            let piece = self.content.start_at(self.blocks * 4096, length);
            let written = (&open.file).write_all(piece);
            written.map_err(|error| BenchError::io("write", &open.path, error))?;
            self.blocks += in_file(piece.len()).div_ceil(4096);
            left -= in_file(piece.len());
        }
        self.count(kind, start, bytes);
        Ok(())
    }

    pub fn stat(&mut self, path: &Path) -> Result<(), BenchError> {
        let start = Instant::now();
        fs::metadata(path).map_err(|error| BenchError::io("stat", path, error))?;
        self.count("stat", start, 0);
        Ok(())
    }

    pub fn sync(&mut self, open: &OpenFile) -> Result<(), BenchError> {
        let start = Instant::now();
        let synced = open.file.sync_all();
        synced.map_err(|error| BenchError::io("fsync", &open.path, error))?;
        self.count("sync", start, 0);
        Ok(())
    }

    /// Returns the path.
    pub fn close(&mut self, open: OpenFile) -> Result<PathBuf, BenchError> {
        let start = Instant::now();
        close(open.file, &open.path)?;
        self.count("close", start, 0);
        Ok(open.path)
    }

    /// Closes a file outside of the loops, without counting.
    pub fn close_after_loops(open: OpenFile) -> Result<(), BenchError> {
        close(open.file, &open.path)
    }

    fn count(&mut self, kind: &'static str, start: Instant, bytes: u64) {
        let latency_ns = elapsed_ns(start, Instant::now());
        self.kinds.entry(kind).or_default().add(latency_ns, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_of_a_set_repeats() {
        let directory = tempfile::tempdir().unwrap();
        let mut calls = FileCalls::new(1, 16_001);
        let mut blocks = std::collections::BTreeSet::new();
        for (name, bytes) in [("a", 40_000), ("b", 32_768), ("c", 5000), ("d", 4096)] {
            let file = calls.open(directory.path().join(name), true).unwrap();
            calls.append(&file, bytes).unwrap();
            let path = calls.close(file).unwrap();
            for block in fs::read(path).unwrap().chunks(4096) {
                assert!(blocks.insert(block.to_vec()), "a block of {name} repeats");
            }
        }
    }
}
