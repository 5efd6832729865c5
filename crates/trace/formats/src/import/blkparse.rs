//! Reads text of blkparse in its usual format: `MAJOR,MINOR CPU SEQUENCE SECONDS PID ACTION RWBS SECTOR + SECTORS
//! [NAME]`.
//!
//! After the RWBS letters, a request without a sector has only `[NAME]`, a driver command `BYTES (DUMP) [NAME]` or
//! `(DUMP) [NAME]`, a completion `SECTOR + SECTORS [ERROR]` or `SECTOR [ERROR]`. The
//! summary at the end is not part of the trace.

use results::block_trace::{DeviceNumber, IoPriority, Operation};

use super::assembly::Assembly;
use super::block_event::{BlockEvent, Step};
use super::clock::{digits, nanoseconds};
use super::ftrace_line::device_of;
use super::rwbs;
use super::text_source::{Expected, LineParser};

/// Reads lines of blkparse.
#[derive(Debug, Default)]
pub struct BlkparseParser {
    in_summary: bool,
}

/// The words before the part that depends on the action.
struct Prefix<'line> {
    device: DeviceNumber,
    time_ns: u64,
    pid: u32,
    action: &'line str,
    rest: &'line str,
}

impl LineParser for BlkparseParser {
    const LINE: &str = "an event of blkparse: `8,0 1 1 0.000000000 697 D W 223490 + 8 [name]`";

    fn is_line(line: &str) -> bool {
        prefix(line).is_some()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        let Some(prefix) = prefix(line) else {
            // `CPU0 (sda):` or `Total (sda):` begins the summary.
            let begins =
                (line.starts_with("CPU") || line.starts_with("Total")) && line.trim_end().ends_with(':');
            if begins || self.in_summary {
                self.in_summary = true;
                return Ok(());
            }
            return Err(Expected(Self::LINE));
        };
        self.in_summary = false;
        let Prefix {
            device,
            time_ns,
            pid,
            action,
            rest,
        } = prefix;
        match action {
            "m" => {
                assembly.other("messages of drivers and schedulers");
                return Ok(());
            }
            "P" | "U" | "UT" => {
                assembly.other("plugs and unplugs of queues");
                return Ok(());
            }
            "A" => {
                assembly.other("remaps to another device");
                return Ok(());
            }
            "G" | "M" | "F" | "S" | "B" | "X" => return Ok(()),
            _ => {}
        }
        let (letters, rest) = split_word(rest).ok_or(Expected(Self::LINE))?;
        let place = place(rest).ok_or(Expected("`SECTOR + SECTORS [name]` at the end of an event"))?;
        let step = Step::of_letter(action).ok_or(Expected("an action of blkparse (Q, I, D, C ...)"))?;
        let bytes = place.sectors.saturating_mul(512);
        let (mut operation, flags) =
            rwbs::parse(letters, bytes).ok_or(Expected("letters of a request as in RWBS"))?;
        if place.is_command {
            operation = Operation::Driver;
        }
        let process = (step != Step::Complete).then(|| assembly.process(pid, place.bracket.unwrap_or("")));
        let status = place
            .bracket
            .and_then(|error| error.parse::<i32>().ok())
            .map(i32::saturating_abs);
        assembly.step(&BlockEvent {
            time_ns,
            device,
            step,
            operation,
            flags,
            priority: None,
            sector: place.sector,
            bytes,
            process,
            status: status.filter(|_| step == Step::Complete),
            owner: None,
        })?;
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        assembly.limitation("files, types of blocks", "blktrace does not tell them");
        assembly.limitation(
            "processes behind buffered writes",
            "blktrace tells who called the block layer, for buffered writes often a kernel thread",
        );
    }
}

fn prefix(line: &str) -> Option<Prefix<'_>> {
    let (device, rest) = split_word(line)?;
    let device = device_of(device)?;
    let (processor, rest) = split_word(rest)?;
    let (sequence, rest) = split_word(rest)?;
    let (time, rest) = split_word(rest)?;
    let (pid, rest) = split_word(rest)?;
    let (action, rest) = split_word(rest)?;
    let (_, _) = (digits(processor)?, digits(sequence)?);
    let is_action = action.len() <= 2 && action.bytes().all(|byte| byte.is_ascii_alphabetic());
    (is_action && time.contains('.')).then_some(Prefix {
        device,
        time_ns: nanoseconds(time)?,
        pid: u32::try_from(digits(pid)?).ok()?,
        action,
        rest,
    })
}

/// The next word, and the rest of the text.
pub(super) fn split_word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_ascii_start();
    let end = text
        .bytes()
        .position(|byte| byte.is_ascii_whitespace())
        .unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The fields after the RWBS letters.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Place<'line> {
    pub sector: u64,
    pub sectors: u64,
    /// The I/O priority, which ftrace puts before the bracket since Linux 6.10.
    pub priority: Option<IoPriority>,
    /// The text in the brackets at the end: a name or an error.
    pub bracket: Option<&'line str>,
    /// It is a driver command, which has no sector.
    pub is_command: bool,
}

/// Parses `SECTOR + SECTORS [BRACKET]` and its variants.
pub(super) fn place(text: &str) -> Option<Place<'_>> {
    let mut place = Place::default();
    let text = text.trim_ascii();
    let mut text = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
        Some((before, bracket)) => {
            place.bracket = Some(bracket);
            before.trim_ascii_end()
        }
        None => text,
    };
    if let Some((before, _dump)) = text.split_once('(') {
        place.is_command = true;
        text = before.trim_ascii_end();
        return (text.is_empty() || digits(text).is_some()).then_some(place);
    }
    let mut words = text.split_ascii_whitespace();
    let Some(sector) = words.next() else {
        return Some(place);
    };
    // For a flush all bits are set, which some tools print as a negative number.
    place.sector = digits(sector).or_else(|| (sector == "-1").then_some(u64::MAX))?;
    match (words.next(), words.next()) {
        (None, _) => {}
        (Some("+"), Some(sectors)) => place.sectors = digits(sectors)?,
        _ => return None,
    }
    place.priority = words.next().and_then(priority);
    Some(place)
}

/// Parses `CLASS,HINT,LEVEL`.
fn priority(word: &str) -> Option<IoPriority> {
    let mut parts = word.split(',');
    let class = match parts.next()? {
        "rt" => 1,
        "be" => 2,
        "idle" => 3,
        _ => return None,
    };
    let level = parts.nth(1)?.parse().ok()?;
    Some(IoPriority { class, level })
}
