//! `judge fio`: compares every mode of the file workload with fio and a plain C loop.

use std::time::Duration;

use crate::arguments::FioArguments;
use crate::c_loop::{CLoop, Extras};
use crate::cell::{Cell, Engine, Mode, NOT_COMPARED, Place};
use crate::contest::{Match, Side, Sides, play, say};
use crate::error::JudgeError;
use crate::fio::Fio;
use crate::journal::Journal;
use crate::ours::Tidegate;
use crate::report::Report;
use crate::verdict::{Rule, side, table};

/// Allowed deviation of tidegate from fio.
const TOLERANCE: f64 = 0.05;

/// Minimum and maximum bytes of all files together. Powers of two divide evenly among threads and suit fio's orders.
const WORK_BYTES_MIN: u64 = 1 << 20;
const WORK_BYTES_MAX: u64 = 1 << 28;

/// Bytes of a cold read; smaller files would be served by read-ahead beyond the requested data.
const COLD_BYTES: u64 = 1 << 27;

/// Time per round outside the windows, as measured on two processors; starting and stopping fio takes 0.4 s of it.
const ROUND_OVERHEAD: Duration = Duration::from_millis(600);

/// Runs the suite.
///
/// # Errors
/// The error of the first program that failed.
pub fn run(arguments: &FioArguments) -> Result<Report, JudgeError> {
    let common = &arguments.common;
    let ours = Tidegate::find(&common.tidegate)?;
    let c_loop = CLoop::compile(&common.build)?;
    let fio = Fio::find(&arguments.fio)
        .inspect_err(|error| say(&format!("left out: fio: {error}")))
        .ok();
    let mut left_out = Vec::new();
    let cells = chosen(arguments, &ours, &mut left_out);
    for reason in &left_out {
        say(&format!("left out: {reason}"));
    }
    let window = Duration::from_millis(arguments.window.max(1));
    let programs = (&ours, &c_loop, fio.as_ref());
    let matches: Vec<Match<'_>> = cells
        .iter()
        .map(|(place, cell)| one(place, cell, programs, window))
        .collect();
    if common.list {
        return Ok(Report::list(&matches));
    }
    let effort = common.effort(ROUND_OVERHEAD + window * 4);
    let mut journal = Journal::open("fio", common.output.as_deref())?;
    let rows = play(&mut journal, &matches, effort)?;
    let version = fio.as_ref().map_or("without fio", |fio| fio.version.as_str());
    let heading = format!("File workloads beside {version} and a plain C loop");
    let mut text = table(&heading, "peer", &rows);
    if rows.is_empty() {
        return Ok(Report { text, rows });
    }
    text.push_str("Not compared with fio, or left out:\n\n");
    for (what, why) in NOT_COMPARED {
        text.push_str(&format!("- {what}: {why}\n"));
    }
    for reason in left_out {
        text.push_str(&format!("- {reason}\n"));
    }
    text.push('\n');
    Ok(Report { text, rows })
}

/// A match of tidegate (twice), the C loop, and fio if the cell can be compared with it.
fn one<'run>(
    place: &'run Place,
    cell: &'run Cell,
    (ours, c_loop, fio): (&'run Tidegate, &'run CLoop, Option<&'run Fio>),
    window: Duration,
) -> Match<'run> {
    let fio = fio.filter(|_| cell.without_fio().is_none());
    let sides = move |chosen: Option<u64>| {
        let work_count = match chosen {
            Some(work) => work,
            None => calibrate(c_loop, cell, place, window)?,
        };
        let file_bytes = work_count / u64::from(cell.threads);
        let run_ours = move |round| ours.run_file(cell, place, file_bytes, round);
        let mut sides = vec![
            Side {
                name: side::OURS,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C,
                run: Box::new(move |_| c_loop.run(cell, place, file_bytes, extras_of(cell))),
            },
            Side {
                name: side::CONTROL,
                run: Box::new(run_ours),
            },
        ];
        if let Some(fio) = fio {
            let files = fio.prepare(cell, place, file_bytes)?;
            sides.push(Side {
                name: side::FIO,
                run: Box::new(move |_| fio.run(cell, place, &files, file_bytes)),
            });
        }
        Ok(Sides { work_count, sides })
    };
    Match {
        name: format!("{}/{cell}", place.name),
        peer: if fio.is_some() { side::FIO } else { side::C },
        rule: Rule::Within(TOLERANCE),
        note: cell.without_fio(),
        sides: Box::new(sides),
    }
}

/// The selected cells that can be measured here; the others are added to `left_out` with the reason.
fn chosen(arguments: &FioArguments, ours: &Tidegate, left_out: &mut Vec<String>) -> Vec<(Place, Cell)> {
    let common = &arguments.common;
    let mut cells = Vec::new();
    let mut leave_out = |reason: String| {
        if !left_out.contains(&reason) {
            left_out.push(reason);
        }
    };
    for place in &common.places {
        let takes_direct = takes_direct(place);
        for cell in Cell::all(&arguments.threads) {
            let name = format!("{}/{cell}", place.name);
            if !common.wants(&name) || (common.quick && !cell.is_quick()) {
                continue;
            }
            if cell.mode.is_direct() && !takes_direct {
                leave_out(format!("{}: O_DIRECT: the file system refuses it", place.name));
            } else if cell.mode == Mode::MmapAsync && !ours.knows("mmap-async") {
                leave_out("mmap-async: `tidegate bench file` of this build does not have it".to_owned());
            } else if cell.engine != Engine::Calls && !ours.knows("--engine") {
                leave_out("io_uring: `tidegate bench file` of this build does not have it".to_owned());
            } else {
                cells.push((place.clone(), cell));
            }
        }
    }
    cells
}

/// True if files in a place can be opened with `O_DIRECT`.
pub fn takes_direct(place: &Place) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    /// Value on x86 and most other architectures; with a wrong value the file system refuses the open.
    const O_DIRECT: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) {
        0o200_000
    } else {
        0o40_000
    };
    tempfile::NamedTempFile::new_in(&place.directory).is_ok_and(|file| {
        let mut options = std::fs::OpenOptions::new();
        options
            .read(true)
            .custom_flags(O_DIRECT)
            .open(file.path())
            .is_ok()
    })
}

/// Copies from and to a mapping overlap in the processor unless a clock read separates them, as in fio and tidegate;
/// therefore the C loop reads the clock too. Next to a system call the cost of a clock read is negligible.
fn extras_of(cell: &Cell) -> Extras<'static> {
    Extras {
        histogram: cell.mode.is_mapped(),
        ..Extras::default()
    }
}

/// Total bytes of all files for which the C loop takes about one window.
fn calibrate(c_loop: &CLoop, cell: &Cell, place: &Place, window: Duration) -> Result<u64, JudgeError> {
    if cell.wants_cold(place) {
        return Ok(COLD_BYTES);
    }
    let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
    let mut work = WORK_BYTES_MIN;
    loop {
        let speed = c_loop.run(cell, place, work / u64::from(cell.threads), Extras::default())?;
        let factor = window_ns / speed.elapsed_ns.max(1);
        if factor < 2 || work >= WORK_BYTES_MAX {
            return Ok(work);
        }
        // The first run may have cold caches, so the size grows in limited steps.
        let factor = 1 << factor.ilog2().min(6);
        work = (work * factor).min(WORK_BYTES_MAX);
        if factor == 2 {
            return Ok(work);
        }
    }
}
