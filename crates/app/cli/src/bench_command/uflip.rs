//! `tidegate bench uflip`: probes the internals of a flash device.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use bench::uflip::{Baseline, Caching, Calibrate, Counts, MicroBenchmark, State, UflipSpec};
use bench::{DeviceAccess, Workload};
use clap::{Args, ValueEnum};
use results::words::unknown;

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::quantity::{parse_bytes, parse_duration};

/// Arguments of `tidegate bench uflip`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without further options: aligned random writes of 512 bytes to 8 MiB after a random format, \
                  which show pages and super-pages of a flash device. The record has one sample for each point. \
                  On a file, the file system is measured too. On a device, everything in its first --size bytes \
                  is LOST unless only SR and RR are run with --as-is.\n\
                  Exit codes: 0 done, 1 stopped before its end or areas reused, 2 could not do it."
)]
pub struct BenchUflipArguments {
    /// Measure on the file system of this existing directory; a subdirectory is created in it and removed. With
    /// --device: measure this block device
    pub directory: PathBuf,
    /// Measure a block device and allow overwriting its first --size bytes
    #[arg(long)]
    pub device: bool,
    /// Run these benchmarks, separated by commas: granularity, alignment, locality, partitioning, order, parallelism,
    /// mix, pause, bursts, or all
    #[arg(long, value_name = "NAMES", default_value = "granularity", value_parser = parse_benchmarks)]
    pub benchmarks: Benchmarks,
    /// Run these patterns, separated by commas: SR, RR, SW, RW (sequential or random, read or write), or all
    /// [default: RW if granularity is the only benchmark, otherwise all]
    #[arg(long, value_name = "NAMES", value_parser = parse_patterns)]
    pub patterns: Option<Patterns>,
    /// Keep IOs within SIZE bytes; a run moves no more than that
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_bytes)]
    pub size: u64,
    /// Set the size of each IO in bytes, unless it is the parameter of the benchmark
    #[arg(long, value_name = "SIZE", default_value = "32k", value_parser = parse_bytes)]
    pub io: u64,
    /// Issue N IOs per run [default: SR 128, RR 256, SW 1024, RW 5116, of which the first 50 are not counted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Option<u64>,
    /// Run each point N times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Pause between runs
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub pause: Duration,
    /// Pass IOs through this cache
    #[arg(long, value_name = "CACHE", value_enum, default_value_t)]
    pub through: Through,
    /// Skip the random format; a file is written once from start to end
    #[arg(long)]
    pub as_is: bool,
    /// Measure the pause needed between runs and the start-up and period of each pattern first, and use them
    #[arg(long)]
    pub calibrate: bool,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Selected benchmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Benchmarks(Vec<MicroBenchmark>);

/// Selected patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns(Vec<Baseline>);

/// Caches between IOs and the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Through {
    /// Bypass the page cache (O_DIRECT) and write through the device's cache (O_DSYNC)
    #[default]
    None,
    /// Use the device's cache (O_DIRECT without O_DSYNC)
    Device,
    /// Use the page cache; the results do not describe the device
    Page,
}

impl WorkloadArguments for BenchUflipArguments {
    common_and_directory!();

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(spec(self)))
    }
}

fn spec(arguments: &BenchUflipArguments) -> UflipSpec {
    let benchmarks = arguments.benchmarks.0.clone();
    let baselines = match &arguments.patterns {
        Some(patterns) => patterns.0.clone(),
        None if benchmarks == [MicroBenchmark::Granularity] => vec![Baseline::RandomWrite],
        None => Baseline::ALL.to_vec(),
    };
    let only_reads =
        arguments.as_is && !arguments.calibrate && !baselines.iter().any(|baseline| baseline.writes());
    let usual = UflipSpec::granularity(arguments.directory.clone(), arguments.size);
    UflipSpec {
        device: match (arguments.device, only_reads) {
            (false, _) => DeviceAccess::Refused,
            (true, true) => DeviceAccess::Read,
            (true, false) => DeviceAccess::Destroy,
        },
        caching: match arguments.through {
            Through::None => Caching::None,
            Through::Device => Caching::Device,
            Through::Page => Caching::Page,
        },
        benchmarks,
        baselines,
        io_bytes: arguments.io,
        counts: arguments.ios.map_or(Counts::USUAL, |ios| Counts {
            ios: [ios; 4],
            ignored: Counts::USUAL.ignored,
        }),
        runs: arguments.runs,
        pause_ns: u64::try_from(arguments.pause.as_nanos()).unwrap_or(u64::MAX),
        state: if arguments.as_is {
            State::AsIs
        } else {
            State::RandomFormat
        },
        calibrate: if arguments.calibrate {
            Calibrate::Yes
        } else {
            Calibrate::No
        },
        seed: arguments.common.seed,
        ..usual
    }
}

fn parse_benchmarks(text: &str) -> Result<Benchmarks, String> {
    named(text, MicroBenchmark::ALL, MicroBenchmark::name).map(Benchmarks)
}

fn parse_patterns(text: &str) -> Result<Patterns, String> {
    named(&text.to_ascii_uppercase(), Baseline::ALL, Baseline::name).map(Patterns)
}

/// Parses names separated by commas, or `all`.
fn named<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<Vec<T>, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(all.to_vec());
    }
    text.split(',')
        .map(|word| {
            let found = all.iter().find(|candidate| name(**candidate) == word.trim());
            found.copied().ok_or_else(|| {
                let names: Vec<&str> = all
                    .iter()
                    .map(|candidate| name(*candidate))
                    .chain(["all"])
                    .collect();
                unknown(word, &names)
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_commas_between() {
        let two = Benchmarks(vec![MicroBenchmark::Order, MicroBenchmark::Mix]);
        assert_eq!(parse_benchmarks("order, mix"), Ok(two));
        assert_eq!(
            parse_benchmarks("all"),
            Ok(Benchmarks(MicroBenchmark::ALL.to_vec()))
        );
        let writes = Patterns(vec![Baseline::SequentialWrite, Baseline::RandomWrite]);
        assert_eq!(parse_patterns("sw,RW"), Ok(writes));
        parse_benchmarks("disorder").expect_err("no such benchmark");
        parse_patterns("").expect_err("no pattern");
    }
}
