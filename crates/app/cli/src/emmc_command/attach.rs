//! `tidegate emmc attach`: attaches a card as a block device of this machine.
//!
//! A background process serves the card as a file over FUSE, with a loop device on that file. Order of the start: store,
//! model, a free minor, the mount, the binding of the loop device, the description, the measurement of the kernel's share
//! of the request time, the report. At any end of the process, the loop device is unbound, the data is synced to the host's
//! medium, and the minor and the description are removed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use emmc::block::{QueueRules, SchedulerKind};
use emmc::simulation::Setup;
use fuse::{Coherence, MountConfig, Opens, StatsDocument, Switch};
use live::{
    Attached, Card, CardFileSystem, Claim, Description, IssuedFlags, LiveDevice, LoopDevice, PathCost,
    QueueLimits, RUN_FOLDER, Store, set_sched_fifo,
};
use nand::{RealClock, TimeScale};
use rustix::process::configure_io_flusher_behavior;
use serde_json::{Map, json};
use vfs::Timestamp;

use super::self_check;
use super::setup::{DeviceArguments, OnOff, card_file};
use crate::background::{self, Report};
use crate::daemon::{self, Served};
use crate::quantity::{parse_bytes, show_bytes};
use crate::stats_document;
use crate::{Finding, output};

/// Largest request of the block device, as on the phone.
const REQUEST_KIB: u32 = 512;

/// Largest FUSE request; larger than the device's, so that a request with unaligned pages is not split.
const FUSE_UNIT_BYTES: u32 = 1 << 20;

/// Smallest limit of dirty pages: below it, writers wait for the card at each request or two.
const DIRTY_LIMIT_BYTES_MIN: u64 = 1 << 20;

/// Arguments of `tidegate emmc attach`.
#[derive(Args, Debug)]
#[command(
    after_help = "Prints the device. It behaves as any block device: make a file system on it and mount it. \
                  `tidegate emmc detach DEVICE` removes it; data in a file is kept. Needs root.\n\
                  Exit codes: 0 done, 1 the check found a difference (--self-check), 2 could not do it."
)]
pub struct AttachArguments {
    /// Size of the card [default: the store's, or the card's own]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Card")]
    pub size: Option<u64>,
    /// Card: a name from `tidegate emmc presets`, or a file NAME.toml [default: the store's, or gt-i9300]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Card")]
    pub card: Option<String>,
    /// Store the data in ram or in this file, which is created (sparse) if it does not exist
    #[arg(long, value_name = "ram|FILE", default_value = "ram", help_heading = "Card")]
    pub store: String,
    #[command(flatten)]
    pub device: DeviceArguments,
    /// Maximum number of requests in the driver, 4 to 64
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..=64), help_heading = "Block layer")]
    pub tags: u32,
    /// The kernel's I/O scheduler for the device: none, mq-deadline, bfq, kyber
    #[arg(
        long,
        value_name = "NAME",
        default_value = "mq-deadline",
        help_heading = "Block layer"
    )]
    pub io_scheduler: String,
    /// Answer requests earlier by the time of the kernel's path, which is measured before the device is printed
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "on",
        help_heading = "Block layer"
    )]
    pub make_up: OnOff,
    /// Tell the card which requests are metadata or synchronous, from kernel events (tracefs); costs a few microseconds per
    /// request
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "off",
        help_heading = "Block layer"
    )]
    pub request_flags: OnOff,
    /// Seconds of the card's time that pass in one real second, 0.01 to 1000: at 9 the card and its host are 9 times as fast
    #[arg(
        long,
        value_name = "K",
        default_value = "1",
        allow_negative_numbers = true,
        help_heading = "Card"
    )]
    pub time_scale: TimeScale,
    /// Limit of dirty pages of this device in the page cache, at least 1m (Linux 6.2) [default: that of the machine]
    #[arg(long, value_name = "SIZE", value_parser = parse_dirty_limit, help_heading = "Block layer")]
    pub dirty_limit: Option<u64>,
    /// Folder for the descriptions of attached cards
    #[arg(long, value_name = "DIRECTORY", default_value = RUN_FOLDER)]
    pub run_folder: PathBuf,
    /// Append messages of the background process to this file [default: discarded]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// Stay in the foreground
    #[arg(long, short = 'f')]
    pub foreground: bool,
    /// Print the attached device as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Attach the card, compare streams and small writes with the model's time for the same requests, and detach it
    #[arg(long, conflicts_with_all = ["foreground", "store"])]
    pub self_check: bool,
    /// Serve as the background process: report on standard output, then detach from the terminal.
    #[arg(long, hide = true)]
    pub daemon: bool,
}

