//! Every option of the original: its effect, its syntax and its default.

use std::fs;
use std::process::{Command, Stdio};

use crate::bed::{Bed, count};

/// Default size of a record, bytes.
const RECORD: u64 = 4096;

#[test]
fn without_options_it_says_how_to_get_help() {
    let bed = Bed::new();
    let ran = bed.run_words(&[]);
    assert_eq!(ran.code, 0);
    assert!(ran.out.contains("mobibench -h"), "{}", ran.out);
    assert!(!bed.path().join("mobibench").exists(), "nothing is made");
}

#[test]
fn help_names_every_option_of_the_original() {
    let bed = Bed::new();
    let ran = bed.run_words(&["-h"]);
    assert_eq!(ran.code, 0);
    for option in "pfraytdnjsigqLkvTDRh".chars() {
        assert!(
            ran.out.contains(&format!("-{option}")),
            "-{option} is missing:\n{}",
            ran.out
        );
    }
}

#[test]
fn a_link_named_mobibench_takes_the_options() {
    let bed = Bed::new();
    let link = bed.path().join("mobibench");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &link).unwrap();
    let folder = bed.folder();
    let output = Command::new(&link)
        .args(["-f", "64", "-q", "-p"])
        .arg(&folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(folder.join("test.dat0")).unwrap().len(), 64 << 10);
}

#[test]
fn nothing_said_writes_one_mebibyte_in_records_of_four_kibibytes() {
    let bed = Bed::new();
    let ran = bed.run(&["-q"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for line in [
        "File size per thread : 1024 KB",
        "IO size : 4 KB",
        "IO count : 256 ",
        "Access Mode 0, Sync Mode 0",
        "# of Threads : 1",
        "Err string : No error",
    ] {
        assert!(
            ran.out.lines().any(|found| found == line),
            "{line} is missing:\n{}",
            ran.out
        );
    }
    assert_eq!(bed.length("test.dat0"), 1 << 20);
    let content = fs::read(bed.folder().join("test.dat0")).unwrap();
    assert!(content.iter().all(|byte| *byte == 0xFE), "the original's content");
}

#[test]
fn the_path_is_mobibench_in_the_working_folder_when_nothing_is_said() {
    let bed = Bed::new();
    let status = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["mobibench", "-f", "4", "-q"])
        .current_dir(bed.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(
        fs::metadata(bed.path().join("mobibench/test.dat0"))
            .unwrap()
            .len(),
        RECORD
    );
}

#[test]
fn values_are_attached_or_apart_letters_are_bundled_and_the_last_wins() {
    let bed = Bed::new();
    for words in [
        ["-qa1", "-f64", "-r8", "-y2"].as_slice(),
        &["-q", "-a", "1", "-f", "64", "-r", "8", "-y", "2"],
        &["-a3", "-f4", "-r4", "-y0", "-f64", "-qr8", "-a1", "-qy2"],
    ] {
        let ran = bed.run(words);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.contains("IO count : 8 \n"), "{words:?}:\n{}", ran.out);
        assert!(
            ran.out.contains("Access Mode 1, Sync Mode 2\n"),
            "{words:?}:\n{}",
            ran.out
        );
    }
}

#[test]
fn words_that_belong_to_no_option_are_left_alone_and_named() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "1", "-f", "4"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("no option takes these words: 1"), "{}", ran.err);
}

#[test]
fn every_access_mode_runs_with_every_sync_mode() {
    let bed = Bed::new();
    for access in 0..=4 {
        for sync in 0..=8 {
            let ran = bed.run(&["-q", "-f64", "-t2", &format!("-a{access}"), &format!("-y{sync}")]);
            let label = format!("-a {access} -y {sync}");
            if ran.direct_io_is_missing() {
                testkit::report_left_out(format!("{label}: no O_DIRECT here"));
                continue;
            }
            assert!(
                ran.out.contains("Err string : No error"),
                "{label}: {}{}",
                ran.out,
                ran.err
            );
            let shows_operations = ran.line("[TIME]").contains("IOPS(4KB)");
            assert_eq!(shows_operations, matches!(access, 1 | 3), "{label}: {}", ran.out);
            assert_eq!(bed.length("test.dat0"), 32 << 10, "{label}");
            assert_eq!(bed.length("test.dat1"), 32 << 10, "{label}");
        }
    }
}

