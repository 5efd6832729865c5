//! Captures requests without BPF: reads block events of a separate tracefs instance as text and turns them into the
//! records that the programs would send.
//!
//! [`parser`] reads the lines, [`under_way`] joins those of a request, [`files`] attributes them to files; missing
//! information is recorded in the trace's limitations. The instance is removed at the end; one left by a killed tracer is removed by the next.

mod files;
mod parser;
mod under_way;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use results::block_trace::{DeviceNumber, Limitation, TracedDevice};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

use self::files::Files;
use self::parser::Parser;
pub(crate) use self::parser::flag_bits;
use super::chunk::Chunk;
use super::device;
use super::error::CaptureError;
use super::privilege;
use super::record::kernel_device;

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const NAME: &str = "tidegate-";
const EVENTS: [&str; 6] = [
    "block_bio_queue",
    "block_bio_complete",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_requeue",
    "block_rq_complete",
];
/// Pause of the reader when there are no events.
const REST: Duration = Duration::from_millis(20);
/// Limitations of a trace by tracefs.
pub(crate) fn limitations(why: &str) -> Vec<Limitation> {
    [
        "files but by the place of their blocks: on ext4 as its events tell it, elsewhere as it was at the start; no \
         generations, and no names of files that were gone or renamed before they were met",
        "kinds of blocks (metadata by the request's own flag, the journal as a whole)",
        "processes behind buffered writes on other file systems than ext4",
        "whether data went past the page cache",
        "the journal's transactions and homes, the life of files elsewhere than on ext4, counts of system calls",
        "hardware queues; times finer than 1 us",
    ]
    .into_iter()
    .map(|what| Limitation {
        what: what.to_owned(),
        why: why.to_owned(),
    })
    .collect()
}

/// A tracefs instance with the tracer's events, removed on drop.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    /// The disk of each disk or partition, by device number.
    disks: HashMap<u32, u32>,
    devices: Vec<TracedDevice>,
    /// Shared with the reader.
    forgotten: Forgotten,
    /// Number of completions without an issue; shared with the reader.
    unmatched: Forgotten,
}

/// Number of times that one of the reader's maps was dropped at its limit.
#[derive(Clone, Debug, Default)]
struct Forgotten(Arc<AtomicU64>);

impl Forgotten {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Instance {
    /// Creates the instance and starts its events.
    pub(crate) fn start(devices: &[TracedDevice], buffer_bytes: u64) -> Result<Self, CaptureError> {
        let root = find()?;
        remove_leftovers(&root);
        let folder = root
            .join("instances")
            .join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&folder).map_err(|source| forbidden_or(source, "making a tracefs instance"))?;
        let mut disks = HashMap::new();
        for device in devices {
            let disk = kernel_device(device.device);
            for part in with_partitions(device) {
                disks.insert(kernel_device(part), disk);
            }
        }
        let instance = Self {
            folder,
            disks,
            devices: devices.to_vec(),
            forgotten: Forgotten::default(),
            unmatched: Forgotten::default(),
        };
        let filter: Vec<String> = instance
            .disks
            .keys()
            .map(|number| format!("dev == {number}"))
            .collect();
        let filter = filter.join(" || ");
        instance.write("trace_clock", "mono")?;
        let processors =
            thread::available_parallelism().map_or(1, |count| u64::try_from(count.get()).unwrap_or(1));
        instance.write(
            "buffer_size_kb",
            &(buffer_bytes / 1024 / processors).max(64).to_string(),
        )?;
        for event in EVENTS {
            instance.write(&format!("events/block/{event}/filter"), &filter)?;
            instance.write(&format!("events/block/{event}/enable"), "1")?;
        }
        instance.follow_files()?;
        Ok(instance)
    }

    /// Starts the events about files, if the kernel has them.
    fn follow_files(&self) -> Result<(), CaptureError> {
        let mounts = self.devices.iter().flat_map(device::mounts_on);
        let file_systems: Vec<String> = mounts
            .map(|mount| format!("dev == {}", kernel_device(mount.device)))
            .collect();
        if file_systems.is_empty() {
            return Ok(());
        }
        let disks: Vec<String> = self
            .devices
            .iter()
            .map(|device| format!("name == \"{}\"", device.device))
            .collect();
        for (subsystem, event) in files::EVENTS {
            let place = format!("events/{subsystem}/{event}");
            if !self.folder.join(&place).is_dir() {
                continue;
            }
            let filter = if subsystem == "ext4" {
                &file_systems
            } else {
                &disks
            };
            self.write(&format!("{place}/filter"), &filter.join(" || "))?;
            self.write(&format!("{place}/enable"), "1")?;
        }
        Ok(())
    }