/// Runs the command; `words` are the arguments it was parsed from.
pub fn run(arguments: &AttachArguments, words: &[OsString]) -> Result<Finding> {
    let log_file = arguments.log_file.as_deref();
    if arguments.daemon {
        background::serve_as_daemon(log_file, |announce| serve(arguments, announce))?;
        return Ok(Finding::Nothing);
    }
    // Report mistakes before anything starts.
    let setup = setup(arguments)?;
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make loop devices; run it as root");
    }
    if arguments.foreground {
        serve(arguments, &mut |report| print(&report, arguments.json))?;
        return Ok(Finding::Nothing);
    }
    let report = background::start(&["emmc", "attach"], words, log_file)?;
    if arguments.self_check {
        return self_check::run(arguments, &setup, &device_of(&report)?);
    }
    print(&report, arguments.json)?;
    Ok(Finding::Nothing)
}

fn parse_dirty_limit(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes >= DIRTY_LIMIT_BYTES_MIN => Ok(bytes),
        bytes => Err(format!(
            "a limit of {}: expected at least 1 MiB",
            show_bytes(bytes)
        )),
    }
}

fn print(report: &Report, as_json: bool) -> Result<()> {
    let device = device_of(report)?;
    match as_json {
        true => report.print(true),
        false => {
            let device = device.display();
            output::print_line(&device.to_string())?;
            output::print_error(&format!(
                "use it as a block device; `tidegate emmc stats {device}` shows its counters, `tidegate emmc cut {device}` cuts \
                 its power, `tidegate emmc detach {device}` removes it"
            ));
            Ok(())
        }
    }
}

fn device_of(report: &Report) -> Result<PathBuf> {
    match report {
        Report::Failed { error } => bail!("{error}"),
        Report::Mounted { more, .. } => {
            let device = more.get("device").and_then(|device| device.as_str());
            device
                .map(PathBuf::from)
                .context("the background process named no device")
        }
    }
}

/// The model described by the flags and the store.
fn setup(arguments: &AttachArguments) -> Result<Setup> {
    if arguments.device.contexts.is_some_and(|contexts| contexts > 0) {
        bail!(
            "--contexts has no effect on an attached card: the kernel does not tell a loop device whose request it is; use \
             it with tidegate emmc run"
        );
    }
    if arguments.device.data_tag == Some(OnOff::On) && arguments.request_flags == OnOff::Off {
        bail!("--data-tag on needs --request-flags on: without it no request is known to be metadata");
    }
    let kept = match store_file(arguments) {
        Some(path) => Description::beside(path)?,
        None => None,
    };
    let mut card = match (&arguments.card, &kept) {
        (Some(name), _) => card_file(name)?,
        (None, Some(kept)) => kept.card.clone(),
        (None, None) => card_file("gt-i9300")?,
    };
    let image_bytes = store_file(arguments)
        .and_then(|path| std::fs::metadata(path).ok())
        .map(|metadata| metadata.len())
        .filter(|bytes| *bytes > 0);
    card.flash.capacity_bytes = arguments
        .size
        .or(image_bytes)
        .unwrap_or(card.flash.capacity_bytes);
    let setup = arguments
        .device
        .setup(card, QueueRules::usual(SchedulerKind::None))?;
    let (bytes, unit) = (setup.card.flash.capacity_bytes, setup.card.translation.unit_bytes);
    if !bytes.is_multiple_of(u64::from(unit)) {
        bail!("a card of {bytes} bytes: expected a multiple of its unit, {unit} bytes");
    }
    setup.card.geometry()?;
    Ok(setup)
}

fn store_file(arguments: &AttachArguments) -> Option<&Path> {
    (arguments.store != "ram").then(|| Path::new(&arguments.store))
}

