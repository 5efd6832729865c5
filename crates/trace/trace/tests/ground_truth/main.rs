//! Checks the attribution of every block: processes with known actions write to a file system whose device is traced;
//! then the device itself is read, and the content of each sector identifies its owner. See [`load`] and [`check`].
//!
//! Without arguments: every file system that this machine can make, on a loop device in memory, and those of the lab
//! guest. `here FOLDER DEVICE` checks a mounted one (in the guest), `commands FOLDER` the commands of a card's driver.
//! `load` and `worker` are the processes that write.

mod check;
mod commands;
mod disk;
mod guest;
mod life;
mod load;
mod recorded;
mod sqlite;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use trace::block::{CaptureSpec, Captured, DEFAULT_RING_BYTES, Target};

use crate::disk::{Disk, FileSystem};
use crate::recorded::InMemory;

/// Result of a step: an error is a sentence for the reader of the test's output.
pub type Outcome<T> = Result<T, String>;

/// Formats the error of a step.
pub fn failed(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["load", folder, ledger, journals] => load::run(Path::new(folder), Path::new(ledger))
            .and_then(|()| sqlite::work(Path::new(folder), Path::new(journals))),
        ["worker", number, folder, ledger] => load::work(number, Path::new(folder), Path::new(ledger)),
        ["commands", folder] => commands::here(Path::new(folder)),
        ["here", folder, device] => here(Path::new(folder), Path::new(device)),
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

fn say(text: &str) {
    let _ = writeln!(stdout(), "{text}");
}

/// Runs every case, or those whose name contains a word of the command line.
fn all(words: &[&str]) -> Outcome<()> {
    if words.contains(&"--list") {
        return Ok(());
    }
    let filters: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let mut failures = Vec::new();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(**filter));
    let mut tell = |name: &'static str, outcome: Outcome<Option<String>>| match outcome {
        Ok(Some(report)) => say(&format!("{name}: ok, {report}")),
        Ok(None) => {}
        Err(reason) => {
            say(&format!("{name}: FAILED"));
            failures.push(format!("{name}: {reason}"));
        }
    };
    for file_system in disk::FILE_SYSTEMS.iter().filter(|one| wanted(one.name)) {
        tell(file_system.name, case(file_system));
    }
    for case in guest::cases().iter().filter(|one| wanted(one.name)) {
        tell(case.name, case.run());
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n"))
    }
}

/// `None`: left out, and the reason is printed.
fn case(file_system: &FileSystem) -> Outcome<Option<String>> {
    let disk = match Disk::make(file_system) {
        Ok(disk) => disk,
        Err(reason) => {
            testkit::report_left_out(format!("{}: {reason}", file_system.name));
            return Ok(None);
        }
    };
    let image = disk.device.folder.path().join(disk::IMAGE);
    let raw = (!file_system.is_encrypted).then_some(image.as_path());
    judge(&disk.mountpoint, raw, file_system.has_generations)
}

fn here(folder: &Path, device: &Path) -> Outcome<()> {
    let root = File::open(folder).map_err(|error| failed(&folder.display().to_string(), error))?;
    let has_generations = load::generation(&root).is_some();
    say(&judge(folder, Some(device), has_generations)?.ok_or("the guest forbids tracing")?);
    Ok(())
}

/// Without a readable medium, the files are read.
fn judge(folder: &Path, raw: Option<&Path>, has_generations: bool) -> Outcome<Option<String>> {
    let ledger = disk::ledger("files")?;
    let journals = disk::ledger("journals")?;
    let program = std::env::current_exe().map_err(|error| failed("this program's path", error))?;
    let load: Vec<OsString> = vec![
        program.into(),
        "load".into(),
        folder.as_os_str().to_owned(),
        ledger.path().as_os_str().to_owned(),
        journals.path().as_os_str().to_owned(),
    ];
    let Some((trace, captured)) = traced(folder, load)? else {
        return Ok(None);
    };
    match captured.header.lost_records {
        0 => {}
        lost => return Err(format!("{lost} records were lost")),
    }
    let entries = check::read_ledger(ledger.path())?;
    let stamps = match raw {
        Some(raw) => check::stamps_on(raw)?,
        None => check::stamps_in_files(folder, &entries)?,
    };
    let report = check::judge(&trace.requests, &entries, &stamps, has_generations)?;
    let removed = life::removed(&entries, &sqlite::read_ledger(journals.path())?);
    let journals = sqlite::judge(&trace.requests, journals.path(), has_generations)?;
    let life = life::judge(&trace.events, &removed, folder)?;
    Ok(Some(format!("{report}; {journals}; {life}")))
}

/// Runs a command under the tracer. `None` if tracing is forbidden, which is recorded.
fn traced(folder: &Path, command: Vec<OsString>) -> Outcome<Option<(InMemory, Captured)>> {
    let targets = vec![Target::Mountpoint(PathBuf::from(folder))];
    recorded::record(&CaptureSpec {
        count_calls: true,
        ..recorded::spec(targets, command, DEFAULT_RING_BYTES, "ground truth")
    })
}
