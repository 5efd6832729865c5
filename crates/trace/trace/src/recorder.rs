//! The event loop over the stops of all tracees, and the conversion of each finished call to a record.

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
    Handle, Header, Layer, OpenFlags, Outcome, Whence,
};
use rustix::time::{ClockId, clock_gettime};

use crate::call::{self, Watch};
use crate::error::RecordError;
use crate::process::{self, Resume, Stop};
use crate::tracee::{self, Inspected};
use crate::{Ending, RecordSpec, Recorded, filter};

/// Interval of checks of the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Number of checks between SIGTERM to the program and SIGKILL to all processes.
const LOOKS_UNTIL_KILL: u32 = 20;

/// Answers from here to -512 are internal to the kernel: the call is restarted.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

const MAPPED: &str = "mmap of a file: what programs do to mapped memory is no system call";
const UNREADABLE: &str = "name that could not be read";
const RESTARTED: &str = "call that a signal interrupted and that was made again";
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

    /// Handles the start of a watched call.
    fn entered(
        &mut self,
        process: pid_t,
        number: u64,
        arguments: [u64; 6],
    ) -> Result<Resume, CallTraceError> {
        let at_ns = now_ns() - self.base_ns;
        let Some(watch) = call::of_number(number) else {
            return Ok(Resume::Run(0));
        };
        if let Watch::Left(name) = watch {
            self.writer.skip(&format!("{name} is not replayed"));
            return Ok(Resume::Run(0));
        }
        let descriptor = match first_descriptor(watch, &arguments) {
            Some(number) => self.look_up(process, number, at_ns)?,
            None => None,
        };
        if watch == Watch::Map {
            let mapped = self.look_up(process, word(arguments[4]), at_ns)?;
            if matches!(mapped, Some(Descriptor::File(_))) {
                self.writer.skip(MAPPED);
            }
            return Ok(Resume::Run(0));
        }
        let closed = (watch == Watch::Close).then(|| self.tables.close(id(process), word(arguments[0])));
        let names = names_of(watch, &arguments).map(|place| {
            let (directory, address) = place?;
            let name = process::read_string(process, address)?;
            Some(tracee::resolve(process, directory, &name)).filter(|_| !name.is_empty())
        });
        let began = Began {
            watch,
            arguments,
            at_ns,
            descriptor,
            closed,
            names,
        };
        self.under_way.insert(process, began);
        Ok(Resume::ToExit)
    }

    /// The descriptor behind a process's number. One that is seen for the first time was opened before, or in a way
    /// that is not watched, and is opened in the trace here.
    fn look_up(
        &mut self,
        process: pid_t,
        number: i32,
        at_ns: u64,
    ) -> Result<Option<Descriptor>, CallTraceError> {
        if let Some(found) = self.tables.get(id(process), number) {
            return Ok(Some(found));
        }
        let found = match tracee::inspect(process, number) {
            None => return Ok(None),
            Some(Inspected::Other(what)) => Descriptor::Other(what),
            Some(Inspected::File { path, is_directory }) => {
                let (flags, position) = tracee::state(process, number).unwrap_or((OpenFlags::READ, 0));
                let flags = OpenFlags {
                    directory: is_directory,
                    create: false,
                    truncate: false,
                    ..flags
                };
                let (name, handle) = (self.writer.name(&path)?, self.new_handle());
                self.add_at(process, at_ns, Action::Open { name, handle, flags })?;
                if position > 0 && !is_directory {
                    let (offset, whence) = (i64::try_from(position).unwrap_or(i64::MAX), Whence::Start);
                    self.add_at(
                        process,
                        at_ns,
                        Action::Seek {
                            handle,
                            offset,
                            whence,
                        },
                    )?;
                }
                Descriptor::File(handle)
            }
        };
        self.tables.insert(id(process), number, found, false);
        Ok(Some(found))
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

    /// Handles the end of a watched call.
    fn left(&mut self, process: pid_t, began: &Began, answer: i64) -> Result<(), CallTraceError> {
        if RESTARTS.contains(&answer) {
            self.writer.skip(RESTARTED);
            return Ok(());
        }
        let took_ns = (now_ns() - self.base_ns).saturating_sub(began.at_ns);
        let outcome = match u64::try_from(answer) {
            Ok(value) => Outcome::Done(value),
            Err(_) => Outcome::Failed(i32::try_from(-answer).unwrap_or(libc::EIO)),
        };
        let found = self.action(process, began, outcome)?;
        let Some(action) = found else { return Ok(()) };
        let says_number = matches!(
            action,
            Action::Read { .. }
                | Action::Write { .. }
                | Action::ReadAt { .. }
                | Action::WriteAt { .. }
                | Action::Copy { .. }
                | Action::Seek { .. }
        );
        let outcome = match outcome {
            Outcome::Done(_) if !says_number => Outcome::Done(0),
            other => other,
        };
        self.writer.call(&Call {
            thread: id(process),
            at_ns: began.at_ns,
            recorded_duration_ns: Some(took_ns),
            outcome,
            action,
        })
    }

    fn action(
        &mut self,
        process: pid_t,
        began: &Began,
        outcome: Outcome,
    ) -> Result<Option<Action>, CallTraceError> {
        let arguments = &began.arguments;
        match began.watch {
            Watch::Open | Watch::Creat | Watch::OpenAt | Watch::OpenAt2 => {
                self.opened(process, began, outcome)
            }
            Watch::Close => Ok(self.closed(began)),
            Watch::CloseRange => {
                let (first, last) = (
                    word(arguments[0]),
                    i32::try_from(arguments[1]).unwrap_or(i32::MAX),
                );
                let closes = outcome.is_success() && arguments[2] == 0;
                let numbers = self.tables.open_between(id(process), first, last);
                for number in numbers.into_iter().filter(|_| closes) {
                    if let Closed::Last(handle) = self.tables.close(id(process), number) {
                        self.add(process, Action::Close { handle })?;
                    }
                }
                Ok(None)
            }
            Watch::Dup | Watch::Dup2 => self.duplicated(process, began, outcome, false),
            Watch::Dup3 => {
                let on_exec = arguments[2] & number_of(libc::O_CLOEXEC) != 0;
                self.duplicated(process, began, outcome, on_exec)
            }
            Watch::Fcntl => match word(arguments[1]) {
                libc::F_DUPFD => self.duplicated(process, began, outcome, false),
                libc::F_DUPFD_CLOEXEC => self.duplicated(process, began, outcome, true),
                _ => {
                    let on_exec = arguments[2] & number_of(libc::FD_CLOEXEC) != 0;
                    self.tables
                        .set_close_on_exec(id(process), word(arguments[0]), on_exec);
                    Ok(None)
                }
            },
            watch => match self.on_names(watch, began)? {
                Named::Action(action) => Ok(Some(action)),
                Named::Left => Ok(None),
                Named::None => Ok(self.on_descriptor(process, began, outcome)),
            },
        }
    }

    fn opened(
        &mut self,
        process: pid_t,
        began: &Began,
        outcome: Outcome,
    ) -> Result<Option<Action>, CallTraceError> {
        let raw = match began.watch {
            Watch::Open => began.arguments[1],
            Watch::Creat => number_of(libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC),
            Watch::OpenAt => began.arguments[2],
            _ => process::read_word(process, began.arguments[2]).unwrap_or(0),
        };
        let flags = tracee::open_flags(i32::from_ne_bytes(low_bytes(raw)));
        let on_exec = raw & number_of(libc::O_CLOEXEC) != 0;
        let number = outcome.value().and_then(|number| i32::try_from(number).ok());
        let Some(number) = number else {
            let Some(path) = &began.names[0] else {
                self.writer.skip(UNREADABLE);
                return Ok(None);
            };
            if tracee::is_kernel_file(path) {
                self.writer.skip(tracee::KERNEL_FILE);
                return Ok(None);
            }
            let (name, handle) = (self.writer.name(path)?, self.new_handle());
            return Ok(Some(Action::Open { name, handle, flags }));
        };
        let is_nameless = raw & number_of(libc::O_TMPFILE) == number_of(libc::O_TMPFILE);
        let found = match tracee::inspect(process, number) {
            _ if is_nameless => Inspected::Other("file without a name (O_TMPFILE)"),
            Some(found) => found,
            None => Inspected::Other(NOT_OPEN),
        };
        match found {
            Inspected::Other(what) => {
                self.writer.skip(what);
                self.put(process, number, Descriptor::Other(what), on_exec)?;
                Ok(None)
            }
            Inspected::File { path, is_directory } => {
                let flags = OpenFlags {
                    directory: is_directory,
                    ..flags
                };
                let (name, handle) = (self.writer.name(&path)?, self.new_handle());
                self.put(process, number, Descriptor::File(handle), on_exec)?;
                Ok(Some(Action::Open { name, handle, flags }))
            }
        }
    }

    /// Assigns a descriptor to a number; if the number was in use, its previous descriptor was closed unseen.
    fn put(
        &mut self,
        process: pid_t,
        number: i32,
        descriptor: Descriptor,
        on_exec: bool,
    ) -> Result<(), CallTraceError> {
        match self.tables.insert(id(process), number, descriptor, on_exec) {
            Closed::Last(handle) => self.add(process, Action::Close { handle }),
            Closed::StillHeld | Closed::Other(_) | Closed::Unknown => Ok(()),
        }
    }

    fn closed(&mut self, began: &Began) -> Option<Action> {
        match began.closed {
            Some(Closed::Last(handle)) => return Some(Action::Close { handle }),
            Some(Closed::StillHeld) => self
                .writer
                .skip("close of a descriptor that another process still has"),
            Some(Closed::Other(what)) => self.writer.skip(what),
            Some(Closed::Unknown) | None => self.writer.skip(NOT_OPEN),
        }
        None
    }

    fn duplicated(
        &mut self,
        process: pid_t,
        began: &Began,
        outcome: Outcome,
        on_exec: bool,
    ) -> Result<Option<Action>, CallTraceError> {
        let copy_number = outcome.value().and_then(|number| i32::try_from(number).ok());
        let (Some(copy_number), Some(descriptor)) = (copy_number, began.descriptor) else {
            self.writer.skip("dup that failed");
            return Ok(None);
        };
        if copy_number == word(began.arguments[0]) {
            return Ok(None);
        }
        match descriptor {
            Descriptor::Other(what) => {
                self.writer.skip(what);
                self.put(process, copy_number, descriptor, on_exec)?;
                Ok(None)
            }
            Descriptor::File(handle) => {
                let copy = self.new_handle();
                self.put(process, copy_number, Descriptor::File(copy), on_exec)?;
                Ok(Some(Action::Duplicate { handle, copy }))
            }
        }
    }

    fn on_names(&mut self, watch: Watch, began: &Began) -> Result<Named, CallTraceError> {
        let arguments = &began.arguments;
        if matches!(watch, Watch::StatAt { .. }) && began.names[0].is_none() && began.descriptor.is_some() {
            return Ok(Named::None);
        }
        let places = names_of(watch, arguments);
        if places[0].is_none() {
            return Ok(Named::None);
        }
        let mut names = [None, None];
        for (name, (place, path)) in names.iter_mut().zip(places.iter().zip(&began.names)) {
            if place.is_none() {
                continue;
            }
            let Some(path) = path else {
                self.writer.skip(UNREADABLE);
                return Ok(Named::Left);
            };
            if tracee::is_kernel_file(path) {
                self.writer.skip(tracee::KERNEL_FILE);
                return Ok(Named::Left);
            }
            *name = Some(self.writer.name(path)?);
        }
        let removes_directory = arguments[2] & number_of(libc::AT_REMOVEDIR) != 0;
        Ok(Named::Action(match (watch, names) {
            (Watch::Stat | Watch::StatAt { .. }, [Some(name), _]) => Action::Stat { name },
            (Watch::Access | Watch::AccessAt, [Some(name), _]) => Action::Access { name },
            (Watch::UnlinkAt, [Some(name), _]) if removes_directory => Action::RemoveDirectory { name },
            (Watch::Unlink | Watch::UnlinkAt, [Some(name), _]) => Action::Unlink { name },
            (Watch::RemoveDirectory, [Some(name), _]) => Action::RemoveDirectory { name },
            (Watch::MakeDirectory | Watch::MakeDirectoryAt, [Some(name), _]) => {
                Action::MakeDirectory { name }
            }
            (Watch::Truncate, [Some(name), _]) => {
                let bytes = arguments[1];
                Action::Truncate { name, bytes }
            }
            (Watch::RenameAt { has_flags: true }, _)
                if arguments[4] & u64::from(libc::RENAME_EXCHANGE) != 0 =>
            {
                self.writer.skip("RENAME_EXCHANGE is not replayed");
                return Ok(Named::Left);
            }
            (Watch::Rename | Watch::RenameAt { .. }, [Some(from), Some(to)]) => Action::Rename { from, to },
            (Watch::Link | Watch::LinkAt, [Some(from), Some(to)]) => Action::Link { from, to },
            _ => return Ok(Named::None),
        }))
    }

    fn on_descriptor(&mut self, process: pid_t, began: &Began, outcome: Outcome) -> Option<Action> {
        let handle = match began.descriptor {
            Some(Descriptor::File(handle)) => handle,
            Some(Descriptor::Other(what)) => {
                self.writer.skip(what);
                return None;
            }
            None => {
                self.writer.skip(NOT_OPEN);
                return None;
            }
        };
        let [_, _, third, fourth, ..] = began.arguments;
        let moved = outcome.value().unwrap_or(0);
        let second = began.arguments[1];
        Some(match began.watch {
            Watch::Read => Action::Read { handle, bytes: third },
            Watch::Write => Action::Write { handle, bytes: third },
            Watch::ReadVector => Action::Read { handle, bytes: moved },
            Watch::WriteVector => Action::Write { handle, bytes: moved },
            Watch::ReadAt => Action::ReadAt {
                handle,
                bytes: third,
                offset: fourth,
            },
            Watch::WriteAt => Action::WriteAt {
                handle,
                bytes: third,
                offset: fourth,
            },
            Watch::ReadVectorAt => Action::ReadAt {
                handle,
                bytes: moved,
                offset: fourth,
            },
            Watch::WriteVectorAt => Action::WriteAt {
                handle,
                bytes: moved,
                offset: fourth,
            },
            Watch::Fsync => Action::Fsync { handle },
            Watch::Fdatasync => Action::Fdatasync { handle },
            Watch::SyncRange => Action::SyncRange {
                handle,
                offset: second,
                bytes: third,
            },
            Watch::TruncateHandle => Action::TruncateHandle {
                handle,
                bytes: second,
            },
            Watch::Allocate => {
                let mode = u32::from_ne_bytes(low_bytes(second));
                Action::Allocate {
                    handle,
                    mode,
                    offset: third,
                    bytes: fourth,
                }
            }
            Watch::StatHandle | Watch::StatAt { .. } => Action::StatHandle { handle },
            Watch::List => Action::List { handle },
            Watch::Seek => {
                let Some(whence) = whence_of(word(third)) else {
                    self.writer.skip("lseek from an unknown place");
                    return None;
                };
                let offset = i64::from_ne_bytes(second.to_ne_bytes());
                Action::Seek {
                    handle,
                    offset,
                    whence,
                }
            }
            Watch::SendFile | Watch::CopyRange => {
                let sends = began.watch == Watch::SendFile;
                let (other, bytes) = if sends {
                    (second, fourth)
                } else {
                    (third, began.arguments[4])
                };
                let at_positions = if sends {
                    third == 0
                } else {
                    second == 0 && fourth == 0
                };
                match self.tables.get(id(process), word(other)).filter(|_| at_positions) {
                    Some(Descriptor::File(other)) if sends => Action::Copy {
                        from: other,
                        to: handle,
                        bytes,
                    },
                    Some(Descriptor::File(other)) => Action::Copy {
                        from: handle,
                        to: other,
                        bytes,
                    },
                    _ => {
                        self.writer
                            .skip("copy at given offsets, or to something that is no file");
                        return None;
                    }
                }
            }
            _ => return None,
        })
    }
}

