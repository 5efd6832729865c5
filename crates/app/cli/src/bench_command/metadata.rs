//! `tidegate bench metadata`: repeated runs on many small files.

use std::path::PathBuf;

use anyhow::Result;
use bench::metadata::MetadataSpec;
use bench::{Cache, Workload};
use clap::Args;

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::quantity::parse_bytes;

/// Arguments of `tidegate bench metadata`.
#[derive(Args, Debug)]
pub struct BenchMetadataArguments {
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    pub directory: PathBuf,
    /// Create N files
    #[arg(long, value_name = "N", default_value_t = bench::metadata::USUAL_FILES)]
    pub files: u32,
    /// Write SIZE bytes into each file, up to 1m
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_content)]
    pub content: u32,
    /// Fsync the directory at the end of the create and remove phases
    #[arg(long)]
    pub sync_directory: bool,
    /// Set the cache state before the list and stat phases: cold or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is")]
    pub cache: Cache,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

impl WorkloadArguments for BenchMetadataArguments {
    common_and_directory!();

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(MetadataSpec {
            directory: self.directory.clone(),
            files: self.files,
            content_bytes: self.content,
            sync_directory: self.sync_directory,
            cache: self.cache,
            seed: self.common.seed,
        }))
    }
}

fn parse_content(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("`{text}` is too much for a small file"))
}
