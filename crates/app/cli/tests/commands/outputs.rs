//! Output files under a name where another user, or a habit such as `-o /dev/null`, has put another kind of file.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::bench::Bench;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// A volume `volume`, a chip `chip` with a UBI volume `data`, and commands that write one output each; OUT is its name.
fn commands(bench: &Bench) -> [&'static str; 4] {
    fs::write(bench.path("tree/file"), vec![7; 10_000]).expect("made");
    bench.make_volume();
    fs::write(bench.path("chip"), vec![0xFF; 32 * 131_072]).expect("room for it");
    bench.ends(0, "ubi format chip --page 2k --block 128k --subpage 512");
    bench.ends(0, "ubi mkvol chip -N data -S 4");
    [
        "ubifs extract volume --tar OUT",
        "ubi dump chip data -o OUT",
        "nand dump chip OUT",
        "ubifs mkfs -r tree -m 2048 --peb 128k -c 200 -y OUT",
    ]
}

#[test]
fn a_device_is_written_and_stays_a_device() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let bench = Bench::new();
    for words in commands(&bench) {
        let null = bench.path("null");
        let made = mknodat(
            CWD,
            &null,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            makedev(1, 3),
        );
        made.expect("root may");
        bench.ends(0, &words.replace("OUT", "null"));
        let found = fs::symlink_metadata(&null).expect("there");
        assert!(found.file_type().is_char_device(), "{words}");
        bench.ends(0, &words.replace("OUT", "result"));
        assert!(
            fs::metadata(bench.path("result")).expect("there").is_file(),
            "{words}"
        );
        fs::remove_file(null).expect("it is there");
    }
    assert!(
        fs::symlink_metadata("/dev/null")
            .expect("there")
            .file_type()
            .is_char_device()
    );
}

#[test]
fn links_that_others_planted_are_not_followed() {
    let bench = Bench::new();
    let commands = commands(&bench);
    let shared = bench.path("shared");
    fs::create_dir(&shared).expect("made");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).expect("changed");
    let secret = bench.path("secret");
    for words in commands {
        fs::write(&secret, "of its owner").expect("written");
        for name in ["result", "result.partial"] {
            let _ = fs::remove_file(shared.join(name));
            symlink(&secret, shared.join(name)).expect("planted");
        }
        bench.ends(0, &words.replace("OUT", "shared/result"));
        let kept = fs::read(&secret).expect("there");
        assert!(kept == b"of its owner", "{words}: {} bytes", kept.len());
        assert!(
            fs::symlink_metadata(shared.join("result"))
                .expect("there")
                .is_file(),
            "{words}"
        );
    }
}

#[test]
fn man_pages_are_not_written_through_a_planted_link() {
    let bench = Bench::new();
    fs::create_dir(bench.path("shared")).expect("made");
    fs::write(bench.path("secret"), "of its owner").expect("written");
    symlink("../secret", bench.path("shared/tidegate.1")).expect("planted");
    bench.ends(0, "man shared");
    assert_eq!(fs::read(bench.path("secret")).expect("there"), b"of its owner");
    let page = fs::symlink_metadata(bench.path("shared/tidegate.1")).expect("there");
    assert!(page.is_file() && page.len() > 100);
}

/// The kind of path that a shell passes for `>(...)`. The crate `outfile` tests `/dev/stdout`.
#[test]
fn a_descriptor_by_its_name_is_written() {
    let bench = Bench::new();
    for words in commands(&bench) {
        let (code, shown, told) = bench.run(&words.replace("OUT", "/dev/fd/1"));
        assert_eq!(code, 0, "{words}: {told}");
        assert!(!shown.is_empty(), "{words}");
    }
}

#[test]
fn a_log_file_is_not_written_through_a_link_of_another_user() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let bench = Bench::new();
    let (secret, link) = (bench.path("secret"), bench.path("log"));
    fs::write(&secret, "of its owner").expect("written");
    fs::create_dir(bench.path("mnt")).expect("made");
    symlink(&secret, &link).expect("planted");
    std::os::unix::fs::lchown(&link, Some(1234), None).expect("root may");
    let (code, _, told) = bench.run("mount --log-file log tree mnt");
    if code == 0 {
        bench.ends(0, "unmount mnt");
    }
    assert_eq!(fs::read_to_string(&secret).expect("there"), "of its owner");
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("another user's symbolic link"), "{told}");
}

