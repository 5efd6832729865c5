//! The original's defects, each shown to be absent here.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::bed::{Bed, Ran, number_after};

/// A byte that the program never writes.
const FOREIGN: u8 = 7;

#[test]
fn each_thread_has_its_own_mapping() {
    let bed = Bed::new();
    for sync in ["5", "6", "7"] {
        for number in 0..4 {
            bed.put(&format!("test.dat{number}"), &[FOREIGN; 256 << 10]);
        }
        let ran = bed.run(&["-q", "-f1024", "-t4", "-y", sync]);
        assert_eq!(ran.code, 0, "-y {sync}: {}", ran.err);
        for number in 0..4 {
            let content = fs::read(bed.file(&format!("test.dat{number}"))).unwrap();
            assert!(
                content.iter().all(|byte| *byte == 0xFE),
                "-y {sync}: test.dat{number} was not written"
            );
        }
    }
}

#[test]
fn threads_that_finish_early_leave_the_mappings_of_the_others() {
    let bed = Bed::new();
    for access in ["1", "3"] {
        for _ in 0..5 {
            let ran = bed.run(&["-q", "-f4096", "-t8", "-y7", "-a", access]);
            assert!(
                ran.code == 0 || ran.code == 1,
                "-a {access}: {} {}",
                ran.code,
                ran.err
            );
        }
    }
}

