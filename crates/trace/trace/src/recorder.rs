//! The event loop over the stops of all tracees. A call's start is read by [`entry`], its end is made a record by
//! [`exit`], with the action that [`actions`] finds in its arguments.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::pid_t;
use results::call_trace::{
    Action, CALL_TRACE_SCHEMA, Call, CallTraceError, CallTraceWriter, Closed, Descriptor, DescriptorTables,
    Handle, Header, Layer, Outcome,
};
use rustix::time::{ClockId, clock_gettime};

use self::arguments::id;
use crate::call::Watch;
use crate::error::RecordError;
use crate::process::{self, Resume, Stop};
use crate::{Ending, RecordSpec, Recorded, filter, tracee};

mod actions;
mod arguments;
mod entry;
mod exit;

/// Interval of checks of the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Number of checks between SIGTERM to the program and SIGKILL to all processes.
const LOOKS_UNTIL_KILL: u32 = 20;

const UNREADABLE: &str = "name that could not be read";
const NOT_OPEN: &str = "descriptor that is not open";

/// Runs the program and writes the trace.
pub fn record(spec: &RecordSpec, stop: &AtomicBool) -> Result<Recorded, RecordError> {
    let words = words(spec)?;
    let header = Header {
        schema: CALL_TRACE_SCHEMA.to_owned(),
        layer: Layer::SystemCalls,
        origin: "tidegate trace syscalls".to_owned(),
        command: spec
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        started_unix_ns: unix_ns(),
    };
    let writer = CallTraceWriter::create(&spec.output, &header)?;
    let (child, report) = process::start(&words, &filter::program())?;
    let alive = Mutex::new(HashSet::from([child]));
    let finished = AtomicBool::new(false);
    let mut recorder = Recorder::new(writer, child, &alive);
    let answer = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(child, &alive, &finished, stop));
        let answer = recorder.follow();
        finished.store(true, Ordering::Release);
        watcher.thread().unpark();
        answer
    });
    if let Some(source) = process::failure(report) {
        let _ = recorder.writer.abandon().map(fs::remove_file);
        let command = header.command.first().cloned().unwrap_or_default();
        return Err(RecordError::Start { command, source });
    }
    answer?;
    recorder.finish(!stop.load(Ordering::Relaxed))
}

fn words(spec: &RecordSpec) -> Result<Vec<CString>, RecordError> {
    if spec.command.is_empty() {
        return Err(RecordError::NoCommand);
    }
    let words = spec.command.iter().enumerate();
    words
        .map(|(place, word)| CString::new(word.as_bytes()).map_err(|_| RecordError::Argument { place }))
        .collect()
}

/// Ends the tracees when `stop` is set; the recorder itself sleeps in `waitpid`, which signals do not always interrupt.
fn watch(child: pid_t, alive: &Mutex<HashSet<pid_t>>, finished: &AtomicBool, stop: &AtomicBool) {
    let mut looks = 0;
    while !finished.load(Ordering::Acquire) {
        if stop.load(Ordering::Relaxed) {
            // Held while signals are sent: a number in the set has not been waited for, so it has not been reused.
            let alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
            if looks == 0 && alive.contains(&child) {
                process::signal(child, libc::SIGTERM);
            }
            if looks >= LOOKS_UNTIL_KILL {
                alive
                    .iter()
                    .for_each(|process| process::signal(*process, libc::SIGKILL));
            }
            looks += 1;
        }
        thread::park_timeout(LOOK_EVERY);
    }
}

/// A call in progress in one thread.
#[derive(Clone, Debug)]
struct Began {
    watch: Watch,
    arguments: [u64; 6],
    at_ns: u64,
    /// The descriptor in the first argument, for calls on descriptors.
    descriptor: Option<Descriptor>,
    closed: Option<Closed>,
    /// The names in the call's arguments; read before the call can change them.
    names: [Option<std::path::PathBuf>; 2],
}

struct Recorder<'run> {
    writer: CallTraceWriter,
    child: pid_t,
    alive: &'run Mutex<HashSet<pid_t>>,
    tables: DescriptorTables,
    under_way: HashMap<pid_t, Began>,
    /// New tracees that stopped before their creator reported them.
    waiting: HashSet<pid_t>,
    known: HashSet<pid_t>,
    followed: u64,
    handles: u32,
    base_ns: u64,
    ending: Option<Ending>,
}

