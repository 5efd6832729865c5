//! The content of a file in the pieces that it has: runs of blocks between holes, and a reader over them.

use std::io::Read;

use ubifs::format::{BLOCK_BYTES, Inode};
use ubifs::{Finding, Ubifs};

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a file that are no hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
}

/// The runs of a file, ascending.
pub fn runs(ubifs: &Ubifs, file: &Inode, lost: &mut Vec<Finding>) -> Vec<Run> {
    let block_bytes = u64::from(BLOCK_BYTES);
    let mut runs: Vec<Run> = Vec::new();
    for block in ubifs.blocks_lossy(file.key.inode_number(), lost) {
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

/// Reads the bytes of runs, one after the other. What is lost is zeros.
pub struct RunReader<'a> {
    ubifs: &'a Ubifs,
    file: &'a Inode,
    runs: &'a [Run],
    piece: Vec<u8>,
    taken: usize,
    /// Where the piece begins in the file.
    offset: u64,
    /// What was lost so far.
    pub lost: Vec<Finding>,
}

impl<'a> RunReader<'a> {
    /// A reader of `runs` of `file`.
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

    /// The next piece with its place in the file; `None` behind the last.
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
