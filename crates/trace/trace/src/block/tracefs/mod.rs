//! Captures requests without BPF: reads block events of a separate tracefs instance as text and turns them into the
//! records that the programs would send.
//!
//! [`files`] handles attribution to files; missing information is recorded in the trace's limitations. The instance is
//! removed at the end; one left by a killed tracer is removed by the next.

mod files;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use formats::ftrace_line::{BlockFields, Line, lost_events, named};
use results::block_trace::{DeviceNumber, Limitation, Operation, RequestFlags, TracedDevice};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};
use zerocopy::{FromZeros, IntoBytes};

use self::files::{Files, Moment, Told};
use super::device;
use super::error::CaptureError;
use super::joiner::low_half;
use super::privilege;
use super::record::{
    BioDoneRecord, BioRecord, LostRecord, NO_HARDWARE_QUEUE, ProcessRecord, ProcessReference, RequestRecord,
    RunPart, RunRecord, kernel_device,
};
use super::request_flags::FlagBits;
use super::ring::Chunk;

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const NAME: &str = "tidegate-";
const EVENTS: [&str; 5] = [
    "block_bio_queue",
    "block_bio_complete",
    "block_rq_insert",
    "block_rq_issue",
    "block_rq_complete",
];
/// Pause of the reader when there are no events.
const REST: Duration = Duration::from_millis(20);
const KIND_BIO: u32 = 1;
const KIND_RUN: u32 = 2;
const KIND_REQUEST: u32 = 3;
const KIND_BIO_DONE: u32 = 4;
const KIND_NAME: u32 = 5;
const KIND_PROCESS: u32 = 6;
const KIND_WRITER: u32 = 7;
const KIND_EVENT: u32 = 8;
const KIND_LOST: u32 = 12;

/// `BLK_STS_IOERR`.
const IO_ERROR: u32 = 10;

/// `PF_KTHREAD`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Maximum number of threads whose processes are cached.
const MAX_THREADS: usize = 1 << 16;
/// Maximum number of requests between insert and completion. Devices have far fewer unless events are lost.
const MAX_UNDER_WAY: usize = 1 << 16;

const REGULAR: u16 = 0x8000;

/// Bits that this module assigns to flags, as the letters of a line lack the kernel's word.
const BITS: [(&str, u32); 7] = [
    ("__REQ_SYNC", 11),
    ("__REQ_META", 12),
    ("__REQ_PRIO", 13),
    ("__REQ_ATOMIC", 14),
    ("__REQ_FUA", 17),
    ("__REQ_PREFLUSH", 18),
    ("__REQ_RAHEAD", 19),
];

