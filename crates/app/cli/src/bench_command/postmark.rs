//! `tidegate bench postmark`: creates and deletes many small files with the algorithm of PostMark 1.51.

use std::path::PathBuf;

use anyhow::Result;
use bench::Workload;
use bench::postmark::{Buffering, PostmarkSpec};
use clap::{Args, ValueEnum};

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::quantity::parse_bytes;

/// Arguments of `tidegate bench postmark`.
#[derive(Args, Debug)]
#[command(
    after_help = "The same settings do the same operations on the same files as PostMark 1.51; appends and \
                  creates that its rules skip are counted. Sizes are powers of 1024. Nothing is synced, as in \
                  the original.\n\
                  Exit codes: 0 done, 1 stopped before its end, 2 could not do it."
)]
pub struct BenchPostmarkArguments {
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    pub directory: PathBuf,
    /// Take settings that are not given from this preset
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub preset: PostmarkPreset,
    /// Create a pool of N files [default: 500]
    #[arg(long, value_name = "N")]
    pub files: Option<u32>,
    /// Run N transactions, each one read or append, followed by one create or delete [default: 500]
    #[arg(long, value_name = "N")]
    pub transactions: Option<u32>,
    /// Set the minimum file size, in bytes [default: 500]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub size_low: Option<u32>,
    /// Set the maximum file size, in bytes; with only --size-low, all files have that size [default: 10000]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub size_high: Option<u32>,
    /// Set the size of each read, in bytes [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub read_block: Option<u32>,
    /// Set the size of each write, in bytes [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub write_block: Option<u32>,
    /// Set the chance of a read instead of an append, in tenths; -1 for neither [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=10))]
    pub read_bias: Option<i8>,
    /// Set the chance of a create instead of a delete, in tenths; -1 for neither [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=10))]
    pub create_bias: Option<i8>,
    /// Spread the files over N subdirectories [default: 0]
    #[arg(long, value_name = "N")]
    pub subdirectories: Option<u32>,
    /// Issue one call per block; by default blocks are gathered to 4 KiB like in the original's C library
    #[arg(long)]
    pub unbuffered: bool,
    /// Set the original's seed, which determines files, sizes, order and content of every round; --seed has no effect
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub postmark_seed: u32,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Presets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PostmarkPreset {
    /// Use the defaults of PostMark 1.51: 500 files of 500 to 10,000 bytes, 500 transactions
    #[default]
    Original,
    /// Use the load of the flex-group study: 5,000 files of 1 MiB, 10,000 transactions (5 GiB)
    FlexGroup,
}

impl WorkloadArguments for BenchPostmarkArguments {
    common_and_directory!();

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(spec(self)))
    }
}

fn spec(arguments: &BenchPostmarkArguments) -> PostmarkSpec {
    let directory = arguments.directory.clone();
    let preset = match arguments.preset {
        PostmarkPreset::Original => PostmarkSpec::original_defaults(directory),
        PostmarkPreset::FlexGroup => PostmarkSpec::flex_group(directory),
    };
    let bias = |given: Option<i8>, preset: Option<u8>| match given {
        Some(chance) => u8::try_from(chance).ok(),
        None => preset,
    };
    PostmarkSpec {
        files: arguments.files.unwrap_or(preset.files),
        transactions: arguments.transactions.unwrap_or(preset.transactions),
        size_low_bytes: arguments.size_low.unwrap_or(preset.size_low_bytes),
        // Like `set size` of the original: a single number gives files of one size.
        size_high_bytes: arguments
            .size_high
            .or(arguments.size_low)
            .unwrap_or(preset.size_high_bytes),
        read_block_bytes: arguments.read_block.unwrap_or(preset.read_block_bytes),
        write_block_bytes: arguments.write_block.unwrap_or(preset.write_block_bytes),
        read_bias: bias(arguments.read_bias, preset.read_bias),
        create_bias: bias(arguments.create_bias, preset.create_bias),
        subdirectories: arguments.subdirectories.unwrap_or(preset.subdirectories),
        buffering: if arguments.unbuffered {
            Buffering::None
        } else {
            preset.buffering
        },
        postmark_seed: arguments.postmark_seed,
        directory: preset.directory,
    }
}

fn parse_small_bytes(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("`{text}` is too much for a file of PostMark"))
}
