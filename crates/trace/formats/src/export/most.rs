//! Writes MOST text: the steps of each request with type, process and path, in chronological order.
//!
//! MOST has one type and one path per line. A request whose runs differ gets those of its longest one; the others are
//! counted as left out. The process is the one that caused the data, if the trace knows it.

use results::block_trace::{BlockClass, Request, Run};
use results::shown;

use super::timeline::{Line, StepText, Timeline};
use crate::import::rwbs::letters;
use crate::stream::Written;

/// Text of MOST.
#[derive(Debug)]
pub struct MostText;

/// The type column, and the path after it.
fn owner(run: Option<&Run>) -> String {
    let Some(run) = run else {
        return "M".to_owned();
    };
    match (run.block_type.class(), &run.path) {
        (BlockClass::Data, Some(path)) => format!("D\t{}", shown::line(path)),
        (BlockClass::Data, None) => "D".to_owned(),
        (BlockClass::Journal, _) => "J".to_owned(),
        // To MOST, blocks without an owner are metadata.
        (BlockClass::Metadata | BlockClass::Other, _) => "M".to_owned(),
    }
}

impl StepText for MostText {
    fn line(&mut self, line: &Line) -> String {
        let (seconds, ns) = (line.time_ns / 1_000_000_000, line.time_ns % 1_000_000_000);
        format!("{seconds:5}.{ns:09}\t{}\t{}\n", line.head, line.tail)
    }

    fn steps(&mut self, request: &Request, timeline: &mut Timeline, written: &mut Written) {
        let longest = request.runs.iter().max_by_key(|run| run.bytes);
        let owner = owner(longest);
        if request
            .runs
            .iter()
            .any(|run| Some(&run.path) != longest.map(|longest| &longest.path))
        {
            written.leave_out("requests with pieces of other files: the longest piece stands");
        }
        let cause = longest.and_then(|run| run.cause.as_deref());
        let process = cause.or(request.submitter.as_deref());
        let (pid, name) = process.map_or((0, String::new()), |process| {
            (process.pid, shown::line(&process.name).into_owned())
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
                timeline.add(Line {
                    time_ns,
                    head: letter.to_owned(),
                    tail: tail.clone(),
                });
            }
        }
    }
}
