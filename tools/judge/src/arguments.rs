//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::cell::Place;
use crate::trace_overhead::{DirectLoadArguments, TraceOverheadArguments};

/// Compares `tidegate bench` with outside programs in interleaved rounds.
///
/// Exit codes: 0 each cell agrees or its difference has a measured reason, 1 some difference has none, 2 could not do
/// it.
#[derive(Debug, Parser)]
#[command(name = "judge", version)]
pub struct Judge {
    /// What is compared.
    #[command(subcommand)]
    pub suite: Suite,
}

/// What is compared.
#[derive(Debug, Subcommand)]
pub enum Suite {
    /// File workloads with fio and a plain C loop, mode by mode
    Fio(FioArguments),
    /// 4 KiB operations in memory with a plain C loop: at least 0.95 of it
    Ceiling(Common),
    /// SQLite workloads with a C loop over sqlite3
    Sqlite(SqliteArguments),
    /// File workloads with the original Mobibench, where both mean the same
    Mobibench(MobibenchArguments),
    /// Direct I/O with and without `tidegate trace record`: what tracing costs, and whether it loses records
    TraceOverhead(TraceOverheadArguments),
    /// The I/O loop of `trace-overhead`
    #[command(hide = true)]
    DirectLoad(DirectLoadArguments),
}

/// Arguments that all suites share.
#[derive(Args, Debug)]
pub struct Common {
    /// The program under test
    #[arg(long, value_name = "PATH")]
    pub tidegate: PathBuf,
    /// A folder to measure in, with a name for the results; may be repeated. `tmpfs` is never cold
    #[arg(long = "directory", value_name = "NAME=DIR", required = true, value_parser = parse_place)]
    pub places: Vec<Place>,
    /// Rounds of each cell
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds for the suite: what the rounds leave goes to cells whose interval is too wide to tell
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub budget: u64,
    /// Only cells whose names contain one of these, comma-separated
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub modes: Vec<String>,
    /// Keep every run in this file, and go on with what it has
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Append the table of the results to this file
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Where programs in C are compiled to
    #[arg(long, value_name = "DIR", default_value = "target/judge")]
    pub build: PathBuf,
    /// A small choice of cells and shorter windows
    #[arg(long)]
    pub quick: bool,
    /// Name the cells and measure nothing
    #[arg(long)]
    pub list: bool,
}

/// Arguments of `judge fio`.
#[derive(Args, Debug)]
pub struct FioArguments {
    /// What all suites share.
    #[command(flatten)]
    pub common: Common,
    /// fio; without it ours is compared with the C loop alone
    #[arg(long, value_name = "PATH", default_value = "fio")]
    pub fio: PathBuf,
    /// Numbers of threads
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Vec<u32>,
    /// How long a window should be, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 120)]
    pub window: u64,
}

/// Arguments of `judge sqlite`.
#[derive(Args, Debug)]
pub struct SqliteArguments {
    /// What all suites share.
    #[command(flatten)]
    pub common: Common,
    /// Transactions of a run
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub transactions: u32,
    /// Folder with the sqlite3.c that is inside tidegate; without it both sides use the system's library
    #[arg(long, value_name = "DIR")]
    pub amalgamation: Option<PathBuf>,
}

/// Arguments of `judge mobibench`.
#[derive(Args, Debug)]
pub struct MobibenchArguments {
    /// What all suites share.
    #[command(flatten)]
    pub common: Common,
    /// The original, built; without it nothing is compared
    #[arg(long, value_name = "PATH")]
    pub mobibench: Option<PathBuf>,
}

impl Common {
    /// True when a cell was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.modes.is_empty() || self.modes.iter().any(|part| name.contains(part.as_str()))
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
