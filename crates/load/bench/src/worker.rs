//! The state of one thread of a file workload: its files, what it has ready, and how far it is. [`crate::engine`] runs it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::access::Target;
use crate::clock::Clock;
use crate::data::{AlignedMemory, Content};
use crate::error::BenchError;
use crate::file_outcome::OperationOutcome;
use crate::latencies::Latencies;
use crate::operation_log::{LogWriter, OperationLog};
use crate::order::{RecordOrder, mixed, worker_seed};
use crate::processor::WorkerUse;
use crate::rate_limiter::RateLimiter;
use crate::spec::{FileSpec, Pattern};
use crate::threads::Shared;
use crate::verify::{Check, Generations, written_seed};

/// The state of a worker between operations, prepared before the timed window.
pub struct Worker<'run> {
    pub spec: &'run FileSpec,
    /// File offset of record 0.
    base: u64,
    seed: u64,
    pub target: Target,
    pub content: Content,
    /// Destination of reads.
    pub memory: AlignedMemory,
    pub limiter: Option<RateLimiter>,
    pub check: Option<Check>,
    /// True if the mode syncs by a call after writes.
    pub syncs: bool,
    /// Number of writes since the last sync.
    unsynced: u32,
    pub log: Option<LogWriter>,
    pub clock: Clock,
}

/// An operation on a record.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub record: u64,
    /// In the worker's files.
    pub offset: u64,
    pub reads: bool,
    /// The number of writes of the record, this one included; 1 without verification.
    pub generation: u32,
}

/// Progress and results of a worker's run.
pub struct RunState<'run> {
    pub shared: &'run Shared<'run>,
    pub order: RecordOrder,
    /// Operations left in this pass, including those of the ramp.
    pub left: u64,
    /// Operations begun, including those of the ramp.
    pub begun: u64,
    pub latencies: Latencies,
    /// Bytes transferred in the timed window, for progress reports.
    done_bytes: &'run AtomicU64,
    /// End of the ramp, until then.
    ramp_end_ns: Option<u64>,
    run_ns: u64,
    pub end_ns: u64,
    /// Start of the ramp.
    pub started_ns: u64,
    /// Start of the timed window.
    pub began_ns: u64,
    pub usage: Option<WorkerUse>,
}

/// Results of one worker, with the times of the timed window's phases (monotonic clock).
pub struct WorkerOutcome {
    pub index: u32,
    pub latencies: Latencies,
    pub final_sync: OperationOutcome,
    /// Start of the ramp.
    pub started_ns: u64,
    pub began_ns: u64,
    pub worked_ns: u64,
    pub synced_ns: u64,
    pub closed_ns: u64,
    pub usage: Option<WorkerUse>,
    pub complete: bool,
    pub generations: Option<Generations>,
    pub log: Option<OperationLog>,
    /// Why the worker shared the process's file descriptor table, if it did.
    pub shared_table: Option<Errno>,
}

/// Opens (and maps) the files of worker `index`; `files` are those of all workers.
pub fn open(spec: &FileSpec, index: u32, files: &[PathBuf]) -> Result<Target, BenchError> {
    let number = usize::try_from(spec.file_of(index)).expect("file numbers fit in memory");
    let further = usize::try_from(spec.files_of_each - 1).expect("file numbers fit in memory");
    let mut target = Target::open(&files[number], spec, spec.base_of(index))?;
    target.go_on_in(&files[number + 1..=number + further], spec)?;
    Ok(target)
}

impl<'run> Worker<'run> {
    pub fn new(spec: &'run FileSpec, index: u32, target: Target) -> Self {
        let record = usize::try_from(spec.record_bytes).expect("records are checked to be at most 1 GiB");
        Self {
            spec,
            base: spec.base_of(index),
            seed: worker_seed(spec, index),
            target,
            content: Content::written(record, spec.data, written_seed(spec, index)),
            // Not zero, so that the memory is allocated before the window.
            memory: AlignedMemory::new(record, 0xA5),
            limiter: RateLimiter::new(spec, index),
            check: spec.verify.then(|| Check::new(spec, index)),
            syncs: spec.mode.syncs_each_write_by_call(),
            unsynced: 0,
            clock: Clock::best(),
            log: LogWriter::new(
                spec.log,
                spec.visited_records().saturating_mul(u64::from(spec.passes)),
            ),
        }
    }