/// Decoder for these bits.
pub(crate) fn flag_bits() -> FlagBits {
    FlagBits::from_members(BITS.into_iter())
}

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
            parser: Parser::new(self.disks.clone(), Files::of(&self.devices)),
        })
    }

    /// Stops the events.
    pub(crate) fn stop(&self) {
        let _ = self.write("tracing_on", "0");
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

/// Converts lines to records.
#[derive(Debug)]
struct Parser {
    disks: HashMap<u32, u32>,
    /// By disk, operation and first sector.
    under_way: HashMap<(u32, u32, u64), UnderWay>,
    in_flight: HashMap<u32, u32>,
    known: HashMap<u32, (u32, bool)>,
    files: Files,
    bits: FlagBits,
    bios: u64,
    /// Time of the last event.
    time: u64,
}

impl Parser {
    fn new(disks: HashMap<u32, u32>, files: Files) -> Self {
        Self {
            disks,
            under_way: HashMap::new(),
            in_flight: HashMap::new(),
            known: HashMap::new(),
            files,
            bits: flag_bits(),
            bios: 0,
            time: 0,
        }
    }

    fn line(&mut self, text: &str, chunk: &mut Chunk) {
        let Some((line, event, fields)) = split(text) else {
            if lost_events(text).is_some() {
                let mut record = LostRecord::new_zeroed();
                (record.kind, record.time) = (KIND_LOST, self.time);
                chunk.push(record.as_bytes());
            }
            return;
        };
        let time = line.time_ns;
        self.time = time;
        if !EVENTS.contains(&event) {
            return self.file_event(line, event, fields, chunk);
        }
        let Some(fields) = BlockFields::read(fields) else {
            return;
        };
        let Some(disk) = self.disks.get(&kernel_device(fields.device)).copied() else {
            return;
        };
        // A flush has no sector, and issue and completion print that differently.
        let sector = if fields.operation == Operation::Flush {
            0
        } else {
            fields.sector
        };
        let word = self.bits.word(fields.operation, fields.flags);
        let bytes = u32::try_from(fields.bytes).unwrap_or(u32::MAX / 512 * 512);
        let is_error = event.ends_with("_complete") && fields.status.is_some_and(|status| status != 0);
        let key = (disk, word & 0xFF, sector);
        if self.under_way.len() >= MAX_UNDER_WAY {
            self.under_way.clear();
        }
        match event {
            "block_bio_queue" => self.bio(line, &fields, disk, chunk),
            // Refused: it has no request. Devices without requests complete all their bios here.
            "block_bio_complete" if is_error => {
                let mut record = BioDoneRecord::new_zeroed();
                record.kind = KIND_BIO_DONE;
                record.device = disk;
                record.time = time;
                record.sector = fields.sector;
                record.operation = word;
                record.bytes = bytes;
                record.status = IO_ERROR;
                chunk.push(record.as_bytes());
            }
            "block_rq_insert" => self.under_way.entry(key).or_default().inserted = time,
            "block_rq_issue" => {
                let count = self.in_flight.entry(disk).or_default();
                *count += 1;
                let request = self.under_way.entry(key).or_default();
                request.issued = time;
                request.in_flight = *count;
            }
            "block_rq_complete" => {
                // Not issued: in flight before the trace, or an empty flush that another request answered.
                let Some(request) = self.under_way.remove(&key).filter(|request| request.issued != 0) else {
                    return;
                };
                let count = self.in_flight.entry(disk).or_default();
                *count = count.saturating_sub(1);
                let mut record = RequestRecord::new_zeroed();
                record.kind = KIND_REQUEST;
                record.device = disk;
                record.sector = fields.sector;
                record.inserted = request.inserted;
                record.issued = request.issued;
                record.completed = time;
                record.bytes = bytes;
                record.operation = word;
                // Any status other than success is an I/O error in the block layer's numbering.
                record.status = if is_error { IO_ERROR } else { 0 };
                record.in_flight = request.in_flight;
                record.hardware_queue = NO_HARDWARE_QUEUE;
                chunk.push(record.as_bytes());
            }
            _ => {}
        }
    }

    fn file_event(&mut self, line: Line<'_>, event: &str, fields: &str, chunk: &mut Chunk) {
        let known = &mut self.known;
        let mut moment = || {
            let (process, by_kernel) = process(known, line, chunk);
            Moment {
                time: line.time_ns,
                process,
                by_kernel,
            }
        };
        for told in self.files.line(event, fields, &mut moment) {
            match told {
                Told::Name(record) => chunk.push(record.as_bytes()),
                Told::Writer(record) => chunk.push(record.as_bytes()),
                Told::Event(record) => chunk.push(record.as_bytes()),
            }
        }
    }

    fn bio(&mut self, line: Line<'_>, fields: &BlockFields, disk: u32, chunk: &mut Chunk) {
        let (submitter, by_kernel) = process(&mut self.known, line, chunk);
        self.bios += 1;
        let mut record = BioRecord::new_zeroed();
        record.kind = KIND_BIO;
        record.device = disk;
        record.time = line.time_ns;
        record.bio = self.bios;
        record.sector = fields.sector;
        record.bytes = u32::try_from(fields.bytes).unwrap_or(u32::MAX / 512 * 512);
        record.operation = self.bits.word(fields.operation, fields.flags);
        record.by_kernel = u8::from(by_kernel);
        record.submitter = submitter;
        let mut parts = self.parts(&record, fields, chunk);
        record.run = parts.pop().unwrap_or_else(|| {
            let mut whole = RunPart::new_zeroed();
            whole.bytes = record.bytes;
            if fields.flags.contains(RequestFlags::META) {
                whole.kind = super::record::run_kind::METADATA;
            }
            whole
        });
        for run in parts {
            let mut piece = RunRecord::new_zeroed();
            piece.kind = KIND_RUN;
            piece.bio = record.bio;
            piece.mark = low_half(record.time);
            piece.run = run;
            chunk.push(piece.as_bytes());
        }
        chunk.push(record.as_bytes());
    }

    /// Owners of the range of a bio; empty if the owner of a position is irrelevant or wrong.
    fn parts(&mut self, bio: &BioRecord, fields: &BlockFields, chunk: &mut Chunk) -> Vec<RunPart> {
        // Only reads and writes carry data of files.
        if !matches!(fields.operation, Operation::Read | Operation::Write) {
            return Vec::new();
        }
        let mut names = Vec::new();
        let parts = self.files.parts(bio.device, bio.sector, bio.bytes, &mut names);
        for name in names {
            chunk.push(name.as_bytes());
        }
        // The request's flag is more reliable than a position that once belonged to a file: it is now metadata.
        if fields.flags.contains(RequestFlags::META) && parts.iter().any(|part| part.mode == REGULAR) {
            return Vec::new();
        }
        parts
    }
}

/// Returns the process of a line, and whether it is a kernel thread; reports its name if it is new.
fn process(
    known: &mut HashMap<u32, (u32, bool)>,
    line: Line<'_>,
    chunk: &mut Chunk,
) -> (ProcessReference, bool) {
    let mut name = [0; 16];
    let length = line.name.len().min(15);
    name[..length].copy_from_slice(&line.name.as_bytes()[..length]);
    if known.len() >= MAX_THREADS {
        known.clear();
    }
    let (tgid, by_kernel) = *known.entry(line.tid).or_insert_with(|| look_up(line.tid));
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
    let reference = ProcessReference {
        tgid,
        tid: line.tid,
        name: mix,
    };
    (reference, by_kernel)
}

/// Process of a thread, and whether it is a kernel thread. The command line doesn't tell: a program may have none.
fn look_up(tid: u32) -> (u32, bool) {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tgid = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    let stat = fs::read(format!("/proc/{tid}/stat")).unwrap_or_default();
    (tgid.unwrap_or(tid), is_kernel_thread(&stat))
}

/// Whether `/proc/TID/stat` has the flag of kernel threads: in the seventh field after the name, which ends at the last
/// parenthesis.
fn is_kernel_thread(stat: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stat);
    let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let flags = fields
        .split(' ')
        .nth(6)
        .and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & KERNEL_THREAD != 0)
}

