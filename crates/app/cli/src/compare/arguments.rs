//! Arguments of `tidegate bench compare` and `tidegate bench show`; part of the one definition in `arguments.rs`.

use std::path::PathBuf;

use clap::Args;

use super::Target;
use super::requirement::Requirement;
use super::workload::Workload;
use crate::history_command::log::StoreArguments;
use crate::quantity::parse_bytes;

/// Arguments of `tidegate bench compare`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  tidegate bench compare /ext4/a /mnt/b --workload write-512k\n  \
                  tidegate bench compare before.jsonl after.jsonl\n  \
                  tidegate bench compare 12 15\n  \
                  tidegate bench compare --target native=/ext4/a --target tidegate=/mnt/b --workload write-512k \\\n      \
                  --require 'tidegate:write-512k>=0.98' --output out/bench.jsonl --report out/bench.html\n\n\
                  Targets should be folders of one file system, or mounts over them. Ratios above 1 are faster than \
                  the baseline.\nCold runs need root to drop caches. Exit codes: 0 done, 1 stopped, not measured as \
                  asked or a requirement not met,\n2 could not do it.")]
pub struct BenchCompareArguments {
    /// Folders to measure, the first as the baseline; or two sets of records to compare without measuring, each a file of
    /// records, an id or a tag of the history
    #[arg(value_names = ["A", "B"], num_args = 2.., conflicts_with = "targets", required_unless_present = "targets")]
    pub sets: Vec<String>,
    /// A name and an existing folder to measure; give one for each configuration
    #[arg(
        long = "target", value_name = "LABEL=DIRECTORY", required_unless_present = "sets",
        value_parser = Target::parse
    )]
    pub targets: Vec<Target>,
    /// What to run; may be given several times [default: all]
    #[arg(long = "workload", value_name = "NAME", value_enum)]
    pub workloads: Vec<Workload>,
    /// Rounds; each runs every target once, in rotated order [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Size of sequential files in bytes [default: 512m]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Small files of files-10k and files-10k-4k [default: 10000]
    #[arg(long, value_name = "N")]
    pub files: Option<u32>,
    /// Decides random orders and contents: the same seed gives the same run [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// The target that the others are compared with [default: native, or the first folder]
    #[arg(long, value_name = "LABEL")]
    pub baseline: Option<String>,
    /// Exit with 1 unless the median of this target's ratios is at least (or with <= at most) RATIO; may be given several
    /// times
    #[arg(long = "require", value_name = "LABEL:WORKLOAD>=RATIO", value_parser = Requirement::parse)]
    pub requirements: Vec<Requirement>,
    /// Write every run record to this file, as JSON lines; a stopped run leaves them in FILE.partial
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a report to this file, in HTML
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write one table in Markdown to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Print one run record in JSON on each line instead of tables; of A and B the comparison as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Where the run is stored, and ids and tags are looked up.
    #[command(flatten)]
    pub store: StoreArguments,
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