    /// The reader, for its thread.
    pub(crate) fn reader(&self) -> Result<Reader, CaptureError> {
        let path = self.folder.join("trace_pipe");
        let opened = rustix::fs::open(
            &path,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let pipe = opened.map_err(|error| CaptureError::Refused {
            step: format!("opening {}", path.display()),
            source: error.into(),
        })?;
        Ok(Reader {
            pipe: File::from(pipe),
            parser: Parser::new(
                self.disks.clone(),
                Files::of(&self.devices, self.forgotten.clone()),
                self.forgotten.clone(),
                self.unmatched.clone(),
            ),
        })
    }

    /// Stops the events.
    pub(crate) fn stop(&self) {
        let _ = self.write("tracing_on", "0");
    }

    /// Number of times that the reader dropped one of its maps at the limit.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.get()
    }

    /// Number of completions of requests whose issue was not seen.
    pub(crate) fn unmatched(&self) -> u64 {
        self.unmatched.get()
    }

    /// Number of events that the kernel overwrote or dropped.
    pub(crate) fn lost(&self) -> u64 {
        let mut lost = 0;
        for entry in fs::read_dir(self.folder.join("per_cpu"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let text = fs::read_to_string(entry.path().join("stats")).unwrap_or_default();
            let counts = text.lines().filter_map(|line| {
                let count = line
                    .strip_prefix("overrun: ")
                    .or_else(|| line.strip_prefix("dropped events: "));
                count?.trim().parse::<u64>().ok()
            });
            lost += counts.sum::<u64>();
        }
        lost
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel: it is there, and takes no other's place"
    )]
    fn write(&self, name: &str, text: &str) -> Result<(), CaptureError> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|source| CaptureError::Refused {
            step: format!("writing {text:?} to {}", path.display()),
            source,
        })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

fn find() -> Result<PathBuf, CaptureError> {
    let found = || {
        PLACES
            .iter()
            .map(PathBuf::from)
            .find(|place| place.join("instances").is_dir())
    };
    if let Some(place) = found() {
        return Ok(place);
    }
    let mounted = mount("tracefs", PLACES[0], "tracefs", MountFlags::empty(), None);
    match (mounted, found()) {
        (Ok(()), Some(place)) => Ok(place),
        (Err(error), _) => Err(forbidden_or(
            error.into(),
            &format!("mounting tracefs at {}", PLACES[0]),
        )),
        (Ok(()), None) => Err(CaptureError::Forbidden {
            reason: format!("tracefs at {} has no instances", PLACES[0]),
        }),
    }
}

fn forbidden_or(source: std::io::Error, step: &str) -> CaptureError {
    if source.kind() != ErrorKind::PermissionDenied {
        let step = step.to_owned();
        return CaptureError::Refused { step, source };
    }
    let reason = privilege::why_no_bpf()
        .unwrap_or_else(|| format!("{step} is not permitted: {source}; run it as root"));
    CaptureError::Forbidden { reason }
}

/// Removes instances of tracers that have ended.
fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root.join("instances"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let gone = name
            .strip_prefix(NAME)
            .is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if gone {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn with_partitions(device: &TracedDevice) -> Vec<DeviceNumber> {
    let folder = format!("/sys/dev/block/{}", device.device);
    let partitions = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            entry.path().join("partition").exists().then_some(())?;
            fs::read_to_string(entry.path().join("dev"))
                .ok()?
                .trim()
                .parse()
                .ok()
        });
    std::iter::once(device.device).chain(partitions).collect()
}

/// Reads the instance's text.
#[derive(Debug)]
pub(crate) struct Reader {
    pipe: File,
    parser: Parser,
}

impl Reader {
    /// Reads until `stop`, including the events present then.
    pub(crate) fn read(mut self, chunks: &SyncSender<Chunk>, stop: &AtomicBool) -> Result<(), CaptureError> {
        let mut buffer = vec![0; 1 << 16];
        let mut text: Vec<u8> = Vec::new();
        loop {
            let last = stop.load(Ordering::Acquire);
            match self.pipe.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    text.extend_from_slice(&buffer[..count]);
                    let mut chunk = Chunk::default();
                    let whole = text
                        .iter()
                        .rposition(|byte| *byte == b'\n')
                        .map_or(0, |at| at + 1);
                    for line in text.drain(..whole).as_slice().split(|byte| *byte == b'\n') {
                        self.parser.line(line, &mut chunk);
                    }
                    if chunks.send(chunk).is_err() {
                        return Ok(());
                    }
                }
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(CaptureError::Refused {
                        step: "reading tracefs".to_owned(),
                        source: error,
                    });
                }
                _ if last => return Ok(()),
                _ => thread::sleep(REST),
            }
        }
    }
}
