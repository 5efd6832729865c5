//! The command line: the single definition of parsing, help, man pages and completions.
//!
//! Numbers in help texts carry units, and each text names its default. The rules for repeated mount options, and the
//! mapping of `-o` to the same settings, are in `mount_options.rs`.

use std::path::PathBuf;
use std::time::Duration;

use buffer::Flusher;
use clap::{Args, Parser, Subcommand};
use fuse::{Coherence, Opens, POLL_MAX, Switch};
use programs::command_line::{Deferred, one_of};
use programs::terminal::WidthArguments;
use programs::ui_arguments::UiArguments;

use crate::array_command::ArrayCommand;
use crate::bench_command::BenchArguments;
use crate::demo::DemoArguments;
use crate::emmc_command::EmmcCommand;
use crate::inspect::InspectArguments;
use crate::mobibench::MobibenchArguments;
use crate::nand_command::NandCommand;
use crate::quantity::{parse_bytes, parse_duration};
use crate::replay::ReplayArguments;
use crate::study_command::StudyCommand;
use crate::trace_command::TraceCommand;
use crate::ubi_command::UbiCommand;
use crate::ubifs_command::UbifsCommand;
use crate::ubireader::Tool;
use crate::unpack::UnpackArguments;

/// The storage stack of a device with embedded flash, in user space: run it, load it, trace it, tune it.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    max_term_width = 100,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 done and something was found, 2 could not do it.\n\
                  From /etc/fstab:  /data  /mnt/data  fuse.tidegate  buffer=8m,allow_other,nofail  0  0"
)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands. Each is defined when it is run or shown: all together take longer than most of them run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Mount a folder through bFUSE, the buffered FUSE
    Mount(Deferred<MountArguments>),
    /// Unmount, and wait until the daemon has written all data to the source
    #[command(visible_alias = "umount")]
    Unmount(Deferred<UnmountArguments>),
    /// Show the counters of a mount: requests, backing writes, buffer, errors
    Stats(Deferred<StatsArguments>),
    /// Identify a file: flash image, file system, trace or job, with its geometry and the next command
    #[command(visible_alias = "identify")]
    Inspect(Deferred<InspectArguments>),
    /// Unpack a dump of raw flash: all UBI partitions, their volumes, and the files of each UBIFS
    Unpack(Deferred<Box<UnpackArguments>>),
    /// Read dumps as the tools of ubi_reader do, with their options; also through links named as these tools
    #[command(subcommand)]
    Ubireader(Deferred<Tool>),
    /// Measure any file system through system calls
    Bench(Deferred<Box<BenchArguments>>),
    /// Measure as the original Mobibench does, with its options and result lines; also through a link named mobibench
    Mobibench(Deferred<MobibenchArguments>),
    /// Replay the calls of a trace on any folder, and measure each
    Replay(Deferred<ReplayArguments>),
    /// Record and read traces: block requests and system calls
    #[command(subcommand)]
    Trace(Deferred<TraceCommand>),
    /// Combine several flash devices into one, and measure simulated arrays
    #[command(subcommand)]
    Array(Deferred<ArrayCommand>),
    /// Model an eMMC card, its driver and the block layer in virtual time, or attach the model as a block device
    #[command(subcommand)]
    Emmc(Deferred<EmmcCommand>),
    /// Create, inspect, load and dump raw NAND chips: simulated ones in files, and /dev/mtdN
    #[command(subcommand)]
    Nand(Deferred<NandCommand>),
    /// Format, inspect, change and check UBI devices on raw NAND images
    #[command(subcommand)]
    Ubi(Deferred<UbiCommand>),
    /// Read and write UBIFS on raw NAND images, UBI images, arrays and bare volumes, without the kernel
    #[command(subcommand)]
    Ubifs(Deferred<UbifsCommand>),
    /// Measure file systems, schedulers, request sizes and buffers as a plan says, and draw the papers' figures
    #[command(subcommand)]
    Study(Deferred<StudyCommand>),
    /// Compare the layers on this machine: native, plain FUSE, bFUSE, tuned
    Demo(Deferred<DemoArguments>),
    /// Serve a web page on loopback for measurements, settings and history
    Ui(Deferred<UiArguments>),
    /// Print a completion script for a shell
    Completions(Deferred<CompletionsArguments>),
    /// Write the man pages to a folder
    Man(Deferred<ManArguments>),
}

