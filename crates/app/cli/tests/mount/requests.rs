//! Requests that calls on a mount send, and what a program sees where the kernel answers without one.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Detached, Mounted, tidegate};
use crate::passthrough::bytes_served;

/// Requests served so far, without those of `tidegate stats` itself.
fn requests(mounted: &Mounted) -> BTreeMap<String, u64> {
    let stats = mounted.stats();
    let operations = stats["session"]["operations"].as_array().unwrap();
    let counted = operations.iter().map(|one| {
        let name = one["operation"].as_str().unwrap().to_owned();
        (name, one["count"].as_u64().unwrap())
    });
    counted
        .filter(|(name, _)| !["forget", "batch_forget"].contains(&name.as_str()))
        .collect()
}

/// Requests that `work` needs.
pub fn requests_of(mounted: &Mounted, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let before = requests(mounted);
    work();
    let mut after = requests(mounted);
    for (name, count) in &mut after {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    after.retain(|_, count| *count > 0);
    after
}

fn with_a_folder(source: &Path) {
    fs::create_dir(source.join("folder")).unwrap();
}

/// Attributes and names that expire during a test would be asked for again.
const LASTING: [&str; 4] = ["--attr-timeout", "3600s", "--entry-timeout", "3600s"];

#[test]
fn a_file_made_for_reading_and_writing_is_not_asked_for_its_attributes() {
    const FILES: u64 = 50;
    let Some(mounted) = Mounted::start_over(with_a_folder, &LASTING) else {
        return;
    };
    let folder = mounted.mountpoint().join("folder");
    let requests = requests_of(&mounted, || {
        for number in 0..FILES {
            let name = folder.join(number.to_string());
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create_new(true)
                .open(name)
                .unwrap();
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
        }
    });
    assert_eq!(requests["create"], FILES, "{requests:?}");
    // One for the folder, after each change of its names; it was three. On a busy machine some attributes expire.
    assert!(requests["getattr"] <= FILES * 2, "{requests:?}");
}

#[test]
fn a_warm_benchmark_of_reads_reads_from_the_page_cache() {
    const BYTES: u64 = 8 << 20;
    let Some(mounted) = Mounted::start(&["--passthrough", "off"]) else {
        return;
    };
    let folder = mounted.mountpoint();
    // The files are a moment old: each open drops their pages.
    for (cache, reads, more) in [
        ("warm", 1, ["--size", "8m", "--files", "2"].as_slice()),
        ("warm", 1, &["--size", "4m", "--threads", "2", "--shared"]),
        ("reopened", 2, &["--size", "8m"]),
    ] {
        let bytes_read = || {
            let before = bytes_served(&mounted);
            let done = tidegate()
                .args(["bench", "file", "--rw", "read", "--bs", "512k", "--cache", cache])
                .args(more)
                .arg(&folder)
                .env("TIDEGATE_HISTORY", "off")
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            bytes_served(&mounted) - before
        };
        // On a busy machine a file can be two seconds old, and written out, before it is opened again. A cold benchmark in
        // another test drops the caches of the whole machine, so that all is read again.
        let seen: Vec<u64> = (0..5).map(|_| bytes_read()).collect();
        let expected = BYTES..reads * BYTES + BYTES / 4;
        let fits = seen.iter().filter(|read| expected.contains(read)).count();
        assert!(fits >= 3, "{seen:?} bytes read, {cache}, {more:?}");
    }
}

/// Makes a file of the length 8192 by each of several calls, and stores to a mapping of it; prints a line after each step
/// and waits for one.
const STORES: &str = r#"
import mmap, os, sys

def step(path):
    seen = os.stat(path)
    print(path, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, flush=True)
    sys.stdin.readline()

def extend(file, way):
    if way == "write":
        os.pwrite(file, b"x" * 8192, 0)
    elif way == "truncate":
        os.ftruncate(file, 8192)
    else:
        os.posix_fallocate(file, 0, 8192)

for way in ["write", "truncate", "allocate"]:
    path = os.path.join(sys.argv[1], way)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    step(path)
    extend(file, way)
    mapping = mmap.mmap(file, 8192)
    step(path)
    mapping[0:4] = b"news"
    step(path)
    mapping[4096:4100] = b"news"
    step(path)
    mapping.flush()
    step(path)
    mapping.close()
    os.close(file)
    step(path)
"#;

#[test]
fn stores_through_a_mapping_of_a_new_file_show_in_its_times_at_once() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::process::Stdio;

    if !testkit::needs(&[testkit::Need::Program("python3")]) {
        return;
    }
    let Some(mounted) = Mounted::start(&LASTING) else {
        return;
    };
    let mut script = Command::new("python3")
        .args(["-c", STORES])
        .arg(mounted.mountpoint())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = script.stdin.take().unwrap();
    let lines = BufReader::new(script.stdout.take().unwrap()).lines();
    let mut steps = 0;
    for line in lines {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let name = Path::new(words.next().unwrap()).file_name().unwrap();
        let of_source = fs::metadata(mounted.source().join(name)).unwrap();
        let wanted = [
            i128::from(of_source.size()),
            i128::from(of_source.mtime()) * 1_000_000_000 + i128::from(of_source.mtime_nsec()),
            i128::from(of_source.ctime()) * 1_000_000_000 + i128::from(of_source.ctime_nsec()),
        ];
        let seen: Vec<i128> = words.map(|word| word.parse().unwrap()).collect();
        assert_eq!(seen, wanted, "step {steps}: {line}");
        steps += 1;
        writeln!(input).unwrap();
    }
    assert!(script.wait().unwrap().success());
    assert_eq!(steps, 18);
}

