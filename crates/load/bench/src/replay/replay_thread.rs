//! One thread of a replay: makes its calls in order, at their due time or as soon as possible, and times each.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use results::LatencyHistogram;
use results::call_trace::{Action, Call, Outcome};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::Speed;
use super::context::ReplayContext;
use super::outcome::{CallError, KindOutcome};
use super::syscall::{self, Answer, Buffers, Operands};
use crate::error::BenchError;
use crate::file::elapsed_ns;
use crate::processor::WorkerUse;

/// Largest interval at which a sleeping thread checks the stop flag.
const SLEEP_NS_MAX: u64 = 100_000_000;

const NOT_OPEN: &str =
    "its descriptor is not open here (it was opened before the trace, or opening it failed)";
const CUT: &str = "transfer cut to 64 MiB";
pub const BUFFERED: &str = "block request through the page cache, as O_DIRECT was refused or turned off";

/// The outcome of one thread.
#[derive(Debug, Default)]
pub struct ThreadOutcome {
    pub kinds: BTreeMap<&'static str, KindOutcome>,
    pub left_out: BTreeMap<&'static str, u64>,
    pub unexpected: BTreeMap<CallError, u64>,
    pub expected_errors: u64,
    pub short_transfers: u64,
    pub lateness: LatencyHistogram,
    /// From the start of the window to the end of the last call.
    pub elapsed_ns: u64,
    pub usage: Option<WorkerUse>,
}

/// One thread of a replay.
pub struct ReplayThread<'run> {
    context: &'run ReplayContext<'run>,
    index: u32,
    calls: &'run [u32],
    buffers: Buffers,
    outcome: ThreadOutcome,
}

impl<'run> ReplayThread<'run> {
    pub fn new(context: &'run ReplayContext<'run>, index: u32, calls: &'run [u32]) -> Self {
        Self {
            context,
            index,
            calls,
            buffers: Buffers::new(context.spec.seed.wrapping_add(u64::from(index) << 32)),
            outcome: ThreadOutcome::default(),
        }
    }

    /// Makes all calls, beginning at `start`. Returns an error only if further calls would be meaningless.
    pub fn run(mut self, start: Timespec) -> Result<ThreadOutcome, BenchError> {
        let before = WorkerUse::of_this_thread();
        let context = self.context;
        let done = context.shared.done_by(self.index);
        // The kernel may otherwise wake a sleeping thread 50 us late, to save power.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let first_ns = context.trace.calls.first().map_or(0, |call| call.at_ns);
        for (number, place) in (1_u64..).zip(self.calls) {
            let index = usize::try_from(*place).expect("calls are in memory");
            let call = &context.trace.calls[index];
            let due_ns = self.due_ns(call.at_ns - first_ns);
            if !self.wait_for_time(start, due_ns) || !self.wait_for_others(*place) {
                break;
            }
            if let Some(due_ns) = due_ns {
                let late_ns = since_ns(start).saturating_sub(due_ns);
                self.outcome.lateness.record(late_ns);
            }
            self.make(call)?;
            for need in context.plan.needs(*place) {
                context.tracker.pass(need.resource);
            }
            // Only this thread writes the counter.
            done.store(number, Ordering::Relaxed);
        }
        self.outcome.elapsed_ns = since_ns(start);
        self.outcome.usage = WorkerUse::of_this_thread_since(before);
        Ok(self.outcome)
    }

    fn due_ns(&self, at_ns: u64) -> Option<u64> {
        match self.context.spec.speed {
            Speed::AsFastAsPossible => None,
            Speed::Scaled(factor) => Some(scaled_ns(at_ns, factor)),
        }
    }

    /// Sleeps until the call is due. Returns false if the run was stopped.
    fn wait_for_time(&self, start: Timespec, due_ns: Option<u64>) -> bool {
        while let Some(due_ns) = due_ns {
            let now_ns = since_ns(start);
            if now_ns >= due_ns || self.context.stopped() {
                break;
            }
            let until = after(start, due_ns.min(now_ns.saturating_add(SLEEP_NS_MAX)));
            // After an early wake-up by a signal, the loop checks the time again.
            let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
        }
        !self.context.stopped()
    }

    fn wait_for_others(&self, place: u32) -> bool {
        let context = self.context;
        let mut needs = context.plan.needs(place).iter();
        needs.all(|need| context.tracker.wait(*need, || context.stopped()))
    }

