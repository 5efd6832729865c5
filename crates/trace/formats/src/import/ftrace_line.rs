//! One line of ftrace's text, split into its fields: for the reader of such files, and for those who follow a tracefs
//! instance.
//!
//! A line is `COMM-PID [CPU] FLAGS SECONDS: EVENT: FIELDS` (perf: `COMM PID [CPU] SECONDS: block:EVENT: FIELDS`). A
//! process chooses its COMM, which may look like any other part of the line, but its 15 characters are too few for a time
//! and the name of an event.

use results::block_trace::{DeviceNumber, IoPriority, Operation, RequestFlags};

use super::blkparse::{place, split_word};
use super::clock::{digits, nanoseconds};
use super::rwbs;

/// A line of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'text> {
    /// The thread's name.
    pub name: &'text str,
    /// The thread's number.
    pub tid: u32,
    /// Time by the trace's clock, ns.
    pub time_ns: u64,
    /// The text behind the time.
    pub event: &'text str,
}

impl<'text> Line<'text> {
    /// Splits a line. `is_known` tells whether a text begins with an event that the caller expects.
    pub fn read(text: &'text str, is_known: impl Fn(&str) -> bool) -> Option<Self> {
        // The processor's brackets separate process and time; names may contain brackets, too.
        let mut lines = text.match_indices(" [").filter_map(|(at, _)| Self::at(text, at));
        let first = lines.next()?;
        if is_known(first.event) {
            return Some(first);
        }
        Some(lines.find(|line| is_known(line.event)).unwrap_or(first))
    }

    fn at(text: &'text str, place: usize) -> Option<Self> {
        let (before, behind) = text.split_at(place);
        let (processor, rest) = behind.strip_prefix(" [")?.split_once(']')?;
        digits(processor)?;
        let (name, tid) = who(before)?;
        let (time_ns, event) = when(rest)?;
        Some(Self {
            name,
            tid,
            time_ns,
            event,
        })
    }

    /// The event's name and fields.
    #[must_use]
    pub fn named(&self) -> Option<(&'text str, &'text str)> {
        named(self.event)
    }
}

/// Splits the text of an event into its name, without the subsystem that perf puts before it, and its fields.
#[must_use]
pub fn named(event: &str) -> Option<(&str, &str)> {
    let (name, fields) = event.split_once(": ")?;
    Some((name.strip_prefix("block:").unwrap_or(name), fields))
}

/// `COMM-TID`, `COMM-TID (TGID)`, or `COMM TID` of perf, also `COMM PID/TID`.
fn who(text: &str) -> Option<(&str, u32)> {
    let text = text.trim_ascii();
    let is_number = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b' ' | b'-'));
    let text = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((who, tgid)) if is_number(tgid) => who.trim_ascii_end(),
        _ => text,
    };
    let (name, tid) = text.split_at(text.rfind(['-', ' '])?);
    let tid = tid.get(1..)?.split('/').next_back()?;
    Some((name.trim_ascii(), u32::try_from(digits(tid)?).ok()?))
}

/// The time, possibly preceded by flags, and the rest.
fn when(text: &str) -> Option<(u64, &str)> {
    let mut rest = text;
    for _ in 0..3 {
        let (word, behind) = split_word(rest)?;
        let time = word.strip_suffix(':').filter(|time| time.contains('.'));
        if let Some(time_ns) = time.and_then(nanoseconds) {
            return Some((time_ns, behind.trim_ascii_start()));
        }
        rest = behind;
    }
    None
}

/// Number of events that a line reports as lost: `CPU:0 [LOST 123 EVENTS]` of trace_pipe, `CPU 0: 123 EVENTS DROPPED` of
/// trace-cmd.
#[must_use]
pub fn lost_events(line: &str) -> Option<u64> {
    let line = line.trim_ascii();
    if !line.starts_with("CPU") {
        return None;
    }
    let number = |text: &str| text.split_ascii_whitespace().find_map(digits);
    if let Some((_, lost)) = line.split_once("LOST") {
        return number(lost);
    }
    let (_, dropped) = line.strip_suffix("EVENTS DROPPED")?.split_once(':')?;
    number(dropped)
}

/// Fields of an event of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFields {
    /// The device.
    pub device: DeviceNumber,
    /// The operation by its letter alone: a write without bytes is a flush.
    pub operation: Operation,
    /// Its flags.
    pub flags: RequestFlags,
    /// Its priority, which kernels from 6.10 on tell.
    pub priority: Option<IoPriority>,
    /// First sector.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// Error number of a completion, 0 or positive.
    pub status: Option<i32>,
}

