//! Outputs that wait for a reader, in a program that catches signals. The flag is one for the process, so this is a test of its own.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use outfile::{OutFile, Unfinished};
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn create(path: &Path) -> std::io::Result<OutFile> {
    OutFile::create(path, Unfinished::Remove)
}

#[test]
fn a_raised_flag_ends_the_wait_for_a_reader_that_is_not_there_or_rests() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    let stop = Arc::new(AtomicBool::new(false));
    outfile::stop_with(Arc::clone(&stop));

    // A reader that comes late and rests first gets all.
    let sent = vec![7; 300_000];
    let received = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            thread::park_timeout(Duration::from_millis(100));
            let mut file = fs::File::open(&fifo).expect("it is there");
            thread::park_timeout(Duration::from_millis(100));
            let mut content = Vec::new();
            file.read_to_end(&mut content).expect("it is read");
            content
        });
        let mut output = create(&fifo).expect("the reader comes");
        output.write_all(&sent).expect("the reader reads");
        output.finish().expect("nothing is left to do");
        reader.join().expect("its own message is above")
    });
    assert!(received == sent, "{} bytes", received.len());

    let started = Instant::now();
    let raise = |after: u64| {
        let stop = &stop;
        move || {
            thread::park_timeout(Duration::from_millis(after));
            stop.store(true, Ordering::Relaxed);
        }
    };
    let resting = fs::File::options()
        .read(true)
        .write(true)
        .open(&fifo)
        .expect("it is there");
    let mut output = create(&fifo).expect("it has a reader");
    let written = thread::scope(|scope| {
        scope.spawn(raise(100));
        output.write_all(&sent)
    });
    let why = written.expect_err("nobody reads").to_string();
    assert!(why.contains("stopped"), "{why}");
    drop((resting, output));

    stop.store(false, Ordering::Relaxed);
    let opened = thread::scope(|scope| {
        scope.spawn(raise(100));
        create(&fifo).map(drop)
    });
    let why = opened.expect_err("there is no reader").to_string();
    assert!(why.contains("stopped"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(10));
}
