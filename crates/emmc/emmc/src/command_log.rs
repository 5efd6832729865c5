//! Records every command as a request of a block trace: the driver-level block I/O tracer of seeds/002 section 3.1.1.
//!
//! Commands and arguments are those that the tracepoints of Linux's mmc driver show, so that traces of the model and of
//! hardware mean the same:
//! - a request with data has one record with CMD17, 18, 24 or 25 and the first sector as argument, or CMD46 or 47 with
//!   the task's number in bits 20:16. A pack has a record for each of its requests, with the pack's command, number of
//!   requests, start and end; its interrupts are recorded with the first of them, so that sums are correct;
//! - commands without data (CMD6 of a flush; CMD35, CMD36 and CMD38 of TRIM and DISCARD) have records of their own
//!   beside that of the request, and so has the write of a header before packed reads.
//!
//! CMD23 and the headers of packs show in no tracepoint: see [`crate::command_list`].

use media::Nanos;
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockTrace, CaptureMethod, DeviceNumber, DriverCommand, IoMode, Operation,
    Request as TracedRequest, RequestFlags, Run, TraceHeader, TracedDevice,
};

use crate::block::Request;
use crate::command_list::CommandList;
use crate::translation::Forget;

/// Command numbers of a request with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codes {
    /// CMD17 or CMD24.
    Single,
    /// CMD23, and CMD18 or CMD25.
    Counted,
    /// CMD44 and CMD45, and CMD46 or CMD47, of a task of the command queue.
    Task {
        /// Number of the task.
        slot: u32,
    },
}

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
    /// Its command numbers.
    pub codes: Codes,
    /// Number of requests in it.
    pub requests: u16,
    /// First sector of its first request.
    pub first_sector: u64,
    /// Requests in the driver, or tasks in the card's command queue, with this one.
    pub in_card: u32,
}

/// Features of a card that show in the arguments of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Metadata is tagged (CMD23 bit 29).
    pub data_tag: bool,
    /// Number of contexts (CMD23 bits 28:25).
    pub contexts: u32,
}

impl Features {
    /// Whether a write is tagged as metadata.
    #[must_use]
    pub const fn tags(self, request: &Request) -> bool {
        self.data_tag
            && matches!(request.operation, Operation::Write)
            && request.flags.contains(RequestFlags::META)
    }

    /// The context of a request, if the card has it.
    #[must_use]
    pub fn context_of(self, request: &Request) -> Option<u8> {
        (request.context > 0 && u32::from(request.context) <= self.contexts).then_some(request.context)
    }
}

/// CMD6 that flushes the cache: write byte 32 (`FLUSH_CACHE`) of `EXT_CSD` with 1.
pub const FLUSH_CACHE: (u16, u32) = (6, 0x0320_0101);

/// Argument of CMD38: TRIM.
pub const ERASE_TRIM: u32 = 1;

/// Argument of CMD38: DISCARD.
pub const ERASE_DISCARD: u32 = 3;

/// Numbers and arguments of the commands that discard the sectors from `first` to before `end`.
#[must_use]
pub fn erase_commands(first: u64, end: u64, how: Forget) -> [(u16, u32); 3] {
    let argument = match how {
        Forget::Durably => ERASE_TRIM,
        Forget::Lazily => ERASE_DISCARD,
    };
    [
        (35, word(first)),
        (36, word(end.saturating_sub(1).max(first))),
        (38, argument),
    ]
}