#[test]
fn each_sync_mode_makes_the_calls_of_its_name() {
    let bed = Bed::new();
    // Creates the file, so that the runs below do not have to.
    bed.run(&["-q", "-f64"]);
    let records = 16;
    // The flag of the open or msync call, and the numbers of fsync, fdatasync and msync calls.
    let expected = [
        ("0", "", 1, 0, 0),
        ("1", "O_SYNC", 1, 0, 0),
        ("2", "", records + 1, 0, 0),
        ("3", "O_DIRECT", 1, 0, 0),
        ("4", "O_SYNC|O_DIRECT", 1, 0, 0),
        ("5", "MS_SYNC", 0, 0, 1),
        ("6", "MS_ASYNC", 0, 0, records + 1),
        ("7", "MS_SYNC", 0, 0, records + 1),
        ("8", "", 1, records, 0),
    ];
    for (sync, word, fsyncs, fdatasyncs, msyncs) in expected {
        let Some((ran, calls)) = bed.traced("openat,fsync,fdatasync,msync", &["-q", "-f64", "-y", sync])
        else {
            return;
        };
        if ran.direct_io_is_missing() {
            testkit::report_left_out(format!("-y {sync}: no O_DIRECT here"));
            continue;
        }
        assert_eq!(ran.code, 0, "-y {sync}: {}", ran.err);
        let found = ["fsync(", "fdatasync(", "msync("].map(|name| count(&calls, name));
        assert_eq!(found, [fsyncs, fdatasyncs, msyncs], "-y {sync}: {calls:#?}");
        let says =
            |call: &String| call.contains(word) && (call.contains("test.dat0") || call.starts_with("msync("));
        assert!(
            calls.iter().any(says),
            "-y {sync}: no call says {word}: {calls:#?}"
        );
    }
}

#[test]
fn a_random_test_visits_the_offsets_of_the_original_in_their_order() {
    let bed = Bed::new();
    // Observed in the seeks of the original.
    let order: [u64; 16] = [3, 15, 8, 1, 12, 9, 7, 2, 5, 0, 6, 10, 14, 13, 4, 11];
    for (access, call) in [("1", "pwrite64("), ("3", "pread64(")] {
        bed.run(&["-q", "-f64"]);
        let Some((_, calls)) = bed.traced("pwrite64,pread64", &["-q", "-f64", "-a", access]) else {
            return;
        };
        let offsets: Vec<u64> = calls
            .iter()
            .filter(|line| line.starts_with(call) && line.contains(", 4096, "))
            .map(|line| offset_of(line))
            .collect();
        assert_eq!(
            offsets,
            order.map(|record| record * RECORD),
            "-a {access}: {calls:#?}"
        );
    }
}

/// Extracts the offset from `pwrite64(5, "..."..., 4096, 12288) = 4096`.
fn offset_of(call: &str) -> u64 {
    let inside = call.split(')').next().expect("a call ends");
    let last = inside.rsplit(", ").next().expect("a call has arguments");
    last.parse().unwrap_or_else(|error| panic!("{call}: {error}"))
}

#[test]
fn an_overlap_repeats_its_share_of_the_records() {
    let bed = Bed::new();
    bed.run(&["-q", "-f400"]);
    let Some((_, calls)) = bed.traced("pwrite64", &["-q", "-f400", "-a1", "-v50"]) else {
        return;
    };
    let mut offsets: Vec<u64> = calls
        .iter()
        .filter(|line| line.contains(", 4096, "))
        .map(|line| offset_of(line))
        .collect();
    assert_eq!(offsets.len(), 100);
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), 50);
}

#[test]
fn size_and_transactions_are_divided_by_the_threads() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-f100", "-t3"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out
            .contains("File size per thread : 33 KB\nIO size : 4 KB\nIO count : 8 \n"),
        "{}",
        ran.out
    );
    for name in ["test.dat0", "test.dat1", "test.dat2"] {
        assert_eq!(bed.length(name), 32 << 10, "{name}");
    }
}

