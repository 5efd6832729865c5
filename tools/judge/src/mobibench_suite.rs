//! `judge mobibench`: compares file workloads with the original, for modes with the same meaning in both.
//!
//! Both start with an empty cache (the original drops it without a sync, so a sync runs first), visit the same
//! offsets (`--order mobibench`) and end their window with the same sync. The original reports microseconds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::arguments::MobibenchArguments;
use crate::c_loop::{CLoop, Extras};
use crate::cell::{Cell, Engine, Mode, Pattern, Place, TMPFS};
use crate::contest::{Match, Side, Sides, play};
use crate::error::JudgeError;
use crate::journal::{Journal, Speed};
use crate::ours::Tidegate;
use crate::program::{Program, beginning};
use crate::report::Report;
use crate::verdict::{Rule, side, table};

/// Allowed deviation of tidegate from the original.
const TOLERANCE: f64 = 0.05;

/// Bytes of all files, without and with a sync per write.
const WORK_BYTES: u64 = 64 << 20;
const WORK_BYTES_SYNCED: u64 = 4 << 20;

/// Duration of a round of four sides, as measured on two processors.
const ROUND: Duration = Duration::from_millis(1500);

/// Modes that are not compared, with reasons.
const NOT_COMPARED: [(&str, &str); 6] = [
    (
        "mmap modes with several threads",
        "the original has one mapping for all threads: they write into the file of the last one",
    ),
    ("reads with sync modes", "the flag has no effect on a read"),
    (
        "random orders with several threads",
        "its threads share one generator without a lock: the order differs from run to run",
    ),
    (
        "-y 9 and 10",
        "the calls of another kernel: the original ignores that they are missing",
    ),
    (
        "-v",
        "the share of repeated records is a matter of order; a test compares the orders number by number",
    ),
    (
        "SQLite",
        "the original brings its own library of another version; ours is compared with a C loop over the same library",
    ),
];

/// The original, as a compiled program.
#[derive(Debug)]
struct Original {
    path: PathBuf,
}

/// Runs the suite.
///
/// # Errors
/// The error of the first program that failed.
pub fn run(arguments: &MobibenchArguments) -> Result<Report, JudgeError> {
    let common = &arguments.common;
    let Some(path) = &arguments.mobibench else {
        let reason = "the original was not given; build it and give its path with --mobibench";
        return Ok(Report::left_out("The original Mobibench", reason));
    };
    let original = Original { path: path.clone() };
    let ours = Tidegate::find(&common.tidegate)?;
    let c_loop = CLoop::compile(&common.build)?;
    let mut matches = Vec::new();
    for place in &common.places {
        for cell in cells() {
            let is_chosen = !common.quick || cell.is_quick();
            if is_chosen && common.wants(&name(place, &cell)) {
                matches.push(one(place, cell, (&ours, &c_loop, &original)));
            }
        }
    }
    if common.list {
        return Ok(Report::list(&matches));
    }
    let effort = common.effort(ROUND);
    let mut journal = Journal::open("mobibench", common.output.as_deref())?;
    let rows = play(&mut journal, &matches, effort)?;
    let mut text = table(
        "File workloads beside the original Mobibench",
        side::MOBIBENCH,
        &rows,
    );
    if rows.is_empty() {
        return Ok(Report { text, rows });
    }
    text.push_str("Not compared:\n\n");
    for (what, why) in NOT_COMPARED {
        text.push_str(&format!("- {what}: {why}\n"));
    }
    text.push('\n');
    Ok(Report { text, rows })
}

fn name(place: &Place, cell: &Cell) -> String {
    format!("{}/mobibench/{cell}", place.name)
}

/// Cells with the same meaning in both programs.
fn cells() -> Vec<Cell> {
    let mut cells = Cell::all(&[1, 8]);
    cells.retain(|cell| {
        let is_known = number_of_mode(cell.mode).is_some() && number_of_pattern(cell.pattern).is_some();
        let is_one = cell.threads == 1 || !(cell.mode.is_mapped() || cell.pattern.is_random());
        cell.engine == Engine::Calls && is_known && is_one
    });
    cells
}

/// Value of the original's `-a`.
const fn number_of_pattern(pattern: Pattern) -> Option<u8> {
    match pattern {
        Pattern::SequentialWrite => Some(0),
        Pattern::RandomWrite => Some(1),
        Pattern::SequentialRead => Some(2),
        Pattern::RandomRead => Some(3),
        Pattern::Append => Some(4),
        Pattern::Mixed => None,
    }
}

/// Value of the original's `-y`.
const fn number_of_mode(mode: Mode) -> Option<u8> {
    match mode {
        Mode::Buffered => Some(0),
        Mode::Sync => Some(1),
        Mode::Fsync => Some(2),
        Mode::Direct => Some(3),
        Mode::DirectSync => Some(4),
        Mode::Mmap => Some(5),
        Mode::MmapAsync => Some(6),
        Mode::MmapSync => Some(7),
        Mode::Fdatasync => Some(8),
        Mode::DataSync => None,
    }
}

