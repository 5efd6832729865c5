//! Content of a file as runs of blocks between holes, and a reader over them.

use std::io::Read;

use ubifs::format::{BLOCK_BYTES, Inode};
use ubifs::{Finding, Ubifs};

/// Size of one read: with the nodes that it is made from it stays in a processor's cache until it is written.
const PIECE_BYTES: usize = 256 << 10;

/// A contiguous range of a file without holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub bytes: u64,
}

/// The runs of a file, in ascending order.
pub fn runs(ubifs: &Ubifs, file: &Inode, lost: &mut Vec<Finding>) -> Vec<Run> {
    let block_bytes = u64::from(BLOCK_BYTES);
    let mut runs: Vec<Run> = Vec::new();
    for block in ubifs.file_blocks_lossy(file, lost) {
        let offset = u64::from(block) * block_bytes;
        let bytes = file.size_bytes.saturating_sub(offset).min(block_bytes);
        match runs.last_mut() {
            _ if bytes == 0 => break,
            Some(run) if run.offset + run.bytes == offset => run.bytes += bytes,
            Some(run) if run.offset + run.bytes > offset => {}
            _ => runs.push(Run { offset, bytes }),
        }
    }
    runs
}

/// Reads the runs of a file in order. Lost blocks read as zeros.
pub struct RunReader<'a> {
    ubifs: &'a Ubifs,
    file: &'a Inode,
    runs: &'a [Run],
    piece: Vec<u8>,
    taken: usize,
    /// Offset in the file of the next byte to read, at the end of the current piece.
    offset: u64,
    /// Losses found so far.
    pub lost: Vec<Finding>,
}

impl<'a> RunReader<'a> {
    /// Creates a reader of `runs` of `file`.
    pub fn new(ubifs: &'a Ubifs, file: &'a Inode, runs: &'a [Run]) -> Self {
        Self {
            ubifs,
            file,
            runs,
            piece: Vec::new(),
            taken: 0,
            offset: 0,
            lost: Vec::new(),
        }
    }

    /// The next piece and its offset in the file; `None` at the end.
    pub fn next_piece(&mut self) -> Option<(u64, &[u8])> {
        let run = self.runs.first()?;
        let from = run.offset.max(self.offset);
        let left = run.offset + run.bytes - from;
        let bytes = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        self.piece.resize(bytes, 0);
        let filled = self
            .ubifs
            .read_lossy(self.file, from, &mut self.piece, &mut self.lost);
        self.piece[filled..].fill(0);
        self.offset = from + u64::try_from(bytes).unwrap_or(u64::MAX);
        if self.offset >= run.offset + run.bytes {
            self.runs = &self.runs[1..];
        }
        Some((from, &self.piece))
    }
}

impl Read for RunReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.piece.len() {
            self.taken = 0;
            if self.next_piece().is_none() {
                self.piece.clear();
                return Ok(0);
            }
        }
        let rest = &self.piece[self.taken..];
        let bytes = rest.len().min(out.len());
        out[..bytes].copy_from_slice(&rest[..bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}
