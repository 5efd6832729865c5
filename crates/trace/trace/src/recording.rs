//! The output file of `trace record` while it is recorded: chosen early, opened when tracing runs, and kept on a failure.
//!
//! Nothing is created before the BPF programs are loaded, so a refused trace leaves no file. If dropped before
//! [`RecordFile::finish`], the trace keeps its partial name.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use formats::export::ForeignFormat;
use formats::{TraceSink, WriteError};
use media::quantity::about_bytes;
use outfile::partial_name;
use results::block_trace::{BlockClass, Event, Operation, Request, TraceHeader};
use results::calendar::date_and_time;
use serde::Serialize;
use thiserror::Error;

use crate::block::{Captured, Sink, disk_under};
use crate::destination::{self, To};

/// Time of the first checkpoint: the most that a killed recorder loses of a young trace.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);

/// Reasons why a trace can't be written.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The name has no last part.
    #[error("{}: expected a name for the trace, found a folder", .0.display())]
    NoName(PathBuf),
    /// The trace exists.
    #[error("{} exists already; choose another name with -o, or replace it with --force", .0.display())]
    Exists(PathBuf),
    /// The folder of the trace does not exist.
    #[error("{}: no such folder; make it, or choose another name with -o", .0.display())]
    NoFolder(PathBuf),
    /// The trace could not be completed.
    #[error("the trace is incomplete; its beginning is in {}", partial.display())]
    Incomplete {
        /// The file with its beginning.
        partial: PathBuf,
        /// The failure.
        source: WriteError,
    },
}

/// Summary of a recorded trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TraceSummary {
    /// The file or folder of the trace.
    pub file: PathBuf,
    duration_seconds: f64,
    requests: u64,
    events: u64,
    read_bytes: u64,
    written_bytes: u64,
    discarded_bytes: u64,
    flushes: u64,
    /// Bytes moved, by class of blocks.
    bytes_by_class: BTreeMap<&'static str, u64>,
    lost_records: u64,
    /// I/Os that the block layer refused (`REQ_NOWAIT`); they moved nothing and are no requests.
    refused: u64,
    complete: bool,
    limitations: Vec<String>,
}

impl TraceSummary {
    /// Counts one request.
    fn add(&mut self, request: &Request) {
        match request.operation {
            Operation::Read => self.read_bytes += request.bytes,
            Operation::Write | Operation::ZoneAppend => self.written_bytes += request.bytes,
            Operation::Discard | Operation::SecureErase => self.discarded_bytes += request.bytes,
            Operation::Flush => self.flushes += 1,
            _ => {}
        }
        if request.moves_data() {
            for run in &request.runs {
                let class: BlockClass = run.block_type.class();
                *self.bytes_by_class.entry(class.word()).or_default() += run.bytes;
            }
        }
    }

    /// Adds the totals that are known at the end.
    fn end(&mut self, captured: &Captured) {
        let header = &captured.header;
        self.duration_seconds = Duration::from_nanos(header.duration_ns).as_secs_f64();
        self.requests = captured.requests;
        self.events = captured.events;
        self.lost_records = header.lost_records;
        self.refused = header.refused;
        self.complete = header.complete;
        self.limitations = header
            .limitations
            .iter()
            .map(|limitation| format!("{}: {}", limitation.what, limitation.why))
            .collect();
    }

    /// The summary for people, in lines.
    #[must_use]
    pub fn lines(&self, captured: &Captured) -> Vec<String> {
        let mut lines = Vec::new();
        lines.push(format!(
            "{} requests in {:.1} s: {} read, {} written, {} discarded, {} flushes",
            self.requests,
            self.duration_seconds,
            about_bytes(self.read_bytes),
            about_bytes(self.written_bytes),
            about_bytes(self.discarded_bytes),
            self.flushes
        ));
        let classes: Vec<String> = self
            .bytes_by_class
            .iter()
            .map(|(class, bytes)| format!("{class} {}", about_bytes(*bytes)))
            .collect();
        if !classes.is_empty() {
            lines.push(classes.join(", "));
        }
        if self.refused > 0 {
            lines.push(format!(
                "{} I/Os were refused as the queue was full (NOWAIT): they moved nothing, and are not counted above",
                self.refused
            ));
        }
        for limitation in &self.limitations {
            lines.push(format!("not in the trace: {limitation}"));
        }
        if self.lost_records > 0 {
            lines.push(format!(
                "{} records were lost; trace again with a larger --ring",
                self.lost_records
            ));
        } else if captured.header.ring_was_tight {
            lines.push(
                "no record was lost, but the ring was over half full; a larger --ring is safer".to_owned(),
            );
        }
        if !self.complete {
            lines.push("stopped before its end: the trace is whole up to there, and marked".to_owned());
        }
        lines.push(format!("{} events; all in {}", self.events, self.file.display()));
        lines
    }
}

/// A trace being recorded.
pub struct RecordFile<'stop> {
    /// `None` until the device's name is known.
    path: Option<PathBuf>,
    to: To,
    force: bool,
    /// Set when the reader of standard output has closed it.
    stop: &'stop AtomicBool,
    /// Gets warnings.
    say: fn(&str),
    sink: Option<Box<dyn TraceSink>>,
    begun: bool,
    summary: TraceSummary,
    checkpoints: Checkpoints,
}

/// Schedule of checkpoints. Each one takes space in the tables, so they become rarer as the trace grows: a killed recorder
/// loses at most a fifth of the time.
struct Checkpoints {
    began: Instant,
    /// Time of the next checkpoint, since the start.
    next: Duration,
}

