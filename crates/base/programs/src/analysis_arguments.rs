//! The arguments of `tidegate-analysis`. `tidegate trace` accepts the same and passes them on, so that help, completion
//! and errors are the same whether the other program is installed or not.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::file_system_kind::FileSystemKind;
use crate::quantity::parse_bytes;

/// The commands of `tidegate-analysis`.
#[derive(Debug, Subcommand)]
pub enum AnalysisCommand {
    /// Analyse block traces: print or write a page, text or JSON with sizes, locality, owners, latencies, hot and
    /// short-lived files
    Report(TraceReportArguments),
    /// Query block traces in SQL, or run one of the named analyses
    Query(TraceQueryArguments),
    /// Compare the analyses of two block traces
    Compare(TraceCompareArguments),
    /// Run applications on file systems made for it, trace them, and draw figure 4 and table 3 of the bFUSE paper
    Apps(TraceAppsArguments),
}

/// Arguments of `tidegate trace report`.
#[derive(Args, Debug)]
#[command(
    after_help = "Several traces are reported as one; `tidegate trace compare` sets two side by side. The page needs nothing\n\
                  from outside and can be mailed as it is. docs/guide/trace-report.md says what each table counts.\n\
                  Exit codes: 0 done, 1 done but a trace was interrupted or lost records, 2 could not be done."
)]
pub struct TraceReportArguments {
    /// Traces, native or in a format that tidegate reads, or folders of native ones
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Write this file, - for standard output [default: NAME.html in the current folder; - for text and JSON]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print tables for the terminal instead of the page
    #[arg(long, conflicts_with = "json")]
    pub text: bool,
    /// Print one JSON document instead of the page
    #[arg(long)]
    pub json: bool,
    /// Limits of the queries
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Arguments of `tidegate trace query`.
#[derive(Args, Debug)]
#[command(
    after_help = "Tables: requests, runs, events (docs/formats/block-trace.md); views: io, pieces, file_types, typed_pieces,\n\
                  ordered_io (docs/guide/trace-report.md). Queries can only read.\n\
                  tidegate trace query phone.trace 'SELECT path, SUM(bytes) FROM runs GROUP BY path ORDER BY 2 DESC LIMIT 9'\n\
                  Exit codes: 0 done, 2 could not be done."
)]
pub struct TraceQueryArguments {
    /// Traces or folders of traces, followed by the query in SQL unless --named gives one
    #[arg(value_name = "TRACE", required_unless_present = "list")]
    pub words: Vec<PathBuf>,
    /// Run this named analysis
    #[arg(long, value_name = "NAME")]
    pub named: Option<String>,
    /// List the analyses; with --named, print the query of one
    #[arg(long)]
    pub list: bool,
    /// Print one JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Limits of the queries
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Arguments of `tidegate trace compare`.
#[derive(Args, Debug)]
#[command(
    after_help = "Rows are matched by their names. Counts, sizes and times have the ratio of B to A, shares the difference in\n\
                  points. Exit codes: 0 done, 2 could not be done."
)]
pub struct TraceCompareArguments {
    /// The trace, or folder of traces, to compare with
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The trace, or folder of traces, to compare
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Limits of the queries
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Arguments of `tidegate trace apps`.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs root, mkfs of each file system, and what `tidegate trace record` needs. Applications are those of\n\
                  `tidegate bench app --list`; sequential-write is 512 MiB in records of 512 KiB, the workload of the\n\
                  paper's table 3.\n\
                  Exit codes: 0 done, 1 a file system or application was left out or records were lost, 2 nothing was traced."
)]
pub struct TraceAppsArguments {
    /// Folder for images and traces; not on a device that is busy otherwise
    #[arg(value_name = "DIRECTORY", default_value = "/var/tmp")]
    pub directory: PathBuf,
    /// File systems to make
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ext4,xfs,btrfs")]
    pub file_systems: Vec<FileSystemKind>,
    /// Applications to run on each
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "camera,camcorder,gallery,sequential-write"
    )]
    pub apps: Vec<String>,
    /// Speed of the applications: real (a minute each), asap, or a factor such as 10. Only at real speed does the
    /// kernel write back in its own time, as it did in the paper; otherwise everything is synced at the end
    #[arg(long, value_name = "SPEED", default_value = "real")]
    pub speed: String,
    /// Size of each file system
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "2g")]
    pub size: u64,
    /// Also write a page with the figure and the tables
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// Keep the traces in this folder
    #[arg(long, value_name = "DIRECTORY")]
    pub keep: Option<PathBuf>,
    /// Limits of the queries
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Limits of the queries.
#[derive(Args, Debug)]
pub struct LimitArguments {
    /// Memory of all queries that run in parallel; larger sorts use temporary files
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "192m")]
    pub memory: u64,
    /// Analyses of a report that run in parallel [default: one per processor, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: Option<u8>,
}
