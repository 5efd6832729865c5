//! The job of each button. All steps run in one child process, which therefore knows the progress of the whole run.

use serde::{Deserialize, Serialize};

use crate::settings::{Settings, StepKind};

/// A button of the Measure tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// All seven steps.
    All,
    /// The four steps of file I/O.
    File,
    /// The three steps of SQLite.
    Sqlite,
    /// The steps chosen in the settings.
    Custom,
}

/// The steps of a button, in order; empty if Custom has none.
pub fn steps(preset: Preset, settings: &Settings) -> Vec<StepKind> {
    StepKind::ALL
        .into_iter()
        .filter(|kind| match preset {
            Preset::All => true,
            Preset::File => !kind.is_sqlite(),
            Preset::Sqlite => kind.is_sqlite(),
            Preset::Custom => settings.custom.contains(kind),
        })
        .collect()
}

/// The arguments of the program to run a job given on standard input.
pub fn arguments(settings: &Settings) -> Vec<String> {
    let rounds = settings.rounds.to_string();
    [
        "bench",
        "run",
        "--rounds",
        &rounds,
        "--label",
        "ui",
        "--json",
        "--progress",
        "json",
        // The server stores the records, as one run.
        "--no-history",
        "--",
        "-",
        &settings.directory,
    ]
    .map(str::to_owned)
    .into()
}

/// The steps as a job file. It contains only known words and numbers, so nothing needs quoting.
pub fn job(steps: &[StepKind], settings: &Settings) -> String {
    let Settings {
        threads,
        record_kib,
        mode,
        transactions,
        journal,
        synchronous,
        ..
    } = settings;
    let mut text = format!(
        "name = \"ui\"\n\
         [defaults]\nthreads = {threads}\n\
         [defaults.file]\nrecord = \"{record_kib}k\"\nmode = \"{mode}\"\n\
         [defaults.sqlite]\ntransactions = {transactions}\njournal = \"{journal}\"\n\
         synchronous = \"{synchronous}\"\n"
    );
    for kind in steps {
        text.push_str(&step(*kind, settings));
    }
    text
}

fn step(kind: StepKind, settings: &Settings) -> String {
    let name = kind.name();
    if kind.is_sqlite() {
        return format!("[[step]]\nname = \"{name}\"\nkind = \"sqlite\"\noperation = \"{name}\"\n");
    }
    // As in the original: reads start with a cold cache, and writes are synced inside the measured window.
    let (mib, way) = match kind {
        StepKind::SequentialRead | StepKind::RandomRead => {
            let mode = mode_of_reads(&settings.mode);
            (settings.read_mib, format!("mode = \"{mode}\"\ncache = \"cold\""))
        }
        _ => (
            settings.write_mib,
            "overwrite = true\nfsync-at-end = true".to_owned(),
        ),
    };
    format!("[[step]]\nname = \"{name}\"\nkind = \"file\"\npattern = \"{name}\"\nsize = \"{mib}m\"\n{way}\n")
}

/// Mode for reads: they have nothing to sync, and a read-only step with a sync after each write is refused.
fn mode_of_reads(mode: &str) -> &str {
    match mode {
        "fsync" | "fdatasync" => "buffered",
        "direct-fsync" | "direct-fdatasync" => "direct",
        "mmap-async" | "mmap-sync" => "mmap",
        other => other,
    }
}

/// Maximum space in bytes that a step of the plan needs on the file system.
pub fn bytes_needed(steps: &[StepKind], settings: &Settings) -> u64 {
    let size = |kind: &StepKind| match kind {
        StepKind::SequentialWrite | StepKind::RandomWrite => settings.write_mib,
        StepKind::SequentialRead | StepKind::RandomRead => settings.read_mib,
        StepKind::Insert | StepKind::Update | StepKind::Delete => 1,
    };
    let largest_mib = steps.iter().map(size).max().unwrap_or(0);
    (u64::from(largest_mib) * u64::from(settings.threads)) << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buttons_run_what_they_say() {
        let settings = Settings {
            custom: vec![StepKind::Delete, StepKind::RandomRead],
            ..Settings::default()
        };
        assert_eq!(steps(Preset::All, &settings), StepKind::ALL);
        assert_eq!(steps(Preset::File, &settings), StepKind::ALL[..4]);
        assert_eq!(steps(Preset::Sqlite, &settings), StepKind::ALL[4..]);
        assert_eq!(
            steps(Preset::Custom, &settings),
            [StepKind::RandomRead, StepKind::Delete]
        );
    }

    #[test]
    fn what_only_reads_is_not_told_to_sync_its_writes() {
        for (mode, expected) in [
            ("fsync", "buffered"),
            ("direct-fdatasync", "direct"),
            ("mmap-sync", "mmap"),
            ("direct-sync", "direct-sync"),
        ] {
            let settings = Settings {
                mode: mode.to_owned(),
                ..Settings::default()
            };
            let line = format!("\nmode = \"{expected}\"\n");
            assert!(step(StepKind::RandomRead, &settings).contains(&line), "{mode}");
            assert!(!step(StepKind::RandomWrite, &settings).contains("mode"), "{mode}");
        }
    }

    #[test]
    fn a_directory_can_not_be_taken_for_an_option() {
        let settings = Settings {
            directory: "--help".to_owned(),
            ..Settings::default()
        };
        assert!(arguments(&settings).ends_with(&["--", "-", "--help"].map(str::to_owned)));
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