impl Checkpoints {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            next: FIRST_CHECKPOINT,
        }
    }

    /// Returns true if a checkpoint is due, and schedules the next one.
    fn take(&mut self) -> bool {
        let elapsed = self.began.elapsed();
        if elapsed < self.next {
            return false;
        }
        self.next = elapsed + FIRST_CHECKPOINT.max(elapsed / 4);
        true
    }
}

impl<'stop> RecordFile<'stop> {
    /// Chooses the output. Refuses an existing one unless `force`; `say` gets warnings.
    ///
    /// # Errors
    /// [`RecordingError`] when no trace can be there.
    pub fn new(
        output: Option<&Path>,
        force: bool,
        stop: &'stop AtomicBool,
        say: fn(&str),
    ) -> Result<Self, RecordingError> {
        let (path, to) = match output {
            None => (None, To::Native),
            Some(path) if path.as_os_str() == "-" => {
                (Some(path.to_owned()), To::Foreign(ForeignFormat::JsonLines))
            }
            Some(path) => match To::by_name(path) {
                Some(to) => (Some(path.to_owned()), to),
                None => (Some(native_name(path)?), To::Native),
            },
        };
        if let Some(path) = path.as_deref().filter(|path| path.as_os_str() != "-") {
            check(path, force)?;
        }
        Ok(Self {
            path,
            to,
            force,
            stop,
            say,
            sink: None,
            begun: false,
            summary: TraceSummary::default(),
            checkpoints: Checkpoints::new(),
        })
    }

    /// Returns true for standard output.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        self.path.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// The file of the trace, once it has been created; `None` for standard output.
    #[must_use]
    pub fn begun(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.begun && !self.is_stdout())
    }

    /// Finishes the trace and gives it its final name.
    ///
    /// # Errors
    /// [`RecordingError::Incomplete`].
    pub fn finish(&mut self, captured: &Captured) -> Result<TraceSummary, RecordingError> {
        let path = self.path.clone().unwrap_or_default();
        if let Some(sink) = self.sink.take() {
            match sink.finish(&captured.header) {
                Err(WriteError::Io { source, .. })
                    if self.is_stdout() && source.kind() == ErrorKind::BrokenPipe => {}
                finished => {
                    finished.map_err(|source| RecordingError::Incomplete {
                        partial: partial_name(&path),
                        source,
                    })?;
                }
            }
        }
        self.summary.file = path;
        self.summary.end(captured);
        Ok(self.summary.clone())
    }

    fn hand_on(&mut self, give: impl FnOnce(&mut dyn TraceSink) -> Result<(), WriteError>) -> io::Result<()> {
        let Some(sink) = self.sink.as_mut() else {
            return Ok(());
        };
        match give(sink.as_mut()) {
            Ok(()) => Ok(()),
            Err(WriteError::Io { source, .. })
                if source.kind() == ErrorKind::BrokenPipe && self.is_stdout() =>
            {
                self.sink = None;
                self.stop.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn warn_of_own_device(&self, header: &TraceHeader, path: &Path) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let Some(disk) = disk_under(folder.unwrap_or(Path::new("."))) else {
            return;
        };
        if let Some(device) = header.devices.iter().find(|device| device.device == disk) {
            (self.say)(&format!(
                "{} lies on {}, which is traced: the tracer's own requests are left out, but they disturb the others; \
                 write to another device with -o",
                path.display(),
                device.name
            ));
        }
    }
}

impl Sink for RecordFile<'_> {
    fn started(&mut self, header: &TraceHeader) -> io::Result<()> {
        let path = self.path.get_or_insert_with(|| default_name(header)).clone();
        if !self.is_stdout() {
            self.warn_of_own_device(header, &path);
        }
        let mut sink = destination::create(&path, self.to, header, destination::existing(self.force))
            .map_err(io::Error::other)?;
        sink.known(header);
        self.sink = Some(sink);
        self.begun = true;
        self.checkpoints = Checkpoints::new();
        Ok(())
    }

    fn idle(&mut self) -> io::Result<()> {
        if self.checkpoints.take() {
            self.hand_on(|sink| sink.checkpoint())?;
        }
        Ok(())
    }

    fn request(&mut self, request: &Request) -> io::Result<()> {
        self.summary.add(request);
        self.hand_on(|sink| sink.request(request))
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.hand_on(|sink| sink.event(event))
    }
}

/// `NAME.trace` for a name without a known extension.
fn native_name(path: &Path) -> Result<PathBuf, RecordingError> {
    let name = path.file_name();
    let mut name = name
        .ok_or_else(|| RecordingError::NoName(path.to_owned()))?
        .to_owned();
    name.push(".trace");
    Ok(path.with_file_name(name))
}

fn check(path: &Path, force: bool) -> Result<(), RecordingError> {
    if path.symlink_metadata().is_ok() && !force {
        return Err(RecordingError::Exists(path.to_owned()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(RecordingError::NoFolder(folder.to_owned())),
        None => Ok(()),
    }
}

/// A name from device and time.
fn default_name(header: &TraceHeader) -> PathBuf {
    let device = header
        .devices
        .first()
        .map_or("trace", |device| device.name.as_str());
    let seconds = header.start_realtime_ns.unwrap_or(0) / 1_000_000_000;
    PathBuf::from(format!("{device}-{}.trace", stamp(seconds)))
}

/// Seconds since 1970 as `YYYYMMDD-HHMMSS`.
fn stamp(seconds: u64) -> String {
    let text = date_and_time(i64::try_from(seconds).unwrap_or(i64::MAX));
    text.replace(['-', ':'], "").replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_around_leap_days_and_new_year_are_told_right() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_709_251_199), "20240229-235959");
        assert_eq!(stamp(1_709_251_200), "20240301-000000");
        assert_eq!(stamp(1_798_761_599), "20261231-235959");
    }
}
