//! The judge of the tracer: hostile programs use a file system or a device while it is traced, and each writes down itself
//! what it did. See [`programs`], [`ledger`] and [`judge`].
//!
//! Without arguments: every case in a full run (TIDEGATE_FULL), some of them in a short one; words select cases by name.
//! `program NAME FOLDER LEDGER SCALE [BIND]` is one of the programs. Full runs repeat each program's actions many times and run each alone, too.

#[path = "../ground_truth/disk.rs"]
mod disk;
mod judge;
mod ledger;
mod machine;
mod programs;

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use results::block_trace::{Event, Request};
use trace::block::{
    CaptureError, CaptureSpec, Captured, DEFAULT_RING_BYTES, ItemOrder, Method, Sink, Target, capture,
};

use crate::disk::FileSystem;
use crate::judge::{Setting, Verdict, judge};
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::programs::PROGRAMS;

/// Result of a step: an error is a sentence for the reader of the test's output.
pub type Outcome<T> = Result<T, String>;

/// Formats the error of a step.
pub fn failed(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// File systems of this machine that all programs use.
const FILE_SYSTEMS: [&str; 4] = ["ext4", "ext4_data_journal", "xfs", "btrfs"];
/// Places of the queue of the devices.
const QUEUE: u32 = 4;
/// Ring that is full after some hundred records.
const SMALL_RING: u64 = 64 << 10;
/// Factor of the programs' actions in full runs.
const FULL_SCALE: u64 = 6;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["program", rest @ ..] => programs::run(rest),
        ["all", ledger, scale, losing, folders @ ..] => {
            machine::run_all(ledger, scale, *losing == "losing", folders)
        }
        _ => all(&words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            say(&format!("FAILED: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line.
pub fn say(text: &str) {
    let _ = writeln!(stdout(), "{text}");
}

/// One traced run.
struct Case {
    name: String,
    file_systems: Vec<&'static str>,
    /// A device without a file system beside them.
    with_device: bool,
    programs: Vec<&'static str>,
    /// The ring is small, and the tracer is stopped from time to time.
    is_losing: bool,
}

impl Case {
    /// Part of a short run.
    fn is_short(&self) -> bool {
        ["device", "two_of_equal_paths", "ext4", "xfs"].contains(&self.name.as_str())
    }
}

fn cases() -> Vec<Case> {
    let every: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
    let case = |name: &str, file_systems: &[&'static str], programs: &[&'static str]| Case {
        name: name.to_owned(),
        file_systems: file_systems.to_vec(),
        with_device: false,
        programs: programs.to_vec(),
        is_losing: false,
    };
    let mut cases = vec![
        Case {
            with_device: true,
            ..case("device", &[], &["raw_nowait", "raw_shared"])
        },
        case(
            "two_of_equal_paths",
            &["ext4", "xfs"],
            &["buffered", "direct", "renamed"],
        ),
        Case {
            is_losing: true,
            ..case(
                "losing",
                &["ext4"],
                &[
                    "buffered",
                    "inherited",
                    "direct",
                    "aio",
                    "uring",
                    "linked",
                    "reused",
                ],
            )
        },
    ];
    cases.extend(FILE_SYSTEMS.map(|name| case(name, &[name], &every)));
    if testkit::is_full() {
        for file_system in FILE_SYSTEMS {
            let alone = |program: &&'static str| {
                case(&format!("{file_system}_{program}"), &[file_system], &[program])
            };
            cases.extend(every.iter().map(alone));
        }
    }
    cases
}

/// Runs every case, or those whose name contains a word of the command line.
fn all(words: &[&str]) -> Outcome<()> {
    if words.contains(&"--list") {
        return Ok(());
    }
    let filters: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let mut failures = Vec::new();
    let (mut requests, mut wrong) = (0, 0);
    for case in cases() {
        if !filters.is_empty() && !filters.iter().any(|filter| case.name.contains(**filter)) {
            continue;
        }
        if filters.is_empty()
            && !case.is_short()
            && testkit::left_to_full("its programs take 20 s a file system")
        {
            continue;
        }
        match run(&case) {
            Ok(None) => {}
            Ok(Some(verdict)) => {
                requests += verdict.requests;
                wrong += verdict.misattributed + verdict.invented + verdict.missing;
                match verdict.outcome() {
                    Ok(told) => say(&format!("{}: ok, {told}", case.name)),
                    Err(reason) => failures.push(format!("{}: {reason}", case.name)),
                }
            }
            Err(reason) => failures.push(format!("{}: {reason}", case.name)),
        }
    }
    say(&format!("{requests} requests compared, {wrong} wrong"));
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

/// `None`: left out, and the reason is printed.
fn run(case: &Case) -> Outcome<Option<Verdict>> {
    let scale = if testkit::is_full() { FULL_SCALE } else { 1 };
    let known = |name: &&'static str| {
        let mut readable = disk::FILE_SYSTEMS.iter().filter(|one| !one.is_encrypted);
        readable.find(|one| one.name == *name)
    };
    let file_systems: Vec<&FileSystem> = case.file_systems.iter().filter_map(known).collect();
    let machine = match Machine::make(&file_systems, case.with_device, QUEUE) {
        Ok(machine) => machine,
        Err(reason) => {
            testkit::report_left_out(format!("{}: {reason}", case.name));
            return Ok(None);
        }
    };
    let ledger = disk::ledger("hostile")?;
    let mut command: Vec<OsString> = vec![
        std::env::current_exe()
            .map_err(|error| failed("this program's path", error))?
            .into(),
        "all".into(),
        ledger.path().into(),
        scale.to_string().into(),
        if case.is_losing { "losing" } else { "-" }.into(),
    ];
    command.extend(machine.arguments(&case.programs));
    let Some((trace, captured)) = traced(
        &machine,
        command,
        if case.is_losing {
            SMALL_RING
        } else {
            DEFAULT_RING_BYTES
        },
    )?
    else {
        return Ok(None);
    };
    let lost = captured.header.lost_records;
    let is_partial = case.is_losing;
    if is_partial != (lost > 0) {
        return Err(format!("{lost} records were lost"));
    }
    if is_partial {
        say(&format!("{}: {lost} records were lost", case.name));
    }
    let start = captured
        .header
        .start_realtime_ns
        .ok_or("the trace has no start")?;
    let setting = Setting {
        start,
        has_generations: file_systems.iter().all(|one| one.has_generations),
        has_direct: !case
            .file_systems
            .iter()
            .any(|name| ["ext4_data_journal", "btrfs"].contains(name)),
        is_partial,
    };
    let ledger = Ledger::read(ledger.path())?;
    let verdict = judge(&trace.requests, &trace.events, &ledger, setting);
    if case.programs.iter().any(|program| program.ends_with("nowait")) {
        say(&format!(
            "{}: {} were refused",
            case.name, captured.header.refused
        ));
    }
    Ok(Some(verdict))
}

/// Runs a command under the tracer. `None` if tracing is forbidden, which is printed.
fn traced(
    machine: &Machine,
    command: Vec<OsString>,
    ring_bytes: u64,
) -> Outcome<Option<(InMemory, Captured)>> {
    let spec = CaptureSpec {
        targets: machine
            .devices()
            .map(|device| Target::Device(PathBuf::from(device)))
            .collect(),
        method: Method::Bpf,
        ring_bytes,
        count_calls: false,
        driver_commands: true,
        command,
        duration: None,
        sync_at_end: true,
        order: ItemOrder::ByTime,
        host: None,
        source: "hostile programs".to_owned(),
    };
    let mut trace = InMemory::default();
    match capture(&spec, &AtomicBool::new(false), &mut trace) {
        Ok(captured) if captured.command_status.is_some_and(|status| status.success()) => {
            Ok(Some((trace, captured)))
        }
        Ok(captured) => Err(format!("the programs failed: {:?}", captured.command_status)),
        Err(CaptureError::Forbidden { reason }) => {
            testkit::report_left_out(reason);
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A trace kept in memory.
#[derive(Debug, Default)]
struct InMemory {
    requests: Vec<Request>,
    events: Vec<Event>,
}

impl Sink for InMemory {
    fn request(&mut self, request: &Request) -> std::io::Result<()> {
        self.requests.push(request.clone());
        Ok(())
    }

    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        self.events.push(event.clone());
        Ok(())
    }
}
