//! Block traces as calls: blkparse, BIOTracer, the Pixel CSV, MOST, ftrace, native folders.
//!
//! The time of a request is its issue to the driver, or its first known time if that is missing. One image stands for
//! one device: requests to other devices than the first are dropped. Requests with no counterpart on a file (secure
//! erase, zones, driver requests) are dropped too; each is counted by reason.

use std::path::Path;

use results::block_trace::{DeviceNumber, Operation, Request};
use results::call_trace::{Action, Call, Layer, Outcome, Trace};

use super::{Collector, ReadOptions, TraceError};
use crate::{BadLines, ReadOptions as FormatOptions, TraceItem, TraceSource};

const OTHER_DEVICE: &str = "request of another device than the first one's";
const OTHER_REQUEST: &str = "request that has no counterpart on a file";
const WITHOUT_TIME: &str = "request without a time";
const EVENT: &str = "event that is no request";
const BAD_LINE: &str = "line that can't be read";

/// True when a file begins like one of these formats.
pub fn looks_like(beginning: &[u8]) -> bool {
    // The last line may be truncated.
    let whole = beginning.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let reader = std::io::Cursor::new(beginning[..whole].to_vec());
    crate::open_reader(Box::new(reader), Path::new("-"), asked(None)).is_ok()
}

/// Reads the trace at `path`; without `format`, it is detected from the content.
pub fn read(path: &Path, format: Option<crate::Format>, options: ReadOptions) -> Result<Trace, TraceError> {
    collect(&mut *crate::open(path, asked(format))?, options)
}

/// Reads blkparse output from memory.
pub fn read_blkparse(text: Vec<u8>, file: &Path, options: ReadOptions) -> Result<Trace, TraceError> {
    let reader = Box::new(std::io::Cursor::new(text));
    let trace = collect(
        &mut *crate::open_reader(reader, file, asked(Some(crate::Format::Blkparse)))?,
        options,
    )?;
    if trace.calls.is_empty() && trace.skipped.is_empty() {
        return Err(TraceError::Line {
            path: file.to_owned(),
            line: 1,
            expected: "an event of blkparse: `8,0 1 1 0.000000000 697 D W 223490 + 8 [name]`".to_owned(),
            found: "no event".to_owned(),
        });
    }
    Ok(trace)
}

const fn asked(format: Option<crate::Format>) -> FormatOptions {
    FormatOptions {
        format,
        bad_lines: BadLines::Skip,
    }
}

fn collect(source: &mut dyn TraceSource, options: ReadOptions) -> Result<Trace, TraceError> {
    let origin = source.header().source.clone();
    let mut collector = Collector::new(Trace::new(Layer::Block, &origin), options);
    let mut device = None;
    while let Some(item) = source.next_item()? {
        let call = match &item {
            TraceItem::Request(request) => call_of(request, &mut device),
            TraceItem::Event(_) => Err(EVENT),
        };
        match call {
            Ok(call) => collector.push(call),
            Err(reason) => collector.trace.skip(reason),
        }
    }
    let mut trace = collector.trace;
    trace.complete = source.header().complete;
    trace.skip_many(BAD_LINE, source.skipped().map_or(0, |skipped| skipped.count));
    let first_ns = trace.calls.iter().map(|call| call.at_ns).min().unwrap_or(0);
    for call in &mut trace.calls {
        call.at_ns -= first_ns;
    }
    Ok(trace)
}

fn call_of(request: &Request, device: &mut Option<DeviceNumber>) -> Result<Call, &'static str> {
    if *device.get_or_insert(request.device) != request.device {
        return Err(OTHER_DEVICE);
    }
    let at_ns = request
        .issued_ns
        .or_else(|| request.first_ns())
        .ok_or(WITHOUT_TIME)?;
    let (offset, bytes) = (request.sector.saturating_mul(512), request.bytes);
    let action = match request.operation {
        Operation::Flush => Action::BlockFlush,
        // An empty write carries only a flush requested by the file system.
        Operation::Write if bytes == 0 => Action::BlockFlush,
        Operation::Read if bytes > 0 => Action::BlockRead { offset, bytes },
        Operation::Write => Action::BlockWrite { offset, bytes },
        Operation::Discard if bytes > 0 => Action::BlockDiscard { offset, bytes },
        _ => return Err(OTHER_REQUEST),
    };
    Ok(Call {
        thread: request.submitter.as_ref().map_or(0, |process| process.tid),
        at_ns,
        recorded_duration_ns: request.completed_ns.and_then(|done| done.checked_sub(at_ns)),
        outcome: Outcome::Unknown,
        action,
    })
}