/// A line of one of the events, with the event's name and fields.
fn split(text: &str) -> Option<(Line<'_>, &'static str, &str)> {
    let is_known = |event: &str| named(event).is_some_and(|(name, _)| known_event(name).is_some());
    let line = Line::read(text, is_known)?;
    let (name, fields) = line.named()?;
    Some((line, known_event(name)?, fields))
}

/// The event of this name that the instance has.
fn known_event(name: &str) -> Option<&'static str> {
    let mut known = EVENTS.into_iter().chain(files::EVENTS.map(|(_, event)| event));
    known.find(|event| *event == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_each_event_is_read_and_no_other() {
        for (event, fields) in [
            (
                "block_rq_issue",
                "254,0 WSM 1695744 () 392342608 + 3312 be,0,4 [a]",
            ),
            ("block_bio_queue", "7,0 FWFS 8 + 16 [dd]"),
            (
                "ext4_free_blocks",
                "dev 7,0 ino 12 mode 0100644 block 8 count 1 flags ",
            ),
        ] {
            let text = format!("    kworker/u8:1-2042 [000] ..... 27408.619482: {event}: {fields}");
            let (line, name, rest) = split(&text).unwrap();
            assert_eq!(
                (line.name, line.tid, line.time_ns),
                ("kworker/u8:1", 2042, 27_408_619_482_000)
            );
            assert_eq!((name, rest), (event, fields));
        }
        for text in [
            "CPU:0 [LOST 17 EVENTS]",
            "a-1 [000] ..... 1.0: block_getrq: 7,0 W 8 + 16 [dd]",
            "a-1 [000] ..... 1.0: block_bio_queue",
        ] {
            assert!(split(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_program_without_a_command_line_is_no_kernel_thread() {
        let stat = |name: &str, flags: u64| format!("77 ({name}) S 1 77 77 0 -1 {flags} 0 0");
        assert!(is_kernel_thread(stat("kworker/0:1", 69_238_880).as_bytes()));
        assert!(!is_kernel_thread(stat("cat", 4_194_304).as_bytes()));
        assert!(!is_kernel_thread(
            stat("a) S 1 1 1 0 -1 69238880 (", 4_194_304).as_bytes()
        ));
        assert!(!is_kernel_thread(b""));
    }
}
