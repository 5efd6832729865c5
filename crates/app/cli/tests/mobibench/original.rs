//! Comparison with the original, if the environment names it: `MOBIBENCH_ORIGINAL=/path/to/mobibench`.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use crate::bed::{Bed, Ran};

/// The original; `None`, with a printed reason, if the variable is not set.
fn original() -> Option<OsString> {
    let named = std::env::var_os("MOBIBENCH_ORIGINAL");
    if named.is_none() {
        testkit::report_left_out("MOBIBENCH_ORIGINAL does not name the original");
    }
    named
}

#[test]
fn the_original_visits_the_same_offsets() {
    let Some(original) = original() else { return };
    for overlap in ["0", "10", "50", "90"] {
        for access in ["1", "3"] {
            let bed = Bed::new();
            let words = ["-q", "-f1000", "-a", access, "-v", overlap];
            let Some((_, calls)) = bed.traced("pwrite64,pread64", &words) else {
                return;
            };
            // In our calls the offset is the last argument; calls on records have the length of a record.
            let ours: Vec<String> = calls
                .iter()
                .filter_map(|call| call.split_once(", 4096, ")?.1.split_once(')'))
                .map(|(offset, _)| offset.to_owned())
                .collect();
            let log = bed.path().join("original");
            let output = Command::new("strace")
                .args(["-f", "-qq", "-e", "trace=lseek", "-o"])
                .arg(&log)
                .arg(&original)
                .arg("-p")
                .arg(bed.folder())
                .args(words)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let log = fs::read_to_string(log).unwrap();
            let theirs: Vec<&str> = log
                .lines()
                .filter_map(|line| line.split_once("lseek(")?.1.split_once(", SEEK_SET)"))
                .filter_map(|(arguments, _)| Some(arguments.split_once(", ")?.1))
                .collect();
            assert_eq!(ours.len(), 250, "-a {access} -v {overlap}");
            assert_eq!(ours, theirs, "-a {access} -v {overlap}");
        }
    }
}

#[test]
fn the_original_prints_lines_of_the_same_form() {
    let Some(original) = original() else { return };
    let bed = Bed::new();
    for words in [
        ["-a0", "-f4096", "-r8"].as_slice(),
        &["-a1", "-f4096"],
        &["-a2", "-f4096"],
        &["-a3", "-f4096", "-t1"],
        &["-d0", "-n50"],
    ] {
        let words = [words, &["-q"]].concat();
        let theirs = Ran::of(Command::new(&original).arg("-p").arg(bed.folder()).args(&words));
        let ours = bed.run(&words);
        for start in ["[CPU]", "[TIME]", "[CON SWITCHES]", "Err string", "# of Threads"] {
            assert_eq!(form(ours.line(start)), form(theirs.line(start)), "{words:?}");
        }
    }
}

/// A line with each number replaced by one letter and runs of spaces by one space.
fn form(line: &str) -> String {
    let numbers_gone: String = line
        .replace("-nan", "0")
        .replace("nan", "0")
        .chars()
        .map(|letter| {
            if letter.is_ascii_digit() || letter == '.' {
                '0'
            } else {
                letter
            }
        })
        .collect();
    let mut form = String::new();
    for letter in numbers_gone.chars() {
        if !(form.ends_with(letter) && (letter == '0' || letter == ' ')) {
            form.push(letter);
        }
    }
    form
}