/// Values of [`Switch`].
const SWITCH: [&str; 3] = ["auto", "on", "off"];

/// Values of [`Coherence`].
const COHERENCE: [&str; 3] = ["auto", "watch", "timeout"];

/// Values of [`Opens`].
const OPENS: [&str; 2] = ["daemon", "kernel"];

/// Values of [`Flusher`].
const FLUSHER: [&str; 3] = ["thread", "inline", "off"];

/// Arguments of `tidegate mount`.
#[derive(Args, Debug, Clone, Default, PartialEq)]
#[command(after_help = "Every setting is also an -o key, with `_` for `-`: -o \
                  io_unit=512k,buffer=8m,flusher=inline,ro. A flag wins over an -o key; the last of several -o \
                  keys wins.\n\
                  Further -o keys: fsname=NAME, subtype=NAME, rw, suid, nosuid, dev, nodev, exec, noexec, atime, \
                  noatime, diratime, nodiratime, relatime, norelatime, strictatime, nostrictatime, lazytime, \
                  nosymfollow, sync, async, dirsync, default_permissions. With -o remount,... these are changed \
                  on a mount that is up (tidegate's own settings can't be). The fstab words auto, noauto, \
                  nofail, _netdev, user, users, owner, group, defaults, comment=... and x-... are ignored.")]
pub struct MountArguments {
    /// The folder to mount
    pub source: PathBuf,
    /// The mount point
    pub mountpoint: PathBuf,
    /// Mount options, separated by commas; repeatable
    #[arg(short = 'o', value_name = "KEY[=VALUE],...", help_heading = "Mount")]
    pub options: Vec<String>,
    /// Stay in the foreground instead of going to the background once the mount answers
    #[arg(long, short = 'f', help_heading = "Mount")]
    pub foreground: bool,
    /// Mount over an existing mount of tidegate
    #[arg(long, help_heading = "Mount")]
    pub over: bool,
    /// Print the mount and the negotiated options as one line of JSON
    #[arg(long, help_heading = "Mount")]
    pub json: bool,
    /// Append messages of the background process to this file [default: the system log]
    #[arg(long, value_name = "FILE", help_heading = "Mount")]
    pub log_file: Option<PathBuf>,

    /// Largest request, bytes: 4k to 1m, or max for the kernel's limit [default: max]
    #[arg(long, value_name = "SIZE", value_parser = parse_io_unit, help_heading = "Transport")]
    pub io_unit: Option<IoUnit>,
    /// Use the kernel's writeback cache: auto, on or off [default: auto]
    #[arg(long, value_name = "auto|on|off", hide_possible_values = true, value_parser = one_of::<Switch>(SWITCH), help_heading = "Transport")]
    pub writeback: Option<Switch>,
    /// Use kernel passthrough of file data: auto, on or off; needs root and Linux 6.9 [default: auto]
    #[arg(long, value_name = "auto|on|off", hide_possible_values = true, value_parser = one_of::<Switch>(SWITCH), help_heading = "Transport")]
    pub passthrough: Option<Switch>,
    /// Use io_uring for requests: auto, on or off; needs Linux 6.14 and the fuse module's enable_uring [default: auto]
    #[arg(long, value_name = "auto|on|off", hide_possible_values = true, value_parser = one_of::<Switch>(SWITCH), help_heading = "Transport")]
    pub uring: Option<Switch>,
    /// Bypass the kernel's page cache on the FUSE side: auto, on or off [default: auto]
    #[arg(long, value_name = "auto|on|off", hide_possible_values = true, value_parser = one_of::<Switch>(SWITCH), help_heading = "Transport")]
    pub direct_io: Option<Switch>,
    /// Open files by the daemon, or by the kernel without a request; the latter needs --read-only, and uses no passthrough
    /// [default: daemon]
    #[arg(long, value_name = "daemon|kernel", hide_possible_values = true, value_parser = one_of::<Opens>(OPENS), help_heading = "Transport")]
    pub open: Option<Opens>,
    /// Number of worker threads, 1 to 256 [default: by the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Transport")]
    pub threads: Option<u16>,
    /// Let a worker look for the next request for this long before it sleeps, while requests come quickly; at most 1ms, 0: never
    /// [default: 20us; 0 on a single processor, and over another FUSE file system]
    #[arg(long, value_name = "DURATION", value_parser = parse_poll, help_heading = "Transport")]
    pub poll: Option<Duration>,
    /// Keep names, attributes and listings in the kernel until the source changes (watch), for a limited time (timeout), or
    /// watch where the host reports changes (auto) [default: timeout]
    #[arg(long, value_name = "auto|watch|timeout", hide_possible_values = true, value_parser = one_of::<Coherence>(COHERENCE), help_heading = "Transport")]
    pub coherence: Option<Coherence>,
    /// Time that the kernel may cache attributes [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Transport")]
    pub attr_timeout: Option<Duration>,
    /// Time that the kernel may cache names [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Transport")]
    pub entry_timeout: Option<Duration>,

