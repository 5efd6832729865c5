//! Records every command as a request of a block trace: the driver-level block I/O tracer of seeds/002 section 3.1.1.
//!
//! A pack produces one record for each of its requests, with the pack's command, number of requests, start and end.
//! Its interrupts are recorded with the first of them, so that sums are correct.

use media::Nanos;
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockTrace, CaptureMethod, DeviceNumber, DriverCommand, IoMode, Operation,
    Request as TracedRequest, RequestFlags, Run, TraceHeader, TracedDevice,
};

use crate::block::Request;
use crate::pack_header::{CMD23_CONTEXT_SHIFT, CMD23_PACKED, CMD23_RELIABLE, CMD23_TAG};
use crate::packing::is_reliable;

/// A command sent to the card.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Time at which the driver began to process it.
    pub at: Nanos,
    /// Start of the data transfer.
    pub data_start: Nanos,
    /// Time at which the driver saw that the card was ready.
    pub done: Nanos,
    /// Number of interrupts.
    pub interrupts: u16,
    /// Whether CMD23 preceded it.
    pub with_cmd23: bool,
    /// Number of requests in it.
    pub requests: u16,
}

/// A log of commands.
#[derive(Clone, Debug)]
pub struct CommandLog {
    requests: Vec<TracedRequest>,
    limit: usize,
    left_out: u64,
}

/// Device number in traces: the first mmc disk of Linux.
const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };

impl CommandLog {
    /// A log of at most `limit` requests; further requests are only counted.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            requests: Vec::new(),
            limit,
            left_out: 0,
        }
    }

    /// Adds one request of a command.
    pub(crate) fn add(&mut self, request: &Request, sent: &Sent, place: u16, in_flight: u32) {
        if self.requests.len() >= self.limit {
            self.left_out += 1;
            return;
        }
        let bytes = request.sectors * 512;
        let runs = if matches!(request.operation, Operation::Flush) {
            Vec::new()
        } else {
            vec![Run::unknown(request.sector, bytes)]
        };
        self.requests.push(TracedRequest {
            id: 0,
            device: DEVICE,
            sector: request.sector,
            bytes,
            operation: request.operation,
            flags: request.flags,
            priority: None,
            queued_ns: Some(request.queued.0),
            inserted_ns: Some(request.inserted.0),
            issued_ns: Some(sent.at.0),
            completed_ns: Some(sent.done.0),
            status: Some(0),
            in_flight: Some(in_flight),
            hardware_queue: None,
            submitter: None,
            mode: IoMode::Unknown,
            command: Some(command(request, sent, place)),
            runs,
        });
    }

    /// Converts the log to a trace.
    #[must_use]
    pub fn into_trace(
        mut self,
        source: String,
        sectors: u64,
        scheduler: &str,
        duration: Nanos,
    ) -> BlockTrace {
        self.requests.sort_by_key(|request| request.queued_ns);
        for (id, request) in (0..).zip(&mut self.requests) {
            request.id = id;
        }
        BlockTrace {
            header: TraceHeader {
                schema: BLOCK_TRACE_SCHEMA,
                source,
                method: CaptureMethod::Simulation,
                host: None,
                start_realtime_ns: None,
                duration_ns: duration.0,
                devices: vec![TracedDevice {
                    device: DEVICE,
                    name: "mmcblk0".to_owned(),
                    sectors: Some(sectors),
                    file_system: None,
                    scheduler: Some(scheduler.to_owned()),
                }],
                limitations: Vec::new(),
                lost_records: self.left_out,
                ring_was_tight: false,
                complete: self.left_out == 0,
            },
            requests: self.requests,
            events: Vec::new(),
        }
    }
}

fn command(request: &Request, sent: &Sent, place: u16) -> DriverCommand {
    let code = match request.operation {
        Operation::Flush => 6,
        Operation::Read if sent.with_cmd23 => 18,
        Operation::Read => 17,
        Operation::Write if sent.with_cmd23 => 25,
        Operation::Write => 24,
        _ => 38,
    };
    let mut argument = u32::try_from(request.sectors).unwrap_or(u32::MAX) & 0xFFFF;
    if is_reliable(request) {
        argument |= CMD23_RELIABLE;
    }
    if sent.requests > 1 {
        argument |= CMD23_PACKED;
    }
    if request.flags.contains(RequestFlags::META) {
        argument |= CMD23_TAG;
    }
    argument |= u32::from(request.context & 0xF) << CMD23_CONTEXT_SHIFT;
    DriverCommand {
        code,
        argument,
        packed_requests: sent.requests,
        retries: 0,
        interrupts: if place == 0 { sent.interrupts } else { 0 },
        bytes: u32::try_from(request.sectors * 512)
            .ok()
            .filter(|_| matches!(request.operation, Operation::Read | Operation::Write)),
        tag: None,
        waits_busy: !matches!(request.operation, Operation::Read),
        issued_ns: Some(sent.at.0),
        completed_ns: Some(sent.done.0),
        status: Some(0),
    }
}
