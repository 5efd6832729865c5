//! The loop of a worker with a ring.

use rustix::io::Errno;

use super::queue::{Call, Completion, Queue};
use crate::data::in_file;
use crate::error::BenchError;
use crate::rate_limiter::sleep_until;
use crate::spec::{Mode, SyncKind};
use crate::worker::{Operation, RunState, Worker};

/// An operation in flight, in the slot of the same number.
#[derive(Clone, Copy, Debug)]
struct Submitted {
    operation: Operation,
    call: Call,
    /// Bytes transferred.
    done: usize,
    /// Submission time of the call; `None` while it waits in the ring.
    start_ns: Option<u64>,
    /// Submission time of the operation's first call.
    begun_ns: Option<u64>,
}

impl Submitted {
    /// File offset of the next byte.
    fn offset(&self) -> u64 {
        self.operation.offset + in_file(self.done)
    }
}

const STAMPED: &str = "calls are stamped before they are submitted";

/// A worker's state besides its ring.
struct InFlight {
    /// `None` is a free slot.
    slots: Vec<Option<Submitted>>,
    /// The earliest time at which each free slot may be reused.
    free_from_ns: Vec<u64>,
    /// A record that waits for another operation on it.
    held_back: Option<u64>,
}

impl InFlight {
    /// Sets the start time of all calls that wait in the ring. Called right before they are submitted, regardless of
    /// how they were pushed: no call completes without a start time.
    fn stamp(&mut self, now: u64) {
        for operation in self.slots.iter_mut().flatten() {
            operation.start_ns.get_or_insert(now);
            operation.begun_ns.get_or_insert(now);
        }
    }
}