    /// Size of the write buffer for all files together, bytes [default: 8m]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Write buffer")]
    pub buffer: Option<u64>,
    /// Size of one buffer entry, the largest write to the source, bytes [default: 2m]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Write buffer")]
    pub entry: Option<u64>,
    /// Interval at which the flush manager empties the buffer [default: 10ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Write buffer")]
    pub flush_interval: Option<Duration>,
    /// Flush in a thread (thread), in the writing request (inline), or don't buffer (off) [default: thread]
    #[arg(long, value_name = "thread|inline|off", hide_possible_values = true, value_parser = one_of::<Flusher>(FLUSHER), help_heading = "Write buffer")]
    pub flusher: Option<Flusher>,
    /// Bypass the source's page cache for a stream of writes after this many contiguous bytes, or off [default: 8m; off
    /// without a buffer]
    #[arg(long, value_name = "SIZE|off", value_parser = parse_stream_after, help_heading = "Write buffer")]
    pub stream_after: Option<StreamAfter>,

    /// Refuse all changes
    #[arg(long, help_heading = "Access")]
    pub read_only: bool,
    /// Allow other users to access the mount; an ordinary user needs user_allow_other in /etc/fuse.conf
    #[arg(long, help_heading = "Access")]
    pub allow_other: bool,
    /// Show this user as the owner of every file [default: as in the source; with --gid or --umask, the mounting user]
    #[arg(long, value_name = "UID", help_heading = "Access")]
    pub uid: Option<u32>,
    /// Show this group for every file [default: as in the source; with --uid or --umask, the mounting user's]
    #[arg(long, value_name = "GID", help_heading = "Access")]
    pub gid: Option<u32>,
    /// Clear these permission bits (octal) of every file [default: as in the source]
    #[arg(long, value_name = "OCTAL", value_parser = parse_umask, help_heading = "Access")]
    pub umask: Option<u32>,

    /// Serve as the background process: report on standard output, then detach from the terminal.
    #[arg(long, hide = true)]
    pub daemon: bool,
    /// Ignore unknown -o keys; mount(8) passes it as -s.
    #[arg(long, hide = true)]
    pub sloppy: bool,
    /// Print nothing once mounted; mount(8) expects this of a helper without -v.
    #[arg(long, hide = true)]
    pub quiet: bool,
    /// Check everything without mounting; mount(8) passes it as -f.
    #[arg(long, hide = true)]
    pub fake: bool,
}

/// Largest request of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoUnit {
    /// The kernel's limit.
    Max,
    /// This many bytes.
    Bytes(u32),
}

/// Threshold at which a stream of writes bypasses the source's page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAfter {
    /// Never.
    Off,
    /// After this many contiguous bytes.
    Bytes(u64),
}

