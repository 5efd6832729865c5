//! Polling of `/dev/fuse`: the worker that has answered looks for the next request for a moment before it sleeps.
//!
//! Waking a sleeping worker costs as much as a small request itself: 5 to 7 us on a halted virtual processor. Polling
//! spares it where small requests follow one another quickly, and nowhere else:
//!
//! - it takes place only while most requests of late came from one thread, within the limit, and were served quickly
//!   ([`Pace`]), so that an idle mount takes no processor time, and requests at larger intervals no more than without;
//! - one worker at a time polls, and yields its processor to every other program in each step: if one takes it, as the caller does on
//!   the same processor, sleeping is better, and polling pauses for longer each time;
//! - workers that sleep at the device are woken for each request, also for those that polling finds. So in a run of quick
//!   requests of one thread for names and attributes one worker serves all, and the others wait elsewhere:
//!   [`Poller::await_turn`].

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::abi::opcode;
use crate::mount::clone_device;

/// Longest polling for one request, if the mount names none.
pub const LIMIT: Duration = Duration::from_micros(20);
/// Highest limit of a mount: beyond it, sleeping costs less than it saves.
pub const LIMIT_MAX: Duration = Duration::from_millis(1);
/// Moving so many bytes takes far longer than a wake-up.
const LARGE_BYTES: usize = 64 << 10;
/// A request that takes longer than this gains little by polling, and holds up others.
const SERVED_QUICKLY: Duration = Duration::from_micros(100);
/// A step of polling that takes longer gave the processor to another program.
const STEP: Duration = Duration::from_micros(5);
/// The scout among the workers that wait their turn goes to the device if no request was received for this long: there is none, or the
/// other worker does not return from one.
const TURN: Duration = Duration::from_millis(1);
/// Number of [brief](is_brief), quick requests of one thread in a row from which on one worker serves them all.
const RUN: u32 = 64;

/// Whether polling is worth its processor time.
#[derive(Debug, Default)]
struct Pace {
    score: AtomicI32,
    /// Polls in a row during which another program had the processor.
    shared: AtomicU32,
}

impl Pace {
    /// Polling begins at this score.
    const POLLS: i32 = 4;
    const MAX: i32 = 8;
    /// Requests without polling after polls that shared their processor: 2 to this power, at most.
    const PAUSE_MAX: u32 = 10;

    fn is_quick(&self) -> bool {
        self.score.load(Relaxed) >= Self::POLLS
    }

    /// The next request came in time.
    fn quick(&self) {
        let score = self.score.load(Relaxed);
        self.score.store((score + 1).min(Self::MAX), Relaxed);
    }

    /// It did not, or was not served quickly. That undoes two quick ones: polling that finds nothing is worse than a wake-up.
    fn slow(&self) {
        let score = self.score.load(Relaxed);
        self.score.store((score - 2).max(score.min(0)), Relaxed);
    }

    /// The end of a poll; `is_shared` is what its steps show, `None` if the request was there before the first. Twice as many
    /// requests as before go without one if another program had the processor again.
    fn polled(&self, found: bool, is_shared: Option<bool>) {
        if is_shared == Some(true) {
            let shared = (self.shared.load(Relaxed) + 1).min(Self::PAUSE_MAX);
            self.shared.store(shared, Relaxed);
            self.score.store(Self::POLLS - (1 << shared), Relaxed);
        } else if found {
            if is_shared.is_some() {
                self.shared.store(0, Relaxed);
            }
            self.quick();
        } else {
            self.slow();
        }
    }
}

/// A request that a worker received.
pub struct Arrival {
    pub length: usize,
    /// Found by polling: it is answered at [`Poller::device`].
    pub polled: bool,
    /// Since the start of the session.
    at: Duration,
}

/// Workers that wait their turn.
#[derive(Default)]
struct Waiting {
    count: u32,
    /// One of them looks every [`TURN`] whether the worker at the device still returns; the others are called.
    has_scout: bool,
}

