//! `tidegate bench tio`: the four phases of tiobench.

use std::path::PathBuf;

use anyhow::Result;
use bench::tio::TioSpec;
use bench::{Cache, Mode, Workload};
use clap::{Args, ValueEnum};

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::quantity::parse_bytes;

/// Arguments of `tidegate bench tio`.
#[derive(Args, Debug)]
#[command(
    after_help = "Phases: sequential write, random write, sequential read, random read, on the same files. Each \
                  window ends with the sync and the close of every file. Random blocks are drawn with \
                  replacement.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchTioArguments {
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    pub directory: PathBuf,
    /// Take settings that are not given from this preset
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub preset: TioPreset,
    /// Use SIZE bytes for all files together [default: 2g]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Set the size of each operation, in bytes [default: 8m, or 4k with --preset rand]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub block: Option<u64>,
    /// Run N threads, each with its own file [default: 1, or 4 with --preset rand]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Run N operations per thread in each random phase [default: the number of blocks in its file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub random_operations: Option<u64>,
    /// Set the I/O mode: buffered, sync, direct, mmap and the other modes of `bench file` that can read
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    pub mode: Mode,
    /// Drop the page cache before each read phase; otherwise these phases may read from memory
    #[arg(long)]
    pub cold: bool,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Presets from the packed-command study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TioPreset {
    /// Use tio_seq: 2 GiB in blocks of 8 MiB, one thread
    #[default]
    Seq,
    /// Use tio_rand: 2 GiB in blocks of 4 KiB, four threads
    Rand,
}

impl WorkloadArguments for BenchTioArguments {
    common_and_directory!();

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(spec(self)))
    }
}

fn spec(arguments: &BenchTioArguments) -> TioSpec {
    let directory = arguments.directory.clone();
    let preset = match arguments.preset {
        TioPreset::Seq => TioSpec::sequential(directory),
        TioPreset::Rand => TioSpec::random(directory),
    };
    TioSpec {
        total_bytes: arguments.size.unwrap_or(preset.total_bytes),
        block_bytes: arguments.block.unwrap_or(preset.block_bytes),
        threads: arguments.threads.unwrap_or(preset.threads),
        random_operations: arguments.random_operations,
        mode: arguments.mode,
        cache: if arguments.cold { Cache::Cold } else { Cache::AsIs },
        seed: arguments.common.seed,
        ..preset
    }
}
