//! `tidegate bench metadata`: many small files, repeated.

use std::path::PathBuf;

use anyhow::Result;
use bench::Cache;
use bench::metadata::MetadataSpec;
use clap::Args;

use super::repeat::{BenchCommonArguments, Measured, Turn, repeat};
use crate::Finding;
use crate::quantity::parse_bytes;

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
    #[arg(long, value_name = "STATE", default_value = "as-is")]
    pub cache: Cache,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Runs the command.
pub fn run(arguments: &BenchMetadataArguments) -> Result<Finding> {
    repeat(&arguments.common, &arguments.directory, |turn| {
        measure(arguments, turn)
    })
}

/// One run, without the repetition: jobs call it for each of their steps.
pub fn measure(arguments: &BenchMetadataArguments, turn: Turn<'_>) -> Result<Measured> {
    let spec = MetadataSpec {
        directory: arguments.directory.clone(),
        files: arguments.files,
        content_bytes: arguments.content,
        sync_directory: arguments.sync_directory,
        cache: arguments.cache,
        seed: turn.seed,
    };
    let outcome = bench::metadata::run(&spec, turn.bar, turn.stop)?;
    let leftover = outcome
        .leftover
        .as_ref()
        .map(|reason| format!("files were left behind: {reason}"));
    let record = outcome.into_record(turn.identity)?;
    Ok(Measured {
        record,
        notes: leftover.into_iter().collect(),
    })
}

fn parse_content(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("`{text}` is too much for a small file"))
}
