//! Reads binary records of blktrace: `NAME.blktrace.CPU` for each processor, or the single stream of `blkparse -d`.
//!
//! | bytes  | field            | meaning                                                |
//! |--------|------------------|--------------------------------------------------------|
//! | 0..4   | magic            | 0x65617400 + version 7, in the byte order of the trace |
//! | 4..8   | sequence         | number of the record on its processor                  |
//! | 8..16  | time             | nanoseconds                                            |
//! | 16..24 | sector           | of 512 bytes                                           |
//! | 24..28 | bytes            | length of the request                                  |
//! | 28..32 | action           | low 8 bits: action; bit 8: a cgroup follows; high 16 bits: category |
//! | 32..36 | pid              | process                                                |
//! | 36..40 | device           | major in the bits above 20                             |
//! | 40..44 | cpu              | processor                                              |
//! | 44..46 | error            | of a completion                                        |
//! | 46..48 | length           | of the data behind the record                          |
//!
//! Records of the category "notify" are not steps: 0 is the name of a process, 1 the wall clock, 2 a text. Files of
//! several processors are merged by time. After an invalid record the rest of that file can't be parsed.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use results::block_trace::{DeviceNumber, Operation, RequestFlags, TraceHeader};

use super::assembly::Assembly;
use super::block_event::{BlockEvent, Step};
use super::clock::Clock;
use super::lines::{BadLines, Skipped, SkippedPlace};
use super::rwbs::settle;
use crate::error::ReadError;
use crate::stream::{TraceItem, TraceSource};

const RECORD_BYTES: usize = 48;

const MAGIC: u32 = 0x6561_7400;

const VERSION: u32 = 7;

/// Maximum number of process names kept.
const NAMES_MAX: usize = 1 << 16;

mod category {
    pub const WRITE: u32 = 1 << 1;
    pub const FLUSH: u32 = 1 << 2;
    pub const SYNC: u32 = 1 << 3;
    pub const DRIVER: u32 = 1 << 9;
    pub const NOTIFY: u32 = 1 << 10;
    pub const AHEAD: u32 = 1 << 11;
    pub const META: u32 = 1 << 12;
    pub const DISCARD: u32 = 1 << 13;
    pub const FUA: u32 = 1 << 15;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// The byte order of the magic number; `None` if there is no magic number.
fn byte_order(head: &[u8]) -> Option<ByteOrder> {
    let magic = *head.first_chunk::<4>()?;
    let fits = |order: ByteOrder| order.u32(magic) & 0xFFFF_FF00 == MAGIC;
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| fits(*order))
}

/// True if `head` is the beginning of such a file.
pub fn is_blktrace(head: &[u8]) -> bool {
    byte_order(head).is_some()
}

/// The files of all processors, given the path of one or their common name; empty if `path` is neither.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let base = match name.rsplit_once(".blktrace.") {
        Some((base, processor)) if processor.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => name,
    };
    let mut numbered: Vec<(u32, PathBuf)> = Vec::new();
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let prefix = format!("{base}.blktrace.");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let processor = name
            .to_str()
            .and_then(|name| name.strip_prefix(&prefix))
            .and_then(|number| number.parse().ok());
        numbered.extend(processor.map(|processor| (processor, entry.path())));
    }
    numbered.sort();
    numbered.into_iter().map(|(_, path)| path).collect()
}

#[derive(Debug)]
struct Record {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
    error: u16,
    data: Vec<u8>,
}

impl Record {
    const fn has_category(&self, category: u32) -> bool {
        (self.action >> 16) & category != 0
    }

    /// The data behind the record, without the cgroup that may precede it.
    fn own_data(&self) -> &[u8] {
        let has_cgroup = self.action & 0x100 != 0;
        self.data
            .get(if has_cgroup { 8 } else { 0 }..)
            .unwrap_or_default()
    }
}

