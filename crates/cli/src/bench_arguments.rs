//! Arguments of `tidegate bench` and `tidegate demo`; part of the one definition in `arguments.rs`.

use std::path::PathBuf;

use bench::{Cache, DataPattern, Mode, Pattern};
use clap::{Args, Subcommand};

use crate::compare::Target;
use crate::compare::requirement::Requirement;
use crate::compare::workload::Workload;
use crate::quantity::parse_bytes;

/// What `tidegate bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Read or write files: throughput, operations per second, latency, processor use
    File(BenchFileArguments),
    /// Create, list, look at and remove many small files
    Metadata(BenchMetadataArguments),
    /// Compare directories: every workload on every target, in interleaved rounds, as ratios to a baseline
    Compare(BenchCompareArguments),
    /// Show the finished records of a comparison again
    Show(BenchShowArguments),
}

/// Arguments of `tidegate bench file`.
#[derive(Args, Debug)]
#[command(
    after_help = "The timed window holds the operations, each sync, and the close of every file.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchFileArguments {
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed
    pub directory: PathBuf,
    /// sequential-write, random-write, sequential-read, random-read, or mixed:PERCENT with that share of reads
    #[arg(long, value_name = "PATTERN", default_value = "sequential-write", value_parser = parse_pattern)]
    pub pattern: Pattern,
    /// Size of each operation in bytes
    #[arg(long, value_name = "SIZE", default_value = "512k", value_parser = parse_bytes)]
    pub record: u64,
    /// Bytes that each thread moves
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// Threads, each with its own file
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// All threads work in one file, each in its own part
    #[arg(long)]
    pub shared: bool,
    /// buffered, sync, dsync, direct, direct-sync, fsync or fdatasync (after each write), mmap or mmap-sync
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    pub mode: Mode,
    /// Overwrite a file of full length instead of filling an empty one
    #[arg(long)]
    pub overwrite: bool,
    /// End the timed window with an fsync of each file
    #[arg(long)]
    pub fsync_at_end: bool,
    /// Page cache when the window begins: cold, warm or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is", value_parser = parse_cache)]
    pub cache: Cache,
    /// What is written: random, zero, or constant:BYTE
    #[arg(long, value_name = "DATA", default_value = "random", value_parser = parse_data)]
    pub data: DataPattern,
    /// Leave the files where they are
    #[arg(long)]
    pub keep_files: bool,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Arguments of `tidegate bench metadata`.
#[derive(Args, Debug)]
pub struct BenchMetadataArguments {
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed
    pub directory: PathBuf,
    /// Files to make
    #[arg(long, value_name = "N", default_value_t = bench::metadata::USUAL_FILES)]
    pub files: u32,
    /// Content of each file in bytes, up to 1m
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_content)]
    pub content: u32,
    /// End creating and removing with an fsync of the folder
    #[arg(long)]
    pub sync_directory: bool,
    /// Caches before listing and looking: cold or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is", value_parser = parse_cache)]
    pub cache: Cache,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Arguments of `tidegate bench compare`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
                  tidegate bench compare --target native=/ext4/a --target tidegate=/mnt/b --workload write-512k \\\n      \
                  --require 'tidegate:write-512k>=0.98' --output out/bench.jsonl --report out/bench.html\n\n\
                  Targets should be folders of one file system, or mounts over them. Ratios above 1 are faster than \
                  the baseline.\nCold runs need root to drop caches. Exit codes: 0 done, 1 stopped, not measured as \
                  asked or a requirement not met,\n2 could not do it.")]
