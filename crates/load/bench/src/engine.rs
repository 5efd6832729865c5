//! One thread of a file workload: opens its files, waits at the start barrier, works, syncs and closes; with the loop that
//! performs one operation at a time, by a call or through a mapping.
//!
//! [`Batch::run`] is the only loop. It takes records from the order and passes each to one of three operations: a
//! read, a write, or any of both with verification, log and syncs. The first two do what the third does when nothing
//! else is required; tests compare the calls of all, and those of a ring. They exist because each copy of a record
//! evicts cache lines from the processor's first-level cache, and a cached read of 4 KiB takes 0.3 us: the loop may
//! cost one clock reading, one counter update and few cache lines. The stop flags, the ramp and the progress counter
//! therefore wait for the end of a batch.
//!
//! A ring has a separate loop ([`crate::ring`]), built from the same [`Worker::operation_on`], [`RunState`] and
//! [`Worker::sync_is_due`]: its completions arrive in any order, so it keeps a table of operations in flight, which
//! costs more than a call at depth 1 may.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use crate::access::Target;
#[cfg(test)]
use crate::access::issued;
use crate::descriptors::take_own_table;
use crate::error::BenchError;
use crate::file_outcome::OperationOutcome;
use crate::latencies::{BackToBack, Latencies};
use crate::operation_log::LogWriter;
use crate::order::RecordOrder;
use crate::processor::WorkerUse;
use crate::rate_limiter::sleep_until;
use crate::ring::Queue;
use crate::spec::{Cache, Engine, FileSpec, FinalSync};
use crate::threads::Shared;
use crate::worker::{Operation, RunState, Worker, WorkerOutcome, open};

/// Largest delay of a stop, if the current operation is shorter.
const LOOK_NS: u64 = 1_000_000;

/// The operations until the flags are read again.
struct Batch {
    /// Largest number of operations left.
    left: u64,
    /// No operation starts at or after this time.
    end_ns: u64,
    now: u64,
}

impl Batch {
    /// Performs at least one operation if records are left. `operate` gets record and start time, and returns the
    /// earliest start of the next operation.
    #[inline(always)]
    fn run(
        &mut self,
        order: &mut RecordOrder,
        mut operate: impl FnMut(u64, u64) -> Result<u64, BenchError>,
    ) -> Result<(), BenchError> {
        while self.left > 0 {
            let mut done = 0;
            for record in order.upcoming() {
                self.now = operate(*record, self.now)?;
                done += 1;
                if done == self.left || self.now >= self.end_ns {
                    break;
                }
            }
            order.advance(done);
            self.left -= done;
            if self.now >= self.end_ns {
                break;
            }
        }
        Ok(())
    }
}

/// Runs worker `index` in this thread, with its own file descriptor table if the kernel allows one. `None` if the run
/// was cancelled before it began.
pub fn run(
    spec: &FileSpec,
    index: u32,
    files: &[PathBuf],
    order: RecordOrder,
    shared: &Shared<'_>,
) -> Result<Option<WorkerOutcome>, BenchError> {
    // SAFETY: the thread was started for this function, which received no descriptor. The worker closes every
    // descriptor that it opens in this thread, and its result contains none.
    let shared_table = unsafe { take_own_table() }.err();
    let target = open(spec, index, files)?;
    if spec.cache == Cache::Warm {
        // Faults in the pages of a mapping.
        target.prefault(spec.pattern.writes())?;
    }
    let outcome = Worker::new(spec, index, target).work(index, order, shared)?;
    Ok(outcome.map(|outcome| WorkerOutcome {
        shared_table,
        ..outcome
    }))
}

