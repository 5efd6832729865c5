//! `judge ceiling`: what the harness costs at the fastest that a file can be, beside a plain C loop.
//!
//! 4 KiB operations on files in memory, one thread, sequential and random reads and writes; ours with all that it
//! measures, the C loop with nothing and, for information, with a clock and a histogram too.

use crate::arguments::Common;
use crate::c_loop::{CLoop, Extras};
use crate::cell::{Cell, Engine, Mode, Pattern};
use crate::contest::{Clock, Side, compete, say};
use crate::error::JudgeError;
use crate::fio_suite::Report;
use crate::journal::Journal;
use crate::ours::Tidegate;
use crate::verdict::{Rule, row, side, table};

/// Ours reaches at least this part of the plain C loop.
const LEAST: f64 = 0.95;

/// Bytes of the file.
const WORK_BYTES: u64 = 512 << 20;
const WORK_BYTES_QUICK: u64 = 64 << 20;

/// One round of three sides, measured on two processors.
const ROUND_S: f64 = 3.0;

const PATTERNS: [Pattern; 4] = [
    Pattern::SequentialRead,
    Pattern::RandomRead,
    Pattern::SequentialWrite,
    Pattern::RandomWrite,
];

/// Runs the suite.
///
/// # Errors
/// That of the first program that failed.
pub fn run(common: &Common) -> Result<Report, JudgeError> {
    let ours = Tidegate::find(&common.tidegate)?;
    let c_loop = CLoop::compile(&common.build)?;
    let work = if common.quick {
        WORK_BYTES_QUICK
    } else {
        WORK_BYTES
    };
    let mut modes = vec![Mode::Buffered];
    let mut left_out = String::new();
    if ours.knows("--prefault") {
        modes.push(Mode::Mmap);
    } else {
        "mmap: `tidegate bench file` of this build can't touch the pages before the window (--prefault)"
            .clone_into(&mut left_out);
        say(&format!("left out: {left_out}"));
    }
    let mut cells = Vec::new();
    for place in &common.places {
        for &mode in &modes {
            for pattern in PATTERNS {
                let cell = Cell {
                    pattern,
                    mode,
                    engine: Engine::Calls,
                    threads: 1,
                };
                let name = format!("{}/{cell}", place.name);
                if common.wants(&name) {
                    cells.push((place, cell, name));
                }
            }
        }
    }
    let mut journal = Journal::open("ceiling", common.output.as_deref())?;
    let share = if common.quick { 0.2 } else { 1.0 };
    let mut clock = Clock::start("ceiling", cells.len(), f64::from(common.rounds) * ROUND_S * share);
    let (mut rows, mut timed) = (Vec::new(), Vec::new());
    for (place, cell, name) in cells {
        let prefault = cell.mode.is_mapped();
        let run_c = |histogram| {
            let extras = Extras {
                histogram,
                warm: true,
                prefault,
            };
            c_loop.run(&cell, place, work, extras)
        };
        let mut sides = [
            Side {
                name: side::OURS,
                run: Box::new(|round| ours.run_in_memory(&cell, place, work, round)),
            },
            Side {
                name: side::C,
                run: Box::new(|_| run_c(false)),
            },
            Side {
                name: side::C_TIMED,
                run: Box::new(|_| run_c(true)),
            },
            Side {
                name: side::CONTROL,
                run: Box::new(|round| ours.run_in_memory(&cell, place, work, round)),
            },
        ];
        compete(&mut journal, &name, common.rounds, work, &mut sides)?;
        let found = row(&journal, &name, side::C, Rule::AtLeast(LEAST));
        clock.cell(&found.line());
        timed.push(row(&journal, &name, side::C_TIMED, Rule::AtLeast(LEAST)));
        rows.push(found);
    }
    let mut text = table("Ceiling: ours beside a plain C loop, 4 KiB in memory", "C", &rows);
    text.push_str(&table(
        "For information: beside a C loop that reads the clock twice and counts in a histogram",
        "timed C",
        &timed,
    ));
    if !left_out.is_empty() {
        text.push_str(&format!("Left out: {left_out}\n\n"));
    }
    Ok(Report { text, rows })
}
