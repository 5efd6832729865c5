//! What each button runs, as command lines of this program.

use serde::{Deserialize, Serialize};

use crate::settings::{Settings, StepKind};

/// A button of the Measure tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// All seven.
    All,
    /// The four of file I/O.
    File,
    /// The three of SQLite.
    Sqlite,
    /// Those chosen in the settings.
    Custom,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is.
    pub kind: StepKind,
    /// The words after the program's name.
    pub arguments: Vec<String>,
}

/// The steps of a button, in order; empty when Custom has none.
pub fn steps(preset: Preset, settings: &Settings) -> Vec<Step> {
    StepKind::ALL
        .into_iter()
        .filter(|kind| match preset {
            Preset::All => true,
            Preset::File => !kind.is_sqlite(),
            Preset::Sqlite => kind.is_sqlite(),
            Preset::Custom => settings.custom.contains(kind),
        })
        .map(|kind| Step {
            kind,
            arguments: arguments(kind, settings),
        })
        .collect()
}

/// Bytes that the largest step of a plan needs on the file system at one time.
pub fn bytes_needed(steps: &[Step], settings: &Settings) -> u64 {
    let size = |step: &Step| match step.kind {
        StepKind::SequentialWrite | StepKind::RandomWrite => settings.write_mib,
        StepKind::SequentialRead | StepKind::RandomRead => settings.read_mib,
        StepKind::Insert | StepKind::Update | StepKind::Delete => 1,
    };
    let largest_mib = steps.iter().map(size).max().unwrap_or(0);
    (u64::from(largest_mib) * u64::from(settings.threads)) << 20
}

fn arguments(kind: StepKind, settings: &Settings) -> Vec<String> {
    let words: Vec<String> = match kind {
        StepKind::Insert => sqlite("insert", settings),
        StepKind::Update => sqlite("update", settings),
        StepKind::Delete => sqlite("delete", settings),
        StepKind::SequentialWrite => file("sequential-write", settings.write_mib, settings),
        StepKind::RandomWrite => file("random-write", settings.write_mib, settings),
        StepKind::SequentialRead => file("sequential-read", settings.read_mib, settings),
        StepKind::RandomRead => file("random-read", settings.read_mib, settings),
    };
    let rounds = ["--rounds".to_owned(), settings.rounds.to_string()];
    // The records are stored by the server, as one run.
    let form = [
        "--label",
        "ui",
        "--json",
        "--progress",
        "json",
        "--no-history",
        "--",
    ]
    .map(str::to_owned);
    words
        .into_iter()
        .chain(rounds)
        .chain(form)
        .chain([settings.directory.clone()])
        .collect()
}

fn file(pattern: &str, size_mib: u32, settings: &Settings) -> Vec<String> {
    let reads = pattern.ends_with("read");
    let mut words: Vec<String> = ["bench", "file", "--pattern", pattern, "--record"]
        .map(str::to_owned)
        .into();
    words.extend([
        format!("{}k", settings.record_kib),
        "--size".to_owned(),
        format!("{size_mib}m"),
        "--threads".to_owned(),
        settings.threads.to_string(),
        "--mode".to_owned(),
        settings.mode.clone(),
    ]);
    // As the original: what is read is not in memory, and what is written is synced inside the window.
    let last: &[&str] = if reads {
        &["--cache", "cold"]
    } else {
        &["--overwrite", "--fsync-at-end"]
    };
    words.extend(last.iter().copied().map(str::to_owned));
    words
}

fn sqlite(operation: &str, settings: &Settings) -> Vec<String> {
    [
        "bench",
        "sqlite",
        "--operation",
        operation,
        "--transactions",
        &settings.transactions.to_string(),
        "--journal",
        &settings.journal,
        "--synchronous",
        &settings.synchronous,
        "--threads",
        &settings.threads.to_string(),
    ]
    .map(str::to_owned)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(preset: Preset, settings: &Settings) -> Vec<StepKind> {
        steps(preset, settings).iter().map(|step| step.kind).collect()
    }

    #[test]
    fn buttons_run_what_they_say() {
        let settings = Settings {
            custom: vec![StepKind::Delete, StepKind::RandomRead],
            ..Settings::default()
        };
        assert_eq!(kinds(Preset::All, &settings), StepKind::ALL);
        assert_eq!(kinds(Preset::File, &settings), StepKind::ALL[..4]);
        assert_eq!(kinds(Preset::Sqlite, &settings), StepKind::ALL[4..]);
        assert_eq!(
            kinds(Preset::Custom, &settings),
            [StepKind::RandomRead, StepKind::Delete]
        );
    }

    #[test]
    fn a_directory_can_not_be_taken_for_an_option() {
        let settings = Settings {
            directory: "--help".to_owned(),
            ..Settings::default()
        };
        for step in steps(Preset::All, &settings) {
            assert_eq!(step.arguments[step.arguments.len() - 2..], ["--", "--help"]);
        }
    }

    #[test]
    fn the_largest_step_decides_the_space() {
        let settings = Settings {
            threads: 2,
            ..Settings::default()
        };
        assert_eq!(bytes_needed(&steps(Preset::File, &settings), &settings), 64 << 20);
        assert_eq!(bytes_needed(&[], &settings), 0);
    }
}
