//! Text of blkparse: Q, I, D and C of each request, in the order of time.
//!
//! What a request's times do not tell is left out: a request of which only the completion is known is one C.

use std::fmt::Write as _;

use results::block_trace::{Event, Operation, Process, Request, TraceHeader};

use super::output::Output;
use super::timeline::{Line, Timeline};
use crate::error::WriteError;
use crate::import::rwbs::letters;
use crate::stream::{TraceSink, Written};

/// Writes text of blkparse.
pub struct BlkparseWriter {
    output: Output,
    timeline: Timeline,
    sequence: u64,
    written: Written,
}

impl BlkparseWriter {
    pub fn new(output: Output) -> Self {
        Self {
            output,
            timeline: Timeline::default(),
            sequence: 0,
            written: Written::default(),
        }
    }

    fn print(&mut self, line: &Line) -> Result<(), WriteError> {
        self.sequence += 1;
        let (head, tail, sequence) = (&line.head, &line.tail, self.sequence);
        let (seconds, ns) = (line.time_ns / 1_000_000_000, line.time_ns % 1_000_000_000);
        let text = format!("{head} {sequence:8} {seconds:5}.{ns:09} {tail}\n");
        self.output.write(text.as_bytes())
    }

    fn steps(&mut self, request: &Request) {
        let rwbs = letters(request.operation, request.flags);
        let device = format!("{},{}", request.device.major, request.device.minor);
        let head = format!("{device:>7} {:2}", request.hardware_queue.unwrap_or(0));
        let submitter = request.submitter.as_deref();
        let steps = [
            (request.queued_ns, 'Q'),
            (request.inserted_ns, 'I'),
            (request.issued_ns, 'D'),
            (request.completed_ns, 'C'),
        ];
        for (time_ns, letter) in steps {
            let Some(time_ns) = time_ns else { continue };
            let process = submitter.filter(|_| letter != 'C');
            let pid = process.map_or(0, |process| process.pid);
            let mut tail = format!("{pid:5}  {letter} {rwbs:>3} ");
            place(&mut tail, request, letter, process);
            self.timeline.add(Line {
                time_ns,
                head: head.clone(),
                tail,
            });
        }
    }
}

fn place(tail: &mut String, request: &Request, letter: char, process: Option<&Process>) {
    let sectors = request.bytes.div_ceil(512);
    let written = match (request.operation, request.bytes) {
        (Operation::Driver, bytes) => write!(tail, "{bytes} () "),
        (_, 0) if letter == 'C' => write!(tail, "0 "),
        (_, 0) => Ok(()),
        _ => write!(tail, "{} + {sectors} ", request.sector),
    };
    let bracket = if letter == 'C' {
        write!(tail, "[{}]", -i64::from(request.status.unwrap_or(0)))
    } else {
        let name = process.map_or("", |process| &*process.name);
        write!(tail, "[{}]", printable(name))
    };
    written.and(bracket).expect("a string takes any text");
}

/// A name without what would break a line.
pub(super) fn printable(name: &str) -> String {
    name.chars()
        .map(|character| if character.is_control() { '?' } else { character })
        .collect()
}

impl TraceSink for BlkparseWriter {
    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        let Some(first) = request.first_ns() else {
            self.written.leave_out("requests without any time");
            return Ok(());
        };
        while let Some(line) = self.timeline.before(first) {
            self.print(&line)?;
        }
        self.written.requests += 1;
        if request
            .runs
            .iter()
            .any(|run| run.file.is_some() || run.path.is_some())
        {
            self.written.leave_out("files behind requests");
        }
        self.steps(request);
        Ok(())
    }

    fn event(&mut self, _: &Event) -> Result<(), WriteError> {
        self.written.leave_out("events that are no requests");
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceHeader) -> Result<Written, WriteError> {
        while let Some(line) = self.timeline.next() {
            self.print(&line)?;
        }
        self.output.finish()?;
        Ok(self.written)
    }
}