/// Error in a file.
#[derive(Debug)]
enum Broken {
    Io(io::Error),
    Record { expected: &'static str, found: String },
}

/// One file.
struct Stream {
    reader: Box<dyn BufRead + Send>,
    path: PathBuf,
    offset: u64,
    order: Option<ByteOrder>,
    next: Option<Record>,
}

impl Stream {
    fn read_record(&mut self) -> Result<Option<Record>, Broken> {
        let mut raw = [0; RECORD_BYTES];
        let length = read_up_to(&mut self.reader, &mut raw).map_err(Broken::Io)?;
        if length == 0 {
            return Ok(None);
        }
        if length < RECORD_BYTES {
            let found = format!("{length} bytes at the end");
            return Err(Broken::Record {
                expected: "a record of 48 bytes",
                found,
            });
        }
        let order = match self.order {
            Some(order) => order,
            None => *self.order.insert(byte_order(&raw).unwrap_or(ByteOrder::Little)),
        };
        let u32_at = |place: usize| order.u32(std::array::from_fn(|index| raw[place + index]));
        let u64_at = |place: usize| order.u64(std::array::from_fn(|index| raw[place + index]));
        let u16_at = |place: usize| order.u16(std::array::from_fn(|index| raw[place + index]));
        let magic = u32_at(0);
        if magic != MAGIC | VERSION {
            return Err(Broken::Record {
                expected: "the magic number 0x65617407 of blktrace (version 7)",
                found: format!("{magic:#010x}"),
            });
        }
        let mut data = vec![0; usize::from(u16_at(46))];
        let data_length = read_up_to(&mut self.reader, &mut data).map_err(Broken::Io)?;
        if data_length < data.len() {
            let found = format!("{data_length} of {} bytes at the end", data.len());
            return Err(Broken::Record {
                expected: "the data behind a record",
                found,
            });
        }
        self.offset += u64::try_from(RECORD_BYTES + data.len()).unwrap_or(u64::MAX);
        Ok(Some(Record {
            time: u64_at(8),
            sector: u64_at(16),
            bytes: u32_at(24),
            action: u32_at(28),
            pid: u32_at(32),
            device: u32_at(36),
            error: u16_at(44),
            data,
        }))
    }
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// A source that reads binary files of blktrace.
pub struct BlktraceSource {
    streams: Vec<Stream>,
    assembly: Assembly,
    names: HashMap<u32, Arc<str>>,
    clock: Clock,
    bad_records: BadLines,
    skipped: Skipped,
    begun: bool,
    is_read: bool,
}

impl BlktraceSource {
    pub fn new(
        files: Vec<(Box<dyn BufRead + Send>, PathBuf)>,
        source: String,
        bad_records: BadLines,
    ) -> Self {
        let stream = |(reader, path)| Stream {
            reader,
            path,
            offset: 0,
            order: None,
            next: None,
        };
        Self {
            streams: files.into_iter().map(stream).collect(),
            assembly: Assembly::new(source),
            names: HashMap::new(),
            clock: Clock::default(),
            bad_records,
            skipped: Skipped::default(),
            begun: false,
            is_read: false,
        }
    }

