//! I/O logs of fio, version 2 and 3.
//!
//! Version 2 has no times but waits (`FILE wait MICROSECONDS 0`), version 3 begins each line with microseconds since the
//! start of the job. Versions up to 1 begin with a number in place of the header and are not read.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use results::call_trace::{Action, Call, Handle, Layer, Name, OpenFlags, Outcome, Trace};

use super::lines::Lines;
use super::{Collector, ReadOptions, TraceError};

/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`, as Linux numbers them.
const PUNCH_HOLE: u32 = 3;

/// True for the first line of a log.
pub fn is_header(line: &str) -> bool {
    version_of(line).is_some()
}

fn version_of(line: &str) -> Option<&str> {
    line.trim().strip_prefix("fio version ")?.strip_suffix(" iolog")
}

pub fn parse(mut lines: Lines<impl BufRead>, options: ReadOptions) -> Result<Trace, TraceError> {
    let header = lines.next()?.and_then(version_of).map(str::to_owned);
    let has_times = match header.as_deref() {
        Some("2") => false,
        Some("3") => true,
        _ => return Err(lines.wrong("`fio version 2 iolog` or `fio version 3 iolog`")),
    };
    let origin = if has_times {
        "fio iolog version 3"
    } else {
        "fio iolog version 2"
    };
    let mut log = Log {
        collector: Collector::new(Trace::new(Layer::SystemCalls, origin), options),
        open: HashMap::new(),
        clock_ns: 0,
    };
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        if let Err(expected) = log.line(line, has_times) {
            return Err(lines.wrong(expected));
        }
    }
    Ok(log.collector.trace)
}

struct Log {
    collector: Collector,
    open: HashMap<Name, Handle>,
    clock_ns: u64,
}

impl Log {
    fn line(&mut self, line: &str, has_times: bool) -> Result<(), String> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let words = if has_times {
            let (time, rest) = words.split_first().ok_or("microseconds")?;
            let us: u64 = time.parse().map_err(|_| "microseconds")?;
            self.clock_ns = us.saturating_mul(1000);
            rest
        } else {
            &words[..]
        };
        match *words {
            [path, action] => self.file_line(path, action),
            [path, action, offset, length] => {
                let number = |word: &str, what: &str| word.parse::<u64>().map_err(|_| what.to_owned());
                let offset = number(offset, "an offset in bytes")?;
                self.data_line(path, action, offset, number(length, "a length in bytes")?)
            }
            _ => Err("a file and an action, and for data an offset and a length".to_owned()),
        }
    }

    fn file_line(&mut self, path: &str, action: &str) -> Result<(), String> {
        let trace = &mut self.collector.trace;
        let name = trace.name(Path::new(path));
        match action {
            "add" => {}
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
            _ => return Err("add, open or close".to_owned()),
        }
        Ok(())
    }

    fn data_line(&mut self, path: &str, action: &str, offset: u64, length: u64) -> Result<(), String> {
        if action == "wait" {
            self.clock_ns = self.clock_ns.saturating_add(offset.saturating_mul(1000));
            return Ok(());
        }
        let name = self.collector.trace.name(Path::new(path));
        let Some(handle) = self.open.get(&name).copied() else {
            self.collector.trace.skip("access to a file that is not open");
            return Ok(());
        };
        let bytes = length;
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
            "trim" => {
                let mode = PUNCH_HOLE;
                Action::Allocate {
                    handle,
                    mode,
                    offset,
                    bytes,
                }
            }
            _ => return Err("read, write, sync, datasync, trim or wait".to_owned()),
        });
        Ok(())
    }

    fn push(&mut self, action: Action) {
        self.collector.push(Call {
            thread: 0,
            at_ns: self.clock_ns,
            recorded_duration_ns: None,
            outcome: Outcome::Unknown,
            action,
        });
    }
}