/// Requests that `tidegate stats` tells were found by polling, and times that none was.
fn polls(mounted: &Mounted) -> (u64, u64) {
    let session = mounted.stats()["session"].clone();
    let of = |name: &str| session[name].as_u64().unwrap();
    (of("polls_found"), of("polls_missed"))
}

#[test]
fn requests_that_follow_one_another_quickly_are_found_by_polling_and_others_are_not() {
    const REQUESTS: u64 = 2000;
    let look = |mounted: &Mounted, pause: Duration| {
        for _ in 0..REQUESTS / if pause.is_zero() { 1 } else { 20 } {
            fs::metadata(mounted.mountpoint().join("missing")).unwrap_err();
            std::thread::sleep(pause);
        }
    };
    // Far longer than a program takes between two requests, even on a busy machine.
    let Some(mounted) = Mounted::start(&["--poll", "1ms", "--entry-timeout", "0", "--uring", "off"]) else {
        return;
    };
    // On a busy machine the poller yields to other programs, and pauses; with one processor always.
    let found_in_a_round = || {
        let (before, _) = polls(&mounted);
        look(&mounted, Duration::ZERO);
        polls(&mounted).0 - before
    };
    let most = (0..50)
        .map(|_| found_in_a_round())
        .find(|found| *found > REQUESTS / 20);
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!(most.is_some() || processors == 1, "{:?}", polls(&mounted));
    // A hundred requests at intervals in which polling finds none: it ends after a few.
    let (_, before) = polls(&mounted);
    look(&mounted, Duration::from_millis(5));
    let missed = polls(&mounted).1 - before;
    assert!(missed <= 20, "{missed} polls found none");
    drop(mounted);
    let mounted = Mounted::start(&["--poll", "0", "--entry-timeout", "0", "--uring", "off"]).unwrap();
    look(&mounted, Duration::ZERO);
    assert_eq!(polls(&mounted), (0, 0));
}

fn is_older_than(major: u32, minor: u32) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let numbers: Vec<u32> = release
        .split(['.', '-', '+'])
        .map_while(|part| part.parse().ok())
        .take(2)
        .collect();
    numbers < vec![major, minor]
}

#[test]
fn polling_ends_where_the_caller_needs_the_same_processor() {
    const REQUESTS: u64 = 20_000;
    if !testkit::needs(&[testkit::Need::Program("taskset")]) {
        return;
    }
    if is_older_than(6, 6) {
        testkit::report_left_out(
            "before Linux 6.6 a woken caller preempts the daemon: each request is there at the first look",
        );
        return;
    }
    let Some(mounted) = Mounted::start(&["--poll", "20us", "--entry-timeout", "0", "--uring", "off"]) else {
        return;
    };
    let daemon = mounted.pid().as_raw_nonzero().to_string();
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let mut processors = 0..rustix::thread::CpuSet::MAX_CPU;
    let first = processors.find(|number| allowed.is_set(*number)).unwrap();
    let done = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", &first.to_string(), &daemon])
        .output();
    assert!(done.unwrap().status.success());
    let mut only_that = rustix::thread::CpuSet::new();
    only_that.set(first);
    rustix::thread::sched_setaffinity(None, &only_that).unwrap();
    for _ in 0..REQUESTS {
        fs::metadata(mounted.mountpoint().join("missing")).unwrap_err();
        let until = std::time::Instant::now() + Duration::from_micros(12);
        while std::time::Instant::now() < until {}
    }
    let (found, missed) = polls(&mounted);
    // More are missed while a third program needs that processor too.
    assert!(
        (1..REQUESTS / 5).contains(&(found + missed)),
        "{found} and {missed}"
    );
    assert!(found < REQUESTS / 40, "{found}");
}

#[test]
fn nothing_polls_over_another_server_unless_told_to() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let Some(inner) = Mounted::start(&["--uring", "off"]) else {
        return;
    };
    let mut bound = None;
    let bind = |source: &Path| {
        let done = Command::new("mount")
            .arg("--bind")
            .arg(inner.mountpoint())
            .arg(source)
            .status();
        assert!(done.unwrap().success());
        bound = Some(Detached(source.to_owned()));
    };
    let outer = Mounted::start_over(bind, &["--uring", "off"]).unwrap();
    let processors = std::thread::available_parallelism().unwrap().get();
    let of = |mounted: &Mounted| mounted.report["negotiated"]["poll_ns"].as_u64();
    assert_eq!(of(&inner), Some(if processors > 1 { 20_000 } else { 0 }));
    assert_eq!(of(&outer), Some(0));
    // Before the folder that it is in is removed.
    drop(bound);
}
