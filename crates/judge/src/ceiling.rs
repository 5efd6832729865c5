//! `judge ceiling`: what the harness costs where a file is fastest, beside the plain C loop of the bench's own judges.
//!
//! 4 KiB operations on a file in memory, one thread, sequential and random reads and writes, with calls and with a
//! mapping whose pages are present; ours with all that it measures, the C loop (`crates/bench/judges/ceiling.c`) at the
//! same offsets with nothing, and, for information, a loop with a clock and a histogram.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::arguments::Common;
use crate::c_loop::{CLoop, Extras};
use crate::cell::{Cell, Engine, Mode, Pattern, Place};
use crate::contest::{Effort, Match, Side, Sides, play};
use crate::error::JudgeError;
use crate::fio::fill;
use crate::journal::{Journal, Speed};
use crate::ours::Tidegate;
use crate::program::{Program, beginning, compile};
use crate::report::Report;
use crate::verdict::{Rule, row, side, table};

/// Ours reaches at least this part of the plain C loop.
const LEAST: f64 = 0.95;

/// Bytes of the file.
const WORK_BYTES: u64 = 512 << 20;
const WORK_BYTES_QUICK: u64 = 64 << 20;

/// A round of four sides at the full size, as measured on two processors.
const ROUND: Duration = Duration::from_millis(2500);

const PATTERNS: [Pattern; 4] = [
    Pattern::SequentialRead,
    Pattern::RandomRead,
    Pattern::SequentialWrite,
    Pattern::RandomWrite,
];

/// The C loop that visits the offsets that ours prints.
#[derive(Debug)]
struct Plain {
    program: PathBuf,
}

#[derive(Deserialize)]
struct Answer {
    operations_count: u64,
    elapsed_ns: u64,
}

/// A file in memory and the offsets to visit; removed when dropped.
struct Course {
    folder: tempfile::TempDir,
}

/// Runs the suite.
///
/// # Errors
/// That of the first program that failed.
pub fn run(common: &Common) -> Result<Report, JudgeError> {
    let ours = Tidegate::find(&common.tidegate)?;
    let timed = CLoop::compile(&common.build)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/judges/ceiling.c");
    let plain = Plain {
        program: compile(&source, &common.build, "ceiling", &[])?,
    };
    let work = if common.quick {
        WORK_BYTES_QUICK
    } else {
        WORK_BYTES
    };
    let mut matches = Vec::new();
    for place in &common.places {
        for mode in [Mode::Buffered, Mode::Mmap] {
            for pattern in PATTERNS {
                let cell = Cell {
                    pattern,
                    mode,
                    engine: Engine::Calls,
                    threads: 1,
                };
                if common.wants(&format!("{}/{cell}", place.name)) {
                    matches.push(one(place, cell, work, (&ours, &plain, &timed)));
                }
            }
        }
    }
    if common.list {
        return Ok(Report::list(&matches));
    }
    let effort = Effort {
        rounds: common.rounds,
        budget: Duration::from_secs(common.budget),
        round: if common.quick { ROUND / 8 } else { ROUND },
    };
    let mut journal = Journal::open("ceiling", common.output.as_deref())?;
    let rows = play(&mut journal, &matches, effort)?;
    let mut text = table("Ceiling: ours beside a plain C loop, 4 KiB in memory", "C", &rows);
    let beside_timed: Vec<_> = matches
        .iter()
        .map(|one| row(&journal, &one.name, side::C_TIMED, Rule::AtLeast(LEAST)))
        .collect();
    text.push_str(&table(
        "For information: beside a C loop that reads the clock twice and counts in a histogram",
        "timed C",
        &beside_timed,
    ));
    Ok(Report { text, rows })
}

fn one<'run>(
    place: &'run Place,
    cell: Cell,
    work: u64,
    (ours, plain, timed): (&'run Tidegate, &'run Plain, &'run CLoop),
) -> Match<'run> {
    let sides = move |_| {
        let course = Course::prepare(ours, &cell, place, work)?;
        let extras = Extras {
            histogram: true,
            warm: true,
            prefault: cell.mode.is_mapped(),
            cold: false,
        };
        let run_ours = move |_| ours.run_in_memory(&cell, place, work);
        let sides = vec![
            Side {
                name: side::OURS,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C,
                run: Box::new(move |_| plain.run(&cell, &course)),
            },
            Side {
                name: side::CONTROL,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C_TIMED,
                run: Box::new(move |_| timed.run(&cell, place, work, extras)),
            },
        ];
        Ok(Sides {
            work_count: work,
            sides,
        })
    };
    Match {
        name: format!("{}/{cell}", place.name),
        peer: side::C,
        rule: Rule::AtLeast(LEAST),
        note: None,
        sides: Box::new(sides),
    }
}

impl Course {
    fn prepare(ours: &Tidegate, cell: &Cell, place: &Place, work: u64) -> Result<Self, JudgeError> {
        let folder = tempfile::Builder::new()
            .prefix("judge-ceiling-")
            .tempdir_in(&place.directory)
            .map_err(|error| JudgeError::io("make a folder in", &place.directory, error))?;
        let course = Self { folder };
        fill(&course.file(), work)?;
        let offsets = ours.offsets(cell, place, work)?;
        fs::write(course.offsets(), offsets)
            .map_err(|error| JudgeError::io("write", &course.offsets(), error))?;
        Ok(course)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn offsets(&self) -> PathBuf {
        self.folder.path().join("offsets")
    }
}

impl Plain {
    fn run(&self, cell: &Cell, course: &Course) -> Result<Speed, JudgeError> {
        let path = course.offsets();
        let offsets = File::open(&path).map_err(|error| JudgeError::io("open", &path, error))?;
        let direction = if cell.pattern.only_reads() {
            "read"
        } else {
            "write"
        };
        let mapped = if cell.mode.is_mapped() { "mmap-" } else { "" };
        let program = Program::new(&self.program, "it was compiled and is gone; try again")
            .args([format!("{mapped}{direction}")])
            .args([course.file()])
            .args(["4096"])
            .stdin(offsets);
        let line = program.line();
        let answer = program.answer()?;
        let answer: Answer = serde_json::from_str(answer.trim()).map_err(|error| JudgeError::Answer {
            command: line,
            expected: format!("operations and a time ({error})"),
            found: beginning(&answer),
        })?;
        Ok(Speed::new(answer.operations_count, answer.elapsed_ns))
    }
}
