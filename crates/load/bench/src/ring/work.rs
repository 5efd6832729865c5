//! The loop of a worker with a ring.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::queue::{Call, Completion, Queue};
use crate::error::BenchError;
use crate::latencies::Latencies;
use crate::order::worker_seed;
use crate::rate_limiter::sleep_until;
use crate::spec::Mode;
use crate::verify::compare;
use crate::worker::{RunClock, Shared, Worker, reads_this_record};

/// One operation, in the slot of the same number.
#[derive(Clone, Copy, Debug)]
struct Operation {
    call: Call,
    record: u64,
    offset: u64,
    generation: u32,
    /// Bytes transferred.
    done: usize,
    /// Submission time of the call; `None` while it waits in the ring.
    start_ns: Option<u64>,
    /// Submission time of the operation's first call.
    begun_ns: Option<u64>,
}

const STAMPED: &str = "calls are stamped before they are submitted";

/// A worker's state besides its ring.
struct InFlight {
    /// `None` is a free slot.
    operations: Vec<Option<Operation>>,
    /// The earliest time at which each free slot may be reused.
    free_from_ns: Vec<u64>,
    /// A record that waits for another operation on it.
    held_back: Option<u64>,
    begun: u64,
    started_ns: u64,
    measured_bytes: u64,
}

impl InFlight {
    /// Sets the start time of all calls that wait in the ring. Called right before they are submitted, regardless of
    /// how they were pushed: no call completes without a start time.
    fn stamp(&mut self, now: u64) {
        for operation in self.operations.iter_mut().flatten() {
            operation.start_ns.get_or_insert(now);
            operation.begun_ns.get_or_insert(now);
        }
    }
}