impl Worker<'_> {
    /// The loop of a worker with a ring. Returns true if all records were processed or the time limit was reached.
    pub fn run_ring(&mut self, queue: &mut Queue, run: &mut RunState<'_>) -> Result<bool, BenchError> {
        let depth =
            usize::try_from(self.spec.engine.depth()).expect("queues are checked to be at most 4096 deep");
        let mut in_flight = InFlight {
            slots: vec![None; depth],
            free_from_ns: vec![run.started_ns; depth],
            held_back: None,
        };
        let shared = run.shared;
        let mut now = self.clock.now_ns();
        let mut answers = Vec::with_capacity(depth);
        loop {
            self.pass_ramp(run, now);
            let is_over = shared.is_over();
            if now >= run.end_ns {
                in_flight.held_back = None;
            }
            let goes_on = !is_over && (in_flight.held_back.is_some() || !run.is_through(now));
            let wake_ns = if goes_on {
                self.fill(queue, run, &mut in_flight, now)?
            } else {
                None
            };
            if queue.unanswered() == 0 {
                if !goes_on {
                    return Ok(!is_over && run.is_measuring());
                }
                let due = wake_ns.unwrap_or(now).min(run.end_ns);
                now = sleep_until(self.clock, due, || shared.is_over());
                continue;
            }
            let timeout = wake_ns.map(|due| due.min(run.end_ns).saturating_sub(now));
            in_flight.stamp(self.clock.now_ns());
            answers.clear();
            answers.extend_from_slice(queue.wait(timeout)?);
            now = self.clock.now_ns();
            for answer in &answers {
                self.take(queue, &mut in_flight, *answer, now, run)?;
            }
        }
    }

    /// Starts operations in free slots; if more can start later, returns the time.
    fn fill(
        &mut self,
        queue: &mut Queue,
        run: &mut RunState<'_>,
        in_flight: &mut InFlight,
        now: u64,
    ) -> Result<Option<u64>, BenchError> {
        let mut wake_ns: Option<u64> = None;
        for slot in 0..in_flight.slots.len() {
            if in_flight.slots[slot].is_some() {
                continue;
            }
            if run.left == 0 && in_flight.held_back.is_none() {
                return Ok(None);
            }
            if let Some(limiter) = self.limiter {
                let due = limiter
                    .due_ns(run.started_ns, run.begun, None)
                    .max(in_flight.free_from_ns[slot]);
                if due > now {
                    wake_ns = Some(wake_ns.map_or(due, |other| other.min(due)));
                    continue;
                }
            }
            let record = match in_flight.held_back.take() {
                Some(record) => record,
                None => {
                    run.left -= 1;
                    run.order.next()
                }
            };
            // Two operations on one record have no order, so its content could not be verified.
            let is_busy = |submitted: &Submitted| submitted.operation.record == record;
            if self.check.is_some() && in_flight.slots.iter().flatten().any(is_busy) {
                in_flight.held_back = Some(record);
                return Ok(None);
            }
            run.begun += 1;
            in_flight.slots[slot] = Some(self.begin(queue, slot, record)?);
        }
        Ok(wake_ns)
    }

    fn begin(&mut self, queue: &mut Queue, slot: usize, record: u64) -> Result<Submitted, BenchError> {
        let operation = self.operation_on(record);
        let call = if operation.reads {
            Call::Read
        } else {
            let content = self.content.at(operation.offset, operation.generation);
            queue.memory(slot).copy_from_slice(content);
            Call::Write
        };
        queue.push(slot, call, 0, operation.offset)?;
        Ok(Submitted {
            operation,
            call,
            done: 0,
            start_ns: None,
            begun_ns: None,
        })
    }

    /// Handles one completion: the operation is complete, continues, or has failed.
    fn take(
        &mut self,
        queue: &mut Queue,
        in_flight: &mut InFlight,
        answer: Completion,
        now: u64,
        run: &mut RunState<'_>,
    ) -> Result<(), BenchError> {
        let slot = answer.slot;
        let mut submitted = in_flight.slots[slot].expect("an answer is about an operation");
        let call = submitted.call;
        let Ok(moved) = usize::try_from(answer.result) else {
            let (errno, offset) = (
                Errno::from_raw_os_error(answer.result.saturating_neg()),
                submitted.offset(),
            );
            if matches!(errno, Errno::INTR | Errno::AGAIN) {
                return queue.push(slot, call, submitted.done, offset);
            }
            return Err(BenchError::data(name(call), self.target.path(), offset, errno));
        };
        let latency_ns = now.saturating_sub(submitted.start_ns.expect(STAMPED));
        if matches!(call, Call::Fsync | Call::Fdatasync) {
            run.latencies.sync.add(latency_ns);
        } else {
            submitted.done += moved;
            let length = queue.memory(slot).len();
            if submitted.done < length {
                self.check_progress(submitted, moved, length)?;
                in_flight.slots[slot] = Some(submitted);
                return queue.push(slot, call, submitted.done, submitted.offset());
            }
            run.count_bytes(self.spec.record_bytes);
            if call == Call::Read {
                run.latencies.read.add(latency_ns);
                if let Some(check) = &mut self.check {
                    check.compare(self.target.path(), submitted.operation, queue.memory(slot))?;
                }
            } else {
                run.latencies.write.add(latency_ns);
                // The log has one entry for a write and its sync.
                if let Some(call) = sync_of(self.spec.mode)
                    && self.sync_is_due()
                {
                    in_flight.slots[slot] = Some(Submitted {
                        call,
                        done: 0,
                        start_ns: None,
                        ..submitted
                    });
                    return queue.push(slot, call, 0, submitted.operation.offset);
                }
            }
        }
        if let Some(log) = &mut self.log {
            log.add(submitted.begun_ns.expect(STAMPED), now);
        }
        in_flight.slots[slot] = None;
        in_flight.free_from_ns[slot] = now.saturating_add(self.spec.think_ns);
        Ok(())
    }

    /// A transfer of 0 bytes without an error would loop forever.
    fn check_progress(&self, submitted: Submitted, moved: usize, length: usize) -> Result<(), BenchError> {
        let (path, offset_bytes) = (self.target.path(), submitted.offset());
        match (moved, submitted.call) {
            (1.., _) => Ok(()),
            (0, Call::Read) => Err(BenchError::ShortRead {
                path: path.to_owned(),
                offset_bytes,
                missing_bytes: in_file(length - submitted.done),
            }),
            (0, _) => Err(BenchError::data("write", path, offset_bytes, Errno::IO)),
        }
    }
}

const fn sync_of(mode: Mode) -> Option<Call> {
    match mode.sync {
        SyncKind::Fsync => Some(Call::Fsync),
        SyncKind::Fdatasync => Some(Call::Fdatasync),
        _ => None,
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
