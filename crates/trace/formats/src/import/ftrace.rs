//! Reads text of ftrace: `trace`, `trace_pipe`, `trace-cmd report` and `perf script`, with events `block_*`, and the
//! tracer `blk`.
//!
//! A line is `COMM-PID [CPU] FLAGS SECONDS: EVENT: REST` (perf: `COMM PID [CPU] SECONDS: block:EVENT: REST`). The rest
//! of `block_rq_insert` and `block_rq_issue` is `8,0 WS 4096 () 2048 + 8 [comm]`, kernels from 6.10 on put an I/O
//! priority before the bracket; `block_rq_complete` has no bytes and an error in the bracket; `block_bio_queue` is `8,0
//! WS 2048 + 8 [comm]`. The tracer `blk` prints blkparse's letters: `8,0 Q WS 2048 + 8 [comm]`.

use results::block_trace::{CaptureMethod, DeviceNumber, IoPriority};

use super::assembly::Assembly;
use super::blkparse::{of_split, place, split_word};
use super::block_event::{BlockEvent, Step};
use super::clock::{Clock, digits, nanoseconds};
use super::rwbs;
use super::text_source::{Expected, LineParser};

/// Reads lines of ftrace.
#[derive(Debug, Default)]
pub struct FtraceParser {
    clock: Clock,
}

/// The fields before the event's own text.
struct Prefix<'line> {
    name: &'line str,
    pid: u32,
    time_ns: u64,
    event: &'line str,
}

impl LineParser for FtraceParser {
    const LINE: &str = "an event of ftrace: `name-697 [001] ..... 12.345678: block_rq_issue: 8,0 WS 4096 () 2048 + 8 [name]`";

    fn is_line(line: &str) -> bool {
        line.starts_with("# tracer:") || prefix(line).is_some()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        if line.starts_with('#') || line.starts_with("cpus=") || line.starts_with("version =") {
            return Ok(());
        }
        if let Some(lost) = lost_events(line) {
            assembly.lost(lost);
            return Ok(());
        }
        let prefix = prefix(line).ok_or(Expected(Self::LINE))?;
        let time_ns = self.clock.relative(prefix.time_ns);
        let (step, rest) = match named_step(prefix.event) {
            Named::Step(step, rest) => (step, rest),
            Named::Ignored => return Ok(()),
            Named::Other => {
                assembly.other("events that are none of a request");
                return Ok(());
            }
        };
        let fields =
            fields(step, rest).ok_or(Expected("`8,0 WS 4096 () 2048 + 8 [name]` behind the event"))?;
        let process = (step != Step::Complete).then(|| assembly.process(prefix.pid, prefix.name));
        assembly.step(&BlockEvent {
            time_ns,
            step,
            process,
            ..fields
        })?;
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        assembly.header_mut().method = CaptureMethod::Tracefs;
        assembly.limitation(
            "files, types of blocks",
            "the events of requests do not tell them",
        );
        assembly.limitation(
            "processes behind buffered writes",
            "the events tell who called the block layer, for buffered writes often a kernel thread",
        );
    }
}

enum Named<'line> {
    Step(Step, &'line str),
    /// Belongs to a request, but is not needed.
    Ignored,
    Other,
}

fn named_step(event: &str) -> Named<'_> {
    let Some((name, rest)) = event.split_once(": ") else {
        return blk_tracer(event);
    };
    let name = name.strip_prefix("block:").unwrap_or(name);
    let step = match name {
        "block_bio_queue" => Step::Queue,
        "block_rq_insert" => Step::Insert,
        "block_rq_issue" => Step::Issue,
        "block_rq_requeue" => Step::Requeue,
        "block_rq_complete" => Step::Complete,
        "block_split" => match rest.split_once('/').and_then(|(_, at)| digits(split_word(at)?.0)) {
            Some(at) => Step::Split(at),
            None => return Named::Other,
        },
        "block_getrq"
        | "block_bio_backmerge"
        | "block_bio_frontmerge"
        | "block_bio_bounce"
        | "block_plug"
        | "block_unplug"
        | "block_bio_remap"
        | "block_rq_remap"
        | "block_rq_merge"
        | "block_rq_error"
        | "block_io_start"
        | "block_io_done"
        | "block_bio_complete"
        | "block_sleeprq" => return Named::Ignored,
        _ => return blk_tracer(event),
    };
    Named::Step(step, rest)
}

