//! `judge fio`: every mode of the file workload beside fio and a plain C loop.

use crate::arguments::FioArguments;
use crate::c_loop::{CLoop, Extras};
use crate::cell::{Cell, Engine, Mode, NOT_COMPARED, Place};
use crate::contest::{Clock, Side, compete, say};
use crate::error::JudgeError;
use crate::fio::Fio;
use crate::journal::Journal;
use crate::ours::Tidegate;
use crate::verdict::{Row, Rule, row, side, table};

/// Ours agrees within this.
const TOLERANCE: f64 = 0.05;

/// Bytes of all files together at least and at most. Powers of two divide evenly among threads and suit fio's orders.
const WORK_BYTES_MIN: u64 = 1 << 20;
const WORK_BYTES_MAX: u64 = 1 << 28;

/// A cold read of less would be served by read-ahead that was not asked for.
const COLD_BYTES: u64 = 1 << 27;

/// Measured on two processors, beside the windows: fio's start and end take 0.4 s alone.
const ROUND_OVERHEAD_S: f64 = 0.65;

/// What was measured, as text, and whether a difference has no reason.
pub struct Report {
    /// In Markdown.
    pub text: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Runs the suite.
///
/// # Errors
/// That of the first program that failed.
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
    let window_ns = arguments.window.max(1) * 1_000_000;
    let window_s = f64::from(u32::try_from(arguments.window).unwrap_or(u32::MAX)) / 1e3;
    let cell_s = f64::from(common.rounds) * (ROUND_OVERHEAD_S + 4.0 * window_s) + 4.0 * window_s;
    let mut journal = Journal::open("fio", common.output.as_deref())?;
    let mut clock = Clock::start("fio", cells.len(), cell_s);
    let mut rows = Vec::new();
    for (place, cell) in cells {
        let name = format!("{}/{cell}", place.name);
        let peer = fio.as_ref().filter(|_| cell.without_fio().is_none());
        let work = match journal.work_count(&name) {
            Some(work) => work,
            None => calibrate(&c_loop, &cell, &place, window_ns)?,
        };
        measure(
            &mut journal,
            &name,
            (&cell, &place, work),
            (&ours, &c_loop, peer),
            common.rounds,
        )?;
        let peer = if peer.is_some() { side::FIO } else { side::C };
        let mut found = row(&journal, &name, peer, Rule::Within(TOLERANCE));
        if let Some(reason) = cell.without_fio().filter(|_| found.reason.is_empty()) {
            found.reason = format!("with C alone: {reason}");
        }
        clock.cell(&found.line());
        rows.push(found);
    }
    let version = fio.as_ref().map_or("without fio", |fio| fio.version.as_str());
    let heading = format!("File workloads beside {version} and a plain C loop");
    let mut text = table(&heading, "peer", &rows);
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

/// The cells that were asked for and can be measured here; what can't goes to `left_out` with its reason.
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

fn takes_direct(place: &Place) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    /// The flag of x86 and most others; where it is another the file system says so by refusing.
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

/// Bytes of all files together with which the C loop needs about the window.
fn calibrate(c_loop: &CLoop, cell: &Cell, place: &Place, window_ns: u64) -> Result<u64, JudgeError> {
    if cell.wants_cold(place) {
        return Ok(COLD_BYTES);
    }
    let mut work = WORK_BYTES_MIN;
    loop {
        let speed = c_loop.run(cell, place, work / u64::from(cell.threads), Extras::default())?;
        let factor = window_ns / speed.elapsed_ns.max(1);
        if factor < 2 || work >= WORK_BYTES_MAX {
            return Ok(work);
        }
        // The first run may meet cold code: it does not decide alone.
        let factor = 1 << factor.ilog2().min(6);
        work = (work * factor).min(WORK_BYTES_MAX);
        if factor == 2 {
            return Ok(work);
        }
    }
}

fn measure(
    journal: &mut Journal,
    name: &str,
    (cell, place, work): (&Cell, &Place, u64),
    (ours, c_loop, fio): (&Tidegate, &CLoop, Option<&Fio>),
    rounds: u32,
) -> Result<(), JudgeError> {
    let file_bytes = work / u64::from(cell.threads);
    let files = fio.map(|fio| fio.prepare(cell, place, file_bytes)).transpose()?;
    let run_ours = |round| ours.run_file(cell, place, file_bytes, round);
    let mut sides = vec![
        Side {
            name: side::OURS,
            run: Box::new(run_ours),
        },
        Side {
            name: side::C,
            run: Box::new(|_| c_loop.run(cell, place, file_bytes, Extras::default())),
        },
        Side {
            name: side::CONTROL,
            run: Box::new(run_ours),
        },
    ];
    if let Some((fio, files)) = fio.zip(files.as_ref()) {
        sides.push(Side {
            name: side::FIO,
            run: Box::new(|_| fio.run(cell, place, files, file_bytes)),
        });
    }
    compete(journal, name, rounds, work, &mut sides)
}
