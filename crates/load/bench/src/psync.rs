//! The loop of a worker that performs one operation at a time, by a call or through a mapping.
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

use crate::access::Target;
#[cfg(test)]
use crate::access::issued;
use crate::error::BenchError;
use crate::latencies::{BackToBack, Latencies};
use crate::order::RecordOrder;
use crate::rate_limiter::sleep_until;
use crate::worker::{Operation, RunState, Worker};

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

impl Worker<'_> {
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
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::access::issued::Issued;
    use crate::operation_log::LogLimits;
    use crate::order::offsets;
    use crate::spec::{Engine, FileSpec, Mode, Order, Pattern, Rate, WriteTarget};
    use crate::threads::{PROGRESS_EVERY, STACK_BYTES, Shared};
    use crate::worker;

    const RECORD: u64 = 512;
    const RECORDS: u64 = 21;

    /// The calls of a worker, in their order.
    fn issued_by(spec: &FileSpec) -> Vec<Issued> {
        let file = spec.directory.join("file");
        fs::write(&file, vec![7; 512 * 21]).unwrap();
        let stop = AtomicBool::new(false);
        let (shared, files) = (&Shared::new(1, &stop), &[file]);
        let work = || {
            let order = RecordOrder::of_all(spec).remove(0);
            worker::run(spec, 0, files, order, shared)?;
            Ok(Some(issued::take()))
        };
        let watch = |(): &mut ()| PROGRESS_EVERY;
        let ran = shared.run(("test", STACK_BYTES), vec![work], || (), watch);
        ran.unwrap().1.remove(0)
    }

    #[test]
    fn all_loops_issue_the_same_calls_in_the_same_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut specs = Vec::new();
        for (pattern, order, passes, mode) in [
            (Pattern::SequentialRead, Order::EachOnce, 2, Mode::BUFFERED),
            (Pattern::RandomRead, Order::EachOnce, 3, Mode::BUFFERED),
            (Pattern::RandomRead, Order::WithReplacement, 1, Mode::BUFFERED),
            (Pattern::SequentialWrite, Order::EachOnce, 2, Mode::BUFFERED),
            (Pattern::RandomWrite, Order::Mobibench, 1, Mode::BUFFERED),
            (Pattern::RandomWrite, Order::EachOnce, 1, Mode::FDATASYNC),
            (
                Pattern::Mixed { read_percent: 40 },
                Order::EachOnce,
                2,
                Mode::FSYNC,
            ),
        ] {
            let whole = FileSpec {
                order,
                passes,
                mode,
                sync_every: if mode == Mode::FSYNC { 3 } else { 1 },
                write_target: WriteTarget::ExistingFile,
                ..FileSpec::plain(directory.path().to_owned(), pattern, RECORD, RECORD * RECORDS)
            };
            for records in [1, 7, 8, 9, 20] {
                let part = FileSpec {
                    records_max: Some(records),
                    ..whole.clone()
                };
                specs.push(part);
            }
            specs.push(whole);
        }
        for spec in specs {
            let found = issued_by(&spec);
            let transfers = found.iter().filter(|(kind, ..)| *kind != "sync");
            let visited: Vec<u64> = transfers.map(|(_, offset, _)| *offset).collect();
            assert_eq!(
                visited,
                offsets(&spec, 0).unwrap().collect::<Vec<_>>(),
                "{spec:?}"
            );
            let logged = FileSpec {
                log: LogLimits {
                    latencies_max: 1,
                    seconds_max: 0,
                },
                ..spec.clone()
            };
            let limited = FileSpec {
                rate: Some(Rate::OperationsPerSecond(1_000_000)),
                ..spec.clone()
            };
            let ring = FileSpec {
                engine: Engine::IoUring { depth: 1 },
                ..spec.clone()
            };
            for other in [logged, limited, ring] {
                assert_eq!(issued_by(&other), found, "{other:?}");
            }
        }
    }
}
