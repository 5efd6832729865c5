use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use results::call_trace::{Action, Handle, Layer, Name, OpenFlags, Outcome, Trace, Whence};

use super::Initial;
use crate::replay::prepare::IMAGE;

struct Script {
    trace: Trace,
}

impl Script {
    fn new() -> Self {
        Self {
            trace: Trace::new(Layer::SystemCalls, "test"),
        }
    }

    fn call(&mut self, action: Action, outcome: Outcome) {
        self.trace.push(0, 0, action);
        self.trace.calls.last_mut().unwrap().outcome = outcome;
    }

    fn name(&mut self, path: &str) -> Name {
        self.trace.name(Path::new(path))
    }

    fn open(&mut self, path: &str, flags: OpenFlags) -> Handle {
        let (name, handle) = (self.name(path), self.trace.new_handle());
        self.call(Action::Open { name, handle, flags }, Outcome::Unknown);
        handle
    }

    fn initial(&self) -> Initial {
        Initial::of(&self.trace)
    }
}

fn sizes(initial: &Initial) -> Vec<(&str, u64)> {
    let files = initial.files.iter();
    files
        .map(|(path, file)| (path.to_str().unwrap(), file.bytes))
        .collect()
}

#[test]
fn a_file_that_is_read_has_the_size_of_the_furthest_read() {
    let mut script = Script::new();
    let handle = script.open("/data/a", OpenFlags::READ);
    script.call(
        Action::Read {
            handle,
            bytes: 65_536,
        },
        Outcome::Done(1000),
    );
    script.call(
        Action::ReadAt {
            handle,
            bytes: 100,
            offset: 4000,
        },
        Outcome::Unknown,
    );
    script.call(Action::Read { handle, bytes: 500 }, Outcome::Unknown);
    let initial = script.initial();
    assert_eq!(sizes(&initial), [("data/a", 4100)]);
    assert_eq!(initial.directories, BTreeSet::from([PathBuf::from("data")]));
    assert_eq!(initial.filled_bytes(), 4100);
}

#[test]
fn what_the_trace_writes_itself_is_not_prepared() {
    let mut script = Script::new();
    let handle = script.open("a", OpenFlags::READ_WRITE.creating());
    script.call(Action::Write { handle, bytes: 100 }, Outcome::Unknown);
    script.call(
        Action::ReadAt {
            handle,
            bytes: 100,
            offset: 0,
        },
        Outcome::Unknown,
    );
    assert_eq!(sizes(&script.initial()), []);
    assert_eq!(script.initial().grown_bytes, 100);
    script.call(
        Action::ReadAt {
            handle,
            bytes: 100,
            offset: 50,
        },
        Outcome::Unknown,
    );
    assert_eq!(sizes(&script.initial()), [("a", 150)]);
}

#[test]
fn a_truncated_file_needs_nothing() {
    let mut script = Script::new();
    let handle = script.open("a", OpenFlags::READ_WRITE.creating().truncating());
    script.call(Action::Read { handle, bytes: 100 }, Outcome::Unknown);
    assert_eq!(script.initial(), Initial::default());
}

#[test]
fn names_that_were_missing_stay_missing_and_those_found_are_there() {
    let mut script = Script::new();
    let (journal, other) = (script.name("db-journal"), script.name("other"));
    script.call(Action::Access { name: journal }, Outcome::Failed(libc::ENOENT));
    script.call(Action::Stat { name: other }, Outcome::Done(0));
    script.open("db-journal", OpenFlags::READ_WRITE.creating());
    assert_eq!(sizes(&script.initial()), [("other", 0)]);
}

#[test]
fn a_file_found_in_a_renamed_directory_was_in_the_old_one() {
    let mut script = Script::new();
    let (from, to) = (script.name("old"), script.name("new"));
    script.name("old/x");
    script.call(Action::Rename { from, to }, Outcome::Done(0));
    let handle = script.open("new/a", OpenFlags::READ);
    script.call(Action::Read { handle, bytes: 7 }, Outcome::Unknown);
    let initial = script.initial();
    assert_eq!(sizes(&initial), [("old/a", 7)]);
    assert_eq!(initial.directories, BTreeSet::from([PathBuf::from("old")]));
}

#[test]
fn a_directory_that_is_listed_is_a_directory() {
    let mut script = Script::new();
    let handle = script.open("d", OpenFlags::READ);
    script.call(Action::List { handle }, Outcome::Done(48));
    let made = script.name("e");
    script.call(Action::MakeDirectory { name: made }, Outcome::Done(0));
    script.open("e/f", OpenFlags::WRITE.creating());
    let initial = script.initial();
    assert_eq!(initial.directories, BTreeSet::from([PathBuf::from("d")]));
    assert_eq!(sizes(&initial), []);
}

#[test]
fn a_seek_from_the_end_tells_the_size() {
    let mut script = Script::new();
    let handle = script.open("a", OpenFlags::WRITE);
    let (offset, whence) = (-10, Whence::End);
    script.call(
        Action::Seek {
            handle,
            offset,
            whence,
        },
        Outcome::Done(90),
    );
    assert_eq!(sizes(&script.initial()), [("a", 100)]);
}

#[test]
fn a_buffered_image_has_data_where_it_is_written_too() {
    let mut trace = Trace::new(Layer::Block, "test");
    for (at, offset) in [(0, 1 << 30), (1, 2 << 30)] {
        let bytes = 4096;
        trace.push(0, at, Action::BlockWrite { offset, bytes });
    }
    let mut initial = Initial::of(&trace);
    initial.fill_written_blocks(&trace);
    let image = &initial.files[Path::new(IMAGE)];
    let grain = |start: u64| (start, start + 4096);
    assert_eq!(image.filled, [grain(1 << 30), grain(2 << 30)]);
}

#[test]
fn a_large_image_has_data_only_where_it_is_read() {
    let mut trace = Trace::new(Layer::Block, "test");
    trace.push(
        0,
        0,
        Action::BlockRead {
            offset: 1 << 30,
            bytes: 4096,
        },
    );
    trace.push(
        0,
        1,
        Action::BlockWrite {
            offset: 2 << 30,
            bytes: 4096,
        },
    );
    let initial = Initial::of(&trace);
    let image = &initial.files[Path::new(IMAGE)];
    assert_eq!(image.bytes, (2 << 30) + 4096);
    assert_eq!(image.filled, [(1 << 30, (1 << 30) + 4096)]);
    assert!(initial.bytes_needed() < 1 << 20);
}
