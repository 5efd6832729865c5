//! `judge builds`: compares two builds of tidegate, such as those of two revisions.
//!
//! The cells are those of the ceiling (for places in memory), and the small selections of the file and SQLite workloads.

use std::time::Duration;

use crate::arguments::BuildsArguments;
use crate::cell::{Cell, TMPFS};
use crate::contest::{Match, Side, Sides, play};
use crate::error::JudgeError;
use crate::journal::{Journal, Speed};
use crate::ours::Tidegate;
use crate::report::Report;
use crate::verdict::{Rule, side, table};
use crate::{ceiling, fio_suite, sqlite_suite};

/// Allowed deviation of one build from the other.
const TOLERANCE: f64 = 0.05;

/// Bytes of all files of a cell of the file workload.
const WORK_BYTES: u64 = 64 << 20;

const TRANSACTIONS: u64 = 500;

/// Duration of a round of three sides, as measured on two processors.
const ROUND: Duration = Duration::from_millis(1000);

/// Runs the suite.
///
/// # Errors
/// The error of the first program that failed.
pub fn run(arguments: &BuildsArguments) -> Result<Report, JudgeError> {
    let common = &arguments.common;
    let builds = (
        &Tidegate::find(&common.tidegate)?,
        &Tidegate::find(&arguments.old)?,
    );
    let mut matches = Vec::new();
    for place in &common.places {
        if place.name == TMPFS {
            let work = ceiling::work_bytes(common);
            for cell in ceiling::cells() {
                let run = move |build: &Tidegate, _| build.run_in_memory(&cell, place, work);
                matches.push(one(format!("{}/ceiling/{cell}", place.name), work, builds, run));
            }
        }
        let takes_direct = fio_suite::takes_direct(place);
        for cell in Cell::all(&[1, 8]).into_iter().filter(Cell::is_quick) {
            if cell.mode.is_direct() && !takes_direct {
                continue;
            }
            let bytes = WORK_BYTES / u64::from(cell.threads);
            let run = move |build: &Tidegate, round| build.run_file(&cell, place, bytes, round);
            matches.push(one(format!("{}/{cell}", place.name), WORK_BYTES, builds, run));
        }
        for cell in sqlite_suite::Cell::all()
            .into_iter()
            .filter(sqlite_suite::Cell::is_quick)
        {
            let words = cell.arguments(TRANSACTIONS);
            let run = move |build: &Tidegate, _| build.run_bench("sqlite", &place.directory, &words);
            matches.push(one(cell.name(place), TRANSACTIONS, builds, run));
        }
    }
    matches.retain(|one| common.wants(&one.name));
    if common.list {
        return Ok(Report::list(&matches));
    }
    let effort = common.effort(ROUND);
    let mut journal = Journal::open("builds", common.output.as_deref())?;
    let rows = play(&mut journal, &matches, effort)?;
    Ok(Report {
        text: table("This build beside an older one", side::OLD, &rows),
        rows,
    })
}

/// A match of a build (twice) and an older one.
fn one<'run>(
    name: String,
    work_count: u64,
    (ours, old): (&'run Tidegate, &'run Tidegate),
    run: impl Fn(&Tidegate, u32) -> Result<Speed, JudgeError> + Clone + 'run,
) -> Match<'run> {
    let sides = move |_| {
        let side = |name, build: &'run Tidegate| {
            let run = run.clone();
            Side {
                name,
                run: Box::new(move |round| run(build, round)),
            }
        };
        Ok(Sides {
            work_count,
            sides: vec![
                side(side::OURS, ours),
                side(side::OLD, old),
                side(side::CONTROL, ours),
            ],
        })
    };
    Match {
        name,
        peer: side::OLD,
        rule: Rule::Within(TOLERANCE),
        note: None,
        sides: Box::new(sides),
    }
}
