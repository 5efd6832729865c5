//! The judge of the tracer: hostile programs use a file system or a device while it is traced, and each writes down itself
//! what it did. See [`programs`], [`ledger`] and [`judge`].
//!
//! Without arguments: every case in a full run (TIDEGATE_FULL), some of them in a short one; words select cases by name.
//! `program NAME FOLDER LEDGER SCALE [BIND]` is one of the programs, `here FOLDER DEVICE SCALE` runs all of them on a
//! mounted file system (in the lab guest). Full runs repeat each program's actions many times and run each alone, too.

#[path = "../ground_truth/disk.rs"]
mod disk;
mod guest;
mod judge;
mod ledger;
mod lies;
mod machine;
mod programs;
#[path = "../ground_truth/recorded.rs"]
mod recorded;
mod storm;

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use trace::block::{DEFAULT_RING_BYTES, Target};

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
        ["executed", path, ledger, name] => programs::executed_second(path, ledger, name),
        ["storm", number, folder] => storm::rename(number, folder),
        ["here", folder, device, scale] => guest::here(folder, device, scale),
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
    /// Its trace is falsified, to judge the judge. It is a short one, as it is judged for each lie.
    fn is_falsified(&self) -> bool {
        self.name == "two_of_equal_paths"
    }

    /// Part of a short run.
    fn is_short(&self) -> bool {
        ["device", "two_of_equal_paths", "ext4", "xfs", "btrfs"].contains(&self.name.as_str())
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
    if filters.is_empty() || filters.iter().any(|filter| "storm".contains(**filter)) {
        let ext4 = disk::FILE_SYSTEMS.first().ok_or("no file system")?;
        match storm::run(ext4) {
            Ok(None) => {}
            Ok(Some(told)) => say(&format!("storm: ok, {told}")),
            Err(reason) => failures.push(format!("storm: {reason}")),
        }
    }
    for kind in guest::FILE_SYSTEMS {
        let name = format!("guest_{kind}");
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(**filter)) {
            continue;
        }
        if filters.is_empty() && testkit::left_to_full("the emulated guest takes minutes for its programs") {
            continue;
        }
        match guest::run(kind) {
            Ok(None) => {}
            Ok(Some((count, told))) => {
                requests += count;
                say(&format!("{name}: ok, {told}"));
            }
            Err(reason) => failures.push(format!("{name}: {reason}")),
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
    let means = Means {
        scale: if testkit::is_full() { FULL_SCALE } else { 1 },
        has_generations: file_systems.iter().all(|one| one.has_generations),
        has_direct: !case
            .file_systems
            .iter()
            .any(|name| ["ext4_data_journal", "btrfs"].contains(name)),
        may_be_unknown: match case.file_systems.last() {
            Some(&"btrfs") => ON_BTRFS,
            Some(&"xfs" | &"ext4" | &"ext4_data_journal") => WITH_FAILED,
            _ => MAPPED,
        },
    };
    run_on(&machine, case, means)
}

/// Circumstances of a run.
#[derive(Clone, Copy, Debug)]
struct Means {
    /// Factor of the programs' actions.
    scale: u64,
    has_generations: bool,
    has_direct: bool,
    /// Programs whose pages may have no sure writer.
    may_be_unknown: &'static [&'static str],
}

/// Stores to pages that several processes have mapped, or where others' data waited; pages that are made dirty without a store.
const MAPPED: &[&str] = &["mapped", "truncated", "stored", "populated"];
/// XFS tells of a call before it copies, and not that it fails. ext4 writes all of a large folio of which a call copied a
/// part, and tells only of that part.
const WITH_FAILED: &[&str] = &["mapped", "truncated", "stored", "populated", "failed"];
/// btrfs tells of ranges that get data to be written, and not whether a call or a fault of memory gave it, nor of failures.
const ON_BTRFS: &[&str] = &["mapped", "truncated", "stored", "populated", "failed", "extended"];

/// Runs the programs of a case on these devices, and judges their trace.
fn run_on(machine: &Machine, case: &Case, means: Means) -> Outcome<Option<Verdict>> {
    let ledger = disk::ledger("hostile")?;
    let mut command: Vec<OsString> = vec![
        std::env::current_exe()
            .map_err(|error| failed("this program's path", error))?
            .into(),
        "all".into(),
        ledger.path().into(),
        means.scale.to_string().into(),
        if case.is_losing { "losing" } else { "-" }.into(),
    ];
    command.extend(machine.arguments(&case.programs));
    let devices = machine.devices();
    let targets = devices
        .map(|device| Target::Device(PathBuf::from(device)))
        .collect();
    let ring_bytes = if case.is_losing {
        SMALL_RING
    } else {
        DEFAULT_RING_BYTES
    };
    let spec = recorded::spec(targets, command, ring_bytes, "hostile programs");
    let Some((trace, captured)) = recorded::record(&spec)? else {
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
        has_generations: means.has_generations,
        has_direct: means.has_direct,
        is_partial,
    };
    let ledger = Ledger::read(ledger.path())?;
    let mut verdict = judge(&trace.requests, &trace.events, &ledger, setting);
    if !is_partial {
        verdict.limit_unknown(means.may_be_unknown);
    }
    if case.is_falsified() && verdict.outcome().is_ok() {
        let may_be_unknown = means.may_be_unknown;
        let told = lies::all_are_found((&trace.requests, &trace.events), &ledger, setting, may_be_unknown)?;
        say(&format!("{}: the judge finds each of {told} lies", case.name));
    }
    if case.programs.iter().any(|program| program.ends_with("nowait")) {
        say(&format!(
            "{}: {} were refused",
            case.name, captured.header.refused
        ));
    }
    Ok(Some(verdict))
}