/// The polling of a session, shared by its workers.
pub struct Poller {
    /// A descriptor of the connection on which reads do not block. Requests read from it are answered there.
    device: OwnedFd,
    limit: Duration,
    pace: Pace,
    /// A worker polls.
    polling: AtomicBool,
    /// Workers that poll or sleep at the device.
    at_device: AtomicU32,
    /// Requests received in all.
    received: AtomicU64,
    /// Brief requests in a row of one thread.
    brief: AtomicU32,
    /// The thread that sent them.
    caller: AtomicU32,
    waiting: Mutex<Waiting>,
    called: Condvar,
    started: Instant,
    /// Time of the last answer since `started`, nanoseconds.
    answered_ns: AtomicU64,
    found: AtomicU64,
    missed: AtomicU64,
}

impl Poller {
    /// Errors: the kernel grants no further descriptor of the connection.
    pub fn new(device: &OwnedFd, limit: Duration) -> io::Result<Self> {
        let device = clone_device(device)?;
        let flags = rustix::fs::fcntl_getfl(&device)?;
        rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK)?;
        Ok(Self {
            device,
            limit,
            pace: Pace::default(),
            polling: AtomicBool::new(false),
            at_device: AtomicU32::new(0),
            received: AtomicU64::new(0),
            brief: AtomicU32::new(0),
            caller: AtomicU32::new(0),
            waiting: Mutex::new(Waiting::default()),
            called: Condvar::new(),
            started: Instant::now(),
            answered_ns: AtomicU64::new(0),
            found: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        })
    }

    /// The descriptor for the answers to requests that were found by polling.
    pub fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Requests that were found by polling, and times that none came.
    pub fn counts(&self) -> (u64, u64) {
        (self.found.load(Relaxed), self.missed.load(Relaxed))
    }

    /// The next request, read into `memory`: by polling, or by `sleep`, which reads and blocks.
    ///
    /// Errors: those of `sleep`.
    pub fn next(
        &self,
        memory: &mut [u8],
        sleep: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
    ) -> rustix::io::Result<Arrival> {
        self.await_turn();
        self.at_device.fetch_add(1, Relaxed);
        let polls = self.begin_poll();
        let polled = polls.then(|| self.poll(memory)).flatten();
        let length = polled.map_or_else(|| sleep(memory), Ok);
        self.at_device.fetch_sub(1, Relaxed);
        self.received.fetch_add(1, Relaxed);
        let at = self.started.elapsed();
        if !polls {
            let gap = at.saturating_sub(Duration::from_nanos(self.answered_ns.load(Relaxed)));
            // The wake-up itself takes up to as long.
            self.note(gap < self.limit * 2);
        }
        // Nobody waits for the others at the end of the session.
        let length = length.inspect_err(|_| self.end_run())?;
        Ok(Arrival {
            length,
            polled: polled.is_some(),
            at,
        })
    }

    /// Called before a request is served. `caller` is the thread that sent it, 0 if none waits for it or this process can't see it, in
    /// its namespace of processes.
    pub fn begins(&self, operation: u32, caller: u32) {
        let is_another = match caller {
            0 => is_brief(operation) && !is_background(operation),
            caller => self.caller.swap(caller, Relaxed) != caller,
        };
        if is_another {
            // Several at a time keep workers and processors busy.
            self.note(false);
        }
        if is_another || !is_brief(operation) {
            self.end_run();
        } else {
            let brief = self.brief.load(Relaxed);
            self.brief.store(brief.saturating_add(1), Relaxed);
        }
    }

    /// Every worker is needed at the device.
    fn end_run(&self) {
        if self.brief.swap(0, Relaxed) >= RUN {
            // Under the lock: who has seen the run waits already.
            let waiting = self.waiting();
            self.called.notify_all();
            drop(waiting);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called once a request is answered that moved `bytes`.
    pub fn answered(&self, arrival: &Arrival, bytes: usize) {
        let now = self.started.elapsed();
        self.answered_ns
            .store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if bytes >= LARGE_BYTES || now.saturating_sub(arrival.at) > SERVED_QUICKLY {
            self.note(false);
            self.end_run();
        }
    }

    fn note(&self, is_quick: bool) {
        if is_quick {
            self.pace.quick();
        } else {
            self.pace.slow();
        }
    }

    fn is_run(&self) -> bool {
        self.pace.is_quick() && self.brief.load(Relaxed) >= RUN
    }

    /// Waits while another worker is at the device and enough: until the run ends, or none was received for [`TURN`].
    fn await_turn(&self) {
        if !self.is_run() || self.at_device.load(Relaxed) == 0 {
            return;
        }
        let mut waiting = self.waiting();
        waiting.count += 1;
        while self.is_run() {
            if waiting.has_scout {
                waiting = self.called.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            waiting.has_scout = true;
            let received = self.received.load(Relaxed);
            let woken = self.called.wait_timeout(waiting, TURN);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            waiting.has_scout = false;
            if self.received.load(Relaxed) == received {
                break;
            }
        }
        waiting.count -= 1;
        if waiting.count > 0 && !waiting.has_scout {
            // The next scout, or the next to leave.
            self.called.notify_one();
        }
    }

    /// Whether this worker polls: if it is worth it, and no other one does.
    fn begin_poll(&self) -> bool {
        self.pace.is_quick() && !self.polling.swap(true, Relaxed)
    }

    /// The length of the next request if one comes within the limit. `None` also if the connection has ended.
    fn poll(&self, memory: &mut [u8]) -> Option<usize> {
        let (found, is_shared) = self.poll_until_limit(memory);
        self.polling.store(false, Relaxed);
        self.pace.polled(found.is_some(), is_shared);
        let counter = if found.is_some() {
            &self.found
        } else {
            &self.missed
        };
        counter.fetch_add(1, Relaxed);
        found
    }

    /// Also whether another program had the processor in a step: then that was the last.
    fn poll_until_limit(&self, memory: &mut [u8]) -> (Option<usize>, Option<bool>) {
        let mut at = self.started.elapsed();
        let end = at + self.limit;
        let mut is_shared = None;
        loop {
            match rustix::io::read(self.device.as_fd(), &mut *memory) {
                Ok(length) => return (Some(length), is_shared),
                // ENOENT: the request was interrupted before it was read.
                Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => {}
                Err(_) => return (None, is_shared),
            }
            if is_shared == Some(true) || at >= end {
                return (None, is_shared);
            }
            std::thread::yield_now();
            let now = self.started.elapsed();
            is_shared = Some(now.saturating_sub(at) > STEP);
            at = now;
        }
    }
}

/// Whether no thread waits for the answer: the kernel then names none.
const fn is_background(operation: u32) -> bool {
    matches!(
        operation,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::RELEASE | opcode::RELEASEDIR
    )
}

/// Whether a request is for names or attributes, and waits for nothing else if the host has them in its caches.
fn is_brief(operation: u32) -> bool {
    matches!(
        operation,
        opcode::LOOKUP
            | opcode::FORGET
            | opcode::BATCH_FORGET
            | opcode::INTERRUPT
            | opcode::GETATTR
            | opcode::SETATTR
            | opcode::STATX
            | opcode::READLINK
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::CREATE
            | opcode::OPEN
            | opcode::RELEASE
            | opcode::OPENDIR
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::RELEASEDIR
            | opcode::ACCESS
            | opcode::GETXATTR
            | opcode::SETXATTR
            | opcode::LISTXATTR
            | opcode::REMOVEXATTR
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_begins_with_quick_requests_and_ends_unless_two_of_three_are_quick() {
        let pace = Pace::default();
        assert!(!pace.is_quick());
        for _ in 0..4 {
            pace.quick();
        }
        assert!(pace.is_quick());
        for _ in 0..20 {
            pace.quick();
            pace.quick();
            pace.slow();
        }
        assert!(pace.is_quick());
        for _ in 0..8 {
            pace.quick();
            pace.slow();
        }
        assert!(!pace.is_quick());
    }

    #[test]
    fn polls_on_a_shared_processor_pause_for_longer_each_time_until_one_had_it_alone() {
        let pace = Pace::default();
        let requests_until_a_poll = || {
            let counted = (0..10_000).take_while(|_| {
                let waits = !pace.is_quick();
                pace.quick();
                waits
            });
            counted.count()
        };
        for pause in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024] {
            pace.polled(true, None);
            pace.polled(true, Some(true));
            assert_eq!(requests_until_a_poll(), pause);
        }
        pace.polled(true, Some(false));
        pace.polled(false, Some(true));
        assert_eq!(requests_until_a_poll(), 2);
    }
}
