//! `tidegate ubifs mount`: mounts a file system on flash over FUSE, read-only or, with `-o rw`, writable.
//!
//! The options are those of `tidegate mount` that apply to flash, parsed by the same code.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use fuse::{Coherence, MountConfig, StatsDocument, Switch};
use serde_json::{Map, Value, json};
use ubifs::{Finding, LossListener, MountedOptions, MountedUbifs, OpenOptions, Subject, Ubifs, Writer};
use vfs::FileSystem;

use super::mount_writable::{self, Writable};
use super::salvage;
use super::source::{Devices, SourceArguments, open_file_system};
use crate::Finding as Outcome;
use crate::arguments::{MountArguments, parse_poll};
use crate::background::{self, Report};
use crate::daemon::{self, Served};
use crate::mount_options::{MountPlan, all_options};
use crate::output::print_error;
use crate::quantity::{parse_bytes, parse_duration};
use crate::taken;
use crate::{end_status, stats_document};

/// Maximum number of losses that are remembered to print them only once.
const LOSSES_REMEMBERED: usize = 10_000;

/// Options of `tidegate mount` for its write buffer or for a folder of the host.
const OF_FOLDERS: [&str; 10] = [
    "coherence",
    "buffer",
    "entry",
    "flush_interval",
    "flusher",
    "stream_after",
    "passthrough",
    "uid",
    "gid",
    "umask",
];

/// Arguments of `tidegate ubifs mount`.
#[derive(Args, Debug)]
#[command(
    override_usage = "tidegate ubifs mount [OPTIONS] <IMAGE> [MEMBER]... <MOUNTPOINT>",
    after_help = "The mount is read-only unless rw is among the -o keys. Modes and owners in the image apply to \
                  all users; the mount of an ordinary user is private and shows everything. `tidegate unmount \
                  MOUNTPOINT` commits all data and ends it. Nobody else can use a chip that is mounted rw.\n\
                  -o keys: ro, rw, allow_other, over, index_cache=SIZE, read_ahead=SIZE, threads=N, poll=DURATION, \
                  uring=auto|on|off, io_unit=SIZE, writeback=auto|on|off, direct_io=auto|on|off (both with rw), \
                  attr_timeout=DURATION, entry_timeout=DURATION, fsname=NAME, subtype=NAME, suid, nosuid, dev, \
                  nodev, exec, noexec, noatime, nosymfollow; fstab words are ignored. A flag wins over an -o key."
)]
pub struct UbifsMountArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// The mount point; before it, the further members of the array that IMAGE is the first of, in order
    #[arg(value_name = "MOUNTPOINT", required = true, num_args = 1..)]
    pub members_and_mountpoint: Vec<PathBuf>,
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
    /// Append messages of the background process, losses among them, to this file [default: the system log]
    #[arg(long, value_name = "FILE", help_heading = "Mount")]
    pub log_file: Option<PathBuf>,
    /// Allow other users to access the mount; an ordinary user needs user_allow_other in /etc/fuse.conf
    #[arg(long, help_heading = "Mount")]
    pub allow_other: bool,
    /// Maximum memory of the index cache, bytes [default: 8m]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Mount")]
    pub index_cache: Option<u64>,
    /// Maximum read-ahead for sequential readers, bytes; 0 turns it off [default: 1m]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Mount")]
    pub read_ahead: Option<u64>,
    /// Let simulated chips take the time of their model in real time; runs before ordinary processes, if permitted
    #[arg(long, help_heading = "Mount")]
    pub real_time: bool,
    /// Rebuild the member at this place (from 0) of a parity array onto the chip given there, while mounted; needs -o rw
    #[arg(long, value_name = "PLACE", help_heading = "Mount")]
    pub rebuild: Option<usize>,
    /// With --rebuild: overwrite a chip that has volumes, other than a member that the array does not refuse
    #[arg(long, requires = "rebuild", help_heading = "Mount")]
    pub force: bool,
    /// Number of worker threads, 1 to 256 [default: by the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Mount")]
    pub threads: Option<u16>,
    /// Let a worker look for the next request for this long before it sleeps, while requests come quickly; at most 1ms, 0: never
    /// [default: 20us, 0 on a single processor]
    #[arg(long, value_name = "DURATION", value_parser = parse_poll, help_heading = "Mount")]
    pub poll: Option<Duration>,
    /// Use io_uring for requests: auto, on or off; needs Linux 6.14 and the fuse module's enable_uring [default: auto]
    #[arg(long, value_name = "auto|on|off", help_heading = "Mount")]
    pub uring: Option<Switch>,
    /// Time that the kernel may cache attributes; nothing else changes them [default: 60min]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Mount")]
    pub attr_timeout: Option<Duration>,
    /// Time that the kernel may cache names; nothing else changes them [default: 60min]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Mount")]
    pub entry_timeout: Option<Duration>,
    /// Serve as the background process: report on standard output, then detach from the terminal.
    #[arg(long, hide = true)]
    pub daemon: bool,
}

