//! Writes Perfetto traces: slices of requests on lanes under their device, the number of requests in flight as a
//! counter, events as instants.
//!
//! Slices of one track must nest, and requests overlap: each uses the lowest free lane for its duration. There the
//! slice of the whole request contains one of the time in the device. Packets are written as requests arrive; Perfetto
//! sorts by time itself. Field numbers are those of Perfetto's `trace_packet.proto`, `track_event.proto`,
//! `track_descriptor.proto` and `debug_annotation.proto`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use results::block_trace::{DeviceNumber, Event, Request, TraceHeader};

use super::output::Output;
use super::protobuf::Message;
use crate::error::WriteError;
use crate::import::rwbs::letters;
use crate::stream::{TraceSink, Written};

mod packet {
    pub const IN_TRACE: u32 = 1;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;
}

mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
}

mod track_event {
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const TRACK: u32 = 11;
    pub const CATEGORY: u32 = 22;
    pub const NAME: u32 = 23;
    pub const COUNTER_VALUE: u32 = 30;
    pub const SLICE_BEGIN: u64 = 1;
    pub const SLICE_END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
}

mod annotation {
    pub const UINT: u32 = 3;
    pub const TEXT: u32 = 6;
    pub const NAME: u32 = 10;
}

/// All packets belong to one sequence, which begins with a clean state.
const SEQUENCE: u64 = 1;
const STATE_CLEARED: u64 = 1;

/// The track of events other than requests.
const EVENTS_TRACK: u64 = 1;

/// Further lanes would be unreadable; requests then share the last one.
const LANES_MAX: usize = 1024;

/// Writes a trace of Perfetto.
pub struct PerfettoWriter {
    output: Output,
    names: HashMap<DeviceNumber, String>,
    devices: HashMap<DeviceNumber, Device>,
    next_track: u64,
    begun: bool,
    events_begun: bool,
    written: Written,
}

struct Device {
    track: u64,
    counter: u64,
    /// Track of each lane.
    lanes: Vec<u64>,
    free: BinaryHeap<Reverse<usize>>,
    /// Lanes in use, by the time when they become free.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
}

impl PerfettoWriter {
    pub fn new(output: Output) -> Self {
        Self {
            output,
            names: HashMap::new(),
            devices: HashMap::new(),
            next_track: EVENTS_TRACK + 1,
            begun: false,
            events_begun: false,
            written: Written::default(),
        }
    }

    fn packet(&mut self, packet: Message) -> Result<(), WriteError> {
        let mut packet = packet.number(packet::SEQUENCE, SEQUENCE);
        if !self.begun {
            self.begun = true;
            packet = packet.number(packet::SEQUENCE_FLAGS, STATE_CLEARED);
        }
        let framed = Message::default().message(packet::IN_TRACE, &packet);
        self.output.write(&framed.into_bytes())
    }

    fn track(&mut self, name: &str, parent: Option<u64>, is_counter: bool) -> Result<u64, WriteError> {
        let uuid = self.next_track;
        self.next_track += 1;
        self.describe(uuid, name, parent, is_counter)?;
        Ok(uuid)
    }

    fn describe(
        &mut self,
        uuid: u64,
        name: &str,
        parent: Option<u64>,
        is_counter: bool,
    ) -> Result<(), WriteError> {
        let mut track = Message::default()
            .number(track::UUID, uuid)
            .text(track::NAME, name);
        if let Some(parent) = parent {
            track = track.number(track::PARENT, parent);
        }
        if is_counter {
            track = track.message(track::COUNTER, &Message::default());
        }
        self.packet(Message::default().message(packet::TRACK_DESCRIPTOR, &track))
    }

    fn device(&mut self, device: DeviceNumber) -> Result<(), WriteError> {
        if self.devices.contains_key(&device) {
            return Ok(());
        }
        let name = self.names.get(&device).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("device {device}"), Clone::clone);
        let track = self.track(&name, None, false)?;
        let counter = self.track("in flight", Some(track), true)?;
        self.devices.insert(
            device,
            Device {
                track,
                counter,
                lanes: Vec::new(),
                free: BinaryHeap::new(),
                busy: BinaryHeap::new(),
            },
        );
        Ok(())
    }

    /// Takes the lowest lane that is free from `begin` on, until `end`; returns its track.
    fn lane(&mut self, device: DeviceNumber, begin: u64, end: u64) -> Result<u64, WriteError> {
        self.device(device)?;
        let Some(state) = self.devices.get_mut(&device) else {
            return Ok(EVENTS_TRACK);
        };
        while let Some(Reverse((_, lane))) = state
            .busy
            .peek()
            .copied()
            .filter(|Reverse((until, _))| *until <= begin)
        {
            state.busy.pop();
            state.free.push(Reverse(lane));
        }
        let free = state.free.pop().map(|Reverse(lane)| lane);
        let lane = free.unwrap_or_else(|| state.lanes.len().min(LANES_MAX - 1));
        state.busy.push(Reverse((end, lane)));
        if let Some(track) = state.lanes.get(lane) {
            return Ok(*track);
        }
        let parent = state.track;
        let track = self.track(&format!("lane {lane}"), Some(parent), false)?;
        if let Some(state) = self.devices.get_mut(&device) {
            state.lanes.push(track);
        }
        Ok(track)
    }

    fn slice(&mut self, track: u64, begin: u64, end: u64, event: Message) -> Result<(), WriteError> {
        let begin_event = event
            .number(track_event::TYPE, track_event::SLICE_BEGIN)
            .number(track_event::TRACK, track);
        self.track_event(begin, &begin_event)?;
        let end_event = Message::default()
            .number(track_event::TYPE, track_event::SLICE_END)
            .number(track_event::TRACK, track);
        self.track_event(end, &end_event)
    }

    fn track_event(&mut self, time_ns: u64, event: &Message) -> Result<(), WriteError> {
        self.packet(
            Message::default()
                .number(packet::TIMESTAMP, time_ns)
                .message(packet::TRACK_EVENT, event),
        )
    }

    fn counter(&mut self, device: DeviceNumber, time_ns: u64, value: u32) -> Result<(), WriteError> {
        let Some(track) = self.devices.get(&device).map(|device| device.counter) else {
            return Ok(());
        };
        let event = Message::default()
            .number(track_event::TYPE, track_event::COUNTER)
            .number(track_event::TRACK, track)
            .number(track_event::COUNTER_VALUE, u64::from(value));
        self.track_event(time_ns, &event)
    }
}