fn serve(arguments: &AttachArguments, announce: &mut dyn FnMut(Report) -> Result<()>) -> Result<()> {
    let setup = setup(arguments)?;
    let store = match store_file(arguments) {
        Some(path) => Store::file(&std::path::absolute(path)?, &Description::new(setup.card.clone()))?,
        None => Store::memory(setup.card.flash.capacity_bytes)?,
    };
    let (name, store_name) = (setup.card.name.clone(), store.name());
    let capacity_bytes = setup.card.flash.capacity_bytes;
    let device = Arc::new(LiveDevice::new(
        &setup,
        store,
        RealClock::punctual().at_scale(arguments.time_scale),
    )?);
    let card = Card {
        card: name.clone(),
        capacity_bytes,
        store: store_name.clone(),
        time_scale: arguments.time_scale.ratio(),
    };
    let (place, claim) = Place::make(&arguments.run_folder, card, arguments.dirty_limit)?;
    // Without the priority, answers come late on a busy machine; the counters show it.
    let runs_before_others = set_sched_fifo().is_ok();
    // So that memory for the data of a write does not wait until dirty pages are written out, to this very card perhaps
    // (seen in a memory group of cgroup 1). Needs CAP_SYS_RESOURCE.
    let _ = configure_io_flusher_behavior(true);
    let source = format!("{name}, {}, data in {store_name}", show_bytes(capacity_bytes));
    let served = Served {
        file_system: Arc::new(CardFileSystem::new(Arc::clone(&device), now())),
        statistics: statistics(source.clone(), Arc::clone(&device), arguments.time_scale),
        drain: {
            let device = Arc::clone(&device);
            Box::new(move || Ok(device.put_away()?))
        },
    };
    let limits = QueueLimits {
        tags: arguments.tags,
        max_kib: REQUEST_KIB,
        scheduler: arguments.io_scheduler.clone(),
    };
    daemon::serve(
        &place.attached.mountpoint,
        &mount_config(arguments.tags),
        served,
        |negotiated| {
            place.bind(claim, &limits)?;
            let path = place.device.path();
            if arguments.request_flags == OnOff::On {
                device.with_flags_of(IssuedFlags::follow(&place.device)?);
            }
            if arguments.make_up == OnOff::On {
                device.make_up_for(PathCost::measure(&device, &path)?);
            }
            let more = Map::from_iter([
                ("device".to_owned(), json!(path)),
                ("card".to_owned(), json!(name)),
                ("capacity_bytes".to_owned(), json!(capacity_bytes)),
                ("store".to_owned(), json!(store_name)),
                ("tags".to_owned(), json!(limits.tags)),
                ("real_time".to_owned(), json!(runs_before_others)),
                ("time_scale".to_owned(), json!(arguments.time_scale.ratio())),
                ("dirty_limit_bytes".to_owned(), json!(arguments.dirty_limit)),
            ]);
            announce(Report::mounted(
                source,
                &place.attached.mountpoint,
                negotiated,
                more,
            ))
        },
    )
}

/// A minor and a description; removed on drop.
struct Place {
    device: LoopDevice,
    attached: Attached,
}

impl Place {
    /// Call it without real-time priority, for which the kernel takes the machine's limit of dirty pages as 1.25 times as
    /// high.
    fn make(folder: &Path, card: Card, dirty_limit: Option<u64>) -> Result<(Self, Claim)> {
        let (device, claim) = LoopDevice::add()?;
        match Attached::prepare(folder, &device, card, dirty_limit) {
            Ok(attached) => Ok((Self { device, attached }, claim)),
            Err(error) => {
                drop(claim);
                let _ = device.remove();
                Err(error.into())
            }
        }
    }

    fn bind(&self, claim: Claim, limits: &QueueLimits) -> Result<()> {
        // Written before the binding, so that `detach` finds the device if the process is killed later.
        self.attached.write()?;
        let path = self.attached.card_path();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("{} can't be opened", path.display()))?;
        Ok(self.device.configure(claim, &file, "tidegate emmc", limits)?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The mount is gone. A device that can't be released keeps its description for `detach`.
        if self.attached.release().is_ok() && self.device.remove().is_ok() {
            self.attached.forget();
        }
    }
}

fn mount_config(tags: u32) -> MountConfig {
    // One thread per request waits for its end; two more serve flushes and queries.
    let threads = u16::try_from(tags + 2).unwrap_or(u16::MAX);
    MountConfig {
        source: "tidegate-emmc".to_owned(),
        subtype: "tidegate".to_owned(),
        io_unit_bytes: Some(FUSE_UNIT_BYTES),
        writeback: Switch::Off,
        passthrough: Switch::Off,
        uring: Switch::Off,
        direct_io: Switch::On,
        threads: Some(threads),
        // The model's threads poll for their times themselves.
        poll: Some(Duration::ZERO),
        read_only: false,
        allow_other: false,
        posix_acl: false,
        attr_ttl: Duration::from_secs(3600),
        entry_ttl: Duration::from_secs(3600),
        coherence: Coherence::Timeout,
        opens: Opens::default(),
        kernel_options: Vec::new(),
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanoseconds: since.subsec_nanos(),
    }
}

fn statistics(source: String, device: Arc<LiveDevice>, scale: TimeScale) -> StatsDocument {
    stats_document::producer(source, None, move || {
        (json!({}), live::counters::of(&device.statistics(), scale))
    })
}
