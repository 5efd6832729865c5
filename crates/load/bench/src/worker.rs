//! One thread of a file workload, from the barrier to the close.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::access::Target;
use crate::clock::Clock;
use crate::data::{AlignedMemory, Content};
use crate::error::BenchError;
use crate::file::OperationOutcome;
use crate::latencies::Latencies;
use crate::operation_log::{LogWriter, OperationLog};
use crate::order::{RecordOrder, mixed, worker_seed};
use crate::processor::WorkerUse;
use crate::rate_limiter::{RateLimiter, sleep_until};
use crate::ring::Queue;
use crate::spec::{Cache, Engine, FileSpec, FinalSync, Pattern};
use crate::start_barrier::StartBarrier;
use crate::verify::{Expected, Generations, compare, written_seed};

/// Result of a thread; `None` if the run was cancelled before it began.
pub type Answer = Result<Option<WorkerOutcome>, BenchError>;

/// A worker's state, prepared before the timed window.
pub struct Worker<'run> {
    pub spec: &'run FileSpec,
    pub index: u32,
    pub target: Target,
    pub order: RecordOrder,
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

/// State of verification.
pub struct Check {
    pub generations: Generations,
    pub expected: Expected,
}

/// State shared by all workers.
pub struct Shared<'run> {
    pub barrier: StartBarrier,
    /// Set by the caller.
    pub stop: &'run AtomicBool,
    /// Set by a worker that failed; the others end.
    pub failed: AtomicBool,
    /// Bytes transferred, one counter per worker.
    pub done_bytes: Vec<Counter>,
}

impl Shared<'_> {
    /// The counter of a worker.
    pub fn done_bytes_of(&self, worker: u32) -> &AtomicU64 {
        let place = usize::try_from(worker).expect("worker numbers fit in memory");
        &self.done_bytes[place].0
    }

    /// True when workers should end as soon as they can.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }
}

/// A counter on its own cache line, so that workers do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(pub AtomicU64);

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

/// The clock of a run: ramp, start and end of the measurement.
pub struct RunClock {
    /// Operations left, including those of the ramp.
    pub left: u64,
    ramp_end_ns: Option<u64>,
    run_ns: u64,
    pub end_ns: u64,
    /// Start of the ramp.
    started_ns: u64,
    /// Start of the timed window.
    pub began_ns: u64,
    usage: Option<WorkerUse>,
}

impl<'run> Worker<'run> {
    pub fn new(spec: &'run FileSpec, index: u32, target: Target, order: RecordOrder) -> Self {
        let record = usize::try_from(spec.record_bytes).expect("records are checked to be at most 1 GiB");
        Self {
            spec,
            index,
            target,
            order,
            content: Content::written(record, spec.data, written_seed(spec, index)),
            // Not zero, so that the memory is allocated before the window.
            memory: AlignedMemory::new(record, 0xA5),
            limiter: RateLimiter::new(spec, index),
            check: spec.verify.then(|| Check {
                generations: Generations::new(spec.records()),
                expected: Expected::new(spec, index),
            }),
            syncs: spec.mode.syncs_each_write_by_call(),
            unsynced: 0,
            clock: Clock::best(),
            log: LogWriter::new(
                spec.log,
                spec.visited_records().saturating_mul(u64::from(spec.passes)),
            ),
        }
    }

