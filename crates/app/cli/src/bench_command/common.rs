//! Arguments and exit status shared by all benchmarks.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use runner::Sinks;

use super::progress::ProgressForm;
use crate::Finding;
use crate::history_command::log::StoreArguments;

/// Arguments shared by all benchmarks.
#[derive(Args, Debug)]
pub struct BenchCommonArguments {
    /// Run N rounds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Run N warm-up rounds first and discard them: they warm up device, caches and allocator
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub warmup: u32,
    /// Seed random orders and contents: the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Name this configuration in the records
    #[arg(long, value_name = "NAME", default_value = "run")]
    pub label: String,
    /// Print one run record per line as JSON instead of a summary
    #[arg(long)]
    pub json: bool,
    /// Also write the run records to this file, as JSON lines
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show progress on standard error in this form
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub progress: ProgressForm,
    /// Storage of the run in the history.
    #[command(flatten)]
    pub store: StoreArguments,
}

impl BenchCommonArguments {
    /// Destinations of the records.
    pub fn sinks(&self) -> Result<Sinks> {
        Ok(Sinks::new(self.output.as_deref(), self.store.sink())?)
    }
}

/// The exit status: any note is a finding, which gives exit code 1.
pub const fn finding(notes: &[String]) -> Finding {
    if notes.is_empty() {
        Finding::Nothing
    } else {
        Finding::Something
    }
}