fn one<'run>(
    place: &'run Place,
    cell: Cell,
    (ours, c_loop, original): (&'run Tidegate, &'run CLoop, &'run Original),
) -> Match<'run> {
    let sides = move |chosen: Option<u64>| {
        let usual = if cell.mode.syncs_each() {
            WORK_BYTES_SYNCED
        } else {
            WORK_BYTES
        };
        let work_count = chosen.unwrap_or(usual);
        let file_bytes = work_count / u64::from(cell.threads);
        let run_ours = move |_| ours.run_like_mobibench(&cell, place, file_bytes);
        let extras = Extras {
            cold: place.name != TMPFS,
            ..Extras::default()
        };
        let sides = vec![
            Side {
                name: side::OURS,
                run: Box::new(run_ours),
            },
            Side {
                name: side::MOBIBENCH,
                run: Box::new(move |_| original.run(&cell, place, work_count)),
            },
            Side {
                name: side::CONTROL,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C,
                run: Box::new(move |_| c_loop.run(&cell, place, file_bytes, extras)),
            },
        ];
        Ok(Sides { work_count, sides })
    };
    Match {
        name: name(place, &cell),
        peer: side::MOBIBENCH,
        rule: Rule::Within(TOLERANCE),
        note: None,
        sides: Box::new(sides),
    }
}

impl Original {
    /// The original creates its files, drops caches and measures; `-f` is the total size for all threads.
    fn run(&self, cell: &Cell, place: &Place, work_bytes: u64) -> Result<Speed, JudgeError> {
        let folder = tempfile::Builder::new()
            .prefix("judge-mobibench-")
            .tempdir_in(&place.directory)
            .map_err(|error| JudgeError::io("make a folder in", &place.directory, error))?;
        Program::new("sync", "install coreutils").answer()?;
        let program = Program::new(&self.path, "give its path with --mobibench")
            .args(arguments(cell, folder.path(), work_bytes))
            .current_dir(folder.path());
        let line = program.line();
        let answer = program.answer()?;
        let elapsed_ns = parse(&answer).ok_or_else(|| JudgeError::Answer {
            command: line,
            expected: "a line [TIME] and no error".to_owned(),
            found: beginning(&answer),
        })?;
        Ok(Speed::new(work_bytes / 4096, elapsed_ns))
    }
}

fn arguments(cell: &Cell, folder: &Path, work_bytes: u64) -> Vec<String> {
    let pattern = number_of_pattern(cell.pattern).unwrap_or(0).to_string();
    let mode = number_of_mode(cell.mode).unwrap_or(0).to_string();
    let (size, threads) = ((work_bytes / 1024).to_string(), cell.threads.to_string());
    let folder = folder.to_string_lossy().into_owned();
    let words = [
        "-p", &folder, "-f", &size, "-r", "4", "-a", &pattern, "-y", &mode, "-t", &threads, "-q",
    ];
    words.map(str::to_owned).into()
}

/// Parses `[TIME] :       0 sec 269916us. ...`. The exit code is meaningless; success shows in the last line.
fn parse(answer: &str) -> Option<u64> {
    if !answer.contains("No error") {
        return None;
    }
    let line = answer.lines().find(|line| line.contains("[TIME]"))?;
    let (_, time) = line.split_once(':')?;
    let (seconds, rest) = time.split_once("sec")?;
    let (micros, _) = rest.split_once("us")?;
    let seconds: u64 = seconds.trim().parse().ok()?;
    let micros: u64 = micros.trim().parse().ok()?;
    seconds
        .checked_mul(1_000_000)?
        .checked_add(micros)?
        .checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_read_and_an_error_is_one() {
        let answer = "x\n[TIME] :       1 sec 065027us. \t1537.82 Transactions/sec\nErr string : No error\n";
        assert_eq!(parse(answer), Some(1_065_027_000));
        assert_eq!(parse(&answer.replace("No error", "mmap error")), None);
        assert_eq!(parse("Err string : No error"), None);
    }

    #[test]
    fn only_what_means_the_same_is_compared() {
        let names: Vec<String> = cells().iter().map(Cell::to_string).collect();
        assert!(names.contains(&"append/fsync/t8".to_owned()), "{names:?}");
        assert!(
            names.contains(&"random-write/mmap-sync/t1".to_owned()),
            "{names:?}"
        );
        for absent in ["mmap/t8", "random-write/buffered/t8", "mixed", "uring", "dsync"] {
            let found = names.iter().find(|name| name.contains(absent));
            assert!(
                found.is_none_or(|name| absent == "dsync" && !name.contains("/dsync")),
                "{found:?}"
            );
        }
    }
}
