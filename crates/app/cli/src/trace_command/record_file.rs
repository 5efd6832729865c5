//! The output file of `trace record` while it is recorded: chosen early, opened when tracing runs, and kept on a failure.
//!
//! Nothing is created before the BPF programs are loaded, so a refused trace leaves no file. If dropped before
//! [`RecordFile::finish`], the trace keeps its partial name.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use formats::export::ForeignFormat;
use formats::{TraceSink, WriteError};
use outfile::partial_name;
use results::block_trace::{Event, Request, TraceHeader};
use trace::block::{Captured, Sink, disk_under};

use super::destination::{self, To};
use super::record::TraceSummary;
use super::utc::stamp;
use crate::output;

/// Time of the first checkpoint: the most that a killed recorder loses of a young trace.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);

/// A trace being recorded.
pub struct RecordFile<'stop> {
    /// `None` until the device's name is known.
    path: Option<PathBuf>,
    to: To,
    force: bool,
    /// Set when the reader of standard output has closed it.
    stop: &'stop AtomicBool,
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
    /// Chooses the output. Refuses an existing one unless `force`.
    pub fn new(output: Option<&Path>, force: bool, stop: &'stop AtomicBool) -> Result<Self> {
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
            sink: None,
            begun: false,
            summary: TraceSummary::default(),
            checkpoints: Checkpoints::new(),
        })
    }

    /// Returns true for standard output.
    pub fn is_stdout(&self) -> bool {
        self.path.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// The file of the trace, once it has been created; `None` for standard output.
    pub fn begun(&self) -> Option<&Path> {
        self.path.as_deref().filter(|_| self.begun && !self.is_stdout())
    }

    /// Finishes the trace and gives it its final name.
    pub fn finish(&mut self, captured: &Captured) -> Result<TraceSummary> {
        let path = self.path.clone().unwrap_or_default();
        if let Some(sink) = self.sink.take() {
            match sink.finish(&captured.header) {
                Err(WriteError::Io { source, .. })
                    if self.is_stdout() && source.kind() == ErrorKind::BrokenPipe => {}
                finished => {
                    finished.with_context(|| {
                        let partial = partial_name(&path);
                        format!(
                            "the trace is incomplete; its beginning is in {}",
                            partial.display()
                        )
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
            output::print_error(&format!(
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
fn native_name(path: &Path) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        bail!(
            "{}: expected a name for the trace, found a folder",
            path.display()
        );
    };
    let mut name = name.to_owned();
    name.push(".trace");
    Ok(path.with_file_name(name))
}

fn check(path: &Path, force: bool) -> Result<()> {
    if path.symlink_metadata().is_ok() && !force {
        bail!(
            "{} exists already; choose another name with -o, or replace it with --force",
            path.display()
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!(
            "{}: no such folder; make it, or choose another name with -o",
            folder.display()
        );
    }
    Ok(())
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
