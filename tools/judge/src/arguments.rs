//! Command line arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::cell::Place;
use crate::contest::Effort;
use crate::trace_overhead::{DirectLoadArguments, TraceOverheadArguments};

/// Compares `tidegate bench` with outside programs in interleaved rounds.
///
/// Exit codes: 0 every cell agrees or its difference has a measured reason, 1 a difference has no known reason, 2 the
/// comparison could not be made.
#[derive(Debug, Parser)]
#[command(name = "judge", version)]
pub struct Judge {
    /// The suite to run.
    #[command(subcommand)]
    pub suite: Suite,
}

/// Suites, each with its own peer.
#[derive(Debug, Subcommand)]
pub enum Suite {
    /// Compare file workloads with fio and a plain C loop, mode by mode
    Fio(FioArguments),
    /// Compare 4 KiB operations in memory with a plain C loop; at least 0.95 of its speed is required
    Ceiling(Common),
    /// Compare file and SQLite workloads with those of another build of tidegate
    Builds(BuildsArguments),
    /// Compare SQLite workloads with a C loop over sqlite3
    Sqlite(SqliteArguments),
    /// Compare file workloads with the original Mobibench, for modes with the same meaning in both
    Mobibench(MobibenchArguments),
    /// Measure direct I/O with and without `tidegate trace record`: overhead and lost records
    TraceOverhead(TraceOverheadArguments),
    /// Run the I/O loop of `trace-overhead`
    #[command(hide = true)]
    DirectLoad(DirectLoadArguments),
}

/// Arguments shared by all suites.
#[derive(Args, Debug)]
pub struct Common {
    /// Program under test
    #[arg(long, value_name = "PATH")]
    pub tidegate: PathBuf,
    /// Measure in directory DIR and call it NAME in the results; may be repeated. `tmpfs` is never measured cold
    #[arg(long = "directory", value_name = "NAME=DIR", required = true, value_parser = parse_place)]
    pub places: Vec<Place>,
    /// Run N rounds of each cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Spend up to SECONDS on the suite: time left after the rounds goes to cells with too wide an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub budget: u64,
    /// Run only cells whose names contain one of these parts, comma-separated
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub modes: Vec<String>,
    /// Append every run to this file and resume from the runs it already has
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Append the result table to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Compile C programs into this directory
    #[arg(long, value_name = "DIR", default_value = "target/judge")]
    pub build: PathBuf,
    /// Run a small selection of cells with shorter windows
    #[arg(long)]
    pub quick: bool,
    /// List the cells without measuring
    #[arg(long)]
    pub list: bool,
}

/// Arguments of `judge fio`.
#[derive(Args, Debug)]
pub struct FioArguments {
    /// Arguments shared by all suites.
    #[command(flatten)]
    pub common: Common,
    /// Use this fio; if it is missing, tidegate is compared with the C loop only
    #[arg(long, value_name = "PATH", default_value = "fio")]
    pub fio: PathBuf,
    /// Run with these numbers of threads
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    /// Aim for timed windows of this length, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 120)]
    pub window: u64,
}

/// Arguments of `judge builds`.
#[derive(Args, Debug)]
pub struct BuildsArguments {
    /// Arguments shared by all suites.
    #[command(flatten)]
    pub common: Common,
    /// Compare with this build, such as that of an earlier revision
    #[arg(long, value_name = "PATH")]
    pub old: PathBuf,
}

/// Arguments of `judge sqlite`.
#[derive(Args, Debug)]
pub struct SqliteArguments {
    /// Arguments shared by all suites.
    #[command(flatten)]
    pub common: Common,
    /// Run N transactions per run
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub transactions: u32,
    /// Use the sqlite3.c in this directory, the one built into tidegate; by default both sides use the system's
    /// library
    #[arg(long, value_name = "DIR")]
    pub amalgamation: Option<PathBuf>,
}

/// Arguments of `judge mobibench`.
#[derive(Args, Debug)]
pub struct MobibenchArguments {
    /// Arguments shared by all suites.
    #[command(flatten)]
    pub common: Common,
    /// Compare with this build of the original; without it the suite is skipped
    #[arg(long, value_name = "PATH")]
    pub mobibench: Option<PathBuf>,
}

impl Common {
    /// True when the cell is selected.
    pub fn wants(&self, name: &str) -> bool {
        self.modes.is_empty() || self.modes.iter().any(|part| name.contains(part.as_str()))
    }

    /// The effort for a suite of which a round of one match takes so long.
    pub fn effort(&self, round: Duration) -> Effort {
        Effort {
            rounds: self.rounds,
            budget: Duration::from_secs(self.budget),
            round,
        }
    }
}

fn parse_place(text: &str) -> Result<Place, String> {
    let Some((name, directory)) = text.split_once('=') else {
        return Err(format!("`{text}` is not NAME=DIR"));
    };
    let directory = std::fs::canonicalize(directory).map_err(|error| format!("{directory}: {error}"))?;
    Ok(Place {
        name: name.to_owned(),
        directory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Judge::command().debug_assert();
    }

    #[test]
    fn a_place_needs_a_name_and_an_existing_folder() {
        let place = parse_place("tmpfs=/").unwrap();
        assert_eq!(
            (place.name.as_str(), place.directory),
            ("tmpfs", PathBuf::from("/"))
        );
        assert!(parse_place("/").unwrap_err().contains("NAME=DIR"));
        assert!(parse_place("x=/nowhere").unwrap_err().contains("/nowhere"));
    }
}
