//! `judge ceiling`: overhead of the harness at the fastest file speed, compared with the plain C loop.
//!
//! Runs 4 KiB operations on a cached file with one thread: sequential and random reads and writes, by system calls
//! and by a prefaulted mapping. tidegate runs with all its measurements; the C loop (`c/file_loop.c`) visits the same
//! offsets, once without any measurement and once with clock and histogram.
//!
//! System calls are compared with the loop that reads no clock. A mapping is compared with the loop that reads the
//! clock once per operation: without a clock read between copies the processor overlaps several of them, which no
//! program that reports the latency of each can do.

use std::fs;
use std::rc::Rc;
use std::time::Duration;

use crate::arguments::Common;
use crate::c_loop::{CLoop, Extras};
use crate::cell::{Cell, Engine, Mode, Pattern, Place};
use crate::contest::{Match, Side, Sides, play};
use crate::error::JudgeError;
use crate::journal::Journal;
use crate::ours::Tidegate;
use crate::report::Report;
use crate::verdict::{Rule, row, side, table};

/// Minimum speed of tidegate relative to the plain C loop.
const LEAST: f64 = 0.95;

/// File size in bytes.
const WORK_BYTES: u64 = 512 << 20;
const WORK_BYTES_QUICK: u64 = 64 << 20;

/// Duration of a round of four sides at the full size, as measured on two processors.
const ROUND: Duration = Duration::from_millis(2500);

const PATTERNS: [Pattern; 4] = [
    Pattern::SequentialRead,
    Pattern::RandomRead,
    Pattern::SequentialWrite,
    Pattern::RandomWrite,
];

/// The offsets to visit, in a file that is removed on drop.
struct Course {
    file: tempfile::NamedTempFile,
}

/// Runs the suite.
///
/// # Errors
/// The error of the first program that failed.
pub fn run(common: &Common) -> Result<Report, JudgeError> {
    let ours = Tidegate::find(&common.tidegate)?;
    let c = CLoop::compile(&common.build)?;
    let work = work_bytes(common);
    let mut matches = Vec::new();
    for place in &common.places {
        for cell in cells() {
            if common.wants(&format!("{}/{cell}", place.name)) {
                matches.push(one(place, cell, work, (&ours, &c)));
            }
        }
    }
    if common.list {
        return Ok(Report::list(&matches));
    }
    let effort = common.effort(if common.quick { ROUND / 8 } else { ROUND });
    let mut journal = Journal::open("ceiling", common.output.as_deref())?;
    let rows = play(&mut journal, &matches, effort)?;
    let mut text = table("Ceiling: ours beside a plain C loop, 4 KiB in memory", "C", &rows);
    let beside = |other: fn(&Match<'_>) -> &'static str| -> Vec<_> {
        let rows = matches
            .iter()
            .map(|one| row(&journal, &one.name, other(one), Rule::AtLeast(LEAST)));
        rows.collect()
    };
    let other = |one: &Match<'_>| {
        if one.peer == side::C {
            side::C_TIMED
        } else {
            side::C
        }
    };
    text.push_str(&table(
        "For information: calls beside the loop with a clock and a histogram, mappings beside the one without",
        "C",
        &beside(other),
    ));
    Ok(Report { text, rows })
}

/// Its cells: system calls and a mapping, in each pattern.
pub fn cells() -> impl Iterator<Item = Cell> {
    let modes = [Mode::Buffered, Mode::Mmap].into_iter();
    modes.flat_map(|mode| {
        PATTERNS.map(|pattern| Cell {
            pattern,
            mode,
            engine: Engine::Calls,
            threads: 1,
        })
    })
}

/// Size of its files.
pub const fn work_bytes(common: &Common) -> u64 {
    if common.quick {
        WORK_BYTES_QUICK
    } else {
        WORK_BYTES
    }
}

fn one<'run>(
    place: &'run Place,
    cell: Cell,
    work: u64,
    (ours, c): (&'run Tidegate, &'run CLoop),
) -> Match<'run> {
    let sides = move |_| {
        let course = Rc::new(Course::prepare(ours, &cell, place, work)?);
        let run_c = |histogram: bool| {
            let course = course.clone();
            move |_| {
                let extras = Extras {
                    histogram,
                    warm: true,
                    prefault: cell.mode.is_mapped(),
                    cold: false,
                    offsets: Some(course.file.path()),
                };
                c.run(&cell, place, work, extras)
            }
        };
        let run_ours = move |_| ours.run_in_memory(&cell, place, work);
        let sides = vec![
            Side {
                name: side::OURS,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C,
                run: Box::new(run_c(false)),
            },
            Side {
                name: side::CONTROL,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C_TIMED,
                run: Box::new(run_c(true)),
            },
        ];
        Ok(Sides {
            work_count: work,
            sides,
        })
    };
    Match {
        name: format!("{}/{cell}", place.name),
        peer: if cell.mode.is_mapped() {
            side::C_TIMED
        } else {
            side::C
        },
        rule: Rule::AtLeast(LEAST),
        note: None,
        sides: Box::new(sides),
    }
}

impl Course {
    fn prepare(ours: &Tidegate, cell: &Cell, place: &Place, work: u64) -> Result<Self, JudgeError> {
        let failed = |error| JudgeError::io("make a file in", &place.directory, error);
        let file = tempfile::Builder::new()
            .prefix("judge-ceiling-")
            .tempfile_in(&place.directory)
            .map_err(failed)?;
        fs::write(file.path(), ours.offsets(cell, place, work)?).map_err(failed)?;
        Ok(Self { file })
    }
}
