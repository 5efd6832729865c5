//! Captures one trace from start to end: devices, programs, the command, the threads, and the header with the outcome.

use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use results::block_trace::{BLOCK_TRACE_SCHEMA, Event, EventKind, Limitation, TraceHeader, TracedDevice};

use super::attribution::Attribution;
use super::chunk::{Chunk, MAX_CHUNKS};
use super::device;
use super::error::CaptureError;
use super::joiner::Joiner;
use super::order::Item;
use super::record::{MAX_DEVICES, ProcessReference, Record, kernel_device};
use super::renames::{NO_NAME, Renames};
use super::setup::Setup;
use super::source::Source;
use super::{CaptureSpec, Captured, CommandOutput, ItemOrder, Sink, is_in_namespace, own_pid};

mod clocks;
mod limitations;
mod seed;

use self::clocks::{both_clocks, monotonic_ns};
use self::seed::seed;

const RING_SIZES: std::ops::RangeInclusive<u64> = (64 << 10)..=(1 << 30);
/// Interval of checks for the end of the trace.
const INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time to wait for requests in flight at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Traces until the command or the duration ends, or `stop` is set.
///
/// # Errors
/// If a target is not a device, tracing is forbidden, the command cannot be started, or the sink fails.
pub fn capture(spec: &CaptureSpec, stop: &AtomicBool, sink: &mut dyn Sink) -> Result<Captured, CaptureError> {
    let devices = resolve(spec)?;
    let ring_bytes = u32::try_from(spec.ring_bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && RING_SIZES.contains(&spec.ring_bytes))
        .ok_or(CaptureError::Ring {
            bytes: spec.ring_bytes,
        })?;
    let setup = Setup {
        devices: devices
            .iter()
            .map(|device| kernel_device(device.device))
            .collect(),
        file_systems: devices
            .iter()
            .flat_map(device::mounts_on)
            .map(|mount| kernel_device(mount.device))
            .collect(),
        drivers: if spec.driver_commands {
            devices
                .iter()
                .map(|device| device::driver_of(device.device))
                .collect()
        } else {
            Vec::new()
        },
        ring_bytes,
        count_calls: spec.count_calls,
    };
    // Before the programs start, as scanning the names reads from the devices.
    let mut attribution = Attribution::default();
    let unseen: Vec<Limitation> = devices
        .iter()
        .filter_map(|device| seed(&mut attribution, device))
        .collect();
    let source = Source::start(spec.method, &setup, &devices)?;
    let mut session = Session::new(spec, devices, source, attribution);
    session.header.limitations.extend(unseen);
    session.run(stop, sink)
}

fn resolve(spec: &CaptureSpec) -> Result<Vec<TracedDevice>, CaptureError> {
    let mut devices: Vec<TracedDevice> = Vec::new();
    for target in &spec.targets {
        let device = device::resolve(target)?;
        if !devices.iter().any(|known| known.device == device.device) {
            devices.push(device);
        }
    }
    if devices.len() > MAX_DEVICES {
        return Err(CaptureError::TooManyDevices {
            named: devices.len(),
            most: MAX_DEVICES,
        });
    }
    Ok(devices)
}

/// A trace in progress.
struct Session<'a> {
    spec: &'a CaptureSpec,
    header: TraceHeader,
    source: Source,
    joiner: Joiner,
    renames: Option<Renames>,
    started: Instant,
    requests: u64,
    events: u64,
}

impl<'a> Session<'a> {
    fn new(
        spec: &'a CaptureSpec,
        devices: Vec<TracedDevice>,
        source: Source,
        mut attribution: Attribution,
    ) -> Self {
        let (start, since_epoch) = both_clocks();
        attribution.start = start;
        let mut header = TraceHeader {
            schema: BLOCK_TRACE_SCHEMA,
            source: spec.source.clone(),
            method: source.method(),
            host: spec.host.clone(),
            start_realtime_ns: u64::try_from(since_epoch.as_nanos()).ok(),
            duration_ns: 0,
            devices,
            limitations: source.limitations(),
            lost_records: 0,
            refused: 0,
            ring_was_tight: false,
            complete: true,
        };
        if is_in_namespace() {
            header.limitations.push(limitations::in_namespace());
        }
        let in_order = spec.order == ItemOrder::ByTime;
        let joiner = Joiner::new(attribution, source.flags(), own_pid(), in_order);
        let renames = Renames::watch(&header.devices);
        let renames = renames
            .map_err(|limitation| header.limitations.push(limitation))
            .ok();
        Self {
            spec,
            header,
            source,
            joiner,
            renames,
            started: Instant::now(),
            requests: 0,
            events: 0,
        }
    }