enum Named {
    Action(Action),
    /// Counted as left out.
    Left,
    /// Not a call on names.
    None,
}

/// The names in a call's arguments: the directory that they are relative to, and the address of the text.
fn names_of(watch: Watch, arguments: &[u64; 6]) -> [Option<(Option<i32>, u64)>; 2] {
    let directory = |place: usize| Some(word(arguments[place])).filter(|number| *number >= 0);
    let plain = |place: usize| Some((None, arguments[place]));
    let below = |place: usize| Some((directory(place), arguments[place + 1]));
    match watch {
        Watch::Open
        | Watch::Creat
        | Watch::Stat
        | Watch::Access
        | Watch::Unlink
        | Watch::RemoveDirectory
        | Watch::MakeDirectory
        | Watch::Truncate => [plain(0), None],
        Watch::OpenAt
        | Watch::OpenAt2
        | Watch::StatAt { .. }
        | Watch::AccessAt
        | Watch::UnlinkAt
        | Watch::MakeDirectoryAt => [below(0), None],
        Watch::Rename | Watch::Link => [plain(0), plain(1)],
        Watch::RenameAt { .. } | Watch::LinkAt => [below(0), below(2)],
        _ => [None, None],
    }
}

/// The descriptor that a call works on.
fn first_descriptor(watch: Watch, arguments: &[u64; 6]) -> Option<i32> {
    let is_on_empty_name = |flags: usize| arguments[flags] & number_of(libc::AT_EMPTY_PATH) != 0;
    match watch {
        Watch::StatAt { flags } if !is_on_empty_name(flags) => None,
        Watch::Map | Watch::CloseRange | Watch::Left(_) => None,
        Watch::StatAt { .. } => Some(word(arguments[0])).filter(|number| *number >= 0),
        _ if names_of(watch, arguments)[0].is_some() => None,
        _ => Some(word(arguments[0])),
    }
}

const fn whence_of(number: i32) -> Option<Whence> {
    Some(match number {
        libc::SEEK_SET => Whence::Start,
        libc::SEEK_CUR => Whence::Current,
        libc::SEEK_END => Whence::End,
        libc::SEEK_DATA => Whence::Data,
        libc::SEEK_HOLE => Whence::Hole,
        _ => return None,
    })
}

/// An argument of type `int`: the upper half of its register is undefined.
fn word(argument: u64) -> i32 {
    i32::from_ne_bytes(low_bytes(argument))
}

fn low_bytes(argument: u64) -> [u8; 4] {
    let [one, two, three, four, ..] = argument.to_le_bytes();
    u32::from_le_bytes([one, two, three, four]).to_ne_bytes()
}

/// A flag of the C library as an argument.
fn number_of(flag: i32) -> u64 {
    u64::try_from(flag).expect("flags are positive numbers")
}

fn id(process: pid_t) -> u32 {
    u32::try_from(process).expect("the kernel's numbers of processes are positive")
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
