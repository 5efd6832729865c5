//! Reads text of ftrace: `trace`, `trace_pipe`, `trace-cmd report` and `perf script`, with events `block_*`, and the
//! tracer `blk`.
//!
//! [`super::ftrace_line`] splits the lines. The fields of `block_rq_insert` and `block_rq_issue` are
//! `8,0 WS 4096 () 2048 + 8 [comm]`, kernels from 6.10 on put an I/O priority before the bracket; `block_rq_complete` has
//! no bytes and an error in the bracket; `block_bio_queue` is `8,0 WS 2048 + 8 [comm]`. The tracer `blk` prints blkparse's
//! letters: `8,0 Q WS 2048 + 8 [comm]`.

use results::block_trace::CaptureMethod;

use super::assembly::Assembly;
use super::blkparse::split_word;
use super::block_event::{BlockEvent, Step};
use super::clock::Clock;
use super::ftrace_line::{BlockFields, Line, device_of, lost_events, named};
use super::rwbs;
use super::text_source::{Expected, LineParser};

/// Reads lines of ftrace.
#[derive(Debug, Default)]
pub struct FtraceParser {
    clock: Clock,
}

impl LineParser for FtraceParser {
    const LINE: &str = "an event of ftrace: `name-697 [001] ..... 12.345678: block_rq_issue: 8,0 WS 4096 () 2048 + 8 [name]`";

    fn is_line(line: &str) -> bool {
        line.starts_with("# tracer:") || split(line).is_some()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        if line.starts_with('#') || line.starts_with("cpus=") || line.starts_with("version =") {
            return Ok(());
        }
        if let Some(lost) = lost_events(line) {
            assembly.lost(lost);
            return Ok(());
        }
        let split = split(line).ok_or(Expected(Self::LINE))?;
        let time_ns = self.clock.relative(split.time_ns);
        let (step, fields) = match step_of(split.event) {
            Told::Step(step, device, rest) => (step, BlockFields::of(device, rest)),
            Told::Ignored => return Ok(()),
            Told::Other => {
                assembly.other("events that are none of a request");
                return Ok(());
            }
        };
        let fields = fields.ok_or(Expected("`8,0 WS 4096 () 2048 + 8 [name]` behind the event"))?;
        let operation = rwbs::settle(fields.operation, fields.flags, fields.bytes);
        let process = (step != Step::Complete).then(|| assembly.process(split.tid, split.name));
        assembly.step(&BlockEvent {
            time_ns,
            device: fields.device,
            step,
            operation,
            flags: fields.flags,
            priority: fields.priority,
            sector: fields.sector,
            bytes: fields.bytes,
            process,
            status: fields.status.filter(|_| step == Step::Complete),
            owner: None,
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

fn split(line: &str) -> Option<Line<'_>> {
    Line::read(line, |event| !matches!(step_of(event), Told::Other))
}

/// Meaning of an event.
enum Told<'line> {
    /// A step, the device, and the text behind it from the letters on.
    Step(Step, &'line str, &'line str),
    /// Belongs to a request, but is not needed.
    Ignored,
    Other,
}

fn step_of(event: &str) -> Told<'_> {
    let Some((name, rest)) = named(event) else {
        return blk_tracer(event);
    };
    let step = match name {
        "block_bio_queue" => Step::Queue,
        "block_rq_insert" => Step::Insert,
        "block_rq_issue" => Step::Issue,
        "block_rq_requeue" => Step::Requeue,
        "block_rq_complete" => Step::Complete,
        "block_split"
        | "block_getrq"
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
        | "block_sleeprq" => return Told::Ignored,
        _ => return blk_tracer(event),
    };
    let (device, rest) = split_word(rest).unwrap_or_default();
    Told::Step(step, device, rest)
}

/// A line of the tracer `blk`, which has a device and a letter in place of an event name.
fn blk_tracer(event: &str) -> Told<'_> {
    let Some((device, rest)) = split_word(event) else {
        return Told::Other;
    };
    let Some((action, rest)) = split_word(rest).filter(|_| device_of(device).is_some()) else {
        return Told::Other;
    };
    match Step::of_letter(action) {
        Some(step) => Told::Step(step, device, rest),
        None => Told::Ignored,
    }
}
