//! One thread of a file workload, from the start line to the close.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::access::Target;
use crate::data::RecordBuffer;
use crate::error::BenchError;
use crate::file::{OperationOutcome, elapsed_ns};
use crate::gate::Gate;
use crate::order::{Permutation, mixed};
use crate::processor::WorkerUse;
use crate::spec::{FileSpec, Pattern, Sharing};

/// Everything a worker needs, made before the timed window.
pub struct Worker<'run> {
    pub spec: &'run FileSpec,
    pub index: u32,
    /// File offset of the worker's part.
    pub base: u64,
    pub target: Target,
    pub buffer: RecordBuffer,
}

/// What all workers see.
pub struct Shared<'run> {
    pub gate: Gate,
    /// Raised by the caller.
    pub stop: &'run AtomicBool,
    /// Raised by a worker that failed: the others need not go on.
    pub failed: AtomicBool,
    /// Bytes done, one counter for each worker.
    pub done_bytes: Vec<Counter>,
}

/// A counter on a cache line of its own, so that workers do not slow each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(pub AtomicU64);

/// What one worker did, and when it passed each point of the timed window.
pub struct WorkerOutcome {
    pub read: OperationOutcome,
    pub write: OperationOutcome,
    pub sync: OperationOutcome,
    pub began: Instant,
    pub worked: Instant,
    pub synced: Instant,
    pub closed: Instant,
    pub usage: Option<WorkerUse>,
    pub complete: bool,
}

/// Which file a worker uses, and where its part begins.
pub fn part_of(spec: &FileSpec, files: &[PathBuf], index: u32) -> (PathBuf, u64) {
    match spec.sharing {
        Sharing::OneEach => {
            let place = usize::try_from(index).expect("worker numbers fit in memory");
            (files[place].clone(), 0)
        }
        Sharing::Shared => (files[0].clone(), u64::from(index) * spec.file_bytes),
    }
}

impl Worker<'_> {
    /// Waits at the gate, works, syncs and closes. `None` when the run was cancelled before it began.
    pub fn run(mut self, shared: &Shared<'_>) -> Result<Option<WorkerOutcome>, BenchError> {
        let before = WorkerUse::of_this_thread();
        if !shared.gate.wait() {
            return Ok(None);
        }
        let began = Instant::now();
        let mut outcome = WorkerOutcome {
            read: OperationOutcome::default(),
            write: OperationOutcome::default(),
            sync: OperationOutcome::default(),
            began,
            worked: began,
            synced: began,
            closed: began,
            usage: None,
            complete: false,
        };
        self.work(shared, &mut outcome)?;
        outcome.worked = Instant::now();
        self.final_sync(&mut outcome)?;
        outcome.synced = Instant::now();
        self.target.close()?;
        outcome.closed = Instant::now();
        outcome.usage = WorkerUse::of_this_thread()
            .zip(before)
            .map(|(now, before)| now.since(before));
        Ok(Some(outcome))
    }

    fn work(&mut self, shared: &Shared<'_>, outcome: &mut WorkerOutcome) -> Result<(), BenchError> {
        let spec = self.spec;
        let records = spec.records();
        let seed = mixed(spec.seed ^ (u64::from(self.index) << 32));
        let shuffle = (!spec.pattern.is_sequential()).then(|| Permutation::new(records, seed));
        let place = usize::try_from(self.index).expect("worker numbers fit in memory");
        let done_bytes = &shared.done_bytes[place].0;
        for step in 0..spec.visited_records() {
            if shared.stop.load(Ordering::Relaxed) || shared.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let record = shuffle.map_or(step, |shuffle| shuffle.at(step));
            let offset = self.base + record * spec.record_bytes;
            if reads_this_record(spec.pattern, seed, record) {
                self.read(offset, outcome)?;
            } else {
                self.write(offset, outcome)?;
            }
            // Only this thread writes the counter.
            done_bytes.store((step + 1) * spec.record_bytes, Ordering::Relaxed);
        }
        outcome.complete = true;
        Ok(())
    }

    fn read(&mut self, offset: u64, outcome: &mut WorkerOutcome) -> Result<(), BenchError> {
        let start = Instant::now();
        self.target.read(offset, self.buffer.as_mut_slice())?;
        outcome
            .read
            .add(elapsed_ns(start, Instant::now()), self.spec.record_bytes);
        // Keeps the copy out of a mapping from being optimised away.
        std::hint::black_box(self.buffer.as_mut_slice());
        Ok(())
    }

    fn write(&mut self, offset: u64, outcome: &mut WorkerOutcome) -> Result<(), BenchError> {
        let record = self.buffer.content_at(offset);
        let start = Instant::now();
        self.target.write(offset, record)?;
        let written = Instant::now();
        outcome
            .write
            .add(elapsed_ns(start, written), self.spec.record_bytes);
        if self.target.sync_record(offset, record.len())? {
            outcome.sync.add(elapsed_ns(written, Instant::now()), 0);
        }
        Ok(())
    }

    /// A stopped run ends at once: what it has is partial anyway.
    fn final_sync(&self, outcome: &mut WorkerOutcome) -> Result<(), BenchError> {
        if !self.spec.pattern.writes() || !outcome.complete {
            return Ok(());
        }
        let start = Instant::now();
        if self.target.sync_mapping(self.spec.file_bytes)? {
            outcome.sync.add(elapsed_ns(start, Instant::now()), 0);
        }
        if self.spec.fsync_at_end {
            let start = Instant::now();
            self.target.fsync()?;
            outcome.sync.add(elapsed_ns(start, Instant::now()), 0);
        }
        Ok(())
    }
}

/// Decided by the record, not by the order, so that a seed reads and writes the same records in any order.
fn reads_this_record(pattern: Pattern, seed: u64, record: u64) -> bool {
    match pattern {
        Pattern::SequentialRead | Pattern::RandomRead => true,
        Pattern::SequentialWrite | Pattern::RandomWrite => false,
        Pattern::Mixed { read_percent } => mixed(seed ^ record) % 100 < u64::from(read_percent),
    }
}