/// All parameters of a mount.
struct Plan {
    source: SourceArguments,
    mountpoint: PathBuf,
    session: MountConfig,
    open: OpenOptions,
    mounted: MountedOptions,
    writes: bool,
    over: bool,
    rebuild: Option<usize>,
    force: bool,
}

/// Runs the command; `words` are the arguments it was parsed from.
pub fn run(arguments: &UbifsMountArguments, words: &[OsString]) -> Result<Outcome> {
    let log_file = arguments.log_file.as_deref();
    if arguments.daemon {
        background::serve_as_daemon(log_file, |announce| serve(&Plan::new(arguments)?, announce))?;
        return Ok(Outcome::Nothing);
    }
    let plan = Plan::new(arguments)?;
    // Before the chips are written to.
    fuse::check_mountpoint(&plan.mountpoint)?;
    if !plan.over {
        taken::refuse_if_taken(&plan.mountpoint)?;
    }
    let mut found = Outcome::Nothing;
    let mut print = |report: Report| {
        found = tell_findings(&report);
        report.print(arguments.json)
    };
    match arguments.foreground {
        true => serve(&plan, &mut print)?,
        false => print(background::start(&["ubifs", "mount"], words, log_file)?)?,
    }
    Ok(found)
}

/// Prints the losses that opening the image found.
fn tell_findings(report: &Report) -> Outcome {
    let Report::Mounted { more, .. } = report else {
        return Outcome::Nothing;
    };
    let findings = more.get("findings").and_then(Value::as_array);
    let texts: Vec<&str> = findings.into_iter().flatten().filter_map(Value::as_str).collect();
    texts.iter().for_each(|text| print_error(text));
    match texts.is_empty() {
        true => Outcome::Nothing,
        false => Outcome::Something,
    }
}

fn serve(plan: &Plan, announce: &mut dyn FnMut(Report) -> Result<()>) -> Result<()> {
    if plan.source.chip.in_real_time {
        // Its threads sleep until a chip is done; without the priority they wake up late.
        let _ = live::set_sched_fifo();
    }
    if plan.writes {
        return serve_writable(plan, announce);
    }
    let started = Instant::now();
    let (volume, devices) = plan.source.volume_and_devices()?;
    let attached = Instant::now();
    let (ubifs, guesses) = match plan.source.salvage || plan.source.deleted {
        true => salvage::of_volume(&plan.source, volume)?,
        false => {
            let ubifs = open_file_system(volume, plan.open)?;
            refuse_lost_journal(&ubifs)?;
            (ubifs, Vec::new())
        }
    };
    let ubifs = Arc::new(ubifs.with_keys(plan.source.master_keys()?));
    let opened = Instant::now();
    let mut findings: Vec<String> = ubifs.findings().iter().map(ToString::to_string).collect();
    if !findings.is_empty() && !plan.source.salvage {
        findings.push(extract::SALVAGE_HINT.to_owned());
    }
    let doubts = doubts(&ubifs);
    let doubted = doubts.len();
    findings.extend(doubts);
    findings.extend(devices.iter().flat_map(Devices::missing_told));
    findings.extend(guesses);
    let more = Map::from_iter([
        ("attach_us".to_owned(), microseconds(attached - started)),
        ("open_us".to_owned(), microseconds(opened - attached)),
        ("clean".to_owned(), ubifs.replay_report().was_clean.into()),
        ("findings".to_owned(), findings.into()),
    ]);
    let losses = Arc::new(AtomicU64::new(0));
    let mounted = MountedUbifs::new(ubifs, plan.mounted, listener(Arc::clone(&losses)));
    let counters = Box::new(move || {
        let array = devices.as_ref().and_then(Devices::statistics);
        array
            .map(|array| ("array".to_owned(), array))
            .into_iter()
            .collect()
    });
    let served = Served {
        file_system: Arc::new(mounted),
        statistics: statistics(plan.source.name(), losses, doubted, counters),
        drain: Box::new(|| Ok(())),
    };
    daemon::serve(&plan.mountpoint, &plan.session, served, |negotiated| {
        announce(Report::mounted(
            plan.source.name(),
            &plan.mountpoint,
            negotiated,
            more,
        ))
    })
}

