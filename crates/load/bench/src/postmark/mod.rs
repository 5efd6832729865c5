//! PostMark: the load of a mail or news server, many small files that are created and deleted.
//!
//! Three timed phases: the pool is created, transactions run on it (each one read or append, then one create or
//! delete), and the remaining files are removed. The plan (files, sizes and order) is that of PostMark 1.51 for the
//! same settings; see [`plan`]. There are no syncs, as in the original.
//!
//! Differences from the original:
//! - a call that fails ends the run with an error (the original prints a line and continues counting);
//! - appends and creates that the plan skips are counted and reported (the original does not report them);
//! - deleted files are those deleted (the original prints the created ones), rates use nanoseconds instead of whole
//!   seconds, bytes are counted in integers instead of 24-bit fractions, and fewer than ten transactions are allowed;
//! - buffered mode makes the calls of the original's C library: pieces of 4 KiB, or of the block size if that is
//!   larger.

mod phases;
mod plan;
mod report;
mod twister;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use self::phases::Run;
use self::plan::Plan;
use crate::error::BenchError;
use crate::file::unix_ns;
use crate::file_outcome::OperationOutcome;
use crate::prepare::check_bytes;
use crate::processor::{ProcessorUse, UsageWindow, WorkerUse};
use crate::progress::Progress;
use crate::scratch::Scratch;

/// Largest file: twice its size is held in memory.
const SIZE_BYTES_MAX: u32 = 256 << 20;

/// Largest pool: its table has twice as many entries.
const FILES_MAX: u32 = 10_000_000;

/// The specification of a PostMark run. There is no `Default`: see [`PostmarkSpec::original_defaults`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostmarkSpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// Files in the pool before the transactions.
    pub files: u32,
    /// Number of transactions.
    pub transactions: u32,
    /// Smallest file.
    pub size_low_bytes: u32,
    /// Files are created smaller than this (or equal, if it equals the smallest size), and grow to at most this.
    pub size_high_bytes: u32,
    /// Block size of reads, if unbuffered.
    pub read_block_bytes: u32,
    /// Block size of writes, if unbuffered.
    pub write_block_bytes: u32,
    /// Chance in ten that a transaction reads instead of appending; `None` for neither.
    pub read_bias: Option<u8>,
    /// Chance in ten that a transaction creates instead of deleting; `None` for neither.
    pub create_bias: Option<u8>,
    /// Subdirectories over which files are spread; 0 and 1 mean none.
    pub subdirectories: u32,
    /// Whether small blocks are buffered as in the C library.
    pub buffering: Buffering,
    /// Seed of the original's random numbers: determines files, sizes, order and content.
    pub postmark_seed: u32,
}

/// How blocks become system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffering {
    /// As the C library's streams: calls of 4 KiB, or of the block size if that is larger.
    Stream,
    /// One call per block.
    None,
}

impl PostmarkSpec {
    /// The default settings of PostMark 1.51.
    #[must_use]
    pub const fn original_defaults(directory: PathBuf) -> Self {
        Self {
            directory,
            files: 500,
            transactions: 500,
            size_low_bytes: 500,
            size_high_bytes: 10_000,
            read_block_bytes: 512,
            write_block_bytes: 512,
            read_bias: Some(5),
            create_bias: Some(5),
            subdirectories: 0,
            buffering: Buffering::Stream,
            postmark_seed: 42,
        }
    }

    /// The ext4 load of the flex-group study: 5,000 files of 1 MB, 10,000 transactions (published). "1 MB" is taken
    /// as 2^20 bytes (assumed); all other settings are the defaults of 1.51 (assumed).
    #[must_use]
    pub fn flex_group(directory: PathBuf) -> Self {
        Self {
            files: 5_000,
            transactions: 10_000,
            size_low_bytes: 1 << 20,
            size_high_bytes: 1 << 20,
            ..Self::original_defaults(directory)
        }
    }

