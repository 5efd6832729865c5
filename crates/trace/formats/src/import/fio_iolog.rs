//! Reads I/O logs of fio, version 2 (waits between accesses) and 3 (microseconds since the start before each line).
//!
//! Lines: `FILE add|open|close`, `FILE read|write|trim|sync|datasync OFFSET LENGTH`, in version 2 also `FILE wait
//! MICROSECONDS 0`. Each file becomes a separate device, numbered 0:0, 0:1 and so on.

use std::collections::HashMap;
use std::sync::Arc;

use results::block_trace::{BlockType, DeviceNumber, Operation, Request, Run, TracedDevice};

use super::assembly::Assembly;
use super::clock::digits;
use super::text_source::{Expected, LineParser};

pub(crate) const HEADER: &str = "`fio version 2 iolog` or `fio version 3 iolog`";

const LINE: &str = "`FILE ACTION` or `FILE ACTION OFFSET LENGTH` of an I/O log of fio";

/// A log with more files is considered damaged.
const FILES_MAX: usize = 4096;

/// Version of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Two,
    Three,
}

/// A line of a log. A name may contain blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'line> {
    /// `add`, `open` or `close`.
    File { name: &'line str, action: &'line str },
    /// An access other than `wait`.
    Access {
        name: &'line str,
        action: &'line str,
        offset: u64,
        length: u64,
    },
}

/// Reads the lines of a log and keeps its clock.
#[derive(Debug, Default)]
pub(crate) struct LogReader {
    /// `None` before the first line.
    pub version: Option<Version>,
    /// Time of the last line.
    pub clock_ns: u64,
}

impl LogReader {
    /// The entry of a line; `None` for the header and for waits.
    pub fn entry<'line>(&mut self, line: &'line str) -> Result<Option<Entry<'line>>, Expected> {
        let Some(version) = self.version else {
            self.version = match line.trim_ascii() {
                "fio version 2 iolog" => Some(Version::Two),
                "fio version 3 iolog" => Some(Version::Three),
                _ => return Err(Expected(HEADER)),
            };
            return Ok(None);
        };
        // A name may contain blanks, so the words are counted from the end.
        let mut line = line.trim_ascii();
        if version == Version::Three {
            let (time, rest) = line
                .split_once(' ')
                .ok_or(Expected("microseconds before the line"))?;
            let us = digits(time).ok_or(Expected("microseconds before the line"))?;
            self.clock_ns = us.saturating_mul(1000);
            line = rest.trim_ascii_start();
        }
        let (before, last) = line.rsplit_once(' ').ok_or(Expected(LINE))?;
        if matches!(last, "add" | "open" | "close") {
            let (name, action) = (before.trim_ascii_end(), last);
            return Ok(Some(Entry::File { name, action }));
        }
        let Some((before, offset)) = before.trim_ascii_end().rsplit_once(' ') else {
            return Err(Expected("add, open or close"));
        };
        let length = digits(last).ok_or(Expected("a length in bytes"))?;
        let offset = digits(offset).ok_or(Expected("an offset in bytes"))?;
        let (name, action) = before.trim_ascii_end().rsplit_once(' ').ok_or(Expected(LINE))?;
        if action == "wait" {
            self.clock_ns = self.clock_ns.saturating_add(offset.saturating_mul(1000));
            return Ok(None);
        }
        Ok(Some(Entry::Access {
            name: name.trim_ascii_end(),
            action,
            offset,
            length,
        }))
    }
}

/// Reads lines of an I/O log.
#[derive(Debug, Default)]
pub struct FioIologParser {
    log: LogReader,
    files: HashMap<String, (DeviceNumber, Arc<str>)>,
    ragged: u64,
}

impl LineParser for FioIologParser {
    const LINE: &str = "`fio version 2 iolog` or `fio version 3 iolog` as the first line";

    fn is_line(line: &str) -> bool {
        let version = line.trim_ascii().strip_prefix("fio version ");
        version.is_some_and(|rest| rest.ends_with(" iolog"))
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        match self.log.entry(line)? {
            None => Ok(()),
            Some(Entry::File { name, .. }) => self.file(name, assembly).map(drop),
            Some(Entry::Access {
                name,
                action,
                offset,
                length,
            }) => self.access(name, action, offset, length, assembly),
        }
    }

    fn end(&mut self, assembly: &mut Assembly) {
        assembly.limitation(
            "processes, flags, latencies",
            "an I/O log of fio does not tell them",
        );
        assembly.limitation(
            "places on the device",
            "an I/O log tells offsets in files; each file stands as a device of its own",
        );
        if self.ragged > 0 {
            let why = format!(
                "{} accesses do not begin at a sector; the sector that they begin in stands",
                self.ragged
            );
            assembly.limitation("exact offsets", &why);
        }
    }
}

impl FioIologParser {
    fn file(&mut self, name: &str, assembly: &mut Assembly) -> Result<(DeviceNumber, Arc<str>), Expected> {
        if let Some((device, path)) = self.files.get(name) {
            return Ok((*device, Arc::clone(path)));
        }
        if self.files.len() >= FILES_MAX {
            return Err(Expected("at most 4096 files in one log"));
        }
        let minor = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let device = DeviceNumber { major: 0, minor };
        let path: Arc<str> = Arc::from(name);
        self.files.insert(name.to_owned(), (device, Arc::clone(&path)));
        assembly
            .header_mut()
            .devices
            .push(TracedDevice::named(device, name.to_owned()));
        Ok((device, path))
    }

    fn access(
        &mut self,
        name: &str,
        action: &str,
        offset: u64,
        length: u64,
        assembly: &mut Assembly,
    ) -> Result<(), Expected> {
        let operation = match action {
            "read" => Operation::Read,
            "write" => Operation::Write,
            "trim" => Operation::Discard,
            "sync" | "datasync" => Operation::Flush,
            _ => return Err(Expected("read, write, trim, sync, datasync or wait")),
        };
        let (device, path) = self.file(name, assembly)?;
        let is_flush = operation == Operation::Flush;
        self.ragged += u64::from(!is_flush && !offset.is_multiple_of(512));
        let (sector, bytes) = if is_flush { (0, 0) } else { (offset / 512, length) };
        let is_device = name.starts_with("/dev/");
        let run = Run {
            block_type: if is_device {
                BlockType::Unknown
            } else {
                BlockType::Data
            },
            path: (!is_device).then_some(path),
            file_offset: (!is_device).then_some(offset),
            ..Run::unknown(sector, bytes)
        };
        assembly.request(Request {
            queued_ns: Some(self.log.clock_ns),
            runs: if bytes > 0 { vec![run] } else { Vec::new() },
            ..Request::at(device, operation, sector, bytes)
        })?;
        Ok(())
    }
}
