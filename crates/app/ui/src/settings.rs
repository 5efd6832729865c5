//! The settings file of the Settings tab. Defaults are those of the original app, if it has the setting.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::UiError;

/// Modes of file I/O, as in `tidegate bench file --mode`.
pub const MODES: [&str; 13] = [
    "buffered",
    "sync",
    "dsync",
    "direct",
    "direct-sync",
    "direct-dsync",
    "direct-fsync",
    "direct-fdatasync",
    "fsync",
    "fdatasync",
    "mmap",
    "mmap-async",
    "mmap-sync",
];

/// Journal modes, as in `tidegate bench sqlite --journal`.
pub const JOURNALS: [&str; 6] = ["delete", "truncate", "persist", "wal", "memory", "off"];

/// Synchronous settings, as in `tidegate bench sqlite --synchronous`.
pub const SYNCHRONOUS: [&str; 4] = ["off", "normal", "full", "extra"];

/// Upper limits of the settings.
const RECORD_KIB_MAX: u32 = 65_536;
const SIZE_MIB_MAX: u32 = 1_048_576;
const THREADS_MAX: u32 = 100;
const TRANSACTIONS_MAX: u32 = 10_000_000;
const ROUNDS_MAX: u32 = 1000;

/// One of the seven measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// Sequential write.
    SequentialWrite,
    /// Sequential read.
    SequentialRead,
    /// Random write.
    RandomWrite,
    /// Random read.
    RandomRead,
    /// SQLite insert.
    Insert,
    /// SQLite update.
    Update,
    /// SQLite delete.
    Delete,
}

impl StepKind {
    /// All steps, in the order of a run.
    pub const ALL: [Self; 7] = [
        Self::SequentialWrite,
        Self::SequentialRead,
        Self::RandomWrite,
        Self::RandomRead,
        Self::Insert,
        Self::Update,
        Self::Delete,
    ];

    /// Its name in jobs, in records and on the page.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequentialWrite => "sequential-write",
            Self::SequentialRead => "sequential-read",
            Self::RandomWrite => "random-write",
            Self::RandomRead => "random-read",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    /// Whether it is one of the three SQLite steps.
    pub const fn is_sqlite(self) -> bool {
        matches!(self, Self::Insert | Self::Update | Self::Delete)
    }
}

/// The values of the Settings tab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Directory to measure in; absolute.
    pub directory: String,
    /// Threads of file I/O and of SQLite.
    pub threads: u32,
    /// Size of the file to write, per thread.
    pub write_mib: u32,
    /// Size of the file to read, per thread.
    pub read_mib: u32,
    /// Size of each operation.
    pub record_kib: u32,
    /// One of [`MODES`].
    pub mode: String,
    /// Transactions of each SQLite step.
    pub transactions: u32,
    /// One of [`JOURNALS`].
    pub journal: String,
    /// One of [`SYNCHRONOUS`].
    pub synchronous: String,
    /// Rounds of each step.
    pub rounds: u32,
    /// Steps of the Custom button.
    pub custom: Vec<StepKind>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            directory: String::new(),
            threads: 1,
            write_mib: 10,
            read_mib: 32,
            record_kib: 4,
            mode: "direct".to_owned(),
            transactions: 100,
            journal: "truncate".to_owned(),
            synchronous: "full".to_owned(),
            rounds: 1,
            custom: StepKind::ALL.to_vec(),
        }
    }
}