/// A log of commands.
#[derive(Clone, Debug)]
pub struct CommandLog {
    requests: Vec<TracedRequest>,
    limit: usize,
    left_out: u64,
    commands: Option<CommandList>,
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
            commands: None,
        }
    }

    /// Lists all commands too, including CMD23 and the headers of packs, with the same limit.
    #[must_use]
    pub fn with_commands(mut self) -> Self {
        self.commands = Some(CommandList::new(self.limit));
        self
    }

    /// The list of all commands, if there is one.
    pub fn commands(&mut self) -> Option<&mut CommandList> {
        self.commands.as_mut()
    }

    /// Takes the list of all commands, if there is one.
    pub fn take_commands(&mut self) -> Option<CommandList> {
        self.commands.take()
    }

    /// Adds one request of a command.
    pub(crate) fn add(&mut self, request: &Request, sent: &Sent, place: u16) {
        let command = command(request, sent, place);
        self.push(request, Some(command), (sent.at, sent.done), sent.in_card);
    }

    /// Adds a request without data that the driver answers at `now`, or whose commands it sends: begin, end, number and
    /// argument.
    pub(crate) fn add_without_data(
        &mut self,
        request: &Request,
        now: Nanos,
        commands: &[(Nanos, Nanos, (u16, u32))],
        interrupts: u16,
        in_flight: u32,
    ) {
        let (Some((begin, ..)), Some((_, end, _))) = (commands.first(), commands.last()) else {
            return self.push(request, None, (now, now), in_flight);
        };
        self.push(request, None, (*begin, *end), in_flight);
        let last = commands.len() - 1;
        for (place, (begin, end, (code, argument))) in commands.iter().enumerate() {
            let command = DriverCommand {
                code: *code,
                argument: *argument,
                packed_requests: 1,
                retries: 0,
                // The last one has the interrupt of CMD13 too.
                interrupts: 1 + if place == last {
                    interrupts - u16::try_from(commands.len()).unwrap_or(1)
                } else {
                    0
                },
                bytes: None,
                tag: None,
                waits_busy: place == last,
                issued_ns: Some(begin.0),
                completed_ns: Some(end.0),
                status: Some(0),
            };
            self.push(
                &of_driver(request, *begin),
                Some(command),
                (*begin, *end),
                in_flight,
            );
            if let Some(list) = &mut self.commands {
                list.plain(*begin, *code, *argument);
            }
        }
    }

    /// Adds the write of the header before packed reads, whose first one is `request`.
    pub(crate) fn add_read_header(
        &mut self,
        request: &Request,
        requests: u16,
        (begin, end): (Nanos, Nanos),
        interrupts: u16,
    ) {
        let command = DriverCommand {
            code: 25,
            argument: word(request.sector),
            packed_requests: requests,
            retries: 0,
            interrupts,
            bytes: Some(512),
            tag: None,
            waits_busy: true,
            issued_ns: Some(begin.0),
            completed_ns: Some(end.0),
            status: Some(0),
        };
        self.push(&of_driver(request, begin), Some(command), (begin, end), 0);
    }

    fn push(
        &mut self,
        request: &Request,
        command: Option<DriverCommand>,
        (begin, end): (Nanos, Nanos),
        in_flight: u32,
    ) {
        if self.requests.len() >= self.limit {
            self.left_out += 1;
            return;
        }
        let bytes = request.sectors * 512;
        let runs = if bytes == 0 {
            Vec::new()
        } else {
            vec![Run::unknown(request.sector, bytes)]
        };
        let is_driver = request.operation == Operation::Driver;
        self.requests.push(TracedRequest {
            id: 0,
            device: DEVICE,
            sector: request.sector,
            bytes,
            operation: request.operation,
            flags: request.flags,
            priority: None,
            queued_ns: (!is_driver).then_some(request.queued.0),
            inserted_ns: (!is_driver).then_some(request.inserted.0),
            issued_ns: Some(begin.0),
            completed_ns: Some(end.0),
            status: Some(0),
            in_flight: (!is_driver).then_some(in_flight),
            hardware_queue: None,
            submitter: None,
            mode: IoMode::Unknown,
            command,
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
        self.requests
            .sort_by_key(|request| request.queued_ns.or(request.issued_ns));
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
                refused: 0,
                ring_was_tight: false,
                complete: self.left_out == 0,
            },
            requests: self.requests,
            events: Vec::new(),
        }
    }
}

/// The record of a command that the driver sends on its own account, for `request`.
fn of_driver(request: &Request, begin: Nanos) -> Request {
    Request {
        operation: Operation::Driver,
        flags: RequestFlags::default(),
        sector: 0,
        sectors: 0,
        queued: begin,
        inserted: begin,
        ..request.clone()
    }
}

/// The low 32 bits of an argument: sectors of cards beyond 2 TiB do not exist.
pub(crate) fn word(value: u64) -> u32 {
    u32::try_from(value & u64::from(u32::MAX)).expect("32 bits remain")
}

fn command(request: &Request, sent: &Sent, place: u16) -> DriverCommand {
    let is_read = request.operation == Operation::Read;
    let (code, argument, tag) = match sent.codes {
        Codes::Single => (if is_read { 17 } else { 24 }, word(sent.first_sector), None),
        Codes::Counted => (if is_read { 18 } else { 25 }, word(sent.first_sector), None),
        Codes::Task { slot } => (
            if is_read { 46 } else { 47 },
            slot << 16,
            Some(u16::try_from(slot).unwrap_or(u16::MAX)),
        ),
    };
    DriverCommand {
        code,
        argument,
        packed_requests: sent.requests,
        retries: 0,
        interrupts: if place == 0 { sent.interrupts } else { 0 },
        bytes: u32::try_from(request.sectors * 512).ok(),
        tag,
        waits_busy: !is_read,
        issued_ns: Some(sent.at.0),
        completed_ns: Some(sent.done.0),
        status: Some(0),
    }
}
