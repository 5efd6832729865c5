//! `tidegate bench file`: one file workload, repeated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bench::{
    AccessAdvice, Cache, DataPattern, DeviceAccess, Engine, FileSpec, FinalSync, Mode, Order, Pattern, Rate,
    Sharing, TimeLimit, Workload, WriteTarget,
};
use clap::{Args, ValueEnum};

use super::repeat::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments};
use crate::Finding;
use crate::output::{self, Printed};
use crate::quantity::{parse_bytes, parse_duration};

/// Offsets are printed in pieces of this size.
const PRINTED_AT_ONCE: usize = 1 << 16;

/// Arguments of `tidegate bench file`.
#[derive(Args, Debug)]
#[command(
    after_help = "The timed window holds the operations, each sync, the final sync if it is timed, and the close of \
                  every file.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchFileArguments {
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed. With --device
    /// a block device
    pub directory: PathBuf,
    /// What is done, and in which order
    #[command(flatten)]
    pub work: WorkArguments,
    /// How it reaches the file
    #[command(flatten)]
    pub way: WayArguments,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// What is done, and in which order.
#[derive(Args, Debug)]
pub struct WorkArguments {
    /// sequential-write, random-write, sequential-read, random-read, append, mixed:PERCENT with that share of
    /// reads, or sequential-mixed:PERCENT; fio's names write, randwrite, read, randread, rw and randrw too
    #[arg(
        long,
        visible_alias = "rw",
        value_name = "PATTERN",
        default_value = "sequential-write"
    )]
    pub pattern: Pattern,
    /// Size of each operation in bytes
    #[arg(long, visible_alias = "bs", value_name = "SIZE", default_value = "512k", value_parser = parse_bytes)]
    pub record: u64,
    /// Bytes that each thread works in
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// Operations of each thread at most; all records of the size without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// How often to go through the records. Between two passes the files are synced if the final sync is timed, and
    /// their pages given up with --cache cold
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "runtime")]
    pub passes: u32,
    /// Threads, each with its own file
    #[arg(long, visible_alias = "numjobs", value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Files of each thread, which share --size; the order goes through them one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "shared")]
    pub files: u32,
    /// All threads work in one file, each in its own part
    #[arg(long)]
    pub shared: bool,
    /// Records of a random pattern: each-once, with-replacement, or mobibench (the original's order, bit for bit)
    #[arg(long, value_name = "ORDER", default_value = "each-once")]
    pub order: Order,
    /// Share of the operations of a random pattern that repeat the record of another one, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=99))]
    pub overlap: u8,
    /// Bytes a second at most, of all threads together
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "iops")]
    pub rate: Option<u64>,
    /// Operations a second at most, of all threads together
    #[arg(long, value_name = "N")]
    pub iops: Option<u64>,
    /// Pause after each operation; it is part of the timed window
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    pub think: Duration,
    /// The same by fio's name and unit: a number alone is in microseconds
    #[arg(long, value_name = "TIME", value_parser = parse_thinktime, conflicts_with = "think")]
    pub thinktime: Option<Duration>,
    /// Work for so long instead of once through the size; the order begins again when it is through
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,
    /// Work for so long before the timed window begins
    #[arg(
        long, visible_alias = "ramp-time", value_name = "TIME", default_value = "0", value_parser = parse_duration,
        requires = "runtime"
    )]
    pub ramp: Duration,
    /// What is written: random, zero, constant:BYTE, or compressible:PERCENT with that share of zeros
    #[arg(long, value_name = "DATA", default_value = "random")]
    pub data: DataPattern,
    /// Compare what is read, and after the timed window everything written, with what it must be
    #[arg(long)]
    pub verify: bool,
    /// Leave the files where they are
    #[arg(long)]
    pub keep_files: bool,
    /// Measure nothing; print the offsets that the first thread would visit, for other programs to do the same
    #[arg(long)]
    pub print_offsets: bool,
}