    fn make(&mut self, call: &Call) -> Result<(), BenchError> {
        let Some(mut operands) = Operands::of(self.context, call.action) else {
            self.leave_out(NOT_OPEN);
            return Ok(());
        };
        if self.buffers.make_room(call) {
            self.leave_out(CUT);
        }
        if self.context.image_is_buffered {
            self.leave_out(BUFFERED);
        }
        let began = Instant::now();
        let answer = syscall::execute(self.context, call.action, &mut operands, &mut self.buffers);
        let took_ns = elapsed_ns(began, Instant::now());
        drop(operands);
        let done = self.outcome.kinds.entry(call.action.kind()).or_default();
        done.count += 1;
        done.latency.record(took_ns);
        if let Some(recorded) = call.recorded_duration_ns {
            done.recorded_ns = done.recorded_ns.saturating_add(recorded);
            done.recorded_count += 1;
        }
        match answer {
            Ok(answer) => {
                if let Answer::Moved(bytes) = &answer {
                    done.bytes += bytes;
                }
                self.judge_success(call, answer);
                Ok(())
            }
            Err(errno) => self.judge_failure(call, errno),
        }
    }

    fn judge_success(&mut self, call: &Call, answer: Answer) {
        if let Outcome::Failed(errno) = call.outcome {
            // A descriptor that it opened is closed again: in the trace no call uses or closes it.
            let answer = format!(
                "succeeded, had failed with {}",
                describe(Errno::from_raw_os_error(errno))
            );
            self.unexpected(call, answer);
            return;
        }
        match answer {
            Answer::Opened(descriptor) => {
                if let Action::Open { handle, .. } | Action::Duplicate { copy: handle, .. } = call.action {
                    self.context.keep(handle, descriptor);
                }
            }
            Answer::Moved(bytes) => {
                let expected = call
                    .outcome
                    .value()
                    .unwrap_or_else(|| syscall::transfer_bytes(call.action));
                if bytes < expected.min(syscall::TRANSFER_BYTES_MAX) {
                    self.outcome.short_transfers += 1;
                }
            }
            Answer::Nothing => {}
        }
    }

    fn judge_failure(&mut self, call: &Call, errno: Errno) -> Result<(), BenchError> {
        if call.outcome == Outcome::Failed(errno.raw_os_error()) {
            self.outcome.expected_errors += 1;
            return Ok(());
        }
        if ends_the_run(errno) {
            return Err(BenchError::Io {
                operation: call.action.kind(),
                path: syscall::path_of(self.context, call.action),
                offset_bytes: syscall::offset_of(call.action),
                source: errno.into(),
            });
        }
        self.unexpected(call, describe(errno));
        Ok(())
    }

    fn unexpected(&mut self, call: &Call, answer: String) {
        let call = call.action.kind();
        *self
            .outcome
            .unexpected
            .entry(CallError { call, answer })
            .or_default() += 1;
    }

    fn leave_out(&mut self, reason: &'static str) {
        *self.outcome.left_out.entry(reason).or_default() += 1;
    }
}

/// Errors after which the file system accepts no more calls, or only meaningless ones.
fn ends_the_run(errno: Errno) -> bool {
    const ENDS: [Errno; 8] = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::ROFS,
        Errno::IO,
        Errno::NODEV,
        Errno::NOTCONN,
        Errno::MFILE,
        Errno::NFILE,
    ];
    ENDS.contains(&errno)
}

fn describe(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

fn since_ns(start: Timespec) -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = now.tv_sec.saturating_sub(start.tv_sec);
    let ns = seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec.saturating_sub(start.tv_nsec));
    u64::try_from(ns).unwrap_or(0)
}

fn after(start: Timespec, ns: u64) -> Timespec {
    let nsec = u64::try_from(start.tv_nsec).unwrap_or(0).saturating_add(ns);
    let seconds = i64::try_from(nsec / 1_000_000_000).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: start.tv_sec.saturating_add(seconds),
        tv_nsec: i64::try_from(nsec % 1_000_000_000).unwrap_or(0),
    }
}

/// `at_ns / factor`, in the precision of floating-point seconds.
fn scaled_ns(at_ns: u64, factor: f64) -> u64 {
    let seconds = std::time::Duration::from_nanos(at_ns).as_secs_f64() / factor;
    std::time::Duration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|due| u64::try_from(due.as_nanos()).ok())
        .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_divides_the_time_of_the_trace() {
        assert_eq!(scaled_ns(1_000_000, 2.0), 500_000);
        assert_eq!(scaled_ns(1_000_000, 0.5), 2_000_000);
        assert_eq!(scaled_ns(u64::MAX, 1e-9), u64::MAX);
    }

    #[test]
    fn deadlines_carry_into_seconds() {
        let start = Timespec {
            tv_sec: 5,
            tv_nsec: 900_000_000,
        };
        let late = after(start, 1_200_000_000);
        assert_eq!((late.tv_sec, late.tv_nsec), (7, 100_000_000));
    }
}