    fn run(mut self, stop: &AtomicBool, sink: &mut dyn Sink) -> Result<Captured, CaptureError> {
        let records = self.source.reader()?;
        let (sender, receiver) = mpsc::sync_channel(MAX_CHUNKS);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let sender = sender;
                records.read(&sender, &ended)
            });
            let outcome = self.follow(stop, &receiver, sink);
            // The reader empties the ring once more after this, and then closes the channel.
            self.source.stop();
            ended.store(true, Ordering::Release);
            let rest = outcome.and_then(|status| {
                while let Ok(chunk) = receiver.recv() {
                    self.take(&chunk, sink)?;
                }
                Ok(status)
            });
            drop(receiver);
            let read = reader.join().unwrap_or(Ok(()));
            let command_status = rest?;
            read?;
            self.finish(sink)?;
            Ok(Captured {
                header: self.header,
                requests: self.requests,
                events: self.events,
                own_requests: self.joiner.untold.own,
                command_status,
            })
        })
    }

    /// Processes chunks as they arrive, and checks for the end, until the trace ends.
    fn follow(
        &mut self,
        stop: &AtomicBool,
        chunks: &Receiver<Chunk>,
        sink: &mut dyn Sink,
    ) -> Result<Option<ExitStatus>, CaptureError> {
        sink.started(&self.header)
            .map_err(|source| CaptureError::Write { source })?;
        let mut child = self.start_command()?;
        let mut status = None;
        loop {
            self.take_for(chunks, sink, INTERVAL)?;
            sink.idle().map_err(|source| CaptureError::Write { source })?;
            if let Some(running) = &mut child {
                status = running.try_wait().ok().flatten();
                if status.is_some() {
                    break;
                }
            }
            if stop.load(Ordering::Relaxed) {
                // Without a command or duration, a signal is the regular end.
                self.header.complete = child.is_none() && self.spec.duration.is_none();
                break;
            }
            if self
                .spec
                .duration
                .is_some_and(|duration| self.started.elapsed() >= duration)
            {
                break;
            }
        }
        if let Some(mut running) = child.filter(|_| status.is_none()) {
            // Ctrl-C reached the command too; a command that is still running is killed.
            let _ = running.kill();
            status = running.wait().ok();
        }
        if self.spec.sync_at_end {
            self.sync();
        }
        self.drain(chunks, sink)?;
        Ok(status)
    }

    /// Syncs the file systems on the devices. One that cannot be opened is left to the kernel.
    fn sync(&self) {
        for device in &self.header.devices {
            for mount in device::mounts_on(device) {
                if let Ok(folder) = fs::File::open(&mount.mountpoint) {
                    let _ = rustix::fs::syncfs(&folder);
                }
            }
        }
    }

    /// Waits until no requests are in flight on the devices, at most for [`DRAIN`].
    fn drain(&mut self, chunks: &Receiver<Chunk>, sink: &mut dyn Sink) -> Result<(), CaptureError> {
        let until = Instant::now() + DRAIN;
        loop {
            let counters = self.source.counters()?;
            // A negative count belongs to requests that were in flight at the start.
            let busy = counters
                .in_flight
                .iter()
                .any(|count| (1..=u64::from(u32::MAX)).contains(count));
            if !busy || Instant::now() >= until {
                return Ok(());
            }
            self.take_for(chunks, sink, INTERVAL)?;
        }
    }

    fn start_command(&self) -> Result<Option<Child>, CaptureError> {
        let Some((program, arguments)) = self.spec.command.split_first() else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if self.spec.command_output == CommandOutput::StandardError {
            command.stdout(io::stderr());
        }
        let started = command.spawn();
        started.map(Some).map_err(|source| CaptureError::Start {
            command: program.to_string_lossy().into_owned(),
            source,
        })
    }

    fn take_for(
        &mut self,
        chunks: &Receiver<Chunk>,
        sink: &mut dyn Sink,
        time: Duration,
    ) -> Result<(), CaptureError> {
        self.take_renames();
        match chunks.recv_timeout(time) {
            Ok(chunk) => self.take(&chunk, sink),
            Err(RecvTimeoutError::Timeout) => Ok(()),
            // The reader ended by itself: its error is reported when it is joined.
            Err(RecvTimeoutError::Disconnected) => Err(CaptureError::Refused {
                step: "reading the ring".to_owned(),
                source: io::Error::from(io::ErrorKind::BrokenPipe),
            }),
        }
    }

    /// Adds renames of which the kernel has notified.
    fn take_renames(&mut self) {
        let Some(renames) = &mut self.renames else {
            return;
        };
        for mut renamed in renames.read() {
            // A process that has ended has no name any more.
            if &*renamed.process.name == NO_NAME
                && !is_in_namespace()
                && let Some(name) = self.joiner.attribution.processes.name_of(renamed.process.pid)
            {
                renamed.process.name = name;
            }
            let path: Arc<str> = renamed.path.into();
            if let Some(file) = renamed.file {
                self.joiner.attribution.renamed(file, &path);
            }
            self.joiner.push_event(Event {
                time_ns: self.joiner.attribution.since_start(monotonic_ns()),
                kind: EventKind::Rename,
                process: Some(Arc::new(renamed.process)),
                file: renamed.file,
                path: Some(path),
                name: None,
                value: 0,
            });
        }
    }

    fn take(&mut self, chunk: &Chunk, sink: &mut dyn Sink) -> Result<(), CaptureError> {
        for bytes in chunk.records() {
            if let Some(record) = Record::read(bytes) {
                self.joiner.take(&record);
            }
        }
        while let Some(item) = self.joiner.next() {
            self.hand_on(item, sink)?;
        }
        if self.joiner.attribution.lacks_names() {
            self.source.send_names_again()?;
        }
        Ok(())
    }

    fn hand_on(&mut self, item: Item, sink: &mut dyn Sink) -> Result<(), CaptureError> {
        if self.joiner.is_own_event(&item) {
            return Ok(());
        }
        let written = match item {
            Item::Request(mut request) => {
                request.id = self.requests;
                self.requests += 1;
                sink.request(&request)
            }
            Item::Event(event) => {
                self.events += 1;
                sink.event(&event)
            }
        };
        written.map_err(|source| CaptureError::Write { source })
    }

    fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), CaptureError> {
        let counters = self.source.counters()?;
        if let Some(renames) = &mut self.renames {
            renames.stop();
        }
        while self.renames.as_ref().is_some_and(|renames| !renames.is_drained) {
            self.take_renames();
        }
        self.joiner.finish();
        while let Some(item) = self.joiner.next_of_rest() {
            self.hand_on(item, sink)?;
        }
        let elapsed = self.started.elapsed().as_nanos();
        self.header.duration_ns = u64::try_from(elapsed).unwrap_or(u64::MAX);
        self.header.lost_records = counters.lost;
        self.header.refused = self.joiner.untold.refused;
        self.header.ring_was_tight = counters.half_full > 0;
        for device in &mut self.header.devices {
            device.file_system = device
                .file_system
                .take()
                .or_else(|| device::file_system_on(device));
        }
        self.call_counts(sink)?;
        if counters.lost > 0 {
            let lost = Event {
                time_ns: self.header.duration_ns,
                kind: EventKind::Lost,
                process: None,
                file: None,
                path: None,
                name: None,
                value: counters.lost,
            };
            self.hand_on(Item::Event(Box::new(lost)), sink)?;
        }
        let dropped = self.renames.as_ref().map_or(0, |renames| renames.dropped);
        let known = &self.joiner.attribution;
        let renames = self.renames.as_ref();
        let unwatched = renames.map_or(0, |renames| renames.unwatched(&known.file_systems));
        let limitations = limitations::at_end(
            &counters,
            (dropped, unwatched),
            self.joiner.untold,
            known,
            (self.source.forgotten(), self.source.unmatched()),
        );
        self.header.limitations.extend(limitations);
        Ok(())
    }

    fn call_counts(&mut self, sink: &mut dyn Sink) -> Result<(), CaptureError> {
        if !self.spec.count_calls {
            return Ok(());
        }
        let mut counts = self.source.calls()?;
        // Keep only processes that did I/O on the devices.
        let met = self.joiner.attribution.processes.met();
        counts.retain(|(key, _, _)| met.contains(&(key.tgid, key.name)));
        counts.sort_by_key(|(key, name, _)| (key.tgid, *name));
        for (key, name, count) in counts {
            let reference = ProcessReference {
                tgid: key.tgid,
                tid: key.tgid,
                name: key.name,
            };
            let process = self.joiner.attribution.processes.get(reference);
            let event = Event {
                time_ns: self.header.duration_ns,
                kind: EventKind::CallCount,
                process: Some(process),
                file: None,
                path: None,
                name: Some(name.into()),
                value: count,
            };
            self.hand_on(Item::Event(Box::new(event)), sink)?;
        }
        Ok(())
    }
}
