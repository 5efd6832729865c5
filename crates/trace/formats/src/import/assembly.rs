//! Assembles the output of a reader of another tool's trace: items in their order, and a header with the source's
//! limitations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use results::block_trace::{
    BLOCK_TRACE_SCHEMA, CaptureMethod, DeviceNumber, Limitation, Process, Request, TraceHeader, TracedDevice,
};

use super::block_event::{BlockEvent, Step};
use super::join::Join;
use super::ready::Ready;
use crate::stream::TraceItem;

/// Size of the sorting window: sources of whole requests are nearly in order, for example by completion.
const WINDOW: usize = 1 << 16;

/// Maximum number of processes kept for sharing.
const PROCESSES_MAX: usize = 1 << 16;

/// More devices than this mean that the file is damaged.
const DEVICES_MAX: usize = 4096;

/// Sectors and bytes stay below this, so that their sums never overflow.
const PLACE_MAX: u64 = 1 << 53;

/// Requests and events of a foreign source in assembly.
#[derive(Debug)]
pub struct Assembly {
    header: TraceHeader,
    join: Join,
    ready: Ready,
    finished: bool,
    is_told: bool,
    seen_steps: BTreeSet<u8>,
    devices: BTreeSet<DeviceNumber>,
    processes: HashMap<(u32, Arc<str>), Arc<Process>>,
    last_ns: u64,
    /// Kinds of records other than requests, with their number.
    others: BTreeMap<&'static str, u64>,
}

/// Error of a sector or length that no device can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impossible;

impl Assembly {
    pub fn new(source: String) -> Self {
        Self {
            header: TraceHeader {
                schema: BLOCK_TRACE_SCHEMA,
                source,
                method: CaptureMethod::Import,
                host: None,
                start_realtime_ns: None,
                duration_ns: 0,
                devices: Vec::new(),
                limitations: Vec::new(),
                lost_records: 0,
                refused: 0,
                ring_was_tight: false,
                complete: true,
            },
            join: Join::default(),
            ready: Ready::default(),
            finished: false,
            is_told: false,
            seen_steps: BTreeSet::new(),
            devices: BTreeSet::new(),
            processes: HashMap::new(),
            last_ns: 0,
            others: BTreeMap::new(),
        }
    }

    pub const fn header(&self) -> &TraceHeader {
        &self.header
    }

    pub const fn header_mut(&mut self) -> &mut TraceHeader {
        &mut self.header
    }

    /// Adds one step of a request.
    pub fn step(&mut self, event: &BlockEvent) -> Result<(), Impossible> {
        if event.bytes > 0 {
            check_place(event.sector, event.bytes)?;
        }
        self.saw(event.device, event.time_ns)?;
        self.seen_steps.insert(letter_of(event.step));
        self.join.step(event, &mut self.ready);
        Ok(())
    }

    /// Adds a whole request and assigns its number.
    pub fn request(&mut self, request: Request) -> Result<(), Impossible> {
        check_place(request.sector, request.bytes)?;
        let last = request.completed_ns.or(request.first_ns()).unwrap_or(0);
        self.saw(request.device, last)?;
        self.ready.push(request);
        Ok(())
    }

    /// Counts a record that is not kept.
    pub fn other(&mut self, what: &'static str) {
        *self.others.entry(what).or_default() += 1;
    }

    pub fn lost(&mut self, records: u64) {
        self.header.lost_records = self.header.lost_records.saturating_add(records);
    }

    pub fn limitation(&mut self, what: &str, why: &str) {
        self.header.limitations.push(Limitation {
            what: what.to_owned(),
            why: why.to_owned(),
        });
    }

    /// A process, shared between requests.
    pub fn process(&mut self, pid: u32, name: &str) -> Arc<Process> {
        let key = (pid, Arc::from(name));
        if let Some(process) = self.processes.get(&key) {
            return Arc::clone(process);
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        let process = Arc::new(Process {
            pid,
            tid: pid,
            name: Arc::clone(&key.1),
            package: None,
        });
        self.processes.insert(key, Arc::clone(&process));
        process
    }

    /// Whether no record was understood.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The source's next result: an item, or `Some(None)` at the end of a source that has been read completely, or
    /// `None` if more input is needed.
    pub fn next_or_end(&mut self, is_read: bool) -> Option<Option<TraceItem>> {
        let item = self.pop();
        if item.is_none() && is_read {
            self.tell_order();
            return Some(None);
        }
        item.map(Some)
    }

    pub fn pop(&mut self) -> Option<TraceItem> {
        let may_go = self.finished
            || if self.seen_steps.is_empty() {
                self.ready.len() > WINDOW
            } else {
                self.ready
                    .first()
                    .is_some_and(|whole| self.join.oldest().is_none_or(|open| whole <= open))
            };
        if may_go {
            self.ready.pop().map(TraceItem::Request)
        } else {
            None
        }
    }

    /// Ends the source: open requests are emitted as they are, and the header is completed.
    pub fn finish(&mut self) {
        self.join.finish(&mut self.ready);
        self.finished = true;
        self.header.duration_ns = self.header.duration_ns.max(self.last_ns);
        for device in &self.devices {
            if !self.header.devices.iter().any(|known| known.device == *device) {
                self.header
                    .devices
                    .push(TracedDevice::named(*device, String::new()));
            }
        }
        if !self.seen_steps.is_empty() {
            self.tell_missing_steps();
        }
        let others = std::mem::take(&mut self.others);
        for (what, count) in others {
            self.limitation(
                what,
                &format!("{count} records of the source are of that kind and are left out"),
            );
        }
    }

    /// Completes the header with the statistics of ordering, once the last item is out.
    fn tell_order(&mut self) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let (late, let_go) = (self.ready.late(), self.join.let_go());
        if late > 0 {
            let why = format!(
                "{late} requests stand behind ones that began later: the source is not in the order of time"
            );
            self.limitation("order", &why);
        }
        if let_go > 0 {
            let why =
                format!("{let_go} requests were never seen to end, and were let go when too many were open");
            self.limitation("completions", &why);
        }
    }

    fn saw(&mut self, device: DeviceNumber, time_ns: u64) -> Result<(), Impossible> {
        if !self.devices.contains(&device) {
            if self.devices.len() >= DEVICES_MAX {
                return Err(Impossible);
            }
            self.devices.insert(device);
        }
        self.last_ns = self.last_ns.max(time_ns);
        Ok(())
    }

    fn tell_missing_steps(&mut self) {
        for (letter, what, why) in [
            (
                b'Q',
                "queue times",
                "the source has no queue events (Q); submitters are those of later steps",
            ),
            (b'I', "insert times", "the source has no insert events (I)"),
            (b'D', "issue times", "the source has no issue events (D)"),
            (
                b'C',
                "completion times",
                "the source has no completion events (C)",
            ),
        ] {
            if !self.seen_steps.contains(&letter) {
                self.limitation(what, why);
            }
        }
    }
}

const fn letter_of(step: Step) -> u8 {
    match step {
        Step::Queue => b'Q',
        Step::Insert => b'I',
        Step::Issue => b'D',
        Step::Requeue => b'R',
        Step::Complete => b'C',
    }
}

const fn check_place(sector: u64, bytes: u64) -> Result<(), Impossible> {
    if sector < PLACE_MAX && bytes < PLACE_MAX {
        Ok(())
    } else {
        Err(Impossible)
    }
}
