//! Every command as a request of a block trace: the driver-level block I/O tracer of seeds/002 section 3.1.1.
//!
//! A pack is one record for each of its requests, with the pack's command, number of requests, start and end; its
//! interrupts stand at the first of them, so that sums are right.

use media::Nanos;
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockTrace, CaptureMethod, DeviceNumber, DriverCommand, IoMode, Operation,
    Request as TracedRequest, RequestFlags, Run, TraceHeader, TracedDevice,
};

use crate::block::Request;
use crate::pack_header::{CMD23_CONTEXT_SHIFT, CMD23_PACKED, CMD23_RELIABLE, CMD23_TAG};
use crate::packing::is_reliable;

/// A command that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When the driver began with it.
    pub at: Nanos,
    /// When its data began to move.
    pub data_start: Nanos,
    /// When the driver saw that the card was ready.
    pub done: Nanos,
    /// Interrupts.
    pub interrupts: u16,
    /// Whether CMD23 went before.
    pub with_cmd23: bool,
    /// Requests in it.
    pub requests: u16,
}

/// The log.
#[derive(Clone, Debug)]
pub struct CommandLog {
    requests: Vec<TracedRequest>,
    limit: usize,
    left_out: u64,
}

/// The device's number in traces: the first mmc disk of Linux.
const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };

impl CommandLog {
    /// A log of at most `limit` requests; what comes after is counted.
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

    /// The trace.
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