#[test]
fn threads_are_moved_into_1_to_100_with_a_message() {
    let bed = Bed::new();
    for (given, taken, size) in [("-7", "1", "4"), ("0", "1", "4"), ("10000000", "100", "400")] {
        let ran = bed.run(&["-q", "-f", size, "-t", given]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(
            ran.out.contains(&format!("# of Threads : {taken}\n")),
            "{}",
            ran.out
        );
        assert!(
            ran.err.contains(&format!("-t {given} is taken as {taken}")),
            "{}",
            ran.err
        );
    }
    assert_eq!(bed.length("test.dat99"), RECORD);
}

#[test]
fn the_last_version_overwrites_and_the_one_of_2013_allocates() {
    use std::os::unix::fs::MetadataExt;
    let bed = Bed::new();
    bed.run(&["-q", "-f64"]);
    let inode = || fs::metadata(bed.file("test.dat0")).unwrap().ino();
    // Held open, so that its inode number is not reused after the removal.
    let held = fs::File::open(bed.file("test.dat0")).unwrap();
    let before = inode();
    let head = bed.run(&["-q", "-f64"]);
    assert_eq!(inode(), before);
    assert!(head.line("[WINDOW]").contains("mobibench-head"), "{}", head.out);
    let paper = bed.run(&["-q", "-f64", "--preset", "mobibench-2013"]);
    assert_ne!(inode(), before, "the file was not made anew");
    assert!(paper.line("[WINDOW]").contains("mobibench-2013"), "{}", paper.out);
    drop(held);
    let by_variable = crate::bed::Ran::of(bed.command().args(["-qf64"]).env("MOBIBENCH_PRESET", "2013"));
    assert!(
        by_variable.line("[WINDOW]").contains("mobibench-2013"),
        "{}",
        by_variable.out
    );
}

#[test]
fn an_append_recreates_its_file() {
    let bed = Bed::new();
    bed.put("test.dat0", &[7; 100_000]);
    let ran = bed.run(&["-q", "-f64", "-a4"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(fs::read(bed.file("test.dat0")).unwrap(), vec![0xFE; 64 << 10]);
}

#[test]
fn a_file_that_is_long_enough_is_used_as_it_is_and_a_short_one_is_extended() {
    let bed = Bed::new();
    bed.put("test.dat0", &[7; 100_000]);
    bed.put("test.dat1", &[8; 1000]);
    let ran = bed.run(&["-q", "-f128", "-t2", "-a2"]);
    assert_ne!(ran.code, 2, "{}", ran.err);
    assert_eq!(fs::read(bed.file("test.dat0")).unwrap(), vec![7; 100_000]);
    let extended = fs::read(bed.file("test.dat1")).unwrap();
    assert_eq!(extended.len(), 64 << 10);
    assert!(
        extended[..1000].iter().all(|byte| *byte == 8),
        "what was there stays"
    );
    assert!(
        extended[1000..].iter().all(|byte| *byte == 0xFE),
        "the original's filling"
    );
}

#[test]
fn the_last_sync_is_in_the_time_or_not_and_the_output_says_which() {
    let bed = Bed::new();
    let inside = bed.run(&["-q", "-f64"]);
    assert!(
        inside.line("[WINDOW]").ends_with("the last sync is inside"),
        "{}",
        inside.out
    );
    let outside = bed.run(&["-q", "-f64", "--final-sync", "outside"]);
    assert!(
        outside.line("[WINDOW]").ends_with("the last sync is outside"),
        "{}",
        outside.out
    );
}

#[test]
fn a_record_in_json_takes_the_place_of_the_lines() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-f64", "-a1", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let record: serde_json::Value = serde_json::from_str(&ran.out).expect("one record");
    assert_eq!(record["samples"][0]["bytes"], 64 << 10);
    assert_eq!(record["workload"]["order"], "mobibench");
}

#[test]
fn the_latency_of_each_operation_is_appended_to_its_file() {
    let bed = Bed::new();
    let path = bed.path().join("latency");
    let file = path.to_str().unwrap();
    // Includes a mapping, which the original does not support here.
    for words in [["-y2", "-t2"], ["-y5", "-t1"]] {
        let ran = bed.run(&[&["-q", "-f64", "-L", file], words.as_slice()].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let text = fs::read_to_string(&path).unwrap();
    let latencies: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_suffix("\tusec"))
        .map(|number| number.parse().unwrap())
        .collect();
    assert_eq!(latencies.len(), 32, "16 records of each run: {text}");
    assert!(latencies.iter().all(|latency| *latency > 0.0), "{text}");
    assert_eq!(
        text.matches("#In 0 IO mode and 2 sync mode\n").count(),
        2,
        "one for each thread"
    );
    assert_eq!(text.matches("#In 0 IO mode and 5 sync mode\n").count(), 1);
    assert_eq!(text.matches("[TIME] :").count(), 2);
}

#[test]
fn the_operations_of_each_second_are_appended_to_their_file() {
    let bed = Bed::new();
    let path = bed.path().join("seconds");
    let ran = bed.run(&["-q", "-f64", "-a1", "-k", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("\n#In 1 IO mode and 0 sync mode\n"), "{text}");
    assert!(text.ends_with(" s: 16 operations\n"), "{text}");
}

#[test]
fn a_file_for_latencies_that_can_not_be_opened_is_an_error_before_the_run() {
    let bed = Bed::new();
    for option in ["-L", "-k"] {
        let ran = bed.run(&["-q", "-f64", option, "no/such/file"]);
        assert!(ran.refusal().contains("no/such/file"), "{}", ran.out);
        assert!(!bed.folder().exists());
    }
}