    /// File offset of a record.
    #[inline]
    pub const fn offset_of(&self, record: u64) -> u64 {
        self.base + record * self.spec.record_bytes
    }

    /// The operation on a record; verification counts it if it writes.
    #[inline]
    pub fn operation_on(&mut self, record: u64) -> Operation {
        let reads = reads_this_record(self.spec.pattern, self.seed, record);
        let generation = match &mut self.check {
            None => 1,
            Some(check) if reads => check.generations.of(record),
            Some(check) => check.generations.next(record),
        };
        Operation {
            record,
            offset: self.offset_of(record),
            reads,
            generation,
        }
    }

    /// Begins the timed window if the ramp is over.
    #[inline]
    pub fn pass_ramp(&mut self, run: &mut RunState<'_>, now: u64) {
        if run.ramp_end_ns.is_some_and(|end| now >= end) {
            run.begin_window(now);
            if let Some(log) = &mut self.log {
                log.begin(now);
            }
        }
    }

    /// Counts a write of a mode that syncs by call; returns true if its sync is due.
    pub fn sync_is_due(&mut self) -> bool {
        self.unsynced += 1;
        let is_due = self.unsynced >= self.spec.sync_every;
        if is_due {
            self.unsynced = 0;
        }
        is_due
    }
}

impl<'run> RunState<'run> {
    pub fn new(spec: &FileSpec, index: u32, order: RecordOrder, shared: &'run Shared<'run>) -> Self {
        Self {
            shared,
            order,
            left: match spec.time {
                None => spec.visited_records(),
                Some(_) => u64::MAX,
            },
            begun: 0,
            latencies: Latencies::new(),
            done_bytes: shared.done_by(index),
            ramp_end_ns: None,
            run_ns: spec.time.map_or(u64::MAX, |limit| limit.run_ns),
            end_ns: 0,
            started_ns: 0,
            began_ns: 0,
            // Before the barrier: reading the kernel's files takes as long as a hundred operations.
            usage: WorkerUse::of_this_thread(),
        }
    }

    /// Begins the ramp, or without one the timed window.
    pub fn begin(&mut self, spec: &FileSpec, now: u64) {
        let ramp_ns = spec.time.map(|limit| limit.ramp_ns);
        self.ramp_end_ns = ramp_ns.map(|ramp| now.saturating_add(ramp));
        self.end_ns = now
            .saturating_add(ramp_ns.unwrap_or(0))
            .saturating_add(self.run_ns);
        (self.started_ns, self.began_ns) = (now, now);
    }

    /// Begins the timed window, and discards the counts of the ramp.
    #[cold]
    fn begin_window(&mut self, now: u64) {
        self.ramp_end_ns = None;
        self.began_ns = now;
        // A worker that is in a slow operation at the end of the ramp measures for as long as the others.
        self.end_ns = now.saturating_add(self.run_ns);
        self.usage = WorkerUse::of_this_thread();
        self.latencies.clear();
        self.done_bytes.store(0, Ordering::Relaxed);
    }

    /// True if no further operation may start.
    #[inline]
    pub const fn is_through(&self, now: u64) -> bool {
        self.left == 0 || now >= self.end_ns
    }

    /// The next start or end of a phase, or `look_ns` if that is earlier.
    pub fn next_point(&self, look_ns: u64) -> u64 {
        self.ramp_end_ns.unwrap_or(u64::MAX).min(self.end_ns).min(look_ns)
    }

    /// True when the timed window has begun.
    pub const fn is_measuring(&self) -> bool {
        self.ramp_end_ns.is_none()
    }

    /// Reports transferred bytes. Only this thread writes the counter.
    #[inline]
    pub fn count_bytes(&self, bytes: u64) {
        let done = self.done_bytes.load(Ordering::Relaxed);
        self.done_bytes.store(done + bytes, Ordering::Relaxed);
    }
}

/// Depends on the record, not on the order, so that a seed reads and writes the same records in any order.
#[inline]
fn reads_this_record(pattern: Pattern, seed: u64, record: u64) -> bool {
    match pattern {
        Pattern::SequentialRead | Pattern::RandomRead => true,
        Pattern::SequentialWrite | Pattern::RandomWrite | Pattern::Append => false,
        Pattern::Mixed { read_percent } | Pattern::SequentialMixed { read_percent } => {
            mixed(seed ^ record) % 100 < u64::from(read_percent)
        }
    }
}