impl Worker<'_> {
    /// The loop of a worker with a ring. Returns true if all records were processed or the time limit was reached.
    pub fn work_in_ring(
        &mut self,
        queue: &mut Queue,
        shared: &Shared<'_>,
        run_clock: &mut RunClock,
        latencies: &mut Latencies,
    ) -> Result<bool, BenchError> {
        let depth =
            usize::try_from(self.spec.engine.depth()).expect("queues are checked to be at most 4096 deep");
        let mut in_flight = InFlight {
            operations: vec![None; depth],
            free_from_ns: vec![run_clock.began_ns; depth],
            held_back: None,
            begun: 0,
            started_ns: run_clock.began_ns,
            measured_bytes: 0,
        };
        let done_bytes = shared.done_bytes_of(self.index);
        // The counters continue across passes.
        in_flight.measured_bytes = done_bytes.load(Ordering::Relaxed);
        in_flight.begun = in_flight.measured_bytes / self.spec.record_bytes;
        let mut now = self.clock.now_ns();
        let mut answers = Vec::with_capacity(depth);
        loop {
            if run_clock.passes_ramp(now) {
                latencies.clear();
                in_flight.measured_bytes = 0;
                if let Some(log) = &mut self.log {
                    log.begin(now);
                }
            }
            let is_over = shared.is_over();
            if now >= run_clock.end_ns {
                in_flight.held_back = None;
            }
            let goes_on = !is_over && (in_flight.held_back.is_some() || !run_clock.is_through(now));
            let wake_ns = if goes_on {
                self.fill(queue, run_clock, &mut in_flight, now)?
            } else {
                None
            };
            if queue.unanswered() == 0 {
                if !goes_on {
                    return Ok(!is_over && run_clock.is_measuring());
                }
                let due = wake_ns.unwrap_or(now).min(run_clock.end_ns);
                now = sleep_until(self.clock, due, || shared.is_over());
                continue;
            }
            let timeout = wake_ns.map(|due| due.min(run_clock.end_ns).saturating_sub(now));
            in_flight.stamp(self.clock.now_ns());
            answers.clear();
            answers.extend_from_slice(queue.wait(timeout)?);
            now = self.clock.now_ns();
            for answer in &answers {
                self.take(queue, &mut in_flight, *answer, now, latencies)?;
            }
            // Only this thread writes the counter.
            done_bytes.store(in_flight.measured_bytes, Ordering::Relaxed);
        }
    }

    /// Starts operations in free slots; if more can start later, returns the time.
    fn fill(
        &mut self,
        queue: &mut Queue,
        run_clock: &mut RunClock,
        in_flight: &mut InFlight,
        now: u64,
    ) -> Result<Option<u64>, BenchError> {
        let mut wake_ns: Option<u64> = None;
        for slot in 0..in_flight.operations.len() {
            if in_flight.operations[slot].is_some() {
                continue;
            }
            if run_clock.left == 0 && in_flight.held_back.is_none() {
                return Ok(None);
            }
            if let Some(limiter) = self.limiter {
                let due = limiter
                    .due_ns(in_flight.started_ns, in_flight.begun, None)
                    .max(in_flight.free_from_ns[slot]);
                if due > now {
                    wake_ns = Some(wake_ns.map_or(due, |other| other.min(due)));
                    continue;
                }
            }
            let record = match in_flight.held_back.take() {
                Some(record) => record,
                None => {
                    run_clock.left -= 1;
                    self.order.next()
                }
            };
            // Two operations on one record have no order, so its content could not be verified.
            let is_busy = |operation: &Operation| operation.record == record;
            if self.check.is_some() && in_flight.operations.iter().flatten().any(is_busy) {
                in_flight.held_back = Some(record);
                return Ok(None);
            }
            in_flight.begun += 1;
            self.begin(queue, in_flight, slot, record)?;
        }
        Ok(wake_ns)
    }

    fn begin(
        &mut self,
        queue: &mut Queue,
        in_flight: &mut InFlight,
        slot: usize,
        record: u64,
    ) -> Result<(), BenchError> {
        let spec = self.spec;
        let offset = spec.base_of(self.index) + record * spec.record_bytes;
        let reads = reads_this_record(spec.pattern, worker_seed(spec, self.index), record);
        let (call, generation) = if reads {
            let generations = self.check.as_ref().map(|check| &check.generations);
            (Call::Read, generations.map_or(1, |written| written.of(record)))
        } else {
            let generations = self.check.as_mut().map(|check| &mut check.generations);
            let generation = generations.map_or(1, |written| written.next(record));
            queue
                .memory(slot)
                .copy_from_slice(self.content.at(offset, generation));
            (Call::Write, generation)
        };
        in_flight.operations[slot] = Some(Operation {
            call,
            record,
            offset,
            generation,
            done: 0,
            start_ns: None,
            begun_ns: None,
        });
        queue.push(slot, call, 0, offset)
    }

    /// Handles one completion: the operation is complete, continues, or has failed.
    fn take(
        &mut self,
        queue: &mut Queue,
        in_flight: &mut InFlight,
        answer: Completion,
        now: u64,
        latencies: &mut Latencies,
    ) -> Result<(), BenchError> {
        let slot = answer.slot;
        let mut operation = in_flight.operations[slot].expect("an answer is about an operation");
        let Ok(moved) = usize::try_from(answer.result) else {
            let errno = Errno::from_raw_os_error(answer.result.saturating_neg());
            if matches!(errno, Errno::INTR | Errno::AGAIN) {
                let offset = operation.offset + in_file(operation.done);
                return queue.push(slot, operation.call, operation.done, offset);
            }
            let place = operation.offset + in_file(operation.done);
            return Err(BenchError::data(
                name(operation.call),
                self.target.path(),
                place,
                errno,
            ));
        };
        let latency_ns = now.saturating_sub(operation.start_ns.expect(STAMPED));
        let record_bytes = self.spec.record_bytes;
        match operation.call {
            Call::Fsync | Call::Fdatasync => latencies.sync.add(latency_ns),
            Call::Read | Call::Write => {
                operation.done += moved;
                let length = queue.memory(slot).len();
                if operation.done < length {
                    self.check_progress(operation, moved, length)?;
                    in_flight.operations[slot] = Some(operation);
                    let offset = operation.offset + in_file(operation.done);
                    return queue.push(slot, operation.call, operation.done, offset);
                }
                in_flight.measured_bytes += record_bytes;
                if operation.call == Call::Read {
                    latencies.read.add(latency_ns);
                    self.check_read(queue, slot, operation)?;
                } else {
                    latencies.write.add(latency_ns);
                    // The log has one entry for a write and its sync.
                    if let Some(call) = sync_of(self.spec.mode)
                        && self.sync_is_due()
                    {
                        in_flight.operations[slot] = Some(Operation {
                            call,
                            start_ns: None,
                            ..operation
                        });
                        return queue.push(slot, call, 0, operation.offset);
                    }
                }
            }
        }
        if let Some(log) = &mut self.log {
            log.add(operation.begun_ns.expect(STAMPED), now);
        }
        in_flight.operations[slot] = None;
        in_flight.free_from_ns[slot] = now.saturating_add(self.spec.think_ns);
        Ok(())
    }

    /// A transfer of 0 bytes without an error would loop forever.
    fn check_progress(&self, operation: Operation, moved: usize, length: usize) -> Result<(), BenchError> {
        if moved > 0 {
            return Ok(());
        }
        let offset_bytes = operation.offset + in_file(operation.done);
        if operation.call == Call::Write {
            return Err(BenchError::data(
                "write",
                self.target.path(),
                offset_bytes,
                Errno::IO,
            ));
        }
        Err(BenchError::ShortRead {
            path: self.target.path().to_owned(),
            offset_bytes,
            missing_bytes: in_file(length - operation.done),
        })
    }

    fn check_read(&mut self, queue: &mut Queue, slot: usize, operation: Operation) -> Result<(), BenchError> {
        let Some(check) = &mut self.check else {
            return Ok(());
        };
        match check.expected.at(operation.offset, operation.generation) {
            Some(expected) => compare(self.target.path(), operation.offset, expected, queue.memory(slot)),
            None => Ok(()),
        }
    }
}

const fn sync_of(mode: Mode) -> Option<Call> {
    match mode {
        Mode::Fsync | Mode::DirectFsync => Some(Call::Fsync),
        Mode::Fdatasync | Mode::DirectFdatasync => Some(Call::Fdatasync),
        Mode::Buffered
        | Mode::Sync
        | Mode::DataSync
        | Mode::Direct
        | Mode::DirectSync
        | Mode::DirectDataSync
        | Mode::Mmap
        | Mode::MmapAsync
        | Mode::MmapSync
        | Mode::Fbarrier
        | Mode::Fdatabarrier => None,
    }
}

const fn name(call: Call) -> &'static str {
    match call {
        Call::Read => "read",
        Call::Write => "write",
        Call::Fsync => "fsync",
        Call::Fdatasync => "fdatasync",
    }
}

/// Converts a length in memory to a number of bytes in a file.
fn in_file(length: usize) -> u64 {
    u64::try_from(length).expect("lengths in memory fit in 64 bits")
}