    /// Waits at the barrier, works, syncs and closes. `None` if the run was cancelled before it began.
    pub fn run(mut self, shared: &Shared<'_>) -> Answer {
        let mut queue = self.queue()?;
        let mut latencies = Latencies::new();
        // Before the barrier: reading the kernel's files takes as long as a hundred operations.
        let usage = WorkerUse::of_this_thread();
        if !shared.barrier.wait() {
            return Ok(None);
        }
        let mut run_clock = RunClock::new(self.spec, self.clock.now_ns(), usage);
        if let Some(log) = &mut self.log {
            log.begin(run_clock.began_ns);
        }
        let mut final_sync = OperationOutcome::default();
        let mut complete = true;
        for pass in 0..self.spec.passes {
            if pass > 0 {
                self.begin_again(&mut run_clock, &mut final_sync)?;
            }
            complete = match &mut queue {
                Some(queue) => self.work_in_ring(queue, shared, &mut run_clock, &mut latencies)?,
                None if self.takes_fast_path() => {
                    self.run_fast_path(shared, &mut run_clock, &mut latencies)?
                }
                None => self.work(shared, &mut run_clock, &mut latencies)?,
            };
            if !complete {
                break;
            }
        }
        let worked_ns = self.clock.now_ns();
        // A stopped run ends at once: its results are partial anyway.
        if complete && self.spec.pattern.writes() && self.spec.final_sync != FinalSync::None {
            self.target.final_sync()?;
            final_sync.add(self.clock.now_ns().saturating_sub(worked_ns), 0);
        }
        let synced_ns = self.clock.now_ns();
        // A ring holds its file open.
        drop(queue);
        self.target.close()?;
        let closed_ns = self.clock.now_ns();
        Ok(Some(WorkerOutcome {
            index: self.index,
            latencies,
            final_sync,
            started_ns: run_clock.started_ns,
            began_ns: run_clock.began_ns,
            worked_ns,
            synced_ns,
            closed_ns,
            usage: WorkerUse::of_this_thread()
                .zip(run_clock.usage)
                .map(|(now, before)| now.since(before)),
            complete,
            generations: self.check.map(|check| check.generations),
            log: self.log.map(LogWriter::finish),
            shared_table: None,
        }))
    }

    /// Work between two passes, inside the window.
    fn begin_again(
        &self,
        run_clock: &mut RunClock,
        final_sync: &mut OperationOutcome,
    ) -> Result<(), BenchError> {
        if self.spec.pattern.writes() && self.spec.final_sync == FinalSync::Timed {
            let began_ns = self.clock.now_ns();
            self.target.final_sync()?;
            final_sync.add(self.clock.now_ns().saturating_sub(began_ns), 0);
        }
        if self.spec.cache == Cache::Cold {
            self.target.give_up_pages()?;
        }
        run_clock.left = self.spec.visited_records();
        Ok(())
    }

    /// The worker's ring, if the engine uses one.
    fn queue(&self) -> Result<Option<Queue>, BenchError> {
        match self.spec.engine {
            Engine::Psync => Ok(None),
            Engine::IoUring { depth } => {
                let record = self.memory.as_slice().len();
                Queue::new(depth, record, self.target.as_fd()).map(Some)
            }
        }
    }

    /// Returns true if all records were processed or the time limit was reached. Simple workloads use
    /// [`crate::fast_path`].
    ///
    /// If no work lies between two operations, the end of one is the start of the next: a clock reading costs a
    /// fiftieth of a cached read.
    fn work(
        &mut self,
        shared: &Shared<'_>,
        run_clock: &mut RunClock,
        latencies: &mut Latencies,
    ) -> Result<bool, BenchError> {
        let spec = self.spec;
        let seed = worker_seed(spec, self.index);
        let base = spec.base_of(self.index);
        let done_bytes = shared.done_bytes_of(self.index);
        let started_ns = run_clock.began_ns;
        let mut now = self.clock.now_ns();
        // The byte counter continues across passes.
        let mut measured_bytes = done_bytes.load(Ordering::Relaxed);
        let mut done = measured_bytes / spec.record_bytes;
        loop {
            if shared.is_over() {
                return Ok(false);
            }
            if let Some(limiter) = self.limiter {
                let ended = (done > 0).then_some(now);
                let due = limiter.due_ns(started_ns, done, ended).min(run_clock.end_ns);
                now = sleep_until(self.clock, due, || shared.is_over());
            }
            if run_clock.passes_ramp(now) {
                latencies.clear();
                if let Some(log) = &mut self.log {
                    log.begin(now);
                }
                measured_bytes = 0;
            }
            if run_clock.is_through(now) {
                return Ok(run_clock.is_measuring());
            }
            run_clock.left -= 1;
            let record = self.order.next();
            let offset = base + record * spec.record_bytes;
            now = if reads_this_record(spec.pattern, seed, record) {
                self.read(record, offset, now, latencies)?
            } else {
                self.write(record, offset, now, latencies)?
            };
            done += 1;
            measured_bytes += spec.record_bytes;
            // Only this thread writes the counter.
            done_bytes.store(measured_bytes, Ordering::Relaxed);
        }
    }

