//! Workloads whose threads repeat calls on small files, such as `tidegate bench varmail`.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use bench::{FileLoop, Loops, LoopsSpec, Workload};
use clap::Args;

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::quantity::{parse_bytes, parse_duration};

/// Arguments of a workload of this kind. `default_value_t` would have one value for all kinds.
#[derive(Args, Debug)]
#[command(after_help = format!(
    "{} Each thread has its own share of the files; 80 % of them exist at the start.\n\
     Exit codes: 0 done, 1 stopped before its end, 2 could not do it.",
    L::HELP
))]
pub struct BenchLoopsArguments<L: FileLoop> {
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    pub directory: PathBuf,
    /// Use a set of N files
    #[arg(long, value_name = "N", default_value = L::USUAL.files)]
    pub files: u32,
    /// Set the mean size of the files at the start, in bytes
    #[arg(long, value_name = "SIZE", default_value = L::USUAL.mean_size, value_parser = parse_bytes)]
    pub mean_size: u64,
    /// Run N threads
    #[arg(long, value_name = "N", default_value = L::USUAL.threads)]
    pub threads: u32,
    /// Append up to SIZE bytes at once, half of it on average
    #[arg(long, value_name = "SIZE", default_value = L::USUAL.append, value_parser = parse_bytes)]
    pub append: u64,
    /// Start no loop after this time
    #[arg(long, value_name = "TIME", default_value = L::USUAL.runtime, value_parser = parse_duration)]
    pub runtime: Duration,
    /// Run at most N loops in each thread [default: as many as fit in the time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub loops: Option<u64>,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
    #[arg(skip)]
    kind: PhantomData<fn() -> L>,
}

impl<L: FileLoop + 'static> WorkloadArguments for BenchLoopsArguments<L> {
    common_and_directory!();

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        let loops = Loops {
            threads: self.threads,
            files: self.files,
            mean_bytes: self.mean_size,
            append_bytes: self.append,
            run_ns: u64::try_from(self.runtime.as_nanos()).unwrap_or(u64::MAX),
            loops: self.loops,
        };
        Ok(Box::new(LoopsSpec::<L>::new(self.directory.clone(), loops)))
    }
}
