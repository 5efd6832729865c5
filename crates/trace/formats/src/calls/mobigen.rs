//! Replay scripts of Mobibench: `THREAD MICROSECONDS CALL ARGUMENTS... ANSWER`.
//!
//! MobiGen generates them from strace output of a phone. They have three pitfalls:
//! - A descriptor whose opening MobiGen had not seen gets an `open` of `/data/data` (or `data/data`). These are many
//!   files under one name, so each gets its own name here; those that move at most eight bytes per call were pipes,
//!   sockets and event counters, and are dropped by default.
//! - Errors are `-1` without an errno. A failed name lookup is taken as ENOENT; a failed read or write is dropped,
//!   because it was not on a file.
//! - All threads share one descriptor table, whichever process they belonged to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::BufRead;
use std::path::Path;

use results::call_trace::{Action, Call, Handle, Layer, Name, OpenFlags, Outcome, Trace};

use super::{Collector, Ipc, KERNEL_FILE, ReadOptions, TraceError, UNKNOWN_DESCRIPTOR, is_kernel_file};
use crate::import::lines::Lines;

const CALLS: [&str; 14] = [
    "open",
    "close",
    "write",
    "pwrite",
    "read",
    "pread",
    "fsync",
    "fdatasync",
    "access",
    "stat",
    "stat64",
    "lstat",
    "lstat64",
    "unlink",
];

/// The largest transfer of a pipe or event counter; 8 bytes is that of an event counter.
const IPC_BYTES_MAX: u64 = 8;

const IPC: &str =
    "pipe, socket or event counter (a descriptor without a file that moves at most 8 bytes a call)";
const FAILED: &str = "read or write that had failed";

/// True for a line of such a script.
pub fn looks_like(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let mut number = || words.next().is_some_and(|word| word.parse::<u64>().is_ok());
    let numbers = number() && number();
    let call = words.next().unwrap_or_default();
    numbers && (CALLS.contains(&call) || call == "fstat" || call == "fstat64") && words.count() >= 2
}

pub fn parse(mut lines: Lines<impl BufRead>, options: ReadOptions) -> Result<Trace, TraceError> {
    let trace = Trace::new(Layer::SystemCalls, "Mobibench script");
    let mut script = Script {
        collector: Collector::new(trace, options),
        open: HashMap::new(),
        without_file: BTreeMap::new(),
    };
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        match script.line(line) {
            Ok(()) => {}
            Err(expected) => return Err(lines.broken(expected)),
        }
    }
    if options.ipc == Ipc::LeaveOut {
        script.leave_out_ipc();
    }
    Ok(script.collector.trace)
}

#[derive(Clone, Copy, Debug)]
enum Opened {
    File(Handle),
    Kernel,
}

struct Script {
    collector: Collector,
    open: HashMap<i64, Opened>,
    /// Handles without a known file, with the largest transfer of each.
    without_file: BTreeMap<Handle, u64>,
}

/// Fields of one line after the name of the call.
struct Fields<'line> {
    call: &'line str,
    words: Vec<&'line str>,
}

impl Fields<'_> {
    fn number(&self, place: usize, what: &str) -> Result<i64, String> {
        let word = self.words.get(place).copied().unwrap_or_default();
        word.parse().map_err(|_| format!("{what} in `{}`", self.call))
    }

    /// A size or offset; `None` for -1, which marks a failed call.
    fn bytes(&self, place: usize, what: &str) -> Result<Option<u64>, String> {
        let number = self.number(place, what)?;
        match u64::try_from(number) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) if number == -1 => Ok(None),
            Err(_) => Err(format!("{what} of at least 0 in `{}`", self.call)),
        }
    }
}

