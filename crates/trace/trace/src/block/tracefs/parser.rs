//! Turns lines of the instance into the records that the programs would send.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;

use formats::ftrace_line::{BlockFields, Line, lost_events, named};
use results::block_trace::{Operation, RequestFlags};
use zerocopy::{FromZeros, IntoBytes};

use super::files::{self, Files, Moment, Told};
use super::under_way::UnderWays;
use super::{EVENTS, Forgotten};
use crate::block::chunk::Chunk;
use crate::block::joiner::low_half;
use crate::block::record::{
    self, BioDoneRecord, BioRecord, LostRecord, NO_HARDWARE_QUEUE, ProcessRecord, ProcessReference,
    RequestRecord, RunPart, RunRecord, kernel_device,
};
use crate::block::request_flags::FlagBits;

const KIND_BIO: u32 = 1;
const KIND_RUN: u32 = 2;
const KIND_REQUEST: u32 = 3;
const KIND_BIO_DONE: u32 = 4;
pub(super) const KIND_NAME: u32 = 5;
const KIND_PROCESS: u32 = 6;
pub(super) const KIND_WRITER: u32 = 7;
pub(super) const KIND_EVENT: u32 = 8;
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

/// The thread of a line, and the line's time.
#[derive(Clone, Copy, Debug)]
struct Who<'line> {
    name: &'line [u8],
    tid: u32,
    time: u64,
}

/// Converts lines to records.
#[derive(Debug)]
pub(super) struct Parser {
    disks: HashMap<u32, u32>,
    under_way: UnderWays,
    known: HashMap<u32, (u32, bool)>,
    files: Files,
    forgotten: Forgotten,
    /// Completions of requests whose issue was not seen.
    unmatched: Forgotten,
    bits: FlagBits,
    bios: u64,
    /// Time of the last event.
    time: u64,
}

impl Parser {
    pub(super) fn new(
        disks: HashMap<u32, u32>,
        files: Files,
        forgotten: Forgotten,
        unmatched: Forgotten,
    ) -> Self {
        Self {
            disks,
            under_way: UnderWays::default(),
            known: HashMap::new(),
            files,
            forgotten,
            unmatched,
            bits: flag_bits(),
            bios: 0,
            time: 0,
        }
    }

