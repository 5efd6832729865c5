//! `-g`: MobiGen scripts.

use std::fs;
use std::path::PathBuf;

use crate::bed::{Bed, number_after};

/// Two threads for 30 ms: a new file written and read again, an existing file, a pipe, errors.
const SCRIPT: &str = "\
0 0 open \"/data/data/app/db\" O_RDWR|O_CREAT 5
0 1000 pwrite 5 4096 4096
0 2000 fsync 5 0
0 3000 pread 5 4096 4096
0 4000 read 5 -1
0 5000 close 5 0
0 6000 stat \"/system/lib/libc.so\" 0
0 7000 unlink \"/data/data/app/db\" 0
1 10000 open \"/system/lib/libc.so\" O_RDONLY 7
1 11000 read 7 1024
1 12000 close 7 0
1 13000 open /data/data O_RDWR 9
1 14000 write 9 8
1 30000 write 9 8
";

fn script(bed: &Bed, text: &str) -> String {
    let path: PathBuf = bed.path().join("script");
    fs::write(&path, text).expect("the script");
    fs::create_dir_all(bed.folder()).expect("the folder");
    path.into_os_string().into_string().expect("UTF-8")
}

#[test]
fn a_script_is_replayed_at_its_times_with_its_bytes() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-g", &script(&bed, SCRIPT)]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(
        ran.line("Total Write"),
        "Total Write: 4096 bytes, Read: 5120 bytes"
    );
    assert_eq!(ran.line("Total IO count"), "Total IO count : 10 ");
    assert!(
        number_after(ran.line("Total IO time"), "sec (") > 0.0,
        "{}",
        ran.out
    );
    assert_eq!(ran.error(), "No error");
}

#[test]
fn calls_of_a_script_that_a_replay_lacks_are_counted() {
    let bed = Bed::new();
    let ran = bed.run(&["-q", "-g", &script(&bed, SCRIPT)]);
    let left_out: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("[LEFT OUT]"))
        .collect();
    assert!(
        left_out
            .iter()
            .any(|line| line.starts_with("[LEFT OUT] : 1 read or write that had failed")),
        "{left_out:?}"
    );
    assert!(
        left_out
            .iter()
            .any(|line| line.starts_with("[LEFT OUT] : 3 pipe, socket")),
        "{left_out:?}"
    );
}

#[test]
fn a_replay_leaves_nothing_in_its_folder() {
    let bed = Bed::new();
    bed.run(&["-q", "-g", &script(&bed, SCRIPT)]);
    assert_eq!(fs::read_dir(bed.folder()).unwrap().count(), 0);
}

#[test]
fn a_replay_works_in_a_folder_that_exists() {
    let bed = Bed::new();
    let path = script(&bed, SCRIPT);
    fs::remove_dir(bed.folder()).unwrap();
    let ran = bed.run(&["-q", "-g", &path]);
    assert!(ran.refusal().contains("is no folder"), "{}", ran.out);
}

#[test]
fn a_broken_script_is_named_with_its_line() {
    let bed = Bed::new();
    let ran = bed.run(&[
        "-q",
        "-g",
        &script(&bed, "0 0 open \"/a\" O_RDWR 5\n0 x close 5 0\n"),
    ]);
    assert!(ran.refusal().contains("line 2"), "{}", ran.out);
    let ran = bed.run(&["-q", "-g", "no/such/script"]);
    assert!(ran.refusal().contains("no/such/script"), "{}", ran.out);
}

#[test]
fn a_waiting_replay_leaves_the_processor_alone() {
    let bed = Bed::new();
    let text = "0 0 open \"/a\" O_RDWR|O_CREAT 5\n0 400000 close 5 0\n";
    let ran = bed.run(&["-q", "--json", "-g", &script(&bed, text)]);
    let record: serde_json::Value = serde_json::from_str(&ran.out).expect("one record");
    let busy_ns = record["counters"]["worker_cpu_ns"]
        .as_f64()
        .expect("processor time");
    assert!(busy_ns < 200e6, "{busy_ns} ns of processor in 0.4 s of waiting");
}