impl BlockFields {
    /// Reads `8,0 WS 2048 + 8 [comm]`, with `4096 ()` or `()` before the sector in events of requests.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (device, rest) = split_word(text)?;
        Self::of(device, rest)
    }

    /// The same without the device.
    pub(super) fn of(device: &str, rest: &str) -> Option<Self> {
        let device = device_of(device)?;
        let (letters, mut rest) = split_word(rest)?;
        // Bytes and the command, which only driver requests fill: `4096 () ` or `() `.
        let before_name = rest.split_once('[').map_or(rest, |(before, _)| before);
        if let Some((head, _)) = before_name.split_once(')')
            && let Some((bytes, command)) = head.split_once('(')
            && (bytes.trim_ascii().is_empty() || digits(bytes.trim_ascii()).is_some())
            && command
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b' ' || byte == b'.')
        {
            rest = &rest[head.len() + 1..];
        }
        let place = place(rest)?;
        let (operation, flags) = rwbs::read(letters)?;
        let status = place.bracket.and_then(|error| error.parse::<i32>().ok());
        Some(Self {
            device,
            operation,
            flags,
            priority: place.priority,
            sector: place.sector,
            bytes: place.sectors.checked_mul(512)?,
            status: status.map(i32::saturating_abs),
        })
    }
}

/// `MAJOR,MINOR`.
pub(super) fn device_of(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(',')?;
    Some(DeviceNumber {
        major: u32::try_from(digits(major)?).ok()?,
        minor: u32::try_from(digits(minor)?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_block(event: &str) -> bool {
        event.starts_with("block_")
    }

    #[test]
    fn no_name_of_a_process_hides_what_it_does() {
        for comm in [
            "block_bio_queue",
            "x [1] y",
            "a (2",
            "a (2)",
            "a-1 [000] ..: ",
            "a-1 [0] 1.5: ",
            "a 1 [0] 1.5: x",
            ": x: [",
            ": block_split: ",
            "a\u{1b}[2J",
            "[",
            "]",
            "()",
            "a) (b",
            "-",
        ] {
            for tgid in ["", " (   77)", " (-------)"] {
                let text = format!(
                    "{comm:>16}-77{tgid}      [001] ..... 1.000001: block_bio_queue: 7,0 W 8 + 16 [{comm}]"
                );
                let line = Line::read(&text, is_block).unwrap_or_else(|| panic!("{comm} is hidden"));
                assert_eq!((line.name, line.tid), (comm.trim(), 77), "{text}");
                let (name, fields) = line.named().unwrap();
                assert_eq!(name, "block_bio_queue");
                let fields = BlockFields::read(fields).unwrap_or_else(|| panic!("{comm} hides its request"));
                assert_eq!((fields.sector, fields.bytes), (8, 16 * 512));
            }
        }
        // A line feed in a name ends the line; the rest of the name and the event follow on the next one.
        let text = "b-77      [001] ..... 1.000001: block_bio_queue: 7,0 W 8 + 16 [a";
        let line = Line::read(text, is_block).unwrap();
        assert!(BlockFields::read(line.named().unwrap().1).is_some());
    }

    #[test]
    fn fields_of_requests_are_read_with_and_without_a_priority() {
        let issue = BlockFields::read("254,0 WSM 1695744 () 392342608 + 3312 be,0,4 [kworker/u8:1]").unwrap();
        assert_eq!((issue.sector, issue.bytes), (392_342_608, 3312 * 512));
        assert_eq!(issue.flags, RequestFlags::SYNC.with(RequestFlags::META));
        assert_eq!(issue.priority, Some(IoPriority { class: 2, level: 4 }));
        let done = BlockFields::read("254,0 WM () 354170040 + 8 [-5]").unwrap();
        assert_eq!((done.status, done.priority), (Some(5), None));
        let flush = BlockFields::read("7,0 FF 0 () 18446744073709551615 + 0 none,0,0 [x]").unwrap();
        assert_eq!((flush.operation, flush.bytes), (Operation::Flush, 0));
        for (letters, operation) in [
            ("FWS", Operation::Write),
            ("WZS", Operation::WriteZeroes),
            ("DE", Operation::SecureErase),
            ("ZR", Operation::ZoneManagement),
        ] {
            let fields = BlockFields::read(&format!("7,0 {letters} 0 () 0 + 0 [x]")).unwrap();
            assert_eq!(fields.operation, operation, "{letters}");
        }
        for broken in [
            "",
            "7,0",
            "7,0 W",
            "7 W 8 + 8 [x]",
            "7,0 W 8 - 8 [x]",
            "7,0 W 8 + 18446744073709551615 [x]",
        ] {
            assert_eq!(
                BlockFields::read(broken).map(|fields| fields.bytes).unwrap_or(0),
                0,
                "{broken}"
            );
        }
    }
}
