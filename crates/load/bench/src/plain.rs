//! The loop of what most runs are: reads or writes by calls, of one file, with nothing between them.
//!
//! It counts and measures what the loop of [`crate::worker`] does, which takes every other workload. What costs here is
//! what the harness adds to a cached read of 4 KiB: one reading of the clock, one count, and few lines of memory, as each
//! copy of a record pushes some out of the processor's nearest cache. So the flags of others are looked at, and progress
//! is told, when [`LOOK_NS`] have passed.

use std::sync::atomic::Ordering;

use crate::clock::Clock;
use crate::error::BenchError;
use crate::order::RecordOrder;
use crate::tally::{Count, Streak, Tally};
use crate::worker::{Course, Shared, Worker};

/// How soon a stop is seen, if the operation that it meets is shorter.
const LOOK_NS: u64 = 1_000_000;

impl Worker<'_> {
    /// True when nothing is done between two calls of one kind.
    pub fn is_plain(&self) -> bool {
        self.spec.pattern.reads() != self.spec.pattern.writes()
            && !self.syncs
            && self.pace.is_none()
            && self.log.is_none()
            && self.check.is_none()
            && self.target.descriptor().is_some()
    }

    /// True when everything was done, or done for as long as asked.
    pub fn work_plainly(
        &mut self,
        shared: &Shared<'_>,
        course: &mut Course,
        tally: &mut Tally,
    ) -> Result<bool, BenchError> {
        let spec = self.spec;
        let base = spec.base_of(self.index);
        let done_bytes = shared.done_bytes_of(self.index);
        // What earlier passes did counts on.
        let mut measured_bytes = done_bytes.load(Ordering::Relaxed);
        let mut now = self.clock.now_ns();
        loop {
            if shared.is_over() {
                return Ok(false);
            }
            if course.passes_ramp(now) {
                tally.clear();
                measured_bytes = 0;
            }
            if course.is_through(now) {
                return Ok(course.is_measuring());
            }
            let mut stretch = Stretch {
                base,
                record_bytes: spec.record_bytes,
                left: course.left,
                end_ns: course.next_point(now.saturating_add(LOOK_NS)),
                now,
            };
            if spec.pattern.reads() {
                self.read_all(&mut stretch, &mut tally.read)?;
            } else {
                self.write_all(&mut stretch, &mut tally.write)?;
            }
            now = stretch.now;
            measured_bytes += (course.left - stretch.left) * spec.record_bytes;
            course.left = stretch.left;
            // Only this thread writes the counter.
            done_bytes.store(measured_bytes, Ordering::Relaxed);
        }
    }

    fn read_all(&mut self, stretch: &mut Stretch, count: &mut Count) -> Result<(), BenchError> {
        let file = self.target.descriptor().expect("the worker is plain");
        let memory = self.memory.as_mut_slice();
        stretch.run(
            &mut self.order,
            self.clock,
            count,
            |offset| match rustix::io::pread(file, &mut *memory, offset) {
                Ok(moved) if moved == memory.len() => Ok(()),
                other => self.target.read_rest(other, offset, memory),
            },
        )
    }

    fn write_all(&mut self, stretch: &mut Stretch, count: &mut Count) -> Result<(), BenchError> {
        let file = self.target.descriptor().expect("the worker is plain");
        let content = &mut self.content;
        stretch.run(&mut self.order, self.clock, count, |offset| {
            let record = content.at(offset, 1);
            match rustix::io::pwrite(file, record, offset) {
                Ok(moved) if moved == record.len() => Ok(()),
                other => self.target.write_rest(other, offset, record),
            }
        })
    }
}

/// What is done before the next look around.
struct Stretch {
    /// Offset in the file of the record 0.
    base: u64,
    record_bytes: u64,
    /// Records that may still be visited.
    left: u64,
    /// No operation begins at this time or later.
    end_ns: u64,
    now: u64,
}

impl Stretch {
    /// Does one operation at least, if there are records left.
    #[inline(always)]
    fn run(
        &mut self,
        order: &mut RecordOrder,
        clock: Clock,
        count: &mut Count,
        mut operate: impl FnMut(u64) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let mut streak = Streak::new(count, self.now);
        while self.left > 0 {
            let mut done = 0;
            for record in order.upcoming() {
                operate(self.base + record * self.record_bytes)?;
                self.now = clock.now_ns();
                streak.add(self.now);
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