fn annotated(event: Message, name: &str, value: Option<u64>) -> Message {
    let Some(value) = value else { return event };
    let annotation = Message::default()
        .text(annotation::NAME, name)
        .number(annotation::UINT, value);
    event.message(track_event::ANNOTATION, &annotation)
}

fn annotated_text(event: Message, name: &str, value: Option<&str>) -> Message {
    let Some(value) = value else { return event };
    let annotation = Message::default()
        .text(annotation::NAME, name)
        .text(annotation::TEXT, value);
    event.message(track_event::ANNOTATION, &annotation)
}

fn described(request: &Request) -> Message {
    let longest = request.runs.iter().max_by_key(|run| run.bytes);
    let file = longest.and_then(|run| run.path.as_deref());
    let kind = longest
        .map(|run| run.block_type.word())
        .filter(|word| *word != "unknown");
    let name = match (file.and_then(|path| path.rsplit('/').next()), kind) {
        (Some(file), _) => format!("{} {file}", request.operation),
        (None, Some(kind)) => format!("{} {kind}", request.operation),
        (None, None) => request.operation.to_string(),
    };
    let event = Message::default()
        .text(track_event::CATEGORY, request.operation.word())
        .text(track_event::NAME, &name);
    let event = annotated(event, "request", Some(request.id));
    let event = annotated(event, "sector", Some(request.sector));
    let event = annotated(event, "bytes", Some(request.bytes));
    let event = annotated_text(event, "rwbs", Some(&letters(request.operation, request.flags)));
    let event = annotated_text(event, "path", file);
    let event = annotated_text(event, "block type", kind);
    let cause = longest.and_then(|run| run.cause.as_ref());
    let event = annotated_text(event, "process", cause.map(|process| &*process.name));
    let event = annotated(event, "pid", cause.map(|process| u64::from(process.pid)));
    annotated_text(
        event,
        "submitter",
        request.submitter.as_ref().map(|process| &*process.name),
    )
}

impl TraceSink for PerfettoWriter {
    fn known(&mut self, header: &TraceHeader) {
        for device in &header.devices {
            self.names.insert(device.device, device.name.clone());
        }
    }

    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        let Some(begin) = request.first_ns() else {
            self.written.leave_out("requests without any time");
            return Ok(());
        };
        let times = [
            request.queued_ns,
            request.inserted_ns,
            request.issued_ns,
            request.completed_ns,
        ];
        let end = times.into_iter().flatten().max().unwrap_or(begin);
        let track = self.lane(request.device, begin, end)?;
        // An inner slice must end before the slice around it does.
        let inner = request
            .issued_ns
            .zip(request.completed_ns)
            .filter(|(issued, _)| *issued > begin);
        let outer = described(request)
            .number(track_event::TYPE, track_event::SLICE_BEGIN)
            .number(track_event::TRACK, track);
        self.track_event(begin, &outer)?;
        if let Some((issued, completed)) = inner {
            let event = Message::default().text(track_event::NAME, "device");
            self.slice(track, issued, completed.max(issued), event)?;
        }
        let outer_end = Message::default()
            .number(track_event::TYPE, track_event::SLICE_END)
            .number(track_event::TRACK, track);
        self.track_event(end, &outer_end)?;
        if let (Some(issued), Some(in_flight)) = (request.issued_ns, request.in_flight) {
            self.counter(request.device, issued, in_flight)?;
        }
        self.written.requests += 1;
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        if !self.events_begun {
            self.events_begun = true;
            self.describe(EVENTS_TRACK, "files and journal", None, false)?;
        }
        let message = Message::default()
            .text(track_event::NAME, event.kind.word())
            .number(track_event::TYPE, track_event::INSTANT)
            .number(track_event::TRACK, EVENTS_TRACK);
        let message = annotated_text(message, "path", event.path.as_deref());
        let message = annotated_text(message, "name", event.name.as_deref());
        let message = annotated_text(
            message,
            "process",
            event.process.as_ref().map(|process| &*process.name),
        );
        let message = annotated(message, "value", Some(event.value));
        self.written.events += 1;
        self.track_event(event.time_ns, &message)
    }

    fn finish(self: Box<Self>, _: &TraceHeader) -> Result<Written, WriteError> {
        self.output.finish()?;
        Ok(self.written)
    }
}
