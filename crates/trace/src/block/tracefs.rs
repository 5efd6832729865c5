//! Requests without BPF: block events of a tracefs instance of our own, read as text and turned into the records that the
//! programs would send.
//!
//! It knows no file, no writer behind a buffered write, and no kind of block: that is said in the trace's limitations.
//! The instance is removed in the end; one that a killed tracer left is removed by the next.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use results::block_trace::{DeviceNumber, Limitation, TracedDevice};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use zerocopy::{FromZeros, IntoBytes};

use super::error::CaptureError;
use super::privilege;
use super::record::{
    BioRecord, NO_HARDWARE_QUEUE, ProcessRecord, ProcessReference, RequestRecord, kernel_device,
};
use super::request_flags::FlagBits;
use super::ring::Chunk;

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const NAME: &str = "tidegate-";
const EVENTS: [&str; 4] = [
    "block_bio_queue",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_complete",
];
/// How long the reader rests when there is nothing.
const REST: Duration = Duration::from_millis(20);
const KIND_BIO: u32 = 1;
const KIND_REQUEST: u32 = 3;
const KIND_PROCESS: u32 = 6;

/// Bits that this module gives to the letters of `rwbs`, as it has no kernel's word.
const FLUSH: u32 = 2;
const SYNC: u32 = 1 << 11;
const META: u32 = 1 << 12;
const FUA: u32 = 1 << 17;
const PREFLUSH: u32 = 1 << 18;
const READAHEAD: u32 = 1 << 19;

/// How the words made here are read.
pub(crate) fn flag_bits() -> FlagBits {
    let bits = [
        ("__REQ_SYNC", SYNC),
        ("__REQ_META", META),
        ("__REQ_FUA", FUA),
        ("__REQ_PREFLUSH", PREFLUSH),
        ("__REQ_RAHEAD", READAHEAD),
    ];
    FlagBits::from_members(bits.into_iter().map(|(name, word)| (name, word.trailing_zeros())))
}

/// What a trace by tracefs cannot tell.
pub(crate) fn limitations(why: &str) -> Vec<Limitation> {
    [
        "files, offsets and paths",
        "kinds of blocks (metadata by the request's own flag alone)",
        "processes behind buffered writes; only who called the block layer",
        "the journal's transactions, the life of files, counts of system calls",
        "hardware queues; times finer than 1 us",
    ]
    .into_iter()
    .map(|what| Limitation {
        what: what.to_owned(),
        why: why.to_owned(),
    })
    .collect()
}

/// An instance with our events, removed with the value.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    /// Number of a disk or partition, and its disk.
    disks: HashMap<u32, u32>,
}

impl Instance {
    /// Makes the instance and starts its events.
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
        let instance = Self { folder, disks };
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
        Ok(instance)
    }

    /// The reader, for a thread of its own.
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
            parser: Parser::new(self.disks.clone()),
        })
    }

    /// No more events.
    pub(crate) fn stop(&self) {
        let _ = self.write("tracing_on", "0");
    }

    /// Events that the kernel overwrote or dropped.
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

/// Instances of tracers that are gone.
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
    /// Until `stop`, and what is there then.
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
                        self.parser.line(&String::from_utf8_lossy(line), &mut chunk);
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

/// A request between insert and completion.
#[derive(Debug, Default)]
struct UnderWay {
    inserted: u64,
    issued: u64,
    in_flight: u32,
}

/// From lines to records.
#[derive(Debug)]
struct Parser {
    disks: HashMap<u32, u32>,
    /// By disk, operation and first sector.
    under_way: HashMap<(u32, u32, u64), UnderWay>,
    in_flight: HashMap<u32, u32>,
    known: HashMap<u32, (u32, bool)>,
    bios: u64,
}

/// What all four events say.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    comm: &'a str,
    tid: u32,
    time: u64,
    event: &'a str,
    device: u32,
    operation: u32,
    sector: u64,
    bytes: u64,
    error: i64,
}

