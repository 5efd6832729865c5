//! The three phases of PostMark, with their system calls.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::io::{Errno, retry_on_intr};

use super::plan::{FileName, Plan, Step};
use super::{Buffering, PostmarkOutcome};
use crate::error::BenchError;
use crate::file::{elapsed_ns, unix_ns};
use crate::progress::{Phase, Progress};

/// Buffer size of the original's C library.
const STREAM_BUFFER_BYTES: u32 = 4096;

/// Number of steps between progress reports.
const BATCH: u64 = 64;

/// Whether a step runs in a phase of its own or in the transaction phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Alone,
    Mixed,
}

/// A run in progress.
pub(super) struct Run<'run> {
    pub directory: &'run Path,
    pub content: &'run [u8],
    pub read_buffer: Vec<u8>,
    pub outcome: PostmarkOutcome,
    pub progress: &'run dyn Progress,
    pub stop: &'run AtomicBool,
}

impl Run<'_> {
    /// Runs the three phases.
    pub fn phases(&mut self, mut plan: Plan<'_>) -> Result<(), BenchError> {
        self.outcome.started_unix_ns = unix_ns();
        let files = u64::from(self.outcome.spec.files);
        let start = Instant::now();
        for number in 0..files {
            if self.is_over(Phase::Create, number, files) {
                break;
            }
            self.step(plan.create(), Part::Alone)?;
        }
        let created = Instant::now();
        self.outcome.create_ns = elapsed_ns(start, created);
        self.transactions(&mut plan)?;
        let transacted = Instant::now();
        self.outcome.transactions_ns = elapsed_ns(created, transacted);
        let deletions = plan.deletions();
        let total = u64::try_from(deletions.len()).unwrap_or(u64::MAX);
        let start = Instant::now();
        for (number, step) in (0..).zip(deletions) {
            if self.is_over(Phase::Remove, number, total) {
                break;
            }
            self.step(step, Part::Alone)?;
        }
        self.outcome.delete_ns = elapsed_ns(start, Instant::now());
        self.outcome.complete = !self.stop.load(Ordering::Relaxed);
        Ok(())
    }

    fn transactions(&mut self, plan: &mut Plan<'_>) -> Result<(), BenchError> {
        let transactions = u64::from(self.outcome.spec.transactions);
        for number in 0..transactions {
            if self.is_over(Phase::Measure, number, transactions) {
                break;
            }
            let Some(steps) = plan.transaction() else {
                self.outcome.ran_out_of_files = true;
                break;
            };
            for step in steps.into_iter().flatten() {
                self.step(step, Part::Mixed)?;
            }
            self.outcome.transactions_count += 1;
        }
        Ok(())
    }

    /// Reports progress at every batch; returns true if the run must stop.
    fn is_over(&self, phase: Phase, number: u64, total: u64) -> bool {
        if number.is_multiple_of(BATCH) {
            self.progress.advance(phase, number, total);
        }
        self.stop.load(Ordering::Relaxed)
    }

    fn step(&mut self, step: Step, part: Part) -> Result<(), BenchError> {
        let start = Instant::now();
        let (outcome, bytes) = match step {
            Step::Create(name, bytes) => {
                self.write(
                    name,
                    bytes,
                    OpenOptions::new().write(true).create(true).truncate(true),
                )?;
                match part {
                    Part::Alone => (&mut self.outcome.create_alone, bytes),
                    Part::Mixed => (&mut self.outcome.create_mixed, bytes),
                }
            }
            Step::Append(name, bytes) => {
                self.write(name, bytes, OpenOptions::new().append(true))?;
                (&mut self.outcome.append, bytes)
            }
            Step::Read(name, bytes) => {
                self.read(name, bytes)?;
                (&mut self.outcome.read, bytes)
            }
            Step::Delete(name) => {
                let path = self.path(name);
                fs::remove_file(&path).map_err(|error| BenchError::io("unlink", &path, error))?;
                match part {
                    Part::Alone => (&mut self.outcome.delete_alone, 0),
                    Part::Mixed => (&mut self.outcome.delete_mixed, 0),
                }
            }
            Step::AppendSkipped => {
                self.outcome.appends_skipped_count += 1;
                return Ok(());
            }
            Step::CreateSkipped => {
                self.outcome.creates_skipped_count += 1;
                return Ok(());
            }
        };
        outcome.add(elapsed_ns(start, Instant::now()), u64::from(bytes));
        Ok(())
    }

    fn write(&self, name: FileName, bytes: u32, options: &OpenOptions) -> Result<(), BenchError> {
        let path = self.path(name);
        let file = options
            .open(&path)
            .map_err(|error| BenchError::io("open", &path, error))?;
        let block = self.call_bytes(self.outcome.spec.write_block_bytes);
        let length = usize::try_from(bytes).expect("sizes are checked to be at most 256 MiB");
        for piece in self.content[..length].chunks(block) {
            let mut rest = piece;
            while !rest.is_empty() {
                let written = retry_on_intr(|| rustix::io::write(&file, rest))
                    .and_then(|moved| if moved == 0 { Err(Errno::IO) } else { Ok(moved) })
                    .map_err(|errno| BenchError::io("write", &path, errno))?;
                rest = &rest[written..];
            }
        }
        crate::access::close(file, &path)
    }

    fn read(&mut self, name: FileName, bytes: u32) -> Result<(), BenchError> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|error| BenchError::io("open", &path, error))?;
        let block = self.call_bytes(self.outcome.spec.read_block_bytes);
        self.read_buffer.resize(block, 0);
        let mut left = usize::try_from(bytes).expect("sizes are checked to be at most 256 MiB");
        while left > 0 {
            let part = left.min(block);
            let buffer = &mut self.read_buffer[..part];
            let moved = retry_on_intr(|| rustix::io::read(&file, &mut *buffer))
                .map_err(|errno| BenchError::io("read", &path, errno))?;
            if moved == 0 {
                let missing_bytes = u64::try_from(left).unwrap_or(u64::MAX);
                return Err(BenchError::ShortRead {
                    path,
                    offset_bytes: u64::from(bytes) - missing_bytes,
                    missing_bytes,
                });
            }
            left -= moved;
        }
        crate::access::close(file, &path)
    }

    /// Bytes per call for blocks of this size.
    fn call_bytes(&self, block_bytes: u32) -> usize {
        let bytes = match self.outcome.spec.buffering {
            Buffering::Stream => block_bytes.max(STREAM_BUFFER_BYTES),
            Buffering::None => block_bytes,
        };
        usize::try_from(bytes).expect("blocks are checked to be at most 256 MiB")
    }

    fn path(&self, name: FileName) -> PathBuf {
        let mut path = self.directory.to_owned();
        if let Some(subdirectory) = name.subdirectory {
            path.push(format!("s{subdirectory}"));
        }
        path.push(name.number.to_string());
        path
    }
}
