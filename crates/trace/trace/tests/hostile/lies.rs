//! Falsifies a trace that the judge has passed, in one request at a time: a judge that misses a lie proves nothing.

use std::sync::Arc;

use results::block_trace::{CauseQuality, Event, EventKind, IoMode, Operation, Process, Request, Run};

use crate::Outcome;
use crate::judge::{Setting, judge};
use crate::ledger::Ledger;

/// Number of requests for each lie.
const TRIES: usize = 3;

/// Its name, the requests that it suits, and how it changes one; the number of times that it is told.
type Lie = (
    &'static str,
    fn(&Request) -> bool,
    fn(&mut Request, &[Request]) -> usize,
);

fn data(request: &Request) -> Option<&Run> {
    let is_sure = |run: &Run| matches!(run.cause_quality, CauseQuality::Folio | CauseQuality::WriteCall);
    match request.runs.as_slice() {
        [run] if run.file.is_some() && run.path.is_some() && is_sure(run) => Some(run),
        _ => None,
    }
}

fn is_buffered_write(request: &Request) -> bool {
    matches!(request.mode, IoMode::Synchronous | IoMode::Writeback)
        && data(request).is_some()
        && request.operation == Operation::Write
}

fn is_direct(request: &Request) -> bool {
    data(request).is_some() && request.mode == IoMode::Direct
}

fn by(run: &mut Run, change: impl FnOnce(&mut Process)) {
    run.cause = run.cause.as_deref().cloned().map(|mut process| {
        change(&mut process);
        Arc::new(process)
    });
}

/// A process that did something else.
fn another_process(request: &mut Request, all: &[Request]) -> usize {
    let run = &mut request.runs[0];
    let others = all.iter().flat_map(|other| &other.runs);
    let mut others = others.filter(|other| other.file.is_some() && other.file != run.file);
    let pid = |run: &Run| run.cause.as_ref().map(|process| process.pid);
    let other = others.find(|other| other.cause.is_some() && pid(other) != pid(run));
    run.cause = other.and_then(|other| other.cause.clone());
    1
}

fn another_program(request: &mut Request, _: &[Request]) -> usize {
    by(&mut request.runs[0], |process| process.name = "liar".into());
    1
}

fn another_place(request: &mut Request, _: &[Request]) -> usize {
    let run = &mut request.runs[0];
    run.file_offset = run.file_offset.map(|offset| offset + (1 << 40));
    1
}

fn another_path(request: &mut Request, _: &[Request]) -> usize {
    request.runs[0].path = Some("/nobody/was/here".into());
    1
}

fn another_generation(request: &mut Request, _: &[Request]) -> usize {
    if let Some(file) = &mut request.runs[0].file {
        file.generation = file.generation.wrapping_add(1);
    }
    1
}

fn another_time(request: &mut Request, _: &[Request]) -> usize {
    (request.queued_ns, request.issued_ns) = (Some(0), Some(0));
    1
}

fn half_of_it(request: &mut Request, _: &[Request]) -> usize {
    request.runs[0].bytes /= 2;
    1
}

fn unknown(request: &mut Request, _: &[Request]) -> usize {
    request.runs[0].cause_quality = CauseQuality::Inode;
    1
}

const LIES: [Lie; 15] = [
    (
        "a buffered write without a sure owner",
        is_buffered_write,
        unknown,
    ),
    ("direct I/O without a sure owner", is_direct, unknown),
    (
        "a buffered write by another process",
        is_buffered_write,
        another_process,
    ),
    (
        "a buffered write by another program",
        is_buffered_write,
        another_program,
    ),
    (
        "a buffered write of another place",
        is_buffered_write,
        another_place,
    ),
    (
        "a buffered write by another path",
        is_buffered_write,
        another_path,
    ),
    (
        "a buffered write of a file before",
        is_buffered_write,
        another_generation,
    ),
    (
        "a buffered write before its time",
        is_buffered_write,
        another_time,
    ),
    (
        "a write that its runs cover by half",
        is_buffered_write,
        half_of_it,
    ),
    ("a buffered write told often", is_buffered_write, |_, _| 100),
    ("direct I/O by another process", is_direct, another_process),
    ("direct I/O of another place", is_direct, another_place),
    ("direct I/O by another path", is_direct, another_path),
    ("direct I/O left out", is_direct, |_, _| 0),
    ("direct I/O told twice", is_direct, |_, _| 2),
];

/// Tells each lie of some requests, and one of renames; an error names those that the judge believed.
pub fn all_are_found(
    trace: (&[Request], &[Event]),
    ledger: &Ledger,
    setting: Setting,
    may_be_unknown: &[&str],
) -> Outcome<usize> {
    let (all, events) = trace;
    let is_found = |requests: &[Request], events: &[Event]| {
        let mut verdict = judge(requests, events, ledger, setting);
        verdict.limit_unknown(may_be_unknown);
        verdict.outcome().is_err()
    };
    let mut told = 0;
    let mut believed = Vec::new();
    for (name, suits, lie) in LIES {
        let suiting: Vec<usize> = (0..all.len()).filter(|at| suits(&all[*at])).collect();
        if suiting.is_empty() {
            return Err(format!("no request suits the lie \"{name}\""));
        }
        for at in suiting.iter().step_by(suiting.len().div_ceil(TRIES)) {
            let mut requests = all.to_vec();
            let times = lie(&mut requests[*at], all);
            let told_of = requests.remove(*at);
            requests.extend(std::iter::repeat_n(told_of, times));
            told += 1;
            if !is_found(&requests, events) {
                believed.push(format!("{name}: {:?}", all[*at]));
            }
        }
    }
    let renamed = events.iter().position(|event| event.kind == EventKind::Rename);
    let at = renamed.ok_or("the trace has no rename")?;
    let twice = [events, &events[at..=at]].concat();
    let never = [&events[..at], &events[at + 1..]].concat();
    for (name, events) in [("told twice", twice), ("left out", never)] {
        told += 1;
        if !is_found(all, &events) {
            believed.push(format!("a rename {name}"));
        }
    }
    match believed.is_empty() {
        true => Ok(told),
        false => Err(format!("the judge believed:\n  {}", believed.join("\n  "))),
    }
}