    /// Performs a read; returns the earliest start of the next operation.
    #[inline]
    fn read(
        &mut self,
        record: u64,
        offset: u64,
        start: u64,
        latencies: &mut Latencies,
    ) -> Result<u64, BenchError> {
        let memory = self.memory.as_mut_slice();
        self.target.read(offset, memory)?;
        let end = self.clock.now_ns();
        latencies.read.add(end.saturating_sub(start));
        if let Some(log) = &mut self.log {
            log.add(start, end);
        }
        // Prevents the copy out of a mapping from being optimized away.
        let found = std::hint::black_box(memory);
        let Some(check) = &mut self.check else {
            return Ok(end);
        };
        let generation = check.generations.of(record);
        if let Some(expected) = check.expected.at(offset, generation) {
            compare(self.target.path(), offset, expected, found)?;
        }
        Ok(self.clock.now_ns())
    }

    /// Performs a write; returns the earliest start of the next operation.
    #[inline]
    fn write(
        &mut self,
        record: u64,
        offset: u64,
        start: u64,
        latencies: &mut Latencies,
    ) -> Result<u64, BenchError> {
        let generation = match &mut self.check {
            Some(check) => check.generations.next(record),
            None => 1,
        };
        let content = self.content.at(offset, generation);
        self.target.write(offset, content)?;
        let written = self.clock.now_ns();
        latencies.write.add(written.saturating_sub(start));
        let mut end = written;
        if self.syncs {
            let length = content.len();
            if !self.sync_is_due() {
                return Ok(self.logged(start, end));
            }
            self.target.sync_after(offset, length, self.spec.sync_every)?;
            end = self.clock.now_ns();
            latencies.sync.add(end.saturating_sub(written));
        }
        Ok(self.logged(start, end))
    }

    fn logged(&mut self, start: u64, end: u64) -> u64 {
        if let Some(log) = &mut self.log {
            log.add(start, end);
        }
        end
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

impl RunClock {
    fn new(spec: &FileSpec, now: u64, usage: Option<WorkerUse>) -> Self {
        let (left, ramp_ns, run_ns) = match spec.time {
            None => (spec.visited_records(), None, u64::MAX),
            Some(limit) => (u64::MAX, Some(limit.ramp_ns), limit.run_ns),
        };
        Self {
            left,
            ramp_end_ns: ramp_ns.map(|ramp| now.saturating_add(ramp)),
            run_ns,
            end_ns: now.saturating_add(ramp_ns.unwrap_or(0)).saturating_add(run_ns),
            started_ns: now,
            began_ns: now,
            usage,
        }
    }

    /// Returns true once, at the end of the ramp, when the timed window begins.
    #[inline]
    pub fn passes_ramp(&mut self, now: u64) -> bool {
        if self.ramp_end_ns.is_none_or(|end| now < end) {
            return false;
        }
        self.ramp_end_ns = None;
        self.began_ns = now;
        // A worker that is in a slow operation at the end of the ramp measures for as long as the others.
        self.end_ns = now.saturating_add(self.run_ns);
        self.usage = WorkerUse::of_this_thread();
        true
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
}

/// Depends on the record, not on the order, so that a seed reads and writes the same records in any order.
#[inline]
pub fn reads_this_record(pattern: Pattern, seed: u64, record: u64) -> bool {
    match pattern {
        Pattern::SequentialRead | Pattern::RandomRead => true,
        Pattern::SequentialWrite | Pattern::RandomWrite | Pattern::Append => false,
        Pattern::Mixed { read_percent } | Pattern::SequentialMixed { read_percent } => {
            mixed(seed ^ record) % 100 < u64::from(read_percent)
        }
    }
}
