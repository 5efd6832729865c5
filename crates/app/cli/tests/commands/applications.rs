//! Checks the system calls of applications, as strace sees them, against the counts stated by their sources.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use bench::app::{Application, Scale, Statistic, Statistics, application};
use results::call_trace::{Action, Handle, Layer, Trace};

const SEED: u64 = 5;

/// Runs the application under strace and returns its reads, writes and syncs without those of the preparation; `None` if
/// strace is missing or may not trace.
fn arrived(application: &Application, scale: &str, directory: &Path) -> Option<Trace> {
    let log = directory.join("strace");
    let traced = Command::new("strace")
        .args([
            "-f",
            "-s",
            "0",
            "-e",
            "trace=openat,pread64,pwrite64,read,write,fsync,fdatasync",
            "-o",
        ])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", "app", application.name])
        .arg(directory)
        .args(["--scale", scale, "--seed", &SEED.to_string(), "--json"])
        .output()
        .ok()?;
    let lines = std::fs::read_to_string(&log).ok()?;
    let messages = String::from_utf8_lossy(&traced.stderr);
    assert!(
        lines.contains("+++ exited with 0 +++"),
        "{}: {messages}",
        application.name
    );
    let main = lines
        .split_whitespace()
        .next()
        .expect("strace begins with a number");
    let mut found = Found {
        trace: Trace::new(Layer::SystemCalls, "strace"),
        open: HashMap::new(),
    };
    for line in lines.lines() {
        // The replay thread makes the calls of the window; the main thread makes all others.
        match line.split_once(' ') {
            Some((thread, call)) if thread != main => found.take(call.trim()),
            _ => {}
        }
    }
    Some(found.trace)
}

struct Found {
    trace: Trace,
    open: HashMap<String, Handle>,
}

impl Found {
    fn take(&mut self, line: &str) {
        let Some((call, answer)) = line.rsplit_once(" = ") else {
            return;
        };
        let Some((name, arguments)) = call.trim().trim_end_matches(')').split_once('(') else {
            return;
        };
        if name == "openat" {
            let handle = self.trace.new_handle();
            self.open.insert(answer.to_owned(), handle);
            return;
        }
        let descriptor = arguments.split(',').next().unwrap_or_default().to_owned();
        let handle = *self
            .open
            .entry(descriptor)
            .or_insert_with(|| self.trace.new_handle());
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let offset = arguments.rsplit(',').next().and_then(number);
        let action = match (name, number(answer), offset) {
            ("pread64", Some(bytes), Some(offset)) => Action::ReadAt {
                handle,
                bytes,
                offset,
            },
            ("pwrite64", Some(bytes), Some(offset)) => Action::WriteAt {
                handle,
                bytes,
                offset,
            },
            ("fsync" | "fdatasync", Some(0), _) => Action::Fsync { handle },
            _ => return,
        };
        self.trace.push(0, 0, action);
    }
}

#[test]
fn the_file_system_gets_the_requests_that_the_sources_state() {
    let parent = tempfile::tempdir().expect("a folder");
    let cases = [
        ("camera", "0.5"),
        ("gallery", "0.5"),
        ("data-partition", "0.1"),
        ("google-drive", "0.02"),
        ("movie", "0.05"),
        ("camera-video", "0.1"),
        ("web-browsing", "0.01"),
    ];
    for (name, scale_text) in cases {
        let application = application(name).expect(name);
        let Some(trace) = arrived(application, scale_text, parent.path()) else {
            testkit::report_left_out("strace is not installed or may not trace");
            return;
        };
        let measured = Statistics::of(&trace);
        let factor: f64 = scale_text.parse().expect("a number");
        let requests = factor * results::nearest_f64(application.requests());
        let found = results::nearest_f64(measured.requests());
        assert!(
            (found - requests).abs() <= 6.0,
            "{name}: {found} requests arrived, expected {requests}"
        );
        let places = scale_text.trim_start_matches("0.");
        let scale = Scale {
            ppm: format!("{places:0<6}").parse().expect("six digits"),
        };
        for checked in application.check(&measured, scale) {
            let is_of_time = matches!(
                checked.claim.statistic,
                Statistic::DurationSeconds | Statistic::MeanGapMilliseconds
            );
            assert!(checked.agrees || is_of_time, "{name}: {checked:?}");
        }
    }
}

#[test]
fn the_list_names_both_layers_and_a_description_labels_every_parameter() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["bench", "app"])
            .args(arguments)
            .output()
            .expect("it starts");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (code, list) = run(&["--list"]);
    assert_eq!(code, Some(0));
    assert!(
        list.contains("system-calls") && list.contains("block") && list.contains("angry-bird"),
        "{list}"
    );
    let (code, text) = run(&["--describe", "camcorder"]);
    assert_eq!(code, Some(0));
    for word in [
        "layer: block",
        "[published]",
        "[derived]",
        "[assumed]",
        "section 3.1",
    ] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert_eq!(run(&["solitaire", "/tmp"]).0, Some(2));
    assert_eq!(run(&[]).0, Some(2));
}