    /// Reads the next record of a file into its slot.
    fn refill(&mut self, index: usize) -> Result<(), ReadError> {
        let stream = &mut self.streams[index];
        match stream.read_record() {
            Ok(record) => stream.next = record,
            Err(Broken::Io(source)) => {
                return Err(ReadError::Io {
                    path: stream.path.clone(),
                    source,
                });
            }
            Err(Broken::Record { expected, found }) => {
                stream.next = None;
                if self.bad_records == BadLines::Refuse || stream.offset == 0 {
                    return Err(ReadError::Record {
                        path: stream.path.clone(),
                        offset: stream.offset,
                        expected: expected.to_owned(),
                        found,
                    });
                }
                self.skipped
                    .add(SkippedPlace::Byte(stream.offset), expected, &found);
                self.assembly.header_mut().complete = false;
                let why = format!(
                    "{}: nothing behind byte {} can be read",
                    stream.path.display(),
                    stream.offset
                );
                self.assembly.limitation("the rest of a file", &why);
            }
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<(), ReadError> {
        if !self.begun {
            self.begun = true;
            for index in 0..self.streams.len() {
                self.refill(index)?;
            }
        }
        let times = self
            .streams
            .iter()
            .enumerate()
            .filter_map(|(index, stream)| Some((stream.next.as_ref()?.time, index)));
        let Some((_, index)) = times.min() else {
            return self.end();
        };
        let record = self.streams[index].next.take();
        self.refill(index)?;
        if let Some(record) = record {
            self.take(&record);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), ReadError> {
        if self.assembly.is_empty()
            && let Some(error) = self.skipped.nothing_read(&self.streams[0].path)
        {
            return Err(error);
        }
        self.is_read = true;
        self.assembly
            .limitation("files, types of blocks", "blktrace does not tell them");
        self.assembly.limitation(
            "processes behind buffered writes",
            "blktrace tells who called the block layer, for buffered writes often a kernel thread",
        );
        self.assembly.finish();
        Ok(())
    }

    fn take(&mut self, record: &Record) {
        if record.has_category(category::NOTIFY) {
            self.notice(record);
            return;
        }
        let time_ns = self.clock.relative(record.time);
        let step = match record.action & 0xFF {
            1 => Step::Queue,
            6 => Step::Requeue,
            7 => Step::Issue,
            8 => Step::Complete,
            12 => Step::Insert,
            9..=11 => return self.assembly.other("plugs and unplugs of queues"),
            15 => return self.assembly.other("remaps to another device"),
            2..=5 | 13 | 14 => return,
            _ => return self.assembly.other("records of drivers"),
        };
        let event = self.event(record, step, time_ns);
        if self.assembly.step(&event).is_err() {
            self.skipped.add(
                SkippedPlace::Sector(record.sector),
                "a place that a device can have",
                "a sector beyond it",
            );
        }
    }

    fn event(&mut self, record: &Record, step: Step, time_ns: u64) -> BlockEvent {
        let is_command = record.has_category(category::DRIVER);
        let bytes = if is_command { 0 } else { u64::from(record.bytes) };
        let flags = [
            (category::SYNC, RequestFlags::SYNC),
            (category::META, RequestFlags::META),
            (category::FUA, RequestFlags::FUA),
            (category::FLUSH, RequestFlags::PREFLUSH),
            (category::AHEAD, RequestFlags::READAHEAD),
        ];
        let flags = flags
            .into_iter()
            .filter(|(bit, _)| record.has_category(*bit))
            .fold(RequestFlags::default(), |all, (_, flag)| all.with(flag));
        let operation = if is_command {
            Operation::Driver
        } else if record.has_category(category::DISCARD) {
            Operation::Discard
        } else if record.has_category(category::WRITE) {
            settle(Operation::Write, flags, bytes)
        } else if bytes > 0 {
            Operation::Read
        } else {
            settle(Operation::Driver, flags, bytes)
        };
        let process = (step != Step::Complete).then(|| {
            let name = self.names.get(&record.pid).cloned().unwrap_or_default();
            self.assembly.process(record.pid, &name)
        });
        BlockEvent {
            time_ns,
            device: DeviceNumber {
                major: record.device >> 20,
                minor: record.device & 0xF_FFFF,
            },
            step,
            operation,
            flags,
            priority: None,
            sector: record.sector,
            bytes,
            process,
            status: (step == Step::Complete).then(|| i32::from(record.error.cast_signed()).abs()),
            owner: None,
        }
    }

    fn notice(&mut self, record: &Record) {
        let data = record.own_data();
        match record.action & 0xFF {
            0 => {
                let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
                if self.names.len() >= NAMES_MAX {
                    self.names.clear();
                }
                self.names
                    .insert(record.pid, Arc::from(String::from_utf8_lossy(name)));
            }
            1 => {
                let order = self
                    .streams
                    .iter()
                    .find_map(|stream| stream.order)
                    .unwrap_or(ByteOrder::Little);
                if let Some([a, b, c, d, e, f, g, h]) = data.first_chunk::<8>() {
                    let seconds = u64::from(order.u32([*a, *b, *c, *d]));
                    let ns = u64::from(order.u32([*e, *f, *g, *h]));
                    let header = self.assembly.header_mut();
                    header
                        .start_realtime_ns
                        .get_or_insert(seconds * 1_000_000_000 + ns);
                }
            }
            _ => self.assembly.other("messages of drivers and schedulers"),
        }
    }
}

impl TraceSource for BlktraceSource {
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError> {
        loop {
            if let Some(next) = self.assembly.next_or_end(self.is_read) {
                return Ok(next);
            }
            self.advance()?;
        }
    }

    fn header(&self) -> &TraceHeader {
        self.assembly.header()
    }

    fn position(&self) -> u64 {
        self.streams.iter().map(|stream| stream.offset).sum()
    }

    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
}
