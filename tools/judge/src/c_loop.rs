//! The plain C loop as a side: `c/file_loop.c`, compiled on first use.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cell::{Cell, Engine, Pattern, Place};
use crate::error::JudgeError;
use crate::journal::Speed;
use crate::program::{Program, beginning, compile};

/// The compiled program.
#[derive(Debug)]
pub struct CLoop {
    program: PathBuf,
}

/// Optional work in addition to the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras<'run> {
    /// Reads the clock once per operation and counts the latency in a histogram.
    pub histogram: bool,
    /// Reads each file once before the measurement.
    pub warm: bool,
    /// Touches each page of a mapping before the measurement.
    pub prefault: bool,
    /// Drops the machine's caches before the measurement, even if the cell does not require it.
    pub cold: bool,
    /// Visits the offsets in this file instead of its own order.
    pub offsets: Option<&'run Path>,
}

#[derive(Deserialize)]
struct Answer {
    operations: u64,
    elapsed_ns: u64,
    longest_ns: u64,
}

impl CLoop {
    /// Compiles the loop into `build`.
    ///
    /// # Errors
    /// When there is no compiler.
    pub fn compile(build: &Path) -> Result<Self, JudgeError> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/file_loop.c");
        Ok(Self {
            program: compile(&source, build, "file_loop", &[])?,
        })
    }

    /// Runs a cell with files of `file_bytes` each, created in a temporary directory and removed afterwards.
    ///
    /// # Errors
    /// When it fails.
    pub fn run(
        &self,
        cell: &Cell,
        place: &Place,
        file_bytes: u64,
        extras: Extras<'_>,
    ) -> Result<Speed, JudgeError> {
        let folder = tempfile::Builder::new()
            .prefix("judge-c-")
            .tempdir_in(&place.directory)
            .map_err(|error| JudgeError::io("make a folder in", &place.directory, error))?;
        let program = Program::new(&self.program, "it was compiled and is gone; try again")
            .args(["--directory"])
            .args([folder.path()])
            .args(arguments(
                cell,
                file_bytes,
                extras.cold || cell.wants_cold(place),
                extras,
            ))
            .args(extras.offsets.map(|_| "--offsets"))
            .args(extras.offsets);
        let line = program.line();
        let answer = program.answer()?;
        let answer: Answer = serde_json::from_str(answer.trim()).map_err(|error| JudgeError::Answer {
            command: line,
            expected: format!("operations and a time ({error})"),
            found: beginning(&answer),
        })?;
        Ok(Speed {
            operations_count: answer.operations,
            elapsed_ns: answer.elapsed_ns,
            longest_ns: Some(answer.longest_ns),
        })
    }
}

fn arguments(cell: &Cell, file_bytes: u64, cold: bool, extras: Extras<'_>) -> Vec<String> {
    let mut arguments = vec![
        "--record".to_owned(),
        "4096".to_owned(),
        "--size".to_owned(),
        file_bytes.to_string(),
        "--threads".to_owned(),
        cell.threads.to_string(),
        "--read-percent".to_owned(),
        cell.pattern.read_percent().to_string(),
        "--mode".to_owned(),
        cell.mode.name().to_owned(),
    ];
    if let Engine::Ring(depth) = cell.engine {
        arguments.extend(["--uring".to_owned(), depth.to_string()]);
    }
    for (flag, wanted) in [
        ("--random", cell.pattern.is_random()),
        ("--new", cell.pattern == Pattern::Append),
        ("--final-sync", !cell.pattern.only_reads()),
        ("--cold", cold),
        ("--warm", extras.warm),
        ("--histogram", extras.histogram),
        ("--prefault", extras.prefault),
    ] {
        if wanted {
            arguments.push(flag.to_owned());
        }
    }
    arguments
}
