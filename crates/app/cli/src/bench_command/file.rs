//! `tidegate bench file`: repeated runs of one file workload.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use bench::{
    AccessAdvice, Cache, DataPattern, DeviceAccess, Engine, FileSpec, FinalSync, Mode, Order, Pattern, Rate,
    Sharing, TimeLimit, Workload, WriteTarget,
};
use clap::{Args, ValueEnum};

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::Finding;
use crate::output::{self, Printed};
use crate::quantity::{parse_bytes, parse_duration};

/// Print offsets in chunks of this many bytes.
const PRINTED_AT_ONCE: usize = 1 << 16;

/// Arguments of `tidegate bench file`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n\
                  \x20 tidegate bench file /mnt --rw randwrite --bs 4k --fsync 1          # each write synced\n\
                  \x20 tidegate bench file /mnt --rw randread --bs 4k --cache cold        # reads from the device\n\
                  \x20 tidegate bench file /mnt --bs 4k --mode direct --engine io_uring --depth 32 --runtime 10s\n\
                  \x20 tidegate bench file /mnt --threads 4 --size 256m --rounds 6 --output runs.jsonl\n\
                  \x20 tidegate bench file /dev/sdX --device --rw randread --bs 4k --runtime 10s\n\
                  The timed window holds the operations, each sync, the final sync if it is timed, and the close of every file.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it.")]
pub struct BenchFileArguments {
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed. With
    /// --device: measure this block device
    pub directory: PathBuf,
    /// Operations and their order.
    #[command(flatten)]
    pub work: WorkArguments,
    /// I/O mode and engine.
    #[command(flatten)]
    pub io: IoArguments,
    /// Repetition and reporting.
    #[command(flatten, next_help_heading = "Rounds and results")]
    pub common: BenchCommonArguments,
}

/// Operations and their order.
#[derive(Args, Debug)]
#[command(next_help_heading = "Operations")]
pub struct WorkArguments {
    /// Set the access pattern: sequential-write, random-write, sequential-read, random-read, append, mixed:PERCENT
    /// with this share of reads, or sequential-mixed:PERCENT; also fio's names write, randwrite, read, randread, rw
    /// and randrw
    #[arg(
        long,
        visible_alias = "rw",
        value_name = "PATTERN",
        default_value = "sequential-write"
    )]
    pub pattern: Pattern,
    /// Set the size of each operation, in bytes
    #[arg(long, visible_alias = "bs", value_name = "SIZE", default_value = "512k", value_parser = parse_bytes)]
    pub record: u64,
    /// Access SIZE bytes in each thread
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = parse_bytes)]
    pub size: u64,
    /// Limit each thread to N operations [default: all records of --size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// Repeat the whole order N times. Between passes the files are synced if the final sync is timed, and with
    /// --cache cold their pages are dropped
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "runtime")]
    pub passes: u32,
    /// Run N threads, each with its own file
    #[arg(long, visible_alias = "numjobs", value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Use N files per thread, which share --size; the order visits them one after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..),
          conflicts_with = "shared")]
    pub files: u32,
    /// Let all threads work in one file, each in its own part
    #[arg(long)]
    pub shared: bool,
    /// Set the order of a random pattern: each-once, with-replacement, or mobibench (the original's order, bit for
    /// bit)
    #[arg(long, value_name = "ORDER", default_value = "each-once")]
    pub order: Order,
    /// Let this share of the operations of a random pattern repeat the record of another one, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=99))]
    pub overlap: u8,
    /// Limit the throughput of all threads together, in bytes per second
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, conflicts_with = "iops")]
    pub rate: Option<u64>,
    /// Limit the operations of all threads together, per second
    #[arg(long, value_name = "N")]
    pub iops: Option<u64>,
    /// Pause after each operation, inside the timed window
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    pub think: Duration,
    /// Same as --think, with fio's name and unit: a number without unit is in microseconds
    #[arg(long, value_name = "TIME", value_parser = parse_thinktime, conflicts_with = "think")]
    pub thinktime: Option<Duration>,
    /// Run for this time instead of once through the size; the order restarts when it is finished
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub runtime: Option<Duration>,
    /// Run for this time before the timed window begins
    #[arg(
        long, visible_alias = "ramp-time", value_name = "TIME", default_value = "0", value_parser = parse_duration,
        requires = "runtime"
    )]
    pub ramp: Duration,
    /// Write this content: random, zero, constant:BYTE, or compressible:PERCENT with that share of zeros
    #[arg(long, value_name = "DATA", default_value = "random")]
    pub data: DataPattern,
    /// Verify all data read, and after the timed window all data written, against the expected content
    #[arg(long)]
    pub verify: bool,
    /// Keep the files after the run
    #[arg(long)]
    pub keep_files: bool,
    /// Print the offsets that the first thread would visit, for use with other programs, and exit
    #[arg(long)]
    pub print_offsets: bool,
}