/// Starts the program in a folder.
fn start(folder: &Path, words: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words.split(' '))
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Sends SIGINT and waits for the end, at most ten seconds.
fn interrupt(mut child: Child) -> Output {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is ours");
    let sent = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if sent.elapsed() > Duration::from_secs(10) {
            child.kill().expect("it is ours");
            panic!("SIGINT does not end it");
        }
        std::thread::yield_now();
    }
    child.wait_with_output().expect("it has ended")
}

/// Whether a process has a handler for SIGINT.
fn catches_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|bits| u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & 2 != 0))
}

fn wait_until_it_catches_interrupts(child: &mut Child) {
    let started = Instant::now();
    while !catches_interrupts(child.id()) {
        let ended = child.try_wait().expect("it is ours");
        assert!(
            ended.is_none() && started.elapsed() < Duration::from_secs(60),
            "{ended:?}"
        );
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupt_ends_a_command_whose_output_has_no_reader() {
    let bench = Bench::new();
    let trace = include_str!("../../../../trace/formats/tests/traces/blkparse.txt");
    fs::write(bench.path("trace.txt"), trace).expect("made");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, bench.path("fifo"), FileType::Fifo, mode, 0).expect("made");
    let mut child = start(bench.0.path(), "trace convert trace.txt fifo --to jsonl --force");
    wait_until_it_catches_interrupts(&mut child);
    let output = interrupt(child);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("stopped while it waited for a reader"), "{told}");
}

#[test]
fn names_of_255_bytes_are_written() {
    let bench = Bench::new();
    for words in commands(&bench) {
        let name = "o".repeat(255);
        bench.ends(0, &words.replace("OUT", &name));
        assert!(fs::metadata(bench.path(&name)).is_ok_and(|found| found.is_file()));
        fs::remove_file(bench.path(&name)).expect("it is there");
    }
    let trace = include_str!("../../../../trace/formats/tests/traces/blkparse.txt");
    fs::write(bench.path("trace.txt"), trace).expect("made");
    for end in [".jsonl", ".trace"] {
        let name = "o".repeat(255 - end.len()) + end;
        bench.ends(0, &format!("trace convert trace.txt {name}"));
        bench.ends(0, &format!("trace info {name}"));
    }
}

#[test]
fn an_interrupted_extraction_leaves_whole_files_and_no_archive_and_says_so() {
    let bench = Bench::new();
    for number in 0..40_u8 {
        fs::write(bench.path(&format!("tree/{number:02}")), vec![number; 1 << 20]).expect("made");
    }
    bench.ends(0, "ubifs mkfs -r tree -m 2048 -e 126976 -c 2000 -x none volume");
    let mut stopped = 0;
    for turn in 0..20 {
        let mut child = start(bench.0.path(), "ubifs extract volume -o out");
        wait_until_it_catches_interrupts(&mut child);
        // In turns earlier and later.
        let until = Instant::now() + Duration::from_millis(turn);
        while Instant::now() < until {
            std::thread::yield_now();
        }
        let output = interrupt(child);
        let told = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(1) => {
                stopped += 1;
                assert!(
                    told.contains("stopped before its end: out holds whole files"),
                    "{told}"
                );
            }
            code => assert_eq!(code, Some(0), "{told}"),
        }
        let made = fs::read_dir(bench.path("out"))
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("listed").path());
        for path in made {
            let number: u8 = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok())
                .expect("a number");
            assert!(
                fs::read(&path).expect("it is there") == vec![number; 1 << 20],
                "{} is not whole",
                path.display()
            );
        }
        let _not_there = fs::remove_dir_all(bench.path("out"));
        let mut child = start(bench.0.path(), "ubifs extract volume --tar archive");
        wait_until_it_catches_interrupts(&mut child);
        let output = interrupt(child);
        match output.status.code() {
            Some(2) => assert!(!bench.path("archive").exists()),
            code => assert_eq!(code, Some(0), "{output:?}"),
        }
        let left = fs::read_dir(bench.0.path()).expect("listed");
        let left = left.filter(|entry| {
            let name = entry.as_ref().expect("listed").file_name();
            name.to_string_lossy().starts_with(".tidegate-")
        });
        assert_eq!(left.count(), 0);
        let _not_there = fs::remove_file(bench.path("archive"));
    }
    assert!(stopped > 0, "no turn was stopped in time");
}
