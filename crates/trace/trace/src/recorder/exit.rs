//! The end of a call: its record, and the descriptors that it opened, closed or duplicated.

use libc::pid_t;
use results::call_trace::{Action, Call, CallTraceError, Closed, Descriptor, OpenFlags, Outcome};

use super::actions::Named;
use super::arguments::{id, low_bytes, number_of, word};
use super::{Began, NOT_OPEN, Recorder, UNREADABLE, now_ns};
use crate::call::Watch;
use crate::process;
use crate::tracee::{self, Inspected};

/// Answers from here to -512 are internal to the kernel: the call is restarted.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

const RESTARTED: &str = "call that a signal interrupted and that was made again";

impl Recorder<'_> {
    /// Handles the end of a watched call.
    pub(super) fn left(&mut self, process: pid_t, began: &Began, answer: i64) -> Result<(), CallTraceError> {
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
}
