//! Journal of all runs of a comparison: an append-only file of JSON lines.
//!
//! An interrupted comparison resumes after its last complete round: the runs of a round are written together, because
//! only runs of the same round are compared.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use results::{RoundValue, nearest_f64};
use serde::{Deserialize, Serialize};

use crate::error::JudgeError;

/// Name and version of the format, first field of every line.
pub const SCHEMA: &str = "tidegate.agreement/1";

/// Operation count and time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Number of operations or transactions.
    pub operations_count: u64,
    /// Length of the timed window.
    pub elapsed_ns: u64,
    /// The longest window of one thread, from that thread's own start; `None` if the side does not report it.
    pub longest_ns: Option<u64>,
}

impl Speed {
    /// A speed without the window of the longest thread.
    pub const fn new(operations_count: u64, elapsed_ns: u64) -> Self {
        Self {
            operations_count,
            elapsed_ns,
            longest_ns: None,
        }
    }
}

/// One run of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// `fio`, `ceiling`, `sqlite` or `mobibench`.
    pub suite: String,
    /// Name of the cell.
    pub cell: String,
    /// Name of the side (`ours`, `ours-again`, `fio`, `c` ...).
    pub side: String,
    /// Round of the comparison, counted from 0.
    pub round: u32,
    /// Work per run (bytes of all files, or transactions), chosen at the first run of the cell.
    pub work_count: u64,
    /// Number of operations.
    pub operations_count: u64,
    /// Length of the timed window.
    pub elapsed_ns: u64,
    /// The longest window of one thread, from that thread's own start; `None` if the side does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ns: Option<u64>,
}

impl Run {
    fn per_s(&self, elapsed_ns: u64) -> RoundValue {
        RoundValue {
            round: self.round,
            value: nearest_f64(self.operations_count) * 1e9 / nearest_f64(elapsed_ns.max(1)),
        }
    }
}

/// All runs so far, and the file to which new ones are appended.
#[derive(Debug)]
pub struct Journal {
    suite: &'static str,
    path: Option<PathBuf>,
    runs: Vec<Run>,
}

impl Journal {
    /// Reads the runs of `suite` from a file; without a file nothing is kept.
    ///
    /// # Errors
    /// When the file can't be read or has an invalid line.
    pub fn open(suite: &'static str, path: Option<&Path>) -> Result<Self, JudgeError> {
        let mut runs = Vec::new();
        let text = match path.map(std::fs::read_to_string) {
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(JudgeError::io("read", path.unwrap_or(Path::new("")), error));
            }
            _ => String::new(),
        };
        // A last line without its end was being written when the machine stopped: it is measured again.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for (number, line) in text[..whole].lines().enumerate() {
            let run: Run = serde_json::from_str(line).map_err(|error| JudgeError::Line {
                path: path.unwrap_or(Path::new("")).to_owned(),
                line: number + 1,
                expected: SCHEMA,
                problem: error.to_string(),
            })?;
            if run.schema == SCHEMA && run.suite == suite {
                runs.push(run);
            }
        }
        if let Some(path) = path
            && whole < text.len()
        {
            let shortened = OpenOptions::new().write(true).open(path);
            let whole = u64::try_from(whole).unwrap_or(u64::MAX);
            shortened
                .and_then(|file| file.set_len(whole))
                .map_err(|error| JudgeError::io("shorten", path, error))?;
        }
        Ok(Self {
            suite,
            path: path.map(Path::to_owned),
            runs,
        })
    }

    /// Name of the suite.
    pub fn suite(&self) -> &'static str {
        self.suite
    }

    /// Work per run of a cell, if already chosen.
    pub fn work_count(&self, cell: &str) -> Option<u64> {
        let mut of_cell = self.runs.iter().filter(|run| run.cell == cell);
        of_cell.next().map(|run| run.work_count)
    }

    /// True when the journal has the round. A round's lines are written at once, so it is always complete.
    pub fn has_round(&self, cell: &str, round: u32) -> bool {
        self.runs.iter().any(|run| run.cell == cell && run.round == round)
    }

    /// Adds a round, in memory and in the file.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn add_round(
        &mut self,
        cell: &str,
        round: u32,
        work_count: u64,
        speeds: &[(&str, Speed)],
    ) -> Result<(), JudgeError> {
        let runs: Vec<Run> = speeds
            .iter()
            .map(|(side, speed)| Run {
                schema: SCHEMA.to_owned(),
                suite: self.suite.to_owned(),
                cell: cell.to_owned(),
                side: (*side).to_owned(),
                round,
                work_count,
                operations_count: speed.operations_count,
                elapsed_ns: speed.elapsed_ns,
                longest_ns: speed.longest_ns,
            })
            .collect();
        if let Some(path) = &self.path {
            append(path, &runs)?;
        }
        self.runs.extend(runs);
        Ok(())
    }

    /// Operations per second of one side, by round.
    pub fn rates(&self, cell: &str, side: &str) -> Vec<RoundValue> {
        self.of_side(cell, side)
            .map(|run| run.per_s(run.elapsed_ns))
            .collect()
    }

    /// Operations per second over the longest window of one thread; empty if the side does not report it.
    pub fn rates_by_thread(&self, cell: &str, side: &str) -> Vec<RoundValue> {
        let runs = self.of_side(cell, side);
        runs.filter_map(|run| Some(run.per_s(run.longest_ns?))).collect()
    }

    fn of_side(&self, cell: &str, side: &str) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.cell == cell && run.side == side)
    }
}

fn append(path: &Path, runs: &[Run]) -> Result<(), JudgeError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let mut file: File = opened.map_err(|error| JudgeError::io("open", path, error))?;
    let mut lines = Vec::new();
    for run in runs {
        serde_json::to_writer(&mut lines, run)
            .map_err(|error| JudgeError::io("write", path, error.into()))?;
        lines.push(b'\n');
    }
    file.write_all(&lines)
        .map_err(|error| JudgeError::io("write", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(elapsed_ns: u64) -> Speed {
        Speed::new(1000, elapsed_ns)
    }

    #[test]
    fn a_stopped_comparison_goes_on_after_its_last_whole_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open("fio", Some(&path)).unwrap();
        let round = [("ours", speed(1_000_000)), ("fio", speed(2_000_000))];
        journal.add_round("cell", 0, 7, &round).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"schema\":\"tide")).unwrap();

        let mut again = Journal::open("fio", Some(&path)).unwrap();
        assert_eq!(again.work_count("cell"), Some(7));
        assert!(again.has_round("cell", 0) && !again.has_round("cell", 1));
        again
            .add_round("cell", 1, 7, &[("ours", speed(500_000))])
            .unwrap();
        let read = Journal::open("fio", Some(&path)).unwrap();
        let rates: Vec<f64> = read.rates("cell", "ours").iter().map(|rate| rate.value).collect();
        assert_eq!(rates, [1e6, 2e6]);
        let other = Journal::open("sqlite", Some(&path)).unwrap();
        assert!(other.rates("cell", "ours").is_empty());
    }

    #[test]
    fn a_line_that_is_no_run_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        std::fs::write(&path, "{\"schema\":3}\n").unwrap();
        let message = Journal::open("fio", Some(&path)).unwrap_err().to_string();
        assert!(
            message.contains("runs.jsonl, line 1: expected a measurement"),
            "{message}"
        );
    }
}
