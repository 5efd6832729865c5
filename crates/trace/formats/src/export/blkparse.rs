//! Writes blkparse text: Q, I, D and C of each request, in chronological order.
//!
//! Steps whose time is unknown are left out: a request with only a completion time becomes a single C.

use std::fmt::Write as _;

use results::block_trace::{Operation, Process, Request};
use results::shown;

use super::timeline::{Line, StepText, Timeline};
use crate::import::rwbs::letters;
use crate::stream::Written;

/// Text of blkparse.
#[derive(Debug, Default)]
pub struct BlkparseText {
    sequence: u64,
}

impl StepText for BlkparseText {
    fn line(&mut self, line: &Line) -> String {
        self.sequence += 1;
        let (head, tail, sequence) = (&line.head, &line.tail, self.sequence);
        let (seconds, ns) = (line.time_ns / 1_000_000_000, line.time_ns % 1_000_000_000);
        format!("{head} {sequence:8} {seconds:5}.{ns:09} {tail}\n")
    }

    fn steps(&mut self, request: &Request, timeline: &mut Timeline, written: &mut Written) {
        if request
            .runs
            .iter()
            .any(|run| run.file.is_some() || run.path.is_some())
        {
            written.leave_out("files behind requests");
        }
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
            timeline.add(Line {
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
        write!(tail, "[{}]", shown::line(name))
    };
    written.and(bracket).expect("a string takes any text");
}