impl Parser {
    fn new(disks: HashMap<u32, u32>) -> Self {
        Self {
            disks,
            under_way: HashMap::new(),
            in_flight: HashMap::new(),
            known: HashMap::new(),
            bios: 0,
        }
    }

    fn line(&mut self, text: &str, chunk: &mut Chunk) {
        let Some(line) = parse(text) else {
            return;
        };
        let Some(disk) = self.disks.get(&line.device).copied() else {
            return;
        };
        // A flush has no place, and issue and completion write that differently.
        let sector = if line.operation & 0xFF == FLUSH {
            0
        } else {
            line.sector
        };
        let key = (disk, line.operation & 0xFF, sector);
        match line.event {
            "block_bio_queue" => self.bio(&line, disk, chunk),
            "block_rq_insert" => self.under_way.entry(key).or_default().inserted = line.time,
            "block_rq_issue" => {
                let count = self.in_flight.entry(disk).or_default();
                *count += 1;
                let request = self.under_way.entry(key).or_default();
                request.issued = line.time;
                request.in_flight = *count;
            }
            "block_rq_complete" => {
                // Not issued: under way before the trace, or an empty flush that another request answered.
                let Some(request) = self.under_way.remove(&key).filter(|request| request.issued != 0) else {
                    return;
                };
                let count = self.in_flight.entry(disk).or_default();
                *count = count.saturating_sub(1);
                let mut record = RequestRecord::new_zeroed();
                record.kind = KIND_REQUEST;
                record.device = disk;
                record.sector = line.sector;
                record.inserted = request.inserted;
                record.issued = request.issued;
                record.completed = line.time;
                record.bytes = u32::try_from(line.bytes).unwrap_or(u32::MAX / 512 * 512);
                record.operation = line.operation;
                // Any other status than good is an I/O error in the block layer's numbering.
                record.status = if line.error == 0 { 0 } else { 10 };
                record.in_flight = request.in_flight;
                record.hardware_queue = NO_HARDWARE_QUEUE;
                chunk.push(record.as_bytes());
            }
            _ => {}
        }
    }

    fn bio(&mut self, line: &Line<'_>, disk: u32, chunk: &mut Chunk) {
        let mut name = [0; 16];
        let length = line.comm.len().min(15);
        name[..length].copy_from_slice(&line.comm.as_bytes()[..length]);
        let (tgid, by_kernel) = *self.known.entry(line.tid).or_insert_with(|| look_up(line.tid));
        let mix = name.chunks_exact(8).fold(0_u64, |mix, part| {
            let word = part.try_into().map_or(0, u64::from_ne_bytes);
            mix.rotate_left(7) ^ word
        });
        let mut process = ProcessRecord::new_zeroed();
        process.kind = KIND_PROCESS;
        process.tgid = tgid;
        process.name = mix;
        process.comm = name;
        chunk.push(process.as_bytes());
        self.bios += 1;
        let mut record = BioRecord::new_zeroed();
        record.kind = KIND_BIO;
        record.device = disk;
        record.time = line.time;
        record.bio = self.bios;
        record.sector = line.sector;
        record.bytes = u32::try_from(line.bytes).unwrap_or(u32::MAX / 512 * 512);
        record.operation = line.operation;
        record.by_kernel = u8::from(by_kernel);
        record.submitter = ProcessReference {
            tgid,
            tid: line.tid,
            name: mix,
        };
        record.run.bytes = record.bytes;
        if line.operation & META != 0 {
            record.run.kind = super::record::run_kind::METADATA;
        }
        chunk.push(record.as_bytes());
    }
}

/// Process of a thread, and whether the kernel owns it: such have no command line.
fn look_up(tid: u32) -> (u32, bool) {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tgid = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    let by_kernel = fs::read(format!("/proc/{tid}/cmdline")).is_ok_and(|line| line.is_empty());
    (tgid.unwrap_or(tid), by_kernel)
}

