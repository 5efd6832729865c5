//! Arguments of `tidegate bench compare` and `tidegate bench show`, part of the single definition in `arguments.rs`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use series::{Requirement, Target, WORKLOADS, Workload};

use crate::history_command::log::StoreArguments;
use crate::quantity::parse_bytes;

/// Arguments of `tidegate bench compare`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n\
                  \x20 tidegate bench compare /ext4/a /mnt/b --workload write-512k\n\
                  \x20 tidegate bench compare before.jsonl after.jsonl\n\
                  \x20 tidegate bench compare 12 15\n\
                  \x20 tidegate bench compare --target native=/ext4/a --target tidegate=/mnt/b --workload \
                  write-512k \\\n\
                  \x20     --require 'tidegate:write-512k>=0.98' --output out/bench.jsonl --report out/bench.html\n\
                  \n\
                  Targets should be folders of one file system, or mounts over them. Ratios above 1 are faster \
                  than the baseline. Cold runs need root to drop caches. Exit codes: 0 done, 1 stopped, not \
                  measured as asked or a requirement not met, 2 could not do it.")]
pub struct BenchCompareArguments {
    /// Measure these directories, the first as the baseline; or compare two sets of records without measuring, each
    /// given as a record file, or an id or tag of the history
    #[arg(value_names = ["A", "B"], num_args = 2.., conflicts_with = "targets", required_unless_present = "targets")]
    pub sets: Vec<String>,
    /// Measure this existing directory and call it LABEL; give one for each configuration
    #[arg(
        long = "target",
        value_name = "LABEL=DIRECTORY",
        required_unless_present = "sets"
    )]
    pub targets: Vec<Target>,
    /// Run this workload; may be given several times [default: all]
    #[arg(long = "workload", value_name = "NAME", value_parser = workload())]
    pub workloads: Vec<Workload>,
    /// Run N rounds, each with every target once, in rotated order [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: Option<u32>,
    /// Set the size of sequential files, in bytes [default: 512m]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Use N small files in files-10k and files-10k-4k [default: 10000]
    #[arg(long, value_name = "N")]
    pub files: Option<u32>,
    /// Seed random orders and contents: the same seed gives the same run [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Compare the other targets with this one [default: native, or the first directory]
    #[arg(long, value_name = "LABEL")]
    pub baseline: Option<String>,
    /// Exit with 1 unless the median of this target's ratios is at least (with <=: at most) RATIO; may be given
    /// several times
    #[arg(long = "require", value_name = "LABEL:WORKLOAD>=RATIO")]
    pub requirements: Vec<Requirement>,
    /// Write every run record to this file as JSON lines; an interrupted run leaves them in FILE.partial
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write one Markdown table to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Print one run record per line as JSON instead of tables; for A and B, print the comparison as one JSON object
    #[arg(long)]
    pub json: bool,
    /// The history, for storing runs and looking up ids and tags.
    #[command(flatten)]
    pub store: StoreArguments,
}

fn workload() -> impl TypedValueParser<Value = Workload> {
    let values = WORKLOADS.map(|workload| PossibleValue::new(workload.name).help(workload.help));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Workload>())
}

/// Arguments of `tidegate bench show`.
#[derive(Args, Debug)]
pub struct BenchShowArguments {
    /// Read records written by `tidegate bench compare --output`
    pub file: PathBuf,
    /// Compare the other targets with this one
    #[arg(long, value_name = "LABEL", default_value = "native")]
    pub baseline: String,
    /// Print one Markdown table
    #[arg(long)]
    pub markdown: bool,
    /// Also write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}
