//! `tidegate bench postmark`: many small files that come and go, as PostMark 1.51 has them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bench::Workload;
use bench::postmark::{Buffering, PostmarkSpec};
use clap::{Args, ValueEnum};

use super::repeat::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments};
use crate::quantity::parse_bytes;

/// Arguments of `tidegate bench postmark`.
#[derive(Args, Debug)]
#[command(
    after_help = "The same settings do the same operations on the same files as PostMark 1.51; appends and creates\n\
                  that its rules skip are counted. Sizes are powers of 1024. Nothing is synced, as in the original.\n\
                  Exit codes: 0 done, 1 stopped before its end, 2 could not do it."
)]
pub struct BenchPostmarkArguments {
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed
    pub directory: PathBuf,
    /// Settings that are not given otherwise come from here
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    pub preset: PostmarkPreset,
    /// Files in the pool [default: 500]
    #[arg(long, value_name = "N")]
    pub files: Option<u32>,
    /// Transactions, each one read or append, then one create or delete [default: 500]
    #[arg(long, value_name = "N")]
    pub transactions: Option<u32>,
    /// Smallest file in bytes [default: 500]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub size_low: Option<u32>,
    /// Size in bytes that no file exceeds; --size-low alone means files of one size [default: 10000]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub size_high: Option<u32>,
    /// Size of each read in bytes [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub read_block: Option<u32>,
    /// Size of each write in bytes [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = parse_small_bytes)]
    pub write_block: Option<u32>,
    /// Chance in ten of a read and not an append; -1 for neither [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=10))]
    pub read_bias: Option<i8>,
    /// Chance in ten of a create and not a delete; -1 for neither [default: 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=10))]
    pub create_bias: Option<i8>,
    /// Subfolders over which files are spread [default: 0]
    #[arg(long, value_name = "N")]
    pub subdirectories: Option<u32>,
    /// Make one call for each block; the default gathers blocks to 4 KiB as the original's C library does
    #[arg(long)]
    pub unbuffered: bool,
    /// The original's seed: decides files, sizes, order and content of every round; --seed has no effect here
    #[arg(long, value_name = "NUMBER", default_value_t = 42)]
    pub postmark_seed: u32,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Named settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PostmarkPreset {
    /// The defaults of PostMark 1.51: 500 files of 500 to 10,000 bytes, 500 transactions
    #[default]
    Original,
    /// The load of the flex-group study: 5,000 files of 1 MiB, 10,000 transactions (5 GiB)
    FlexGroup,
}

impl WorkloadArguments for BenchPostmarkArguments {
    fn common(&self) -> &BenchCommonArguments {
        &self.common
    }

    fn directory(&self) -> Result<&Path> {
        Ok(&self.directory)
    }

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
        // As `set size` of the original: one number means files of one size.
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