/// Refuses a mount without part of the log or of the journal, as Linux does: files whose nodes are there would have old
/// content, holes, or no name, and no read could report that.
fn refuse_lost_journal(ubifs: &Ubifs) -> Result<()> {
    let is_of_journal = |finding: &&Finding| matches!(finding.subject, Subject::Log | Subject::Journal);
    let mut lost = ubifs.findings().iter().filter(is_of_journal);
    let Some(first) = lost.next() else {
        return Ok(());
    };
    let more = match lost.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    bail!(
        "{}: {first}{more}. Files written last would silently be old or missing, so nothing is mounted; --salvage mounts what all nodes \
         of the volume show, `tidegate ubifs extract` takes out what can be read, `tidegate ubifs check` lists all damage",
        ubifs.volume().name()
    )
}

/// Ends of the journal that a power cut tore or damage hid.
fn doubts(ubifs: &Ubifs) -> Vec<String> {
    let doubts = ubifs.replay_report().doubts.iter();
    doubts.map(ToString::to_string).collect()
}

fn serve_writable(plan: &Plan, announce: &mut dyn FnMut(Report) -> Result<()>) -> Result<()> {
    let started = Instant::now();
    let (volume, devices) = match plan.rebuild {
        Some(place) => plan.source.volume_with_new_member(place, plan.force)?,
        None => plan.source.writable_volume()?,
    };
    let attached = Instant::now();
    let writer = Writer::open(volume, plan.open).inspect_err(|_| devices.close())?;
    let opened = Instant::now();
    let doubts = doubts(writer.read());
    let doubted = doubts.len();
    let more = Map::from_iter([
        ("attach_us".to_owned(), microseconds(attached - started)),
        ("open_us".to_owned(), microseconds(opened - attached)),
        ("clean".to_owned(), writer.read().replay_report().was_clean.into()),
        ("findings".to_owned(), doubts.into()),
        ("writable".to_owned(), true.into()),
    ]);
    let losses = Arc::new(AtomicU64::new(0));
    let writable = Writable::start(writer, plan.mounted, devices, listener(Arc::clone(&losses)))?;
    let mounted = Arc::clone(writable.mounted());
    let below = Arc::clone(writable.devices());
    let counters = Box::new(move || {
        let mut counters = mount_writable::counters(&mounted.statistics());
        counters.extend(below.statistics().map(|array| ("array".to_owned(), array)));
        counters
    });
    let served_file_system: Arc<dyn FileSystem> = writable.mounted().clone();
    let served = Served {
        file_system: served_file_system,
        statistics: statistics(plan.source.name(), losses, doubted, counters),
        drain: Box::new(|| writable.finish()),
    };
    daemon::serve(&plan.mountpoint, &plan.session, served, |negotiated| {
        announce(Report::mounted(
            plan.source.name(),
            &plan.mountpoint,
            negotiated,
            more,
        ))
    })
}

fn microseconds(duration: Duration) -> Value {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).into()
}

/// Returns a listener that prints each loss once, by its location.
fn listener(losses: Arc<AtomicU64>) -> LossListener {
    let told = Mutex::new(HashSet::new());
    Box::new(move |finding| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&finding.place) {
            return;
        }
        if told.len() < LOSSES_REMEMBERED {
            told.insert(finding.place);
        }
        drop(told);
        losses.fetch_add(1, Ordering::Relaxed);
        print_error(&finding.to_string());
    })
}

