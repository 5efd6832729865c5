//! The start of a call: its descriptor and its names, read before the call can change them.

use libc::pid_t;
use results::call_trace::{Action, CallTraceError, Descriptor, OpenFlags, Whence};

use super::arguments::{id, names_of, number_of, word};
use super::{Began, Recorder, now_ns};
use crate::call::{self, Watch};
use crate::process::{self, Resume};
use crate::tracee::{self, Inspected};

const MAPPED: &str = "mmap of a file: what programs do to mapped memory is no system call";

impl Recorder<'_> {
    /// Handles the start of a watched call.
    pub(super) fn entered(
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