#[test]
fn a_dirty_file_is_written_out_before_the_cache_is_dropped() {
    let bed = Bed::new();
    if is_in_memory(bed.path()) {
        testkit::report_left_out("the build is on a file system in memory, which is never cold");
        return;
    }
    // Longer than the test reads, so that the program keeps the file, whose pages are dirty.
    bed.put("test.dat0", &[FOREIGN; 4 << 20]);
    let ran = bed.run(&["-q", "-f4096", "-a3", "--cache", "cold"]);
    assert!(
        ran.line("[CACHE]").contains("; 0 of 4194304 bytes in memory"),
        "{}",
        ran.out
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn reads_that_can_not_be_cold_are_named_and_make_exit_code_1() {
    let Some(bed) = Bed::in_memory() else { return };
    let ran = bed.run(&["-q", "-f1024", "-a2", "--cache", "cold"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("the reads were not cold"), "{}", ran.err);
    assert!(
        ran.line("[CACHE]").contains("1048576 of 1048576 bytes in memory"),
        "{}",
        ran.out
    );
}

#[test]
fn an_ordinary_user_is_told_what_was_done_to_the_cache_and_what_was_left() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let bed = Bed::new();
    let nobody = 65_534;
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(bed.path(), open_to_all).unwrap();
    let reached = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("--version")
        .current_dir(bed.path())
        .uid(nobody)
        .stdout(Stdio::null())
        .status();
    if !reached.is_ok_and(|status| status.success()) || is_in_memory(bed.path()) {
        testkit::report_left_out("another user can't reach the build, or it is in memory");
        return;
    }
    let ran = Ran::of(
        bed.command()
            .args(["-q", "-f1024", "-a2", "--cache", "cold"])
            .uid(nobody),
    );
    let cache = ran.line("[CACHE]");
    assert!(
        cache.contains("not root") && cache.contains("; 0 of 1048576 bytes"),
        "{cache}"
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn a_path_that_begins_with_dev_is_a_folder_when_it_is_one() {
    let Some(bed) = Bed::in_memory() else { return };
    assert!(bed.folder().starts_with("/dev"));
    let ran = bed.run(&["-q", "-f64"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(bed.length("test.dat0"), 64 << 10);
}

#[test]
fn a_block_device_is_refused_before_it_is_opened() {
    let bed = Bed::new();
    let device = fs::read_dir("/dev")
        .unwrap()
        .filter_map(Result::ok)
        .find(|entry| {
            let kind = entry.metadata().map(|found| found.file_type());
            kind.is_ok_and(|kind| std::os::unix::fs::FileTypeExt::is_block_device(&kind))
        });
    let Some(device) = device else {
        testkit::report_left_out("no block device in /dev");
        return;
    };
    let ran = bed.run_words(&["-q", "-p", device.path().to_str().unwrap()]);
    assert!(ran.refusal().contains("is a block device"), "{}", ran.out);
}

#[test]
fn rates_count_the_bytes_that_were_moved() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-f1000", "-r512", "-y2"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let time = ran.line("[TIME]");
    let elapsed = number_after(time, "[TIME] :") + number_after(time, " sec ") / 1e6;
    let bytes = number_after(time, "us. ") * elapsed;
    assert!(
        (bytes / f64::from(512 << 10) - 1.0).abs() < 0.02,
        "{bytes} bytes: {time}"
    );
}

#[test]
fn a_file_smaller_than_a_record_is_refused() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-f300", "-r512"]);
    assert!(
        ran.refusal()
            .contains("leaves 300 KiB for each file, less than one record of 512 KiB"),
        "{}",
        ran.out
    );
    assert!(!bed.folder().exists(), "the folder was made all the same");
}

#[test]
fn an_overlap_without_records_to_repeat_is_refused() {
    let bed = Bed::new();
    for percent in ["100", "150", "-1"] {
        let ran = bed.run(&["-q", "-f64", "-a1", "-v", percent]);
        assert!(ran.refusal().contains("expected 0 to 99"), "{}", ran.out);
    }
    assert_eq!(bed.run(&["-q", "-f64", "-a1", "-v99"]).code, 0);
}

#[test]
fn numbers_without_meaning_are_refused() {
    let bed = Bed::new();
    for words in [
        ["-a", "5"],
        ["-a", "-1"],
        ["-y", "11"],
        ["-f", "0"],
        ["-r", "0"],
        ["-r", "-4"],
    ] {
        let ran = bed.run(&words);
        assert!(ran.refusal().starts_with(words[0]), "{}", ran.out);
    }
}

#[test]
fn a_barrier_that_the_kernel_does_not_know_fails() {
    let bed = Bed::new();
    for (sync, call) in [("9", "fbarrier"), ("10", "fdatabarrier")] {
        let ran = bed.run(&["-q", "-f64", "-y", sync]);
        assert!(ran.refusal().starts_with(call), "{}", ran.out);
    }
}

#[test]
fn a_file_that_can_not_be_used_is_an_error_and_not_a_guess() {
    let bed = Bed::new();
    fs::create_dir_all(bed.file("test.dat0")).unwrap();
    let ran = bed.run(&["-q", "-f64"]);
    assert!(ran.refusal().contains("test.dat0"), "{}", ran.out);
}

#[test]
fn a_folder_whose_parent_is_missing_is_an_error() {
    let bed = Bed::new();
    let ran = bed.run_words(&["-q", "-p", "no/such/folder"]);
    assert!(ran.refusal().contains("no/such/folder"), "{}", ran.out);
}

#[test]
fn an_error_while_writing_ends_the_run_and_takes_its_files_away() {
    let bed = Bed::new();
    // Limits files to 512 blocks of 512 bytes and ignores the signal, so that writes fail.
    let script = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
    for words in [["-a", "4"], ["-a", "0"], ["-a", "3"]] {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                script,
                "sh",
                env!("CARGO_BIN_EXE_tidegate"),
                "mobibench",
                "-q",
                "-f4096",
                "-t2",
                "-p",
            ])
            .arg(bed.folder())
            .args(words);
        let ran = Ran::of(&mut command);
        assert!(ran.refusal().contains("File too large"), "{words:?}: {}", ran.out);
        assert!(!bed.folder().exists(), "{words:?}: something was left behind");
    }
}

#[test]
fn a_full_file_system_is_refused_before_anything_is_written() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-f", "1000000000000"]);
    assert!(ran.refusal().contains("bytes are free"), "{}", ran.out);
    assert!(!bed.folder().exists(), "something was left behind");
}

#[test]
fn a_run_that_is_stopped_leaves_partial_numbers_that_say_so() {
    let bed = Bed::new();
    let mut command = bed.command();
    command
        .args(["-q", "-f", "400000", "-y2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The preparation ends when the file has its full length; the window follows.
    while fs::metadata(bed.file("test.dat0")).map_or(0, |found| found.len()) < 400_000 << 10 {
        std::thread::yield_now();
    }
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.error().contains("partial"), "{}", ran.out);
}

#[test]
fn no_time_of_a_run_comes_from_the_clock_on_the_wall() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../load/bench/src");
    let mut found = Vec::new();
    let mut folders = vec![sources];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let source = fs::read_to_string(&path).unwrap();
                let lines = source.lines().filter(|line| line.contains("SystemTime::now"));
                found.extend(lines.map(str::to_owned));
            }
        }
    }
    let message = "the wall clock belongs into the stamp of a record and nowhere else";
    assert_eq!(found.len(), 1, "{message}: {found:#?}");
    assert!(found[0].contains("UNIX_EPOCH"), "{message}: {found:#?}");
}

/// Returns true if files in this folder exist only in memory.
fn is_in_memory(folder: &Path) -> bool {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    let kind = rustix::fs::statfs(folder).expect("the folder is there").f_type;
    u64::try_from(kind).is_ok_and(|kind| kind == TMPFS_MAGIC)
}