impl Worker<'_> {
    /// Waits at the barrier, works, syncs and closes.
    fn work(
        mut self,
        index: u32,
        order: RecordOrder,
        shared: &Shared<'_>,
    ) -> Result<Option<WorkerOutcome>, BenchError> {
        let mut queue = self.queue()?;
        let mut run = RunState::new(self.spec, index, order, shared);
        if !shared.wait() {
            return Ok(None);
        }
        run.begin(self.spec, self.clock.now_ns());
        if let Some(log) = &mut self.log {
            log.begin(run.began_ns);
        }
        let mut final_sync = OperationOutcome::default();
        let mut complete = true;
        for pass in 0..self.spec.passes {
            if pass > 0 {
                self.begin_again(&mut run, &mut final_sync)?;
            }
            complete = match &mut queue {
                Some(queue) => self.run_ring(queue, &mut run)?,
                None => self.run_operations(&mut run)?,
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
            index,
            latencies: run.latencies,
            final_sync,
            started_ns: run.started_ns,
            began_ns: run.began_ns,
            worked_ns,
            synced_ns,
            closed_ns,
            usage: WorkerUse::of_this_thread_since(run.usage),
            complete,
            generations: self.check.map(|check| check.generations),
            log: self.log.map(LogWriter::finish),
            shared_table: None,
        }))
    }

    /// Work between two passes, inside the window.
    fn begin_again(
        &self,
        run: &mut RunState<'_>,
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
        run.left = self.spec.visited_records();
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

    /// Performs the operations of a pass. Returns true if all records were processed or the time limit was reached.
    pub fn run_operations(&mut self, run: &mut RunState<'_>) -> Result<bool, BenchError> {
        let mut now = self.clock.now_ns();
        loop {
            if run.shared.is_over() {
                return Ok(false);
            }
            if let Some(limiter) = self.limiter {
                let ended = (run.begun > 0).then_some(now);
                let due = limiter.due_ns(run.started_ns, run.begun, ended).min(run.end_ns);
                now = sleep_until(self.clock, due, || run.shared.is_over());
            }
            self.pass_ramp(run, now);
            if run.is_through(now) {
                return Ok(run.is_measuring());
            }
            let most = match self.limiter {
                None => run.left,
                Some(_) => 1,
            };
            let mut batch = Batch {
                left: most,
                end_ns: run.next_point(now.saturating_add(LOOK_NS)),
                now,
            };
            if !self.is_plain() {
                self.run_any(&mut batch, run)?;
            } else if self.spec.pattern.reads() {
                self.run_reads(&mut batch, run)?;
            } else {
                self.run_writes(&mut batch, run)?;
            }
            now = batch.now;
            let done = most - batch.left;
            run.left -= done;
            run.begun += done;
            run.count_bytes(done * self.spec.record_bytes);
        }
    }

    /// True if all operations are reads or all are writes, and nothing is to be done between two of them.
    fn is_plain(&self) -> bool {
        self.spec.pattern.reads() != self.spec.pattern.writes()
            && !self.syncs
            && self.log.is_none()
            && self.check.is_none()
    }

    fn run_reads(&mut self, batch: &mut Batch, run: &mut RunState<'_>) -> Result<(), BenchError> {
        let (base, record_bytes) = (self.offset_of(0), self.spec.record_bytes);
        let (clock, memory) = (self.clock, self.memory.as_mut_slice());
        let mut latencies = BackToBack::new(&mut run.latencies.read, batch.now);
        if let Some(file) = self.target.single_file() {
            return batch.run(&mut run.order, |record, _| {
                file.read(base + record * record_bytes, memory)?;
                let end = clock.now_ns();
                latencies.add(end);
                Ok(end)
            });
        }
        batch.run(&mut run.order, |record, _| {
            self.target.read(base + record * record_bytes, memory)?;
            let end = clock.now_ns();
            latencies.add(end);
            // Prevents the copy out of a mapping from being optimized away.
            std::hint::black_box(&mut *memory);
            Ok(end)
        })
    }

    fn run_writes(&mut self, batch: &mut Batch, run: &mut RunState<'_>) -> Result<(), BenchError> {
        let (base, record_bytes) = (self.offset_of(0), self.spec.record_bytes);
        let (clock, content) = (self.clock, &mut self.content);
        let mut latencies = BackToBack::new(&mut run.latencies.write, batch.now);
        if let Some(file) = self.target.single_file() {
            return batch.run(&mut run.order, |record, _| {
                let offset = base + record * record_bytes;
                file.write(offset, content.at(offset, 1))?;
                let end = clock.now_ns();
                latencies.add(end);
                Ok(end)
            });
        }
        batch.run(&mut run.order, |record, _| {
            let offset = base + record * record_bytes;
            self.target.write(offset, content.at(offset, 1))?;
            let end = clock.now_ns();
            latencies.add(end);
            Ok(end)
        })
    }

    fn run_any(&mut self, batch: &mut Batch, run: &mut RunState<'_>) -> Result<(), BenchError> {
        let RunState { order, latencies, .. } = run;
        batch.run(order, |record, start| {
            let operation = self.operation_on(record);
            if operation.reads {
                self.read(operation, start, latencies)
            } else {
                self.write(operation, start, latencies)
            }
        })
    }

    fn read(
        &mut self,
        operation: Operation,
        start: u64,
        latencies: &mut Latencies,
    ) -> Result<u64, BenchError> {
        let memory = self.memory.as_mut_slice();
        self.target.read(operation.offset, memory)?;
        let end = self.clock.now_ns();
        latencies.read.add(end.saturating_sub(start));
        // Prevents the copy out of a mapping from being optimized away.
        let found = std::hint::black_box(memory);
        if let Some(log) = &mut self.log {
            log.add(start, end);
        }
        let Some(check) = &mut self.check else {
            return Ok(end);
        };
        check.compare(self.target.path(), operation, found)?;
        Ok(self.clock.now_ns())
    }

    fn write(
        &mut self,
        operation: Operation,
        start: u64,
        latencies: &mut Latencies,
    ) -> Result<u64, BenchError> {
        let content = self.content.at(operation.offset, operation.generation);
        let length = content.len();
        self.target.write(operation.offset, content)?;
        let written = self.clock.now_ns();
        latencies.write.add(written.saturating_sub(start));
        let mut end = written;
        if self.syncs && self.sync_is_due() {
            self.target
                .sync_after(operation.offset, length, self.spec.sync_every)?;
            end = self.clock.now_ns();
            latencies.sync.add(end.saturating_sub(written));
        }
        if let Some(log) = &mut self.log {
            log.add(start, end);
        }
        Ok(end)
    }
}