impl<'run> Recorder<'run> {
    fn new(writer: CallTraceWriter, child: pid_t, alive: &'run Mutex<HashSet<pid_t>>) -> Self {
        Self {
            writer,
            child,
            alive,
            tables: DescriptorTables::new(),
            under_way: HashMap::new(),
            waiting: HashSet::new(),
            known: HashSet::from([child]),
            followed: 1,
            handles: 0,
            base_ns: now_ns(),
            ending: None,
        }
    }

    fn follow(&mut self) -> Result<(), CallTraceError> {
        let mut first_error = None;
        while let Some((process, stop)) = process::wait() {
            let how = match self.stopped(process, stop) {
                Ok(how) => how,
                Err(error) => {
                    // A program under the filter cannot continue without its tracer.
                    let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
                    alive
                        .iter()
                        .for_each(|process| process::signal(*process, libc::SIGKILL));
                    first_error.get_or_insert(error);
                    Some(Resume::Run(0))
                }
            };
            if let Some(how) = how {
                process::resume(process, how);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn finish(self, complete: bool) -> Result<Recorded, RecordError> {
        let (calls, skipped) = (self.writer.calls(), self.writer.skipped().clone());
        let path = if complete {
            self.writer.finish()?
        } else {
            self.writer.abandon()?
        };
        Ok(Recorded {
            path,
            calls,
            skipped,
            followed: self.followed,
            ending: self.ending.unwrap_or(Ending::Exited(0)),
            complete,
        })
    }

    /// Decides how the tracee is resumed; `None` if it is gone, or waits.
    fn stopped(&mut self, process: pid_t, stop: Stop) -> Result<Option<Resume>, CallTraceError> {
        if !self.known.contains(&process) && !matches!(stop, Stop::Exited(_) | Stop::Killed(_)) {
            self.waiting.insert(process);
            self.alive
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(process);
            return Ok(None);
        }
        Ok(match stop {
            Stop::Exited(code) => self.ended(process, Ending::Exited(code))?,
            Stop::Killed(signal) => self.ended(process, Ending::Killed(signal))?,
            Stop::Entry { number, arguments } => Some(self.entered(process, number, arguments)?),
            Stop::Exit { answer } => {
                if let Some(began) = self.under_way.remove(&process) {
                    self.left(process, &began, answer)?;
                }
                Some(Resume::Run(0))
            }
            Stop::Made(made) => {
                let is_thread = tracee::group(made) == tracee::group(process);
                self.tables.fork(id(process), id(made), is_thread);
                self.known.insert(made);
                self.followed += 1;
                self.alive
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(made);
                if self.waiting.remove(&made) {
                    process::resume(made, Resume::Run(0));
                }
                Some(Resume::Run(0))
            }
            Stop::Exec => {
                for handle in self.tables.exec(id(process)) {
                    self.add(process, Action::Close { handle })?;
                }
                Some(Resume::Run(0))
            }
            Stop::Ready | Stop::Vanished => Some(Resume::Run(0)),
            Stop::Held => Some(Resume::Stay),
            Stop::Signal(signal) => Some(Resume::Run(signal)),
        })
    }

    fn ended(&mut self, process: pid_t, ending: Ending) -> Result<Option<Resume>, CallTraceError> {
        self.alive
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&process);
        self.known.remove(&process);
        self.waiting.remove(&process);
        if self.under_way.remove(&process).is_some() {
            self.writer.skip("call that did not return");
        }
        for handle in self.tables.exit(id(process)) {
            self.add(process, Action::Close { handle })?;
        }
        if process == self.child {
            self.ending = Some(ending);
        }
        Ok(None)
    }

    const fn new_handle(&mut self) -> Handle {
        let handle = Handle(self.handles);
        self.handles = self.handles.wrapping_add(1);
        handle
    }

    /// Adds a call that the program did not make.
    fn add(&mut self, process: pid_t, action: Action) -> Result<(), CallTraceError> {
        self.add_at(process, now_ns() - self.base_ns, action)
    }

    /// Calls with the same time stay in the order in which they are written: a call's prerequisites come before it.
    fn add_at(&mut self, process: pid_t, at_ns: u64, action: Action) -> Result<(), CallTraceError> {
        self.writer.call(&Call {
            thread: id(process),
            at_ns,
            recorded_duration_ns: None,
            outcome: Outcome::Unknown,
            action,
        })
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(ns.unwrap_or(0))
}

fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