impl Script {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let mut next = |what: &str| words.next().ok_or_else(|| what.to_owned());
        let thread = next("the number of a thread")?;
        let thread = thread.parse().map_err(|_| "the number of a thread")?;
        let at_us: u64 = next("microseconds")?.parse().map_err(|_| "microseconds")?;
        let call = next("the name of a call")?;
        let fields = Fields {
            call,
            words: words.collect(),
        };
        let at_ns = at_us.saturating_mul(1000);
        let Some((action, outcome)) = self.action(&fields)? else {
            return Ok(());
        };
        self.collector.push(Call {
            thread,
            at_ns,
            recorded_duration_ns: None,
            outcome,
            action,
        });
        Ok(())
    }

    fn action(&mut self, fields: &Fields<'_>) -> Result<Option<(Action, Outcome)>, String> {
        match fields.call {
            "open" => self.opened(fields),
            "access" | "stat" | "stat64" | "lstat" | "lstat64" | "unlink" => self.named(fields),
            "close" | "fsync" | "fdatasync" | "fstat" | "fstat64" | "read" | "write" | "pread" | "pwrite" => {
                self.described(fields)
            }
            _ => Err(format!("one of the calls {}, fstat", CALLS.join(", "))),
        }
    }

    fn opened(&mut self, fields: &Fields<'_>) -> Result<Option<(Action, Outcome)>, String> {
        let &[path, flags, _] = &fields.words[..] else {
            return Err("a path, flags and a descriptor in `open`".to_owned());
        };
        let number = fields.number(2, "a descriptor")?;
        let path = unquoted(path);
        let trace = &mut self.collector.trace;
        if is_kernel_file(Path::new(path)) {
            trace.skip(KERNEL_FILE);
            self.open.insert(number, Opened::Kernel);
            return Ok(None);
        }
        let handle = trace.new_handle();
        let is_without_file = path.trim_start_matches('/') == "data/data";
        let name = if is_without_file {
            trace.name(Path::new(&format!("without-file/{}", handle.0)))
        } else {
            trace.name(Path::new(path))
        };
        let flags = if is_without_file {
            // MobiGen invented these flags, including O_TRUNC: such descriptors are both read and written.
            OpenFlags::READ_WRITE.creating()
        } else {
            OpenFlags::from_c_words(flags)
        };
        let action = Action::Open { name, handle, flags };
        if number < 0 {
            return Ok(Some((action, Outcome::Failed(libc::ENOENT))));
        }
        if is_without_file {
            self.without_file.insert(handle, 0);
        }
        self.open.insert(number, Opened::File(handle));
        Ok(Some((action, Outcome::Unknown)))
    }

    fn named(&mut self, fields: &Fields<'_>) -> Result<Option<(Action, Outcome)>, String> {
        let &[path, _] = &fields.words[..] else {
            return Err(format!("a path and an answer in `{}`", fields.call));
        };
        let answer = fields.number(1, "an answer")?;
        let path = Path::new(unquoted(path));
        if is_kernel_file(path) {
            self.collector.trace.skip(KERNEL_FILE);
            return Ok(None);
        }
        let name: Name = self.collector.trace.name(path);
        let action = match fields.call {
            "unlink" => Action::Unlink { name },
            "access" => Action::Access { name },
            _ => Action::Stat { name },
        };
        let outcome = if answer < 0 {
            Outcome::Failed(libc::ENOENT)
        } else {
            Outcome::Unknown
        };
        Ok(Some((action, outcome)))
    }

    fn described(&mut self, fields: &Fields<'_>) -> Result<Option<(Action, Outcome)>, String> {
        let expected = if fields.call.starts_with('p') { 3 } else { 2 };
        if fields.words.len() != expected {
            return Err(format!("{expected} numbers after `{}`", fields.call));
        }
        let number = fields.number(0, "a descriptor")?;
        let bytes = fields.bytes(expected - 1, "a size or answer")?;
        let offset = fields.bytes(1, "an offset")?;
        let opened = self.open.get(&number).copied();
        if fields.call == "close" {
            self.open.remove(&number);
        }
        let handle = match opened {
            Some(Opened::File(handle)) => handle,
            Some(Opened::Kernel) => {
                self.collector.trace.skip(KERNEL_FILE);
                return Ok(None);
            }
            None => {
                self.collector.trace.skip(UNKNOWN_DESCRIPTOR);
                return Ok(None);
            }
        };
        let action = match (fields.call, bytes, offset) {
            ("close", _, _) => Action::Close { handle },
            ("fsync", _, _) => Action::Fsync { handle },
            ("fdatasync", _, _) => Action::Fdatasync { handle },
            ("fstat" | "fstat64", _, _) => Action::StatHandle { handle },
            ("read", Some(bytes), _) => Action::Read { handle, bytes },
            ("write", Some(bytes), _) => Action::Write { handle, bytes },
            ("pread", Some(bytes), Some(offset)) => Action::ReadAt {
                handle,
                bytes,
                offset,
            },
            ("pwrite", Some(bytes), Some(offset)) => Action::WriteAt {
                handle,
                bytes,
                offset,
            },
            _ => {
                self.collector.trace.skip(FAILED);
                return Ok(None);
            }
        };
        if let Some(largest) = self.without_file.get_mut(&handle) {
            let is_transfer = !matches!(fields.call, "close" | "fsync" | "fdatasync" | "fstat" | "fstat64");
            *largest = (*largest).max(bytes.filter(|_| is_transfer).unwrap_or(0));
        }
        Ok(Some((action, Outcome::Unknown)))
    }

    fn leave_out_ipc(&mut self) {
        let small = self
            .without_file
            .iter()
            .filter(|(_, largest)| **largest <= IPC_BYTES_MAX);
        let small: BTreeSet<Handle> = small.map(|(handle, _)| *handle).collect();
        let trace = &mut self.collector.trace;
        let before = trace.calls.len();
        trace.calls.retain_mut(|call| {
            let handle = call.action.handles_mut()[0].as_deref().copied();
            handle.is_none_or(|handle| !small.contains(&handle))
        });
        let left_out = before - trace.calls.len();
        trace.skip_many(IPC, u64::try_from(left_out).unwrap_or(u64::MAX));
    }
}

/// Removes the stray quotes of some MobiGen paths: returns the text between the quotes, or before a single one.
fn unquoted(word: &str) -> &str {
    let word = word.strip_prefix('"').unwrap_or(word);
    word.split('"').next().unwrap_or(word)
}
