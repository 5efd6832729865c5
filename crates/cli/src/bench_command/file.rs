//! `tidegate bench file`: one file workload, repeated.

use std::path::PathBuf;

use anyhow::Result;
use bench::{Cache, DataPattern, FileSpec, Mode, Pattern, Sharing, WriteTarget};
use clap::Args;

use super::repeat::{BenchCommonArguments, Measured, Turn, repeat};
use crate::quantity::parse_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate bench file`.
#[derive(Args, Debug)]
#[command(
    after_help = "The timed window holds the operations, each sync, and the close of every file.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchFileArguments {
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed
    pub directory: PathBuf,
    /// sequential-write, random-write, sequential-read, random-read, or mixed:PERCENT with that share of reads
    #[arg(long, value_name = "PATTERN", default_value = "sequential-write", value_parser = parse_pattern)]
    pub pattern: Pattern,
    /// Size of each operation in bytes
    #[arg(long, value_name = "SIZE", default_value = "512k", value_parser = parse_bytes)]
    pub record: u64,
    /// Bytes that each thread moves
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// Threads, each with its own file
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// All threads work in one file, each in its own part
    #[arg(long)]
    pub shared: bool,
    /// buffered, sync, dsync, direct, direct-sync, fsync or fdatasync (after each write), mmap or mmap-sync
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    pub mode: Mode,
    /// Overwrite a file of full length instead of filling an empty one
    #[arg(long)]
    pub overwrite: bool,
    /// End the timed window with an fsync of each file
    #[arg(long)]
    pub fsync_at_end: bool,
    /// Page cache when the window begins: cold, warm or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is", value_parser = parse_cache)]
    pub cache: Cache,
    /// What is written: random, zero, or constant:BYTE
    #[arg(long, value_name = "DATA", default_value = "random", value_parser = parse_data)]
    pub data: DataPattern,
    /// Leave the files where they are
    #[arg(long)]
    pub keep_files: bool,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Runs the command.
pub fn run(arguments: &BenchFileArguments) -> Result<Finding> {
    repeat(&arguments.common, &arguments.directory, |turn| {
        measure(arguments, turn)
    })
}

/// One run, without the repetition: jobs call it for each of their steps.
pub fn measure(arguments: &BenchFileArguments, turn: Turn<'_>) -> Result<Measured> {
    let outcome = bench::run(&file_spec(arguments, turn.seed), turn.bar, turn.stop)?;
    let mut notes = Vec::new();
    notes.extend(
        outcome
            .cache
            .is_warmer_than_asked()
            .then(|| outcome.cache.describe()),
    );
    notes.extend(
        outcome
            .leftover
            .as_ref()
            .map(|reason| format!("files were left behind: {reason}")),
    );
    if let Some(kept) = &outcome.kept_directory {
        turn.bar.hide();
        output::print_error(&format!("files are kept in {}", kept.display()));
    }
    let record = outcome.into_record(turn.identity);
    Ok(Measured { record, notes })
}

fn file_spec(arguments: &BenchFileArguments, seed: u64) -> FileSpec {
    FileSpec {
        directory: arguments.directory.clone(),
        pattern: arguments.pattern,
        record_bytes: arguments.record,
        file_bytes: arguments.size,
        records_max: None,
        threads: arguments.threads,
        sharing: if arguments.shared {
            Sharing::Shared
        } else {
            Sharing::OneEach
        },
        mode: arguments.mode,
        write_target: if arguments.overwrite {
            WriteTarget::ExistingFile
        } else {
            WriteTarget::NewFile
        },
        fsync_at_end: arguments.fsync_at_end,
        cache: arguments.cache,
        data: arguments.data,
        seed,
        keep_files: arguments.keep_files,
    }
}

fn parse_pattern(text: &str) -> Result<Pattern, String> {
    match text {
        "sequential-write" => Ok(Pattern::SequentialWrite),
        "random-write" => Ok(Pattern::RandomWrite),
        "sequential-read" => Ok(Pattern::SequentialRead),
        "random-read" => Ok(Pattern::RandomRead),
        _ => match text.strip_prefix("mixed:").map(str::parse) {
            Some(Ok(read_percent @ 0..=100)) => Ok(Pattern::Mixed { read_percent }),
            _ => Err(format!(
                "`{text}` is none of sequential-write, random-write, sequential-read, random-read, mixed:0 to mixed:100"
            )),
        },
    }
}

/// Parses the state of the page cache.
pub fn parse_cache(text: &str) -> Result<Cache, String> {
    match text {
        "cold" => Ok(Cache::Cold),
        "warm" => Ok(Cache::Warm),
        "as-is" => Ok(Cache::AsIs),
        other => Err(format!("`{other}` is none of cold, warm, as-is")),
    }
}

fn parse_data(text: &str) -> Result<DataPattern, String> {
    match text {
        "random" => Ok(DataPattern::Random),
        "zero" => Ok(DataPattern::Zero),
        _ => match text.strip_prefix("constant:").map(str::parse) {
            Some(Ok(byte)) => Ok(DataPattern::Constant(byte)),
            _ => Err(format!(
                "`{text}` is none of random, zero, constant:0 to constant:255"
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_named_as_in_the_help_text() {
        assert_eq!(parse_pattern("sequential-read"), Ok(Pattern::SequentialRead));
        assert_eq!(parse_pattern("mixed:70"), Ok(Pattern::Mixed { read_percent: 70 }));
        for text in ["mixed", "mixed:101", "write", ""] {
            parse_pattern(text).expect_err(text);
        }
    }

    #[test]
    fn caches_and_data_are_named_as_in_the_help_text() {
        assert_eq!(parse_cache("cold"), Ok(Cache::Cold));
        assert_eq!(parse_data("constant:7"), Ok(DataPattern::Constant(7)));
        parse_cache("hot").expect_err("no such state");
        parse_data("constant:256").expect_err("no byte");
    }
}
