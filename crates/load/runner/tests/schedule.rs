//! Tests of the round loop: order, notes, and the records left behind.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use results::{HostInfo, RunRecord, SCHEMA, TargetInfo, read_records};
use runner::{
    HistorySink, Measured, Readers, Runner, STOPPED, Schedule, Series, Settle, Sinks, Turn, Watcher,
};

#[derive(Default)]
struct Heard(RefCell<Vec<String>>);

impl Watcher for Heard {
    fn begin(&self, _title: &str) {}
    fn end(&self) {}
    fn say(&self, text: &str) {
        self.0.borrow_mut().push(text.to_owned());
    }
    fn table(&self, _text: &str) -> io::Result<()> {
        Ok(())
    }
    fn record(&self, _record: &RunRecord) -> io::Result<Readers> {
        Ok(Readers::Present)
    }
}

fn record(label: &str, round: u32, complete: bool) -> RunRecord {
    RunRecord {
        schema: SCHEMA.into(),
        command: Vec::new(),
        tool_version: String::new(),
        started_unix_ns: 0,
        host: HostInfo::default(),
        target: TargetInfo::default(),
        label: label.into(),
        round,
        workload: serde_json::Value::Null,
        samples: Vec::new(),
        counters: BTreeMap::new(),
        complete,
    }
}

/// Sides `a`, `b`, `c`: one may fail in a round, and one may raise the stop flag.
struct Sides<'run> {
    ran: Vec<(u32, usize)>,
    fails_at: Option<(u32, usize)>,
    stops_at: Option<(u32, usize)>,
    is_left_out: bool,
    rounds_wanted: u32,
    stop: &'run AtomicBool,
}

impl<'run> Sides<'run> {
    fn new(stop: &'run AtomicBool) -> Self {
        Self {
            ran: Vec::new(),
            fails_at: None,
            stops_at: None,
            is_left_out: false,
            rounds_wanted: u32::MAX,
            stop,
        }
    }
}

impl Series for Sides<'_> {
    type Error = io::Error;

    fn title(&self, _turn: Turn) -> String {
        String::new()
    }

    fn measure(&mut self, turn: Turn) -> io::Result<Vec<Measured>> {
        let at = (turn.round, turn.side);
        self.ran.push(at);
        if self.fails_at == Some(at) {
            return Err(io::Error::other("no space"));
        }
        let is_stopped = self.stops_at == Some(at);
        if is_stopped {
            self.stop.store(true, Ordering::Relaxed);
        }
        let label = ["a", "b", "c"][turn.side];
        Ok(vec![Measured::plain(record(label, turn.round, !is_stopped))])
    }

    fn failed(&mut self, turn: Turn, error: io::Error) -> io::Result<String> {
        if self.is_left_out {
            return Ok(format!("side {} is left out: {error}", turn.side));
        }
        Err(error)
    }

    fn goes_on(&mut self, rounds_done: u32, _records: &[RunRecord]) -> bool {
        rounds_done < self.rounds_wanted
    }
}

fn runner<'run>(heard: &'run Heard, stop: &'run AtomicBool, file: Option<&Path>) -> Runner<'run> {
    let sinks = Sinks::new(file, HistorySink::default()).expect("a file of records");
    let nowhere = Settle::FileSystem("/nonexistent".into());
    Runner::new(heard, stop, nowhere, sinks)
}

#[test]
fn the_side_that_begins_moves_on_with_each_round() {
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let mut sides = Sides::new(&stop);
    let mut runner = runner(&heard, &stop, None);
    runner.run(&Schedule::interleaved(3, 3), &mut sides).unwrap();
    let order = [(0, [0, 1, 2]), (1, [1, 2, 0]), (2, [2, 0, 1])];
    let expected = order.map(|(round, sides)| sides.map(|side| (round, side)));
    assert_eq!(sides.ran, expected.concat());
    assert_eq!(runner.finish().unwrap().notes, Vec::<String>::new());
}

#[test]
fn warmups_run_first_with_contents_of_their_own_and_are_not_kept() {
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let mut sides = Sides::new(&stop);
    let mut runner = runner(&heard, &stop, None);
    runner.run(&Schedule::repeated(2, 3), &mut sides).unwrap();
    assert_eq!(sides.ran, [(3, 0), (4, 0), (0, 0), (1, 0), (2, 0)]);
    let kept: Vec<u32> = runner.records().iter().map(|record| record.round).collect();
    assert_eq!(kept, [0, 1, 2]);
}

#[test]
fn a_side_that_fails_is_left_out_of_the_further_rounds_and_named_once() {
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let mut sides = Sides {
        fails_at: Some((0, 1)),
        is_left_out: true,
        ..Sides::new(&stop)
    };
    let mut runner = runner(&heard, &stop, None);
    runner.run(&Schedule::interleaved(2, 3), &mut sides).unwrap();
    assert_eq!(sides.ran, [(0, 0), (0, 1), (0, 2), (1, 2), (1, 0)]);
    assert_eq!(runner.finish().unwrap().notes, ["side 1 is left out: no space"]);
}

#[test]
fn a_stop_ends_the_rounds_and_marks_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let mut sides = Sides {
        stops_at: Some((1, 1)),
        ..Sides::new(&stop)
    };
    let mut runner = runner(&heard, &stop, Some(&file));
    runner.run(&Schedule::interleaved(5, 3), &mut sides).unwrap();
    assert_eq!(sides.ran, [(0, 0), (0, 1), (0, 2), (1, 1)]);
    let ran = runner.finish().unwrap();
    assert_eq!(
        (ran.records.len(), ran.notes.as_slice()),
        (4, &[STOPPED.to_owned()][..])
    );
    let partial = folder.path().join("runs.jsonl.partial");
    assert!(!file.exists());
    assert_eq!(read_records(&partial).unwrap().len(), 4);
    let told = heard.0.borrow();
    assert_eq!(
        *told,
        [
            STOPPED.to_owned(),
            format!("records so far: {}", partial.display())
        ]
    );
}

#[test]
fn what_was_measured_before_a_failure_is_kept_under_the_partial_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let mut sides = Sides {
        fails_at: Some((1, 0)),
        ..Sides::new(&stop)
    };
    let mut runner = runner(&heard, &stop, Some(&file));
    let failure = runner.run(&Schedule::repeated(0, 3), &mut sides).unwrap_err();
    assert_eq!(failure.to_string(), "no space");
    runner.finish().unwrap();
    assert_eq!(
        read_records(&folder.path().join("runs.jsonl.partial"))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_series_that_has_enough_ends_after_a_whole_round() {
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let mut sides = Sides {
        rounds_wanted: 2,
        ..Sides::new(&stop)
    };
    let mut runner = runner(&heard, &stop, None);
    runner.run(&Schedule::interleaved(9, 2), &mut sides).unwrap();
    assert_eq!(sides.ran.len(), 4);
    assert!(runner.finish().unwrap().notes.is_empty(), "enough is not a stop");
}

#[test]
fn a_history_that_cannot_be_written_is_told_once_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    let history = HistorySink::new(Some(folder.path().to_owned()));
    let sinks = Sinks::new(None, history).unwrap();
    let mut runner = Runner::new(&heard, &stop, Settle::FileSystem(folder.path().to_owned()), sinks);
    runner
        .run(&Schedule::repeated(0, 3), &mut Sides::new(&stop))
        .unwrap();
    assert_eq!(runner.finish().unwrap().records.len(), 3);
    let told = heard.0.borrow();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("this run is not stored in the history: "),
        "{told:?}"
    );
}
