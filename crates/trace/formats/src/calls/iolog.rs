//! I/O logs of fio as calls on files.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use results::call_trace::{Action, Call, Handle, Layer, Name, OpenFlags, Outcome, Trace};

use super::{Collector, ReadOptions, TraceError};
use crate::import::fio_iolog::{Entry, HEADER, LogReader, Version};
use crate::import::lines::Lines;
use crate::import::text_source::Expected;

/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE` as Linux flag numbers.
const PUNCH_HOLE: u32 = 3;

pub fn parse(mut lines: Lines<impl BufRead>, options: ReadOptions) -> Result<Trace, TraceError> {
    let mut log = Log {
        reader: LogReader::default(),
        collector: Collector::new(Trace::new(Layer::SystemCalls, ""), options),
        open: HashMap::new(),
    };
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        if let Err(Expected(expected)) = log.line(line) {
            return Err(lines.broken(expected));
        }
    }
    let mut trace = log.collector.trace;
    let origin = match log.reader.version {
        Some(Version::Two) => "fio iolog version 2",
        Some(Version::Three) => "fio iolog version 3",
        None => return Err(lines.broken(HEADER)),
    };
    origin.clone_into(&mut trace.origin);
    Ok(trace)
}

struct Log {
    reader: LogReader,
    collector: Collector,
    open: HashMap<Name, Handle>,
}

impl Log {
    fn line(&mut self, line: &str) -> Result<(), Expected> {
        match self.reader.entry(line)? {
            None => Ok(()),
            Some(Entry::File { name, action }) => {
                self.file(name, action);
                Ok(())
            }
            Some(Entry::Access {
                name,
                action,
                offset,
                length,
            }) => self.access(name, action, offset, length),
        }
    }

    fn file(&mut self, path: &str, action: &str) {
        let trace = &mut self.collector.trace;
        let name = trace.name(Path::new(path));
        match action {
            "open" => {
                let handle = trace.new_handle();
                self.open.insert(name, handle);
                let flags = OpenFlags::READ_WRITE.creating();
                self.push(Action::Open { name, handle, flags });
            }
            "close" => match self.open.remove(&name) {
                Some(handle) => self.push(Action::Close { handle }),
                None => trace.skip("close of a file that is not open"),
            },
            // Declares a file before its first open.
            _ => {}
        }
    }

    fn access(&mut self, path: &str, action: &str, offset: u64, bytes: u64) -> Result<(), Expected> {
        let name = self.collector.trace.name(Path::new(path));
        let Some(handle) = self.open.get(&name).copied() else {
            self.collector.trace.skip("access to a file that is not open");
            return Ok(());
        };
        self.push(match action {
            "read" => Action::ReadAt {
                handle,
                bytes,
                offset,
            },
            "write" => Action::WriteAt {
                handle,
                bytes,
                offset,
            },
            "sync" => Action::Fsync { handle },
            "datasync" => Action::Fdatasync { handle },
            "trim" => Action::Allocate {
                handle,
                mode: PUNCH_HOLE,
                offset,
                bytes,
            },
            _ => return Err(Expected("read, write, sync, datasync, trim or wait")),
        });
        Ok(())
    }

    fn push(&mut self, action: Action) {
        self.collector.push(Call {
            thread: 0,
            at_ns: self.reader.clock_ns,
            recorded_duration_ns: None,
            outcome: Outcome::Unknown,
            action,
        });
    }
}