impl Settings {
    /// The first invalid value, as field name and sentence; does not check the directory.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let numbers = [
            ("rounds", "rounds", self.rounds, ROUNDS_MAX),
            ("threads", "threads", self.threads, THREADS_MAX),
            ("write_mib", "MiB", self.write_mib, SIZE_MIB_MAX),
            ("read_mib", "MiB", self.read_mib, SIZE_MIB_MAX),
            ("record_kib", "KiB", self.record_kib, RECORD_KIB_MAX),
            (
                "transactions",
                "transactions",
                self.transactions,
                TRANSACTIONS_MAX,
            ),
        ];
        for (field, unit, value, largest) in numbers {
            if !(1..=largest).contains(&value) {
                return Some((field, format!("expected 1 to {largest} {unit}, found {value}")));
            }
        }
        for (field, mib) in [("write_mib", self.write_mib), ("read_mib", self.read_mib)] {
            if !(u64::from(mib) * 1024).is_multiple_of(u64::from(self.record_kib)) {
                return Some((
                    field,
                    format!(
                        "{mib} MiB are not a whole number of records of {} KiB",
                        self.record_kib
                    ),
                ));
            }
        }
        let choices: [(_, &String, &[&str]); 3] = [
            ("mode", &self.mode, &MODES),
            ("journal", &self.journal, &JOURNALS),
            ("synchronous", &self.synchronous, &SYNCHRONOUS),
        ];
        for (field, value, known) in choices {
            if !known.contains(&value.as_str()) {
                return Some((field, format!("`{value}` is none of {}", known.join(", "))));
            }
        }
        None
    }
}

/// The file of the settings.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    path: PathBuf,
    usual_directory: String,
}

impl SettingsFile {
    /// A settings file, and the default directory if the file does not exist.
    pub fn new(path: PathBuf, usual_directory: &Path) -> Self {
        Self {
            path,
            usual_directory: usual_directory.to_string_lossy().into_owned(),
        }
    }

    /// The stored settings, or the defaults if the file does not exist.
    pub fn load(&self) -> Result<Settings, UiError> {
        let wrong = |reason: String| UiError::Settings {
            path: self.path.clone(),
            reason,
        };
        let mut settings = match std::fs::read_to_string(&self.path) {
            Ok(text) => serde_json::from_str::<Settings>(&text).map_err(|error| wrong(error.to_string()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Settings::default(),
            Err(error) => return Err(wrong(error.to_string())),
        };
        if settings.directory.is_empty() {
            settings.directory.clone_from(&self.usual_directory);
        }
        match settings.problem() {
            Some((field, reason)) => Err(wrong(format!("{field}: {reason}"))),
            None => Ok(settings),
        }
    }

    /// Writes a temporary file, syncs and renames it.
    pub fn save(&self, settings: &Settings) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut text = serde_json::to_vec_pretty(settings)?;
        text.push(b'\n');
        outfile::write(&self.path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_and_begin_with_the_usual_ones() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = SettingsFile::new(folder.path().join("deep/ui.json"), Path::new("/home"));
        let usual = file.load().unwrap();
        assert_eq!(
            (usual.directory.as_str(), usual.mode.as_str()),
            ("/home", "direct")
        );
        let other = Settings {
            threads: 4,
            custom: vec![StepKind::RandomRead],
            ..usual
        };
        file.save(&other).unwrap();
        assert_eq!(file.load().unwrap(), other);
    }

    #[test]
    fn a_broken_file_is_named_with_the_next_step() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("ui.json");
        let file = SettingsFile::new(path.clone(), Path::new("/"));
        for text in ["{", "{\"threads\":0}", "{\"turbo\":1}"] {
            std::fs::write(&path, text).unwrap();
            let error = file.load().unwrap_err().to_string();
            assert!(
                error.contains("ui.json") && error.contains("move the file away"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_can_not_be_measured_is_named_by_field() {
        assert_eq!(Settings::default().problem(), None);
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.problem().map(|(field, _)| field)
        };
        assert_eq!(with(|settings| settings.threads = 0), Some("threads"));
        assert_eq!(with(|settings| settings.write_mib = u32::MAX), Some("write_mib"));
        assert_eq!(with(|settings| settings.record_kib = 3), Some("write_mib"));
        assert_eq!(with(|settings| settings.mode = "--help".to_owned()), Some("mode"));
        assert_eq!(with(|settings| settings.journal = String::new()), Some("journal"));
        assert_eq!(
            with(|settings| settings.synchronous = "x".to_owned()),
            Some("synchronous")
        );
    }
}
