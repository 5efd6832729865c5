//! `judge sqlite`: compares every journal mode, synchronous level and operation with a C loop over the same library.
//!
//! The C loop is `crates/load/bench/judges/sqlite_loop.c`, with the same statements, keys and values as tidegate.
//! Both use either the library built into tidegate, compiled alike, or the system's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::arguments::SqliteArguments;
use crate::cell::Place;
use crate::contest::{Match, Side, Sides, play, say};
use crate::error::JudgeError;
use crate::journal::{Journal, Speed};
use crate::ours::Tidegate;
use crate::program::{Program, beginning, compile};
use crate::report::Report;
use crate::verdict::{Rule, side, table};

/// Allowed deviation of tidegate from the C loop.
const TOLERANCE: f64 = 0.03;

/// Duration of a round of three sides with 1,000 transactions, as measured on two processors.
const ROUND: Duration = Duration::from_millis(350);

const JOURNALS: [&str; 6] = ["delete", "truncate", "persist", "wal", "memory", "off"];
const LEVELS: [&str; 4] = ["off", "normal", "full", "extra"];
const OPERATIONS: [&str; 3] = ["insert", "update", "delete"];

/// Compiler flags of the library built into tidegate, from the crate that provides it, the profile and `.cargo/config.toml`.
const BUNDLED_FLAGS: [&str; 14] = [
    "-O2",
    "-DSQLITE_CORE",
    "-DSQLITE_DEFAULT_FOREIGN_KEYS=1",
    "-DSQLITE_ENABLE_API_ARMOR",
    "-DSQLITE_ENABLE_COLUMN_METADATA",
    "-DSQLITE_ENABLE_LOAD_EXTENSION=1",
    "-DSQLITE_ENABLE_STAT4",
    "-DSQLITE_OMIT_JSON",
    "-DSQLITE_THREADSAFE=1",
    "-DSQLITE_USE_URI",
    "-DHAVE_USLEEP=1",
    "-DHAVE_ISNAN",
    "-D_POSIX_THREAD_SAFE_FUNCTIONS",
    "-DHAVE_LOCALTIME_R",
];

/// The C loop, and the library that both sides use.
#[derive(Debug)]
struct Loop {
    program: PathBuf,
    library: &'static str,
}

/// One journal mode, synchronous level and operation.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    journal: &'static str,
    level: &'static str,
    operation: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    transactions: u64,
    elapsed_ns: u64,
}

/// Runs the suite.
///
/// # Errors
/// The error of the first program that failed.
pub fn run(arguments: &SqliteArguments) -> Result<Report, JudgeError> {
    let common = &arguments.common;
    let ours = Tidegate::find(&common.tidegate)?;
    let c_loop = Loop::compile(arguments.amalgamation.as_deref(), &common.build)?;
    let transactions = u64::from(arguments.transactions);
    let mut matches = Vec::new();
    for place in &common.places {
        for cell in Cell::all() {
            let is_chosen = !common.quick || cell.is_quick();
            if is_chosen && common.wants(&cell.name(place)) {
                matches.push(one(place, cell, transactions, &ours, &c_loop));
            }
        }
    }
    if common.list {
        return Ok(Report::list(&matches));
    }
    let effort = common.effort(ROUND.mul_f64(f64::from(arguments.transactions) / 1000.0 + 0.2));
    say(&format!(
        "sqlite: the library is the {} one, on both sides",
        c_loop.library
    ));
    let mut journal = Journal::open("sqlite", common.output.as_deref())?;
    let rows = play(&mut journal, &matches, effort)?;
    let heading = format!(
        "SQLite beside a C loop over the {} library, {transactions} transactions",
        c_loop.library
    );
    Ok(Report {
        text: table(&heading, "C", &rows),
        rows,
    })
}

fn one<'run>(
    place: &'run Place,
    cell: Cell,
    transactions: u64,
    ours: &'run Tidegate,
    c_loop: &'run Loop,
) -> Match<'run> {
    let sides = move |chosen: Option<u64>| {
        let transactions = chosen.unwrap_or(transactions);
        let run_ours = move |_| {
            let mut arguments = cell.arguments(transactions);
            arguments.push(format!("--library={}", c_loop.library));
            ours.run_bench("sqlite", &place.directory, &arguments)
        };
        let sides = vec![
            Side {
                name: side::OURS,
                run: Box::new(run_ours),
            },
            Side {
                name: side::C,
                run: Box::new(move |_| c_loop.run(cell, place, transactions)),
            },
            Side {
                name: side::CONTROL,
                run: Box::new(run_ours),
            },
        ];
        Ok(Sides {
            work_count: transactions,
            sides,
        })
    };
    Match {
        name: cell.name(place),
        peer: side::C,
        rule: Rule::Within(TOLERANCE),
        note: None,
        sides: Box::new(sides),
    }
}

impl Cell {
    /// All combinations.
    pub fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for journal in JOURNALS {
            for level in LEVELS {
                cells.extend(OPERATIONS.map(|operation| Self {
                    journal,
                    level,
                    operation,
                }));
            }
        }
        cells
    }

    /// True for the small selection of `--quick`.
    pub fn is_quick(&self) -> bool {
        matches!(self.journal, "delete" | "wal") && matches!(self.level, "off" | "full")
    }

    /// Its name in the results.
    pub fn name(&self, place: &Place) -> String {
        format!(
            "{}/sqlite-{}/{}/{}",
            place.name, self.operation, self.journal, self.level
        )
    }

    /// Arguments common to both sides.
    pub fn arguments(&self, transactions: u64) -> Vec<String> {
        vec![
            format!("--operation={}", self.operation),
            format!("--journal={}", self.journal),
            format!("--synchronous={}", self.level),
            format!("--transactions={transactions}"),
            "--tables=3".to_owned(),
            "--statements=prepared".to_owned(),
            "--transaction=explicit".to_owned(),
            "--keys=random".to_owned(),
            "--values=distinct".to_owned(),
            "--checkpoint=inside".to_owned(),
            "--seed=1".to_owned(),
        ]
    }
}

impl Loop {
    fn compile(amalgamation: Option<&Path>, build: &Path) -> Result<Self, JudgeError> {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/load/bench/judges/sqlite_loop.c");
        let Some(folder) = amalgamation else {
            let program = compile(&source, build, "sqlite_loop_system", &["-lsqlite3".to_owned()])?;
            let library = "system";
            return Ok(Self { program, library });
        };
        say("sqlite: the library is compiled for the C loop, which takes a minute or two, once");
        let mut further: Vec<String> = BUNDLED_FLAGS.map(str::to_owned).into();
        further.push("-DHAVE_FDATASYNC=1".to_owned());
        further.push(format!("-I{}", folder.display()));
        further.push(folder.join("sqlite3.c").display().to_string());
        further.extend(["-lpthread", "-ldl", "-lm"].map(str::to_owned));
        Ok(Self {
            program: compile(&source, build, "sqlite_loop_bundled", &further)?,
            library: "bundled",
        })
    }

    fn run(&self, cell: Cell, place: &Place, transactions: u64) -> Result<Speed, JudgeError> {
        let program = Program::new(&self.program, "it was compiled and is gone; try again")
            .args(cell.arguments(transactions))
            .args([&place.directory]);
        let line = program.line();
        let answer = program.answer()?;
        let answer: Answer = serde_json::from_str(answer.trim()).map_err(|error| JudgeError::Answer {
            command: line,
            expected: format!("transactions and a time ({error})"),
            found: beginning(&answer),
        })?;
        Ok(Speed::new(answer.transactions, answer.elapsed_ns))
    }
}
