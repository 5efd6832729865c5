//! `tidegate bench` as a side: builds its arguments and reads the speed from its record.

use std::path::{Path, PathBuf};
use std::time::Duration;

use results::{RunRecord, Sample, counter};

use crate::cell::{Cell, Engine, Pattern, Place, TMPFS};
use crate::error::JudgeError;
use crate::journal::Speed;
use crate::program::{Program, beginning};

const NEXT_STEP: &str = "build it, and give its path with --tidegate";

/// The program under test.
#[derive(Debug)]
pub struct Tidegate {
    path: PathBuf,
    file_help: String,
}

impl Tidegate {
    /// Runs the program's help to learn its options.
    ///
    /// # Errors
    /// When it does not run.
    pub fn find(path: &Path) -> Result<Self, JudgeError> {
        let help = Program::new(path, NEXT_STEP).args(["bench", "file", "--help"]);
        Ok(Self {
            path: path.to_owned(),
            file_help: help.answer()?,
        })
    }

    /// True when `bench file` has this option or option value.
    pub fn knows(&self, word: &str) -> bool {
        self.file_help.contains(word)
    }

    /// Runs `bench file` for a cell with files of `file_bytes` each.
    ///
    /// # Errors
    /// When it fails or deviates from the requested measurement.
    pub fn run_file(
        &self,
        cell: &Cell,
        place: &Place,
        file_bytes: u64,
        round: u32,
    ) -> Result<Speed, JudgeError> {
        let cold = cell.wants_cold(place);
        let mut arguments = arguments(cell, file_bytes, if cold { "cold" } else { "as-is" });
        arguments.push(format!("--seed={}", round + 1));
        self.run_bench("file", &place.directory, &arguments)
    }

    /// Runs `bench file` for a cell on one cached file of `file_bytes`; pages of a mapping are present.
    ///
    /// # Errors
    /// When it fails or deviates from the requested measurement.
    pub fn run_in_memory(&self, cell: &Cell, place: &Place, file_bytes: u64) -> Result<Speed, JudgeError> {
        let mut arguments = arguments(cell, file_bytes, "warm");
        arguments.push("--seed=1".to_owned());
        self.run_bench("file", &place.directory, &arguments)
    }

    /// Runs `bench file` for a cell like the original Mobibench: cold, in its order.
    ///
    /// # Errors
    /// When it fails or deviates from the requested measurement.
    pub fn run_like_mobibench(
        &self,
        cell: &Cell,
        place: &Place,
        file_bytes: u64,
    ) -> Result<Speed, JudgeError> {
        let cache = if place.name == TMPFS { "as-is" } else { "cold" };
        let mut arguments = arguments(cell, file_bytes, cache);
        if cell.pattern.is_random() {
            arguments.push("--order=mobibench".to_owned());
        }
        self.run_bench("file", &place.directory, &arguments)
    }

    /// The offsets visited by [`Self::run_in_memory`], one per line.
    ///
    /// # Errors
    /// When it fails.
    pub fn offsets(&self, cell: &Cell, place: &Place, file_bytes: u64) -> Result<String, JudgeError> {
        let program = Program::new(&self.path, NEXT_STEP)
            .args(["bench", "file"])
            .args([&place.directory])
            .args(arguments(cell, file_bytes, "as-is"))
            .args(["--seed=1", "--print-offsets"]);
        program.answer()
    }

    /// Runs a workload of `bench` that prints one record.
    ///
    /// # Errors
    /// When it fails or deviates from the requested measurement.
    pub fn run_bench(
        &self,
        workload: &str,
        directory: &Path,
        arguments: &[String],
    ) -> Result<Speed, JudgeError> {
        let program = Program::new(&self.path, NEXT_STEP)
            .args(["bench", workload])
            .args([directory])
            .args(arguments)
            .args(["--json", "--progress=off", "--no-history"]);
        let line = program.line();
        let answer = program.answer()?;
        let unexpected = |expected: String| JudgeError::Answer {
            command: line.clone(),
            expected,
            found: beginning(&answer),
        };
        let record: RunRecord = serde_json::from_str(answer.trim())
            .map_err(|error| unexpected(format!("one run record ({error})")))?;
        if !record.complete {
            return Err(unexpected("a complete run".to_owned()));
        }
        speed(&record).ok_or_else(|| unexpected("operations and a time".to_owned()))
    }
}

/// Operations over the time until the last sync returned. The close is excluded, because no peer counts it.
fn speed(record: &RunRecord) -> Option<Speed> {
    let operations: Vec<&Sample> = record
        .samples
        .iter()
        .filter(|sample| !matches!(sample.operation.as_str(), "sync" | "final-sync"))
        .collect();
    let elapsed_ns = operations
        .iter()
        .map(|sample| sample.elapsed_ns - sample.close_ns.min(sample.elapsed_ns))
        .max()?;
    let operations_count = operations.iter().map(|sample| sample.operations_count).sum();
    // A time in nanoseconds from a counter: whole, and far below 2^53.
    let longest = record.counters.get(counter::LONGEST_WORKER);
    let longest_ns = longest.and_then(|ns| u64::try_from(Duration::from_secs_f64(ns / 1e9).as_nanos()).ok());
    (operations_count > 0 && elapsed_ns > 0).then_some(Speed {
        operations_count,
        elapsed_ns,
        longest_ns,
    })
}

fn arguments(cell: &Cell, file_bytes: u64, cache: &str) -> Vec<String> {
    let pattern = match cell.pattern {
        Pattern::SequentialWrite | Pattern::Append => "sequential-write",
        Pattern::RandomWrite => "random-write",
        Pattern::Mixed => "mixed:50",
        Pattern::SequentialRead => "sequential-read",
        Pattern::RandomRead => "random-read",
    };
    let mut arguments = vec![
        format!("--pattern={pattern}"),
        "--record=4096".to_owned(),
        format!("--size={file_bytes}"),
        format!("--threads={}", cell.threads),
        format!("--mode={}", cell.mode.name()),
        format!("--cache={cache}"),
        "--data=zero".to_owned(),
    ];
    if matches!(cell.pattern, Pattern::SequentialWrite | Pattern::RandomWrite) {
        arguments.push("--overwrite".to_owned());
    }
    if !cell.pattern.only_reads() {
        arguments.push("--fsync-at-end".to_owned());
    }
    if let Engine::Ring(depth) = cell.engine {
        arguments.extend(["--engine=io_uring".to_owned(), format!("--depth={depth}")]);
    }
    arguments
}
