//! Fast path: pread/pwrite on one file, without verification, rate limit, log or per-write sync.
//!
//! It performs the same operations in the same order as the loop of [`crate::worker`], which runs every other
//! workload; a test in `tests/file_workload.rs` compares the two. It adds one clock reading, one counter update and
//! few cache lines to a cached read of 4 KiB, because each copy of a record evicts cache lines from the processor's
//! first-level cache. It therefore reads the stop flags and reports progress only every [`LOOK_NS`].

use std::sync::atomic::Ordering;

use crate::clock::Clock;
use crate::error::BenchError;
use crate::latencies::{BackToBack, Latencies, LatencyCounter};
use crate::order::RecordOrder;
use crate::worker::{RunClock, Shared, Worker};

/// Largest delay of a stop, if the current operation is shorter.
const LOOK_NS: u64 = 1_000_000;

impl Worker<'_> {
    /// True if no work lies between two consecutive reads or writes.
    pub fn takes_fast_path(&self) -> bool {
        self.spec.pattern.reads() != self.spec.pattern.writes()
            && !self.syncs
            && self.limiter.is_none()
            && self.log.is_none()
            && self.check.is_none()
            && self.target.descriptor().is_some()
    }

    /// Returns true if all records were processed or the time limit was reached.
    pub fn run_fast_path(
        &mut self,
        shared: &Shared<'_>,
        run_clock: &mut RunClock,
        latencies: &mut Latencies,
    ) -> Result<bool, BenchError> {
        let spec = self.spec;
        let base = spec.base_of(self.index);
        let done_bytes = shared.done_bytes_of(self.index);
        // The byte counter continues across passes.
        let mut measured_bytes = done_bytes.load(Ordering::Relaxed);
        let mut now = self.clock.now_ns();
        loop {
            if shared.is_over() {
                return Ok(false);
            }
            if run_clock.passes_ramp(now) {
                latencies.clear();
                measured_bytes = 0;
            }
            if run_clock.is_through(now) {
                return Ok(run_clock.is_measuring());
            }
            let mut batch = Batch {
                base,
                record_bytes: spec.record_bytes,
                left: run_clock.left,
                end_ns: run_clock.next_point(now.saturating_add(LOOK_NS)),
                now,
            };
            if spec.pattern.reads() {
                self.read_all(&mut batch, &mut latencies.read)?;
            } else {
                self.write_all(&mut batch, &mut latencies.write)?;
            }
            now = batch.now;
            measured_bytes += (run_clock.left - batch.left) * spec.record_bytes;
            run_clock.left = batch.left;
            // Only this thread writes the counter.
            done_bytes.store(measured_bytes, Ordering::Relaxed);
        }
    }

    fn read_all(&mut self, batch: &mut Batch, count: &mut LatencyCounter) -> Result<(), BenchError> {
        let file = self.target.descriptor().expect("the worker is plain");
        let memory = self.memory.as_mut_slice();
        batch.run(
            &mut self.order,
            self.clock,
            count,
            |offset| match rustix::io::pread(file, &mut *memory, offset) {
                Ok(moved) if moved == memory.len() => Ok(()),
                other => self.target.read_rest(other, offset, memory),
            },
        )
    }

    fn write_all(&mut self, batch: &mut Batch, count: &mut LatencyCounter) -> Result<(), BenchError> {
        let file = self.target.descriptor().expect("the worker is plain");
        let content = &mut self.content;
        batch.run(&mut self.order, self.clock, count, |offset| {
            let record = content.at(offset, 1);
            match rustix::io::pwrite(file, record, offset) {
                Ok(moved) if moved == record.len() => Ok(()),
                other => self.target.write_rest(other, offset, record),
            }
        })
    }
}

/// The operations until the flags are read again.
struct Batch {
    /// File offset of record 0.
    base: u64,
    record_bytes: u64,
    /// Remaining records of the pass.
    left: u64,
    /// No operation starts at or after this time.
    end_ns: u64,
    now: u64,
}

impl Batch {
    /// Performs at least one operation if records are left.
    #[inline(always)]
    fn run(
        &mut self,
        order: &mut RecordOrder,
        clock: Clock,
        count: &mut LatencyCounter,
        mut operate: impl FnMut(u64) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut back_to_back = BackToBack::new(count, self.now);
        while self.left > 0 {
            let mut done = 0;
            for record in order.upcoming() {
                operate(self.base + record * self.record_bytes)?;
                self.now = clock.now_ns();
                back_to_back.add(self.now);
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
