//! Runs a command under the tracer and keeps its trace in memory.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;

use results::block_trace::{Event, Request};
use trace::block::{
    CaptureError, CaptureSpec, Captured, CommandOutput, ItemOrder, Method, Sink, Target, capture,
};

use crate::Outcome;

/// A trace kept in memory.
#[derive(Debug, Default)]
pub struct InMemory {
    pub requests: Vec<Request>,
    pub events: Vec<Event>,
}

impl Sink for InMemory {
    fn request(&mut self, request: &Request) -> std::io::Result<()> {
        self.requests.push(request.clone());
        Ok(())
    }

    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.events.push(event.clone());
        Ok(())
    }
}

/// Options of a trace by BPF until the command ends.
pub fn spec(targets: Vec<Target>, command: Vec<OsString>, ring_bytes: u64, source: &str) -> CaptureSpec {
    CaptureSpec {
        targets,
        method: Method::Bpf,
        ring_bytes,
        count_calls: false,
        driver_commands: true,
        command,
        command_output: CommandOutput::Inherited,
        duration: None,
        sync_at_end: true,
        order: ItemOrder::ByTime,
        host: None,
        source: source.to_owned(),
    }
}

/// Runs the command under the tracer. `None` if tracing is forbidden, which is recorded; programs that the kernel refused
/// are an error.
pub fn record(spec: &CaptureSpec) -> Outcome<Option<(InMemory, Captured)>> {
    let mut trace = InMemory::default();
    let captured = match capture(spec, &AtomicBool::new(false), &mut trace) {
        Ok(captured) => captured,
        Err(CaptureError::Forbidden { reason }) => {
            testkit::report_left_out(reason);
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    let status = captured.command_status;
    if !status.is_some_and(|status| status.success()) {
        return Err(format!("the programs failed: {status:?}"));
    }
    let limitations = &captured.header.limitations;
    let is_of_programs =
        |what: &str| what.starts_with("the kernel refused") || what.starts_with("what the tracepoint");
    match limitations
        .iter()
        .find(|one| is_of_programs(&one.why) || is_of_programs(&one.what))
    {
        Some(missing) => Err(format!("{}: {}", missing.what, missing.why)),
        None => Ok(Some((trace, captured))),
    }
}
