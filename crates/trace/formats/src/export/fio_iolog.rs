//! Writes I/O logs of fio for replay. Version 3 has microseconds since the start before each line, version 2 waits
//! between them.
//!
//! A device is a file of the log, `/dev/NAME` if its name is known; fio's `replay_redirect` names another one. fio
//! reads words of at most 256 bytes between blanks, so blanks and control characters in names become underscores.

use std::collections::BTreeMap;

use results::block_trace::{DeviceNumber, Event, Operation, Request, TraceHeader};
use results::shown;

use super::output::Output;
use crate::error::WriteError;
use crate::stream::{TraceSink, Written};

/// Version of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    Three,
}

/// Writes an I/O log.
pub struct FioIologWriter {
    output: Output,
    version: Version,
    begun: bool,
    names: BTreeMap<DeviceNumber, String>,
    opened: BTreeMap<DeviceNumber, String>,
    first_ns: Option<u64>,
    last_us: u64,
    written: Written,
}

impl FioIologWriter {
    pub const fn version_2(output: Output) -> Self {
        Self::new(output, Version::Two)
    }

    pub const fn version_3(output: Output) -> Self {
        Self::new(output, Version::Three)
    }

    const fn new(output: Output, version: Version) -> Self {
        Self {
            output,
            version,
            begun: false,
            names: BTreeMap::new(),
            opened: BTreeMap::new(),
            first_ns: None,
            last_us: 0,
            written: Written {
                requests: 0,
                events: 0,
                left_out: BTreeMap::new(),
            },
        }
    }

    fn begin(&mut self) -> Result<(), WriteError> {
        if self.begun {
            return Ok(());
        }
        self.begun = true;
        self.output.write(match self.version {
            Version::Two => b"fio version 2 iolog\n",
            Version::Three => b"fio version 3 iolog\n",
        })
    }

    fn line(&mut self, us: u64, text: &str) -> Result<(), WriteError> {
        let line = match self.version {
            Version::Two => format!("{text}\n"),
            Version::Three => format!("{us} {text}\n"),
        };
        self.output.write(line.as_bytes())
    }

    fn name_of(&mut self, device: DeviceNumber, us: u64) -> Result<String, WriteError> {
        if let Some(name) = self.opened.get(&device) {
            return Ok(name.clone());
        }
        let known = self.names.get(&device).filter(|name| !name.is_empty());
        let name = match known {
            Some(name) if name.starts_with('/') => name.clone(),
            Some(name) => format!("/dev/{name}"),
            None => format!("/dev/block_{}_{}", device.major, device.minor),
        };
        let name: String = name
            .chars()
            .map(|char| match char.is_whitespace() || shown::is_active(char) {
                true => '_',
                false => char,
            })
            .collect();
        self.line(us, &format!("{name} add"))?;
        self.line(us, &format!("{name} open"))?;
        self.opened.insert(device, name.clone());
        Ok(name)
    }
}

impl TraceSink for FioIologWriter {
    fn known(&mut self, header: &TraceHeader) {
        for device in &header.devices {
            self.names.insert(device.device, device.name.clone());
        }
    }

    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        self.begin()?;
        let action = match request.operation {
            Operation::Read => "read",
            Operation::Write | Operation::ZoneAppend => "write",
            Operation::Discard | Operation::SecureErase => "trim",
            Operation::Flush => "sync",
            Operation::WriteZeroes => {
                self.written
                    .leave_out("write-zeroes requests: fio has no such thing");
                return Ok(());
            }
            Operation::ZoneManagement | Operation::Driver => {
                self.written
                    .leave_out("commands of drivers and zones: fio has no such thing");
                return Ok(());
            }
        };
        let Some(first) = request.first_ns() else {
            self.written.leave_out("requests without any time");
            return Ok(());
        };
        let base = *self.first_ns.get_or_insert(first);
        let us = (first.saturating_sub(base) / 1000).max(self.last_us);
        let name = self.name_of(request.device, us)?;
        if self.version == Version::Two && us > self.last_us {
            self.line(us, &format!("{name} wait {} 0", us - self.last_us))?;
        }
        self.last_us = us;
        let offset = request.sector.saturating_mul(512);
        self.line(us, &format!("{name} {action} {offset} {}", request.bytes))?;
        self.written.requests += 1;
        Ok(())
    }

    fn event(&mut self, _: &Event) -> Result<(), WriteError> {
        self.written.leave_out("events that are no requests");
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceHeader) -> Result<Written, WriteError> {
        self.begin()?;
        let us = self.last_us;
        for name in std::mem::take(&mut self.opened).into_values() {
            self.line(us, &format!("{name} close"))?;
        }
        self.output.finish()?;
        Ok(self.written)
    }
}