/// `comm-TID [CPU] flags SECONDS.MICROS: event: MAJOR,MINOR RWBS ... SECTOR + COUNT ... [comm or error]`.
fn parse(text: &str) -> Option<Line<'_>> {
    let (head, rest) = EVENTS.iter().find_map(|event| {
        let at = text.find(&format!(": {event}: "))?;
        Some((&text[..at], &text[at + 2..]))
    })?;
    let (task, timing) = head.split_once('[')?;
    let (comm, tid) = task
        .trim()
        .split_once(" (")
        .map_or(task.trim(), |(task, _)| task)
        .rsplit_once('-')?;
    let (seconds, micros) = timing.rsplit(' ').next()?.split_once('.')?;
    let (event, fields) = rest.split_once(": ")?;
    let mut words = fields.split(' ');
    let device: DeviceNumber = words.next()?.parse().ok()?;
    let rwbs = words.next()?;
    let mut before = None;
    let (sector, count) = loop {
        let word = words.next()?;
        if word == "+" {
            break (before?, words.next()?.parse::<u64>().ok()?);
        }
        before = word.parse::<u64>().ok();
    };
    let last = fields.rsplit('[').next()?.trim_end_matches(']');
    Some(Line {
        comm,
        tid: tid.trim().parse().ok()?,
        time: seconds.parse::<u64>().ok()? * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000,
        event,
        device: kernel_device(device),
        operation: operation_word(rwbs),
        sector,
        bytes: count * 512,
        error: if event == "block_rq_complete" {
            last.parse().unwrap_or(0)
        } else {
            0
        },
    })
}

/// Letters: `F` before the operation is a flush before it, behind it forced unit access.
fn operation_word(rwbs: &str) -> u32 {
    let (first, rest) = match rwbs.strip_prefix('F') {
        Some(rest) => (PREFLUSH, rest),
        None => (0, rwbs),
    };
    let mut letters = rest.chars();
    let operation = match letters.next() {
        Some('R') => 0,
        Some('W') => 1,
        Some('D') if rest.starts_with("DE") => 5,
        Some('D') => 3,
        // `FF`: the device's own flush.
        Some('F') => return FLUSH | PREFLUSH,
        _ => 34,
    };
    letters.fold(operation | first, |word, letter| {
        word | match letter {
            'F' => FUA,
            'S' => SYNC,
            'M' => META,
            'A' => READAHEAD,
            _ => 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_each_event_is_read() {
        let issue = "    kworker/u8:1-2042    [000] ..... 27408.619482: block_rq_issue: 254,0 WSM 1695744 () 392342608 + 3312 be,0,4 [kworker/u8:1]";
        let line = parse(issue).unwrap();
        assert_eq!(
            (line.comm, line.tid, line.event),
            ("kworker/u8:1", 2042, "block_rq_issue")
        );
        assert_eq!(
            (line.sector, line.bytes, line.time),
            (392_342_608, 3312 * 512, 27_408_619_482_000)
        );
        assert_eq!(line.operation, 1 | SYNC | META);
        let done = "          ctrl-c-15056   [001] ..s1. 27408.621298: block_rq_complete: 254,0 WM () 354170040 + 8 be,0,4 [-5]";
        let line = parse(done).unwrap();
        assert_eq!((line.comm, line.error), ("ctrl-c", -5));
        let queue = " dd-77 (   77) [001] ..... 1.000001: block_bio_queue: 7,0 FWFS 8 + 16 [dd]";
        let line = parse(queue).unwrap();
        assert_eq!((line.comm, line.operation), ("dd", 1 | PREFLUSH | FUA | SYNC));
        assert_eq!(operation_word("FF"), 2 | PREFLUSH);
        assert!(parse("CPU:0 [LOST 17 EVENTS]").is_none());
    }
}
