//! Text of MOST: the steps of each request with type, process and path, in the order of time.
//!
//! MOST has one type and one path a line. A request whose pieces differ gets those of its longest one; the others are
//! counted as left out. The process is the one behind the data, where the trace knows it.

use results::block_trace::{BlockClass, Event, Request, Run, TraceHeader};

use super::blkparse::printable;
use super::output::Output;
use super::timeline::{Line, Timeline};
use crate::error::WriteError;
use crate::import::rwbs::letters;
use crate::stream::{TraceSink, Written};

/// Writes text of MOST.
pub struct MostWriter {
    output: Output,
    timeline: Timeline,
    written: Written,
}

impl MostWriter {
    pub fn new(output: Output) -> Self {
        Self {
            output,
            timeline: Timeline::default(),
            written: Written::default(),
        }
    }

    fn print(&mut self, line: &Line) -> Result<(), WriteError> {
        let (seconds, ns) = (line.time_ns / 1_000_000_000, line.time_ns % 1_000_000_000);
        let text = format!("{seconds:5}.{ns:09}\t{}\t{}\n", line.head, line.tail);
        self.output.write(text.as_bytes())
    }
}

/// The one column that says what is there, and the path behind it.
fn owner(run: Option<&Run>) -> String {
    let Some(run) = run else {
        return "M".to_owned();
    };
    match (run.block_type.class(), &run.path) {
        (BlockClass::Data, Some(path)) => format!("D\t{}", printable(path)),
        (BlockClass::Data, None) => "D".to_owned(),
        (BlockClass::Journal, _) => "J".to_owned(),
        // What nobody owns is metadata to MOST.
        (BlockClass::Metadata | BlockClass::Other, _) => "M".to_owned(),
    }
}

impl TraceSink for MostWriter {
    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        let Some(first) = request.first_ns() else {
            self.written.leave_out("requests without any time");
            return Ok(());
        };
        while let Some(line) = self.timeline.before(first) {
            self.print(&line)?;
        }
        let longest = request.runs.iter().max_by_key(|run| run.bytes);
        let owner = owner(longest);
        if request
            .runs
            .iter()
            .any(|run| Some(&run.path) != longest.map(|longest| &longest.path))
        {
            self.written
                .leave_out("requests with pieces of other files: the longest piece stands");
        }
        let cause = longest.and_then(|run| run.cause.as_deref());
        let process = cause.or(request.submitter.as_deref());
        let (pid, name) = process.map_or((0, String::new()), |process| {
            (process.pid, printable(&process.name))
        });
        let rwbs = letters(request.operation, request.flags);
        let sectors = request.bytes.div_ceil(512);
        let tail = format!(
            "{rwbs}\t{:8}\t{sectors:4}\t{pid:4}\t{name:>20}\t{owner}",
            request.sector
        );
        let steps = [
            (request.queued_ns, "Q"),
            (request.inserted_ns, "I"),
            (request.issued_ns, "D"),
            (request.completed_ns, "C"),
        ];
        for (time_ns, letter) in steps {
            if let Some(time_ns) = time_ns {
                self.timeline.add(Line {
                    time_ns,
                    head: letter.to_owned(),
                    tail: tail.clone(),
                });
            }
        }
        self.written.requests += 1;
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