/// A line of the tracer `blk`, which has a device and a letter in place of an event name.
fn blk_tracer(event: &str) -> Named<'_> {
    let Some((device, rest)) = split_word(event) else {
        return Named::Other;
    };
    let Some((action, _)) = split_word(rest).filter(|_| device_of(device).is_some()) else {
        return Named::Other;
    };
    match Step::of_letter(action) {
        Some(step) => Named::Step(step, event),
        None => Named::Ignored,
    }
}

/// Parses an event's own text; the caller fills in process and time.
fn fields(step: Step, rest: &str) -> Option<BlockEvent> {
    let (device, rest) = split_word(rest)?;
    let device = device_of(device)?;
    let (mut letters, mut rest) = split_word(rest)?;
    if letters.len() == 1 && Step::of_letter(letters) == Some(step) && rest_has_letters(rest) {
        (letters, rest) = split_word(rest)?;
    }
    // Bytes and the command, which only driver requests fill: `4096 () ` or `() `.
    if let Some((before, after)) = rest.split_once(')') {
        let (bytes, command) = before.split_once('(')?;
        let is_head = bytes.trim_ascii().is_empty() || digits(bytes.trim_ascii()).is_some();
        let is_command = command
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b' ' || byte == b'.');
        if is_head && is_command {
            rest = after;
        }
    }
    let (rest, priority) = split_priority(rest);
    let place = place(&rest)?;
    let bytes = place.sectors.checked_mul(512)?;
    let (operation, flags) = rwbs::parse(letters, bytes)?;
    let status = place
        .bracket
        .and_then(|error| error.parse::<i32>().ok())
        .map(i32::saturating_abs);
    Some(BlockEvent {
        time_ns: 0,
        device,
        step,
        operation: of_split(step, operation, flags),
        flags,
        priority,
        sector: place.sector,
        bytes,
        process: None,
        status: status.filter(|_| step == Step::Complete),
        owner: None,
    })
}

/// The tracer `blk` writes `Q WS`; an event only writes `WS`, and `R` or `D` may be either.
fn rest_has_letters(rest: &str) -> bool {
    split_word(rest).is_some_and(|(word, _)| word.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// Extracts `CLASS,HINT,LEVEL`, which precedes the bracket since Linux 6.10.
fn split_priority(rest: &str) -> (String, Option<IoPriority>) {
    let mut kept = String::with_capacity(rest.len());
    let mut priority = None;
    let (body, bracket) = match rest.split_once('[') {
        Some((body, bracket)) => (body, Some(bracket)),
        None => (rest, None),
    };
    for word in body.split_ascii_whitespace() {
        let parts: Vec<&str> = word.split(',').collect();
        if let [class, _hint, level] = parts.as_slice() {
            let class = ["none", "rt", "be", "idle"]
                .iter()
                .position(|known| known == class);
            let class = class
                .and_then(|class| u8::try_from(class).ok())
                .filter(|class| *class > 0);
            priority = class
                .zip(level.parse().ok())
                .map(|(class, level)| IoPriority { class, level });
        } else {
            kept.push_str(word);
            kept.push(' ');
        }
    }
    if let Some(bracket) = bracket {
        kept.push('[');
        kept.push_str(bracket);
    }
    (kept, priority)
}

fn device_of(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(',')?;
    Some(DeviceNumber {
        major: u32::try_from(digits(major)?).ok()?,
        minor: u32::try_from(digits(minor)?).ok()?,
    })
}

/// `CPU:0 [LOST 123 EVENTS]` of trace_pipe, `CPU 0: 123 EVENTS DROPPED` of trace-cmd.
fn lost_events(line: &str) -> Option<u64> {
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

fn prefix(line: &str) -> Option<Prefix<'_>> {
    // The processor's brackets separate process and time; names may contain brackets, too.
    line.match_indices(" [").find_map(|(place, _)| {
        let (before, behind) = line.split_at(place);
        let (processor, rest) = behind.strip_prefix(" [")?.split_once(']')?;
        digits(processor)?;
        let (name, pid) = who(before)?;
        let (time_ns, event) = when(rest)?;
        Some(Prefix {
            name,
            pid,
            time_ns,
            event,
        })
    })
}

/// `COMM-PID`, `COMM-PID (TGID)`, or `COMM PID` of perf, also `COMM PID/TID`.
fn who(text: &str) -> Option<(&str, u32)> {
    let text = text.trim_ascii();
    let text = match text.split_once(" (") {
        Some((who, tgid)) if tgid.ends_with(')') => who.trim_ascii_end(),
        _ => text,
    };
    let (name, pid) = text.split_at(text.rfind(['-', ' '])?);
    let pid = pid.get(1..)?.split('/').next_back()?;
    Some((name.trim_ascii(), u32::try_from(digits(pid)?).ok()?))
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
