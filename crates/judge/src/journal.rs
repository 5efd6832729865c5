//! Every run of a comparison, one JSON object on each line of a file that only grows.
//!
//! A comparison that was stopped goes on where it was: a round counts when each side of it is there, as only sides of
//! one round are compared. What a stopped round left is measured again; of two lines for one run the later counts.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use results::{RoundValue, nearest_f64};
use serde::{Deserialize, Serialize};

use crate::error::JudgeError;

/// Name and version of the format, first field of every line.
pub const SCHEMA: &str = "tidegate.agreement/1";

/// How much was done in how much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Operations, or transactions.
    pub operations_count: u64,
    /// The timed window.
    pub elapsed_ns: u64,
}

/// One run of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// `fio`, `ceiling`, `sqlite` or `mobibench`.
    pub suite: String,
    /// What was compared.
    pub cell: String,
    /// Who ran (`ours`, `ours-again`, `fio`, `c` ...).
    pub side: String,
    /// Round of the comparison, counted from 0.
    pub round: u32,
    /// How much one run does (bytes of all files, or transactions), chosen at the first run of the cell.
    pub work_count: u64,
    /// Operations done.
    pub operations_count: u64,
    /// The timed window.
    pub elapsed_ns: u64,
}

impl Run {
    /// Operations a second.
    fn per_s(&self) -> f64 {
        nearest_f64(self.operations_count) * 1e9 / nearest_f64(self.elapsed_ns.max(1))
    }
}

/// The runs so far, and where further ones go.
#[derive(Debug)]
pub struct Journal {
    suite: &'static str,
    path: Option<PathBuf>,
    runs: Vec<Run>,
}

impl Journal {
    /// Reads the runs of `suite` that a file has; without a file nothing is kept.
    ///
    /// # Errors
    /// When the file can't be read or has a line that is no run.
    pub fn open(suite: &'static str, path: Option<&Path>) -> Result<Self, JudgeError> {
        let mut runs = Vec::new();
        let text = match path.map(std::fs::read_to_string) {
            Some(Ok(text)) => text,
            Some(Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(JudgeError::io("read", path.unwrap_or(Path::new("")), error));
            }
            _ => String::new(),
        };
        // A line without its end was being written when the machine stopped: it is measured again.
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

    /// How much one run of a cell does, when it has been chosen.
    pub fn work_count(&self, cell: &str) -> Option<u64> {
        let mut of_cell = self.runs.iter().filter(|run| run.cell == cell);
        of_cell.next().map(|run| run.work_count)
    }

    /// True when each side of a round is there.
    pub fn has_round(&self, cell: &str, round: u32, sides: &[&str]) -> bool {
        sides.iter().all(|side| {
            self.runs
                .iter()
                .any(|run| run.cell == cell && run.round == round && run.side == *side)
        })
    }

    /// Adds one run to the file and to what is known.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn add(
        &mut self,
        cell: &str,
        side: &str,
        round: u32,
        work_count: u64,
        speed: Speed,
    ) -> Result<(), JudgeError> {
        let run = Run {
            schema: SCHEMA.to_owned(),
            suite: self.suite.to_owned(),
            cell: cell.to_owned(),
            side: side.to_owned(),
            round,
            work_count,
            operations_count: speed.operations_count,
            elapsed_ns: speed.elapsed_ns,
        };
        if let Some(path) = &self.path {
            append(path, &run)?;
        }
        self.runs.push(run);
        Ok(())
    }

    /// Operations a second of one side, by round.
    pub fn rates(&self, cell: &str, side: &str) -> Vec<RoundValue> {
        let mut latest = BTreeMap::new();
        for run in &self.runs {
            if run.cell == cell && run.side == side {
                latest.insert(run.round, run.per_s());
            }
        }
        latest
            .into_iter()
            .map(|(round, value)| RoundValue { round, value })
            .collect()
    }
}

fn append(path: &Path, run: &Run) -> Result<(), JudgeError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let mut file: File = opened.map_err(|error| JudgeError::io("open", path, error))?;
    let mut line = serde_json::to_vec(run).unwrap_or_default();
    line.push(b'\n');
    file.write_all(&line)
        .map_err(|error| JudgeError::io("write", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(elapsed_ns: u64) -> Speed {
        Speed {
            operations_count: 1000,
            elapsed_ns,
        }
    }

    #[test]
    fn a_stopped_comparison_goes_on_after_its_last_whole_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open("fio", Some(&path)).unwrap();
        journal.add("cell", "ours", 0, 7, speed(1_000_000)).unwrap();
        journal.add("cell", "fio", 0, 7, speed(2_000_000)).unwrap();
        journal.add("cell", "ours", 1, 7, speed(1_000_000)).unwrap();
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"schema\":\"tide");
        std::fs::write(&path, text).unwrap();

        let mut again = Journal::open("fio", Some(&path)).unwrap();
        assert_eq!(again.work_count("cell"), Some(7));
        assert!(again.has_round("cell", 0, &["ours", "fio"]));
        assert!(!again.has_round("cell", 1, &["ours", "fio"]));
        again.add("cell", "ours", 1, 7, speed(500_000)).unwrap();
        let rates = Journal::open("fio", Some(&path)).unwrap().rates("cell", "ours");
        assert_eq!(rates.len(), 2);
        assert_eq!(rates[1].value, 2e6);
        assert!(
            Journal::open("sqlite", Some(&path))
                .unwrap()
                .rates("cell", "ours")
                .is_empty()
        );
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