/// I/O mode and engine.
#[derive(Args, Debug)]
#[command(next_help_heading = "Mode and cache")]
pub struct IoArguments {
    /// Set the I/O mode: buffered, sync, dsync, fsync or fdatasync (after each write), direct, direct-sync,
    /// direct-dsync, direct-fsync or direct-fdatasync (with O_DIRECT), mmap, mmap-async or mmap-sync (msync after
    /// each write)
    #[arg(long, value_name = "MODE", default_value = "buffered")]
    pub mode: Mode,
    /// Sync only after every N writes of a thread, in modes that call a sync after each write
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub sync_every: u32,
    /// Same as --mode fsync --sync-every N, with fio's name
    #[arg(
        long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["mode", "sync_every"]
    )]
    pub fsync: Option<u32>,
    /// Issue operations through this engine
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t)]
    pub engine: EngineName,
    /// Keep N operations in flight in each thread, with io_uring
    #[arg(long, visible_alias = "iodepth", value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// Overwrite a file of full length instead of filling an empty one; with append, grow a file of that length
    #[arg(long)]
    pub overwrite: bool,
    /// Sync each file after the last write: none, timed (inside the timed window) or untimed
    #[arg(long, value_name = "WHEN", default_value = "none")]
    pub final_sync: FinalSync,
    /// Same as --final-sync timed
    #[arg(long, conflicts_with = "final_sync")]
    pub fsync_at_end: bool,
    /// Set the page cache state at the start of the timed window: cold, warm, reopened (files
    /// read once, then opened again) or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is")]
    pub cache: Cache,
    /// Make the cache cold, and fail if it can't be verified to be cold
    #[arg(long, conflicts_with = "cache")]
    pub cold_or_fail: bool,
    /// Advise the kernel of the access pattern: none, sequential or random
    #[arg(long, value_name = "ADVICE", default_value = "none")]
    pub advice: AccessAdvice,
    /// Count system calls by kind, which slows down each call; needs root or CAP_PERFMON
    #[arg(long)]
    pub count_calls: bool,
    /// Measure a block device, given instead of the directory
    #[arg(long)]
    pub device: bool,
    /// Allow overwriting the data on the device
    #[arg(long, requires = "device")]
    pub destroy_data: bool,
}

/// I/O engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Use pread and pwrite, one at a time in each thread
    #[default]
    Psync,
    /// Use io_uring, with several operations in flight
    #[value(name = "io_uring")]
    IoUring,
}

impl WorkloadArguments for BenchFileArguments {
    common_and_directory!();

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
            if output::print_text(&text)? == Printed::Closed {
                break;
            }
            text.clear();
        }
    }
    Ok(Finding::Nothing)
}

/// The workload described by the arguments.
pub fn file_spec(arguments: &BenchFileArguments) -> FileSpec {
    let (work, io) = (&arguments.work, &arguments.io);
    let time = work.runtime.map(|runtime| TimeLimit {
        ramp_ns: nanoseconds(work.ramp),
        run_ns: nanoseconds(runtime),
    });
    let rate = work.rate.map(Rate::BytesPerSecond);
    FileSpec {
        records_max: work.records,
        threads: work.threads,
        sharing: if work.shared || io.device {
            Sharing::Shared
        } else {
            Sharing::OneEach
        },
        engine: match io.engine {
            EngineName::Psync => Engine::Psync,
            EngineName::IoUring => Engine::IoUring { depth: io.depth },
        },
        mode: if io.fsync.is_some() { Mode::FSYNC } else { io.mode },
        write_target: if io.overwrite {
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
        sync_every: io.fsync.unwrap_or(io.sync_every),
        time,
        final_sync: if io.fsync_at_end {
            FinalSync::Timed
        } else {
            io.final_sync
        },
        cache: if io.cold_or_fail { Cache::Cold } else { io.cache },
        cold_or_fail: io.cold_or_fail,
        advice: io.advice,
        count_calls: io.count_calls,
        data: work.data,
        verify: work.verify,
        device: match (io.device, io.destroy_data) {
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