    /// Takes a line. Bytes that are no UTF-8 can be only in the name of its process.
    pub(super) fn line(&mut self, raw: &[u8], chunk: &mut Chunk) {
        let text = same_length(raw);
        let Some((line, event, fields)) = split(&text) else {
            if lost_events(&text).is_some() {
                // Requests that seem to be under way may have completed.
                self.under_way.clear();
                let mut record = LostRecord::new_zeroed();
                (record.kind, record.time) = (KIND_LOST, self.time);
                chunk.push(record.as_bytes());
            }
            return;
        };
        let start = line.name.as_ptr().addr() - text.as_ptr().addr();
        let who = Who {
            name: &raw[start..start + line.name.len()],
            tid: line.tid,
            time: line.time_ns,
        };
        let time = line.time_ns;
        self.time = time;
        if !EVENTS.contains(&event) {
            return self.file_event(who, event, fields, chunk);
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
        let place = (disk, word & 0xFF, sector);
        if self.under_way.count >= MAX_UNDER_WAY {
            self.under_way.clear();
            self.forgotten.count();
        }
        match event {
            "block_bio_queue" => self.bio(who, &fields, disk, chunk),
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
            "block_rq_insert" => self.under_way.inserted(place, time),
            "block_rq_issue" => self.under_way.issued(place, time),
            "block_rq_requeue" => self.under_way.requeued(place),
            "block_rq_complete" => {
                let Some(request) = self.under_way.completed(place) else {
                    // An empty flush is answered by another request.
                    if bytes > 0 {
                        self.unmatched.count();
                    }
                    return;
                };
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

    fn file_event(&mut self, who: Who<'_>, event: &str, fields: &str, chunk: &mut Chunk) {
        let (known, forgotten) = (&mut self.known, &self.forgotten);
        let mut moment = || {
            let (process, by_kernel) = process((&mut *known, forgotten), who, chunk);
            Moment {
                time: who.time,
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

    fn bio(&mut self, who: Who<'_>, fields: &BlockFields, disk: u32, chunk: &mut Chunk) {
        let (submitter, by_kernel) = process((&mut self.known, &self.forgotten), who, chunk);
        self.bios += 1;
        let mut record = BioRecord::new_zeroed();
        record.kind = KIND_BIO;
        record.device = disk;
        record.time = who.time;
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
                whole.kind = record::run_kind::METADATA;
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
    (known, forgotten): (&mut HashMap<u32, (u32, bool)>, &Forgotten),
    who: Who<'_>,
    chunk: &mut Chunk,
) -> (ProcessReference, bool) {
    let mut name = [0; 16];
    let length = who.name.len().min(15);
    name[..length].copy_from_slice(&who.name[..length]);
    if known.len() >= MAX_THREADS {
        known.clear();
        forgotten.count();
    }
    let (tgid, by_kernel) = *known.entry(who.tid).or_insert_with(|| look_up(who.tid));
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
        tid: who.tid,
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

/// Text of a line, in which each byte that is no UTF-8 is another one: names keep their places.
fn same_length(line: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(line) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    Cow::Owned(text)
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

    /// The records of these lines that tell requests, and the parser.
    fn requests(lines: &[&str]) -> (Vec<RequestRecord>, Parser) {
        let disk = 7 << 20;
        let mut parser = Parser::new(
            HashMap::from([(disk, disk)]),
            Files::default(),
            Forgotten::default(),
            Forgotten::default(),
        );
        let mut chunk = Chunk::default();
        for (number, line) in lines.iter().enumerate() {
            let text = format!("    dd-77 [000] ..... 1.{number:06}: block_{line}");
            parser.line(text.as_bytes(), &mut chunk);
        }
        let read = |bytes| match record::Record::read(bytes) {
            Some(record::Record::Request(request)) => Some(request),
            _ => None,
        };
        (chunk.records().filter_map(read).collect(), parser)
    }

    #[test]
    fn requests_at_one_place_are_told_apart() {
        let issue = "rq_issue: 7,0 R 4096 () 8 + 8 none,0,0 [dd]";
        let complete = "rq_complete: 7,0 R () 8 + 8 none,0,0 [0]";
        let (told, parser) = requests(&[issue, issue, complete, issue, complete, complete, complete]);
        let times: Vec<(u64, u64, u32)> = told
            .iter()
            .map(|one| {
                (
                    (one.issued - 1_000_000_000) / 1000,
                    (one.completed - 1_000_000_000) / 1000,
                    one.in_flight,
                )
            })
            .collect();
        assert_eq!(times, [(0, 2, 1), (1, 4, 2), (3, 5, 2)]);
        assert_eq!((parser.unmatched.get(), parser.under_way.count), (1, 0));
        assert!(parser.under_way.at.is_empty());
    }

    #[test]
    fn a_request_that_the_device_had_no_room_for_is_one() {
        let insert = "rq_insert: 7,0 R 4096 () 8 + 8 none,0,0 [dd]";
        let issue = "rq_issue: 7,0 R 4096 () 8 + 8 none,0,0 [dd]";
        let requeue = "rq_requeue: 7,0 R () 8 + 8 none,0,0 [0]";
        let complete = "rq_complete: 7,0 R () 8 + 8 none,0,0 [0]";
        let (told, parser) = requests(&[insert, issue, requeue, issue, complete]);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].inserted, told[0].issued), (1_000_000_000, 1_000_003_000));
        assert_eq!((told[0].in_flight, parser.under_way.count), (1, 0));
    }

    #[test]
    fn after_a_loss_no_request_from_before_completes() {
        let issue = "rq_issue: 7,0 R 4096 () 8 + 8 none,0,0 [dd]";
        let complete = "rq_complete: 7,0 R () 8 + 8 none,0,0 [0]";
        let (_, mut parser) = requests(&[issue, issue]);
        parser.line(b"CPU:0 [LOST 17 EVENTS]", &mut Chunk::default());
        assert_eq!(parser.under_way.count, 0);
        let (told, _) = requests(&[issue, complete]);
        assert_eq!(told[0].in_flight, 1);
    }

    #[test]
    fn a_name_that_is_no_text_keeps_its_bytes() {
        let (_, mut parser) = requests(&[]);
        let mut chunk = Chunk::default();
        parser.line(
            b" a\xFF-\xC3b-77 [000] ..... 1.000000: block_bio_queue: 7,0 R 8 + 8 [a]",
            &mut chunk,
        );
        let names: Vec<[u8; 16]> = chunk
            .records()
            .filter_map(|bytes| match record::Record::read(bytes) {
                Some(record::Record::Process(process)) => Some(process.comm),
                _ => None,
            })
            .collect();
        assert_eq!(names, [*b"a\xFF-\xC3b\0\0\0\0\0\0\0\0\0\0\0"]);
    }
}
