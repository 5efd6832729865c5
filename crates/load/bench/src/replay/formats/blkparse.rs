//! Text output of blkparse in its usual format: `MAJOR,MINOR CPU SEQUENCE SECONDS PID EVENT RWBS SECTOR + SECTORS [NAME]`.
//!
//! Requests are taken where the driver gets them (event D), or where they are queued (Q) when the trace has no D.
//! A completion (C) of the same place gives the response time. Sectors have 512 bytes.

use std::collections::HashMap;
use std::io::BufRead;

use results::call_trace::{Action, Call, Layer, Outcome, Trace};

use super::lines::Lines;
use super::{Collector, ReadOptions, TraceError};

const SECTOR_BYTES: u64 = 512;

const OTHER_EVENT: &str = "event that is no request at the point where requests are taken";
const OTHER_LINE: &str = "line that is no event";

/// True for a line of an event.
pub fn looks_like(line: &str) -> bool {
    event(line).is_some()
}

pub fn parse(mut lines: Lines<impl BufRead>, options: ReadOptions) -> Result<Trace, TraceError> {
    let mut issued = Events::new(options);
    let mut queued = Events::new(options);
    let mut other_lines = 0;
    let mut first_ns = None;
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        let Some(event) = event(line) else {
            other_lines += 1;
            continue;
        };
        let base = *first_ns.get_or_insert(event.at_ns);
        let at_ns = event.at_ns.saturating_sub(base);
        match event.kind {
            "D" => issued.request(&event, at_ns),
            "Q" => queued.request(&event, at_ns),
            "C" => {
                issued.complete(&event, at_ns);
                queued.complete(&event, at_ns);
            }
            _ => {
                issued.others += 1;
                queued.others += 1;
            }
        }
    }
    if first_ns.is_none() {
        return Err(lines.wrong("an event of blkparse: `8,0 1 1 0.000000000 697 D W 223490 + 8 [name]`"));
    }
    let (mut chosen, other) = if issued.collector.trace.calls.is_empty() {
        (queued, issued)
    } else {
        (issued, queued)
    };
    let others = chosen.others + other.requests;
    let trace = &mut chosen.collector.trace;
    trace.skip_many(OTHER_EVENT, others);
    trace.skip_many(OTHER_LINE, other_lines);
    Ok(chosen.collector.trace)
}

struct Event<'line> {
    at_ns: u64,
    thread: u32,
    kind: &'line str,
    operation: &'line str,
    sector: Option<u64>,
    sectors: u64,
}

fn event(line: &str) -> Option<Event<'_>> {
    let mut words = line.split_ascii_whitespace();
    let (major, minor) = words.next()?.split_once(',')?;
    let _device: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let _processor: u32 = words.next()?.parse().ok()?;
    let _sequence: u64 = words.next()?.parse().ok()?;
    let at_ns = nanoseconds(words.next()?)?;
    let thread = words.next()?.parse().ok()?;
    let kind = words.next().filter(|kind| kind.len() <= 2)?;
    let operation = words.next()?;
    let sector = words.next().and_then(|word| word.parse().ok());
    let sectors = match words.next() {
        Some("+") => words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        _ => 0,
    };
    Some(Event {
        at_ns,
        thread,
        kind,
        operation,
        sector,
        sectors,
    })
}

fn nanoseconds(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds: u64 = seconds.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

struct Events {
    collector: Collector,
    requests: u64,
    others: u64,
    /// Requests under way, by sector, and where they are among the calls.
    under_way: HashMap<u64, usize>,
}

impl Events {
    fn new(options: ReadOptions) -> Self {
        Self {
            collector: Collector::new(Trace::new(Layer::Block, "blkparse"), options),
            requests: 0,
            others: 0,
            under_way: HashMap::new(),
        }
    }

    fn request(&mut self, event: &Event<'_>, at_ns: u64) {
        self.requests += 1;
        let place = event.sector.map(|sector| {
            let offset = sector.saturating_mul(SECTOR_BYTES);
            (offset, event.sectors.saturating_mul(SECTOR_BYTES))
        });
        let has = |letter| event.operation.contains(letter);
        let action = match place {
            Some((offset, bytes)) if bytes > 0 && has('D') => Action::BlockDiscard { offset, bytes },
            Some((offset, bytes)) if bytes > 0 && has('W') => Action::BlockWrite { offset, bytes },
            Some((offset, bytes)) if bytes > 0 && has('R') => Action::BlockRead { offset, bytes },
            _ if has('F') => Action::BlockFlush,
            _ => {
                self.others += 1;
                return;
            }
        };
        if let Some(sector) = event.sector {
            self.under_way.insert(sector, self.collector.trace.calls.len());
        }
        self.collector.push(Call {
            thread: event.thread,
            at_ns,
            recorded_duration_ns: None,
            outcome: Outcome::Unknown,
            action,
        });
    }

    fn complete(&mut self, event: &Event<'_>, at_ns: u64) {
        let place = event.sector.and_then(|sector| self.under_way.remove(&sector));
        let calls = &mut self.collector.trace.calls;
        if let Some(call) = place.and_then(|place| calls.get_mut(place)) {
            call.recorded_duration_ns = Some(at_ns.saturating_sub(call.at_ns));
        }
    }
}