    fn validate(&self) -> Result<(), BenchError> {
        let in_range = |field, value: u32, low: u32, high: u32| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(BenchError::spec(
                field,
                format!("{value}, expected {low} to {high}"),
            ))
        };
        in_range("files", self.files, 1, FILES_MAX)?;
        in_range("smallest size", self.size_low_bytes, 1, SIZE_BYTES_MAX)?;
        in_range(
            "largest size",
            self.size_high_bytes,
            self.size_low_bytes,
            SIZE_BYTES_MAX,
        )?;
        in_range("read block", self.read_block_bytes, 1, SIZE_BYTES_MAX)?;
        in_range("write block", self.write_block_bytes, 1, SIZE_BYTES_MAX)?;
        in_range("subfolders", self.subdirectories, 0, FILES_MAX)?;
        for (field, bias) in [("read bias", self.read_bias), ("create bias", self.create_bias)] {
            in_range(field, u32::from(bias.unwrap_or(0)), 0, 10)?;
        }
        Ok(())
    }

    /// Checks that the pool fits: at most twice the files, each of the largest size, or the pool and one file per
    /// transaction, whichever is less.
    fn check_space(&self) -> Result<(), BenchError> {
        let files = u64::from(self.files);
        let most = (files * 2).min(files + u64::from(self.transactions));
        let file_bytes = u64::from(self.size_high_bytes).next_multiple_of(4096);
        // Creates and deletes balance at around half of the transactions unless the bias says otherwise, so the pool
        // must fit; a bias above 5 fills the table.
        let expected = if self.create_bias.is_some_and(|bias| bias > 5) {
            most
        } else {
            files
        };
        check_bytes(&self.directory, expected.saturating_mul(file_bytes))?;
        let space = rustix::fs::statvfs(&self.directory)
            .map_err(|errno| BenchError::io("statvfs", &self.directory, errno))?;
        let needed = expected + u64::from(self.subdirectories) + 1;
        if space.f_files > 0 && needed > space.f_favail {
            return Err(BenchError::NoInodes {
                directory: self.directory.clone(),
                needed,
                free: space.f_favail,
            });
        }
        Ok(())
    }
}

/// The outcome of a PostMark run.
#[derive(Clone, Debug, PartialEq)]
pub struct PostmarkOutcome {
    /// The specification of the run.
    pub spec: PostmarkSpec,
    /// False if the run was stopped: everything below is partial.
    pub complete: bool,
    /// Start of the first phase (wall clock).
    pub started_unix_ns: u64,
    /// Files created for the pool: open, writes, close.
    pub create_alone: OperationOutcome,
    /// Files created by transactions.
    pub create_mixed: OperationOutcome,
    /// Files read to the end: open, reads, close.
    pub read: OperationOutcome,
    /// Files appended to: open, writes, close.
    pub append: OperationOutcome,
    /// Files removed by transactions.
    pub delete_mixed: OperationOutcome,
    /// Files removed at the end.
    pub delete_alone: OperationOutcome,
    /// Number of completed transactions.
    pub transactions_count: u64,
    /// Appends skipped because the file had its full size.
    pub appends_skipped_count: u64,
    /// Creates skipped because the table was full.
    pub creates_skipped_count: u64,
    /// True if no file was left before the last transaction.
    pub ran_out_of_files: bool,
    /// Duration of the first phase.
    pub create_ns: u64,
    /// Duration of the second phase.
    pub transactions_ns: u64,
    /// Duration of the third phase.
    pub delete_ns: u64,
    /// Processor use of the whole machine over the three phases.
    pub processor: Option<ProcessorUse>,
    /// Processor use of the worker thread over the three phases.
    pub worker: Option<WorkerUse>,
    /// Why the test directory could not be removed.
    pub leftover: Option<String>,
}

/// Runs PostMark. Raising `stop` ends it early with a partial outcome; the test directory is always removed.
///
/// # Errors
/// Before anything is touched: a contradiction in the specification, too little space. Later: any call that failed.
pub fn run(
    spec: &PostmarkSpec,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<PostmarkOutcome, BenchError> {
    spec.validate()?;
    spec.check_space()?;
    let scratch = Scratch::create(&spec.directory)?;
    for number in 0..if spec.subdirectories > 1 {
        spec.subdirectories
    } else {
        0
    } {
        let path = scratch.path().join(format!("s{number}"));
        fs::create_dir(&path).map_err(|error| BenchError::io("mkdir", &path, error))?;
    }
    let (plan, content) = Plan::new(spec);
    let mut run = Run {
        directory: scratch.path(),
        content: &content,
        read_buffer: Vec::new(),
        outcome: PostmarkOutcome::nothing_yet(spec),
        progress,
        stop,
    };
    let usage = UsageWindow::begin();
    run.phases(plan)?;
    let usage = usage.end();
    let mut outcome = run.outcome;
    outcome.samples()?;
    (outcome.processor, outcome.worker) = usage;
    outcome.leftover = scratch.remove();
    Ok(outcome)
}

impl PostmarkOutcome {
    fn nothing_yet(spec: &PostmarkSpec) -> Self {
        Self {
            spec: spec.clone(),
            complete: false,
            started_unix_ns: unix_ns(),
            create_alone: OperationOutcome::default(),
            create_mixed: OperationOutcome::default(),
            read: OperationOutcome::default(),
            append: OperationOutcome::default(),
            delete_mixed: OperationOutcome::default(),
            delete_alone: OperationOutcome::default(),
            transactions_count: 0,
            appends_skipped_count: 0,
            creates_skipped_count: 0,
            ran_out_of_files: false,
            create_ns: 0,
            transactions_ns: 0,
            delete_ns: 0,
            processor: None,
            worker: None,
            leftover: None,
        }
    }
}