fn statistics(
    source: String,
    losses: Arc<AtomicU64>,
    doubts: usize,
    counters: Box<dyn Fn() -> Map<String, Value> + Send + Sync>,
) -> StatsDocument {
    let layers = move || {
        let mut backing = counters();
        backing.insert("losses".to_owned(), losses.load(Ordering::Relaxed).into());
        backing.insert("doubts".to_owned(), doubts.into());
        (json!({}), backing)
    };
    stats_document::producer(source, end_status::descriptor(), layers)
}

impl Plan {
    fn new(arguments: &UbifsMountArguments) -> Result<Self> {
        let mut source = arguments.source.clone();
        let Some((mountpoint, members)) = arguments.members_and_mountpoint.split_last() else {
            bail!("say where to mount it");
        };
        source.with.extend_from_slice(members);
        source.chip.in_real_time = arguments.real_time;
        let mut open = OpenOptions::standard();
        let mut mounted = MountedOptions::standard();
        let (mut is_named, mut writes, mut of_writers) = (false, false, None);
        let given = MountArguments {
            options: arguments.options.clone(),
            ..MountArguments::default()
        };
        // The last key wins, so these are defaults.
        let defaults = "attr_timeout=3600s,entry_timeout=3600s,writeback=off,direct_io=off";
        let mut options = vec![defaults.to_owned()];
        for option in all_options(&given) {
            let (key, value) = option.split_once('=').unwrap_or((&option, ""));
            let key = key.replace('-', "_");
            let bytes = || parse_bytes(value).map_err(|why| anyhow!("option `{option}`: {why}"));
            match key.as_str() {
                "index_cache" => open.index_cache_bytes = bytes()?,
                "read_ahead" => mounted.read_ahead_bytes = bytes()?,
                "rw" => writes = true,
                "ro" | "read_only" => writes = false,
                "remount" => bail!("option `remount`: use `tidegate mount -o remount,...` or mount(8)"),
                key if OF_FOLDERS.contains(&key) => {
                    bail!(
                        "option `{key}` is one of `tidegate mount` for folders; a UBIFS has no such setting"
                    )
                }
                key => {
                    if ["writeback", "direct_io"].contains(&key) {
                        of_writers = Some(option.clone());
                    }
                    is_named |= key == "fsname";
                    options.push(option.replace('\\', "\\\\").replace(',', "\\,"));
                }
            }
        }
        if let Some(option) = of_writers.filter(|_| !writes) {
            bail!("option `{option}` is about writing; it goes with rw");
        }
        if writes && (source.salvage || source.deleted) {
            bail!("--salvage and --deleted are for reading; mount with -o ro");
        }
        if writes && !source.keys.is_empty() {
            bail!("--key does not go with rw: encrypted files can only be read; leave rw out");
        }
        if !writes && arguments.rebuild.is_some() {
            bail!("--rebuild writes to the chips; it goes with -o rw");
        }
        open.index_cache_bytes = arguments.index_cache.unwrap_or(open.index_cache_bytes);
        mounted.read_ahead_bytes = arguments.read_ahead.unwrap_or(mounted.read_ahead_bytes);
        let plan = MountPlan::from_arguments(&MountArguments {
            source: "/".into(),
            mountpoint: mountpoint.clone(),
            options,
            passthrough: Some(Switch::Off),
            uring: arguments.uring,
            threads: arguments.threads,
            poll: arguments.poll,
            attr_timeout: arguments.attr_timeout,
            entry_timeout: arguments.entry_timeout,
            allow_other: arguments.allow_other,
            over: arguments.over,
            read_only: !writes,
            ..MountArguments::default()
        })?;
        let mut session = plan.session;
        // The times are limits here too, as nothing bypasses the file system.
        session.coherence = Coherence::Auto;
        if !is_named {
            session.source = source.name();
        }
        Ok(Self {
            source,
            mountpoint: plan.mountpoint,
            over: plan.over,
            session,
            open,
            mounted,
            writes,
            rebuild: arguments.rebuild,
            force: arguments.force,
        })
    }
}