/// One unmapped file: a transfer is one call, unless the call transfers less.
#[derive(Clone, Copy)]
pub struct SingleFile<'target> {
    descriptor: BorrowedFd<'target>,
    target: &'target Target,
}

impl<'target> SingleFile<'target> {
    /// The first file of a target, which is not mapped.
    #[inline]
    pub fn of(target: &'target Target) -> Self {
        Self {
            descriptor: target.as_fd(),
            target,
        }
    }

    /// Reads the whole of `record`.
    #[inline]
    pub fn read(self, offset: u64, record: &mut [u8]) -> Result<(), BenchError> {
        #[cfg(test)]
        issued::note("read", offset, &[]);
        match rustix::io::pread(self.descriptor, &mut *record, offset) {
            Ok(moved) if moved == record.len() => Ok(()),
            other => self.target.read_rest(other, offset, record),
        }
    }

    /// Writes the whole of `record`.
    #[inline]
    pub fn write(self, offset: u64, record: &[u8]) -> Result<(), BenchError> {
        #[cfg(test)]
        issued::note("write", offset, record);
        match rustix::io::pwrite(self.descriptor, record, offset) {
            Ok(moved) if moved == record.len() => Ok(()),
            other => self.target.write_rest(other, offset, record),
        }
    }
}

#[cfg(test)]
mod tests;