pub struct BenchCompareArguments {
    /// A name and an existing folder; give one for each configuration
    #[arg(long = "target", value_name = "LABEL=DIRECTORY", required = true, value_parser = Target::parse)]
    pub targets: Vec<Target>,
    /// What to run; may be given several times [default: all]
    #[arg(long = "workload", value_name = "NAME", value_enum)]
    pub workloads: Vec<Workload>,
    /// Rounds; each runs every target once, in rotated order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Size of sequential files in bytes
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// Small files of files-10k and files-10k-4k
    #[arg(long, value_name = "N", default_value_t = bench::metadata::USUAL_FILES)]
    pub files: u32,
    /// Decides random orders and contents: the same seed gives the same run
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// The target that the others are compared with
    #[arg(long, value_name = "LABEL", default_value = "native")]
    pub baseline: String,
    /// Exit with 1 unless the median of this target's ratios is so high; may be given several times
    #[arg(long = "require", value_name = "LABEL:WORKLOAD>=RATIO", value_parser = Requirement::parse)]
    pub requirements: Vec<Requirement>,
    /// Write every run record to this file, as JSON lines; a stopped run leaves them in FILE.partial
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a report to this file, in HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write one table in Markdown to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Print one run record in JSON on each line instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tidegate bench show`.
#[derive(Args, Debug)]
pub struct BenchShowArguments {
    /// Records that `tidegate bench compare --output` wrote
    pub file: PathBuf,
    /// The target that the others are compared with
    #[arg(long, value_name = "LABEL", default_value = "native")]
    pub baseline: String,
    /// Print one table in Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Also write a report to this file, in HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Arguments that all benchmarks share.
#[derive(Args, Debug)]
pub struct BenchCommonArguments {
    /// How often to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Decides random orders and contents: the same seed gives the same run
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Name of this configuration in the records
    #[arg(long, value_name = "NAME", default_value = "run")]
    pub label: String,
    /// Print one run record in JSON on each line instead of a summary
    #[arg(long)]
    pub json: bool,
    /// Also write the run records to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Arguments of `tidegate demo`.
#[derive(Args, Debug)]
#[command(
    after_help = "As root it makes an ext4 in an image file in DIRECTORY, on a loop device, and measures there; \
                  otherwise in\nDIRECTORY as it is. Everything that it makes is removed at the end, also after Ctrl-C. \
                  It takes less than two\nminutes: rounds, then sizes are cut down on slow machines."
)]
pub struct DemoArguments {
    /// Where to work; made when missing
    #[arg(default_value = "out")]
    pub directory: PathBuf,
    /// Rounds; each runs every configuration once, in rotated order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Size of the file written, in bytes
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// The report, one HTML file; the run records go beside it as .jsonl
    #[arg(long, value_name = "FILE", default_value = "out/demo.html")]
    pub report: PathBuf,
    /// Also draw the throughput of the configurations to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print the run records as JSON lines instead of the table
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 when the configurations are not in the order of the paper
    #[arg(long)]
    pub strict: bool,
}

fn parse_pattern(text: &str) -> Result<Pattern, String> {
    match text {
        "sequential-write" => Ok(Pattern::SequentialWrite),
        "random-write" => Ok(Pattern::RandomWrite),
        "sequential-read" => Ok(Pattern::SequentialRead),
        "random-read" => Ok(Pattern::RandomRead),
        _ => match text.strip_prefix("mixed:").map(str::parse) {
            Some(Ok(read_percent @ 0..=100)) => Ok(Pattern::Mixed { read_percent }),
            _ => Err(format!(
                "`{text}` is none of sequential-write, random-write, sequential-read, random-read, mixed:0 to mixed:100"
            )),
        },
    }
}

fn parse_cache(text: &str) -> Result<Cache, String> {
    match text {
        "cold" => Ok(Cache::Cold),
        "warm" => Ok(Cache::Warm),
        "as-is" => Ok(Cache::AsIs),
        other => Err(format!("`{other}` is none of cold, warm, as-is")),
    }
}

fn parse_data(text: &str) -> Result<DataPattern, String> {
    match text {
        "random" => Ok(DataPattern::Random),
        "zero" => Ok(DataPattern::Zero),
        _ => match text.strip_prefix("constant:").map(str::parse) {
            Some(Ok(byte)) => Ok(DataPattern::Constant(byte)),
            _ => Err(format!(
                "`{text}` is none of random, zero, constant:0 to constant:255"
            )),
        },
    }
}

fn parse_content(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("`{text}` is too much for a small file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_named_as_in_the_help_text() {
        assert_eq!(parse_pattern("sequential-read"), Ok(Pattern::SequentialRead));
        assert_eq!(parse_pattern("mixed:70"), Ok(Pattern::Mixed { read_percent: 70 }));
        for text in ["mixed", "mixed:101", "write", ""] {
            parse_pattern(text).expect_err(text);
        }
    }

    #[test]
    fn caches_and_data_are_named_as_in_the_help_text() {
        assert_eq!(parse_cache("cold"), Ok(Cache::Cold));
        assert_eq!(parse_data("constant:7"), Ok(DataPattern::Constant(7)));
        parse_cache("hot").expect_err("no such state");
        parse_data("constant:256").expect_err("no byte");
    }
}