/// Arguments of `tidegate unmount`.
#[derive(Args, Debug)]
pub struct UnmountArguments {
    /// The mount point
    pub mountpoint: PathBuf,
    /// Detach the mount at once if files are open, and let it end when the last one is closed
    #[arg(long, short = 'l')]
    pub lazy: bool,
    /// Maximum time for the daemon to write all data and end
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Arguments of `tidegate stats`.
#[derive(Args, Debug)]
pub struct StatsArguments {
    /// The mount point [default: list the mounts of tidegate]
    pub mountpoint: Option<PathBuf>,
    /// Print the daemon's document unchanged, as JSON
    #[arg(long, conflicts_with_all = ["prometheus", "watch"])]
    pub json: bool,
    /// Ask the daemon for another process, which can give up
    #[arg(long, hide = true, requires = "mountpoint")]
    pub ask: bool,
    /// Show every counter, also those that are zero
    #[arg(long, requires = "mountpoint", conflicts_with_all = ["json", "prometheus", "watch"])]
    pub all: bool,
    #[command(flatten)]
    pub width: WidthArguments,
    /// Print metrics in the Prometheus text format
    #[arg(long, conflicts_with = "watch", requires = "mountpoint")]
    pub prometheus: bool,
    /// Print rates, one line every SECONDS, until interrupted [default: 1s]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_parser = parse_duration,
        requires = "mountpoint"
    )]
    pub watch: Option<Duration>,
}

/// Arguments of `tidegate completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Arguments of `tidegate man`.
#[derive(Args, Debug)]
pub struct ManArguments {
    /// Folder for the pages; created if missing
    pub directory: PathBuf,
}

/// Smallest and largest request of FUSE, bytes.
const IO_UNIT_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 20;

/// Parses an I/O unit: `max`, or a whole number of pages from 4 KiB to 1 MiB.
pub fn parse_io_unit(text: &str) -> Result<IoUnit, String> {
    if text == "max" {
        return Ok(IoUnit::Max);
    }
    let bytes = parse_bytes(text)?;
    if !IO_UNIT_BYTES.contains(&bytes) || !bytes.is_multiple_of(4096) {
        return Err(format!(
            "an I/O unit of `{text}` is not a multiple of 4k from 4k to 1m, or max"
        ));
    }
    u32::try_from(bytes)
        .map(IoUnit::Bytes)
        .map_err(|error| error.to_string())
}

/// Parses the longest time of polling for a request.
pub fn parse_poll(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration > POLL_MAX {
        return Err(format!(
            "`{text}` is more than {POLL_MAX:?}; write for example 20us, or 0 for no polling"
        ));
    }
    Ok(duration)
}

/// Parses the threshold of a stream: `off`, or a size.
pub fn parse_stream_after(text: &str) -> Result<StreamAfter, String> {
    if text == "off" {
        return Ok(StreamAfter::Off);
    }
    parse_bytes(text).map(StreamAfter::Bytes)
}

/// Parses permission bits in octal.
pub fn parse_umask(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err(format!("`{text}` is no octal umask from 000 to 777")),
    }
}

#[cfg(test)]
mod tests {
    use programs::command_line::whole_definition;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        whole_definition::<Arguments>().debug_assert();
    }

    #[test]
    fn every_argument_has_a_help_text() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{} {}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            assert!(command.get_about().is_some(), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&whole_definition::<Arguments>());
    }

    #[test]
    fn an_io_unit_is_whole_pages_within_the_protocols_limits() {
        assert_eq!(parse_io_unit("max"), Ok(IoUnit::Max));
        assert_eq!(parse_io_unit("512k"), Ok(IoUnit::Bytes(512 << 10)));
        for text in ["0", "1k", "5000", "2m", "most"] {
            parse_io_unit(text).expect_err(text);
        }
    }

    #[test]
    fn a_umask_is_octal() {
        assert_eq!(parse_umask("027"), Ok(0o27));
        for text in ["8", "1000", "x", ""] {
            parse_umask(text).expect_err(text);
        }
    }
}