/// How operations reach the file.
#[derive(Args, Debug)]
pub struct WayArguments {
    /// buffered, sync, dsync, fsync or fdatasync (after each write), direct, direct-sync, direct-dsync, direct-fsync or
    /// direct-fdatasync (with O_DIRECT), mmap, mmap-async or mmap-sync (msync after each write)
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    pub mode: Mode,
    /// With a mode that calls a sync after each write: only after each so many of a thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub sync_every: u32,
    /// The same as --mode fsync --sync-every N, by fio's name
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["mode", "sync_every"]
    )]
    pub fsync: Option<u32>,
    /// How operations are given to the kernel
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t)]
    pub engine: EngineName,
    /// Operations in flight in each thread, with io_uring
    #[arg(long, visible_alias = "iodepth", value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// Overwrite a file of full length instead of filling an empty one; an append grows a file of that length
    #[arg(long)]
    pub overwrite: bool,
    /// When all is written, sync each file: none, timed (a part of the window) or untimed
    #[arg(long, value_name = "WHEN", default_value = "none")]
    pub final_sync: FinalSync,
    /// The same as --final-sync timed
    #[arg(long, conflicts_with = "final_sync")]
    pub fsync_at_end: bool,
    /// Page cache when the window begins: cold, warm or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is")]
    pub cache: Cache,
    /// Make the cache cold, and measure nothing when it can't be shown to be
    #[arg(long, conflicts_with = "cache")]
    pub cold_or_fail: bool,
    /// What the kernel is told about accesses to come: none, sequential or random
    #[arg(long, value_name = "ADVICE", default_value = "none")]
    pub advice: AccessAdvice,
    /// Count system calls by kind, as root or with CAP_PERFMON; makes each call slower
    #[arg(long)]
    pub count_calls: bool,
    /// The path is a block device, which is measured itself
    #[arg(long)]
    pub device: bool,
    /// What the device holds may be overwritten
    #[arg(long, requires = "device")]
    pub destroy_data: bool,
}

/// How operations are given to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// pread and pwrite, one at a time in each thread
    #[default]
    Psync,
    /// io_uring, with several operations in flight
    #[value(name = "io_uring")]
    IoUring,
}

impl WorkloadArguments for BenchFileArguments {
    fn common(&self) -> &BenchCommonArguments {
        &self.common
    }

    fn directory(&self) -> Result<&Path> {
        Ok(&self.directory)
    }

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(file_spec(self)))
    }

    fn show(&self) -> Result<Option<Finding>> {
        if !self.work.print_offsets {
            return Ok(None);
        }
        let spec = file_spec(self);
        spec.validate()?;
        print_offsets(&spec).map(Some)
    }
}

fn print_offsets(spec: &FileSpec) -> Result<Finding> {
    let mut text = String::new();
    let mut offsets = bench::offsets(spec, 0)?.peekable();
    while let Some(offset) = offsets.next() {
        text.push_str(&format!("{offset}\n"));
        if text.len() >= PRINTED_AT_ONCE || offsets.peek().is_none() {
            if output::print_bytes(text.as_bytes())? == Printed::Closed {
                break;
            }
            text.clear();
        }
    }
    Ok(Finding::Nothing)
}

/// The workload that the arguments describe.
pub fn file_spec(arguments: &BenchFileArguments) -> FileSpec {
    let (work, way) = (&arguments.work, &arguments.way);
    let time = work.runtime.map(|runtime| TimeLimit {
        ramp_ns: nanoseconds(work.ramp),
        run_ns: nanoseconds(runtime),
    });
    let rate = work.rate.map(Rate::BytesPerSecond);
    FileSpec {
        records_max: work.records,
        threads: work.threads,
        sharing: if work.shared || way.device {
            Sharing::Shared
        } else {
            Sharing::OneEach
        },
        engine: match way.engine {
            EngineName::Psync => Engine::Psync,
            EngineName::IoUring => Engine::IoUring { depth: way.depth },
        },
        mode: if way.fsync.is_some() {
            Mode::Fsync
        } else {
            way.mode
        },
        write_target: if way.overwrite {
            WriteTarget::ExistingFile
        } else {
            WriteTarget::NewFile
        },
        order: work.order,
        overlap_percent: work.overlap,
        rate: rate.or(work.iops.map(Rate::OperationsPerSecond)),
        think_ns: nanoseconds(work.thinktime.unwrap_or(work.think)),
        files_of_each: work.files,
        passes: work.passes,
        sync_every: way.fsync.unwrap_or(way.sync_every),
        time,
        final_sync: if way.fsync_at_end {
            FinalSync::Timed
        } else {
            way.final_sync
        },
        cache: if way.cold_or_fail { Cache::Cold } else { way.cache },
        cold_or_fail: way.cold_or_fail,
        advice: way.advice,
        count_calls: way.count_calls,
        data: work.data,
        verify: work.verify,
        device: match (way.device, way.destroy_data) {
            (false, _) => DeviceAccess::Refused,
            (true, false) => DeviceAccess::Read,
            (true, true) => DeviceAccess::Destroy,
        },
        seed: arguments.common.seed,
        keep_files: work.keep_files,
        ..FileSpec::plain(arguments.directory.clone(), work.pattern, work.record, work.size)
    }
}

fn parse_thinktime(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(microseconds) => Ok(Duration::from_micros(microseconds)),
        Err(_) => parse_duration(text),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
