//! Generated traces: a phone's afternoon, request by request, of any length.
//!
//! Deterministic by its seed and streaming: one step of one application is in memory at a time. A camera writes large
//! files by write-back, a messenger commits to SQLite (journal files created, fsynced and deleted), a gallery reads;
//! ext4's journal and metadata are interspersed. It is not a model of a device: latencies are drawn, not computed.

use std::path::Path;
use std::sync::Arc;

use formats::native::{Existing, NativeWriter, TraceId};
use formats::{TraceSink, WriteError};
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockType, CaptureMethod, CauseQuality, DeviceNumber, Event, EventKind, FileIdentity,
    IoMode, Limitation, Operation, Process, Request, RequestFlags, Run, TraceHeader, TracedDevice,
};
use testkit::prng::Prng;

const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };
const DEVICE_SECTORS: u64 = 32 << 21;
const JOURNAL_SECTOR: u64 = 8 << 21;
const JOURNAL_SECTORS: u64 = 64 << 11;
const DATA_SECTOR: u64 = 9 << 21;
/// Number of different paths of one application; then names repeat.
const NAMES: u64 = 5_000;

/// Parameters of a generated trace.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'a> {
    /// Seed of everything.
    pub seed: u64,
    /// Minimum number of requests; the current step is finished.
    pub requests: u64,
    /// The trace's id in its rows, and its source.
    pub name: &'a str,
}

/// Writes a generated trace to `folder`.
pub fn write_trace(folder: &Path, spec: Spec<'_>) -> Result<(), WriteError> {
    let header = header(spec.name, 0);
    let writer = NativeWriter::create(folder, TraceId::from_text(spec.name), &header, Existing::Refuse)?;
    let mut phone = Phone {
        random: Prng::named(spec.seed, spec.name),
        sink: Box::new(writer),
        now_ns: 0,
        requests: 0,
        next_data: DATA_SECTOR,
        next_journal: 0,
        transaction: 100,
        generation: 1,
    };
    while phone.requests < spec.requests {
        match phone.random.below(10) {
            0..4 => phone.message()?,
            4..7 => phone.picture()?,
            _ => phone.gallery()?,
        }
    }
    phone.call_counts()?;
    let header = self::header(spec.name, phone.now_ns);
    phone.sink.finish(&header)?;
    Ok(())
}

/// The header of a generated trace.
pub fn header(name: &str, duration_ns: u64) -> TraceHeader {
    TraceHeader {
        schema: BLOCK_TRACE_SCHEMA,
        source: format!("generated {name}"),
        method: CaptureMethod::Simulation,
        host: None,
        start_realtime_ns: None,
        duration_ns,
        devices: vec![TracedDevice {
            device: DEVICE,
            name: "mmcblk0".to_owned(),
            sectors: Some(DEVICE_SECTORS),
            file_system: Some(("ext4".to_owned(), "/data".to_owned())),
            scheduler: Some("mq-deadline".to_owned()),
        }],
        limitations: vec![Limitation {
            what: "commands of the card".to_owned(),
            why: "the trace is generated above the driver".to_owned(),
        }],
        lost_records: 0,
        refused: 0,
        ring_was_tight: false,
        complete: true,
    }
}

struct Phone {
    random: Prng,
    sink: Box<dyn TraceSink>,
    now_ns: u64,
    requests: u64,
    next_data: u64,
    next_journal: u64,
    transaction: u64,
    generation: u32,
}

/// One piece to be written or read.
struct Piece<'a> {
    operation: Operation,
    mode: IoMode,
    flags: RequestFlags,
    sector: u64,
    bytes: u64,
    block_type: BlockType,
    file: Option<(FileIdentity, &'a str)>,
    home_sector: Option<u64>,
    cause: &'a Arc<Process>,
}

impl Phone {
    /// SQLite in DELETE mode: journal file created, written, fsynced; database written, fsynced; journal file deleted.
    fn message(&mut self) -> Result<(), WriteError> {
        let process = process(1200, "app_process64", Some("com.messenger"));
        let conversation = self.random.below(NAMES);
        let database_path = format!("/data/com.messenger/databases/chat{conversation}.db");
        let journal_path = format!("{database_path}-journal");
        self.generation = self.generation.wrapping_add(1);
        let journal = identity(3_000_000 + conversation % 7, self.generation);
        let database = identity(2_000_000 + conversation, 1);
        self.event(
            EventKind::Create,
            &process,
            Some((journal, &journal_path)),
            None,
            0,
        )?;
        let place = self.allocate(24);
        let written = synchronous(&process);
        self.write(&Piece {
            sector: place,
            bytes: 12_288,
            file: Some((journal, &journal_path)),
            ..written
        })?;
        self.commit(&process, "create")?;
        self.event(
            EventKind::Fsync,
            &process,
            Some((journal, &journal_path)),
            None,
            900_000,
        )?;
        let written = synchronous(&process);
        let place = DATA_SECTOR + conversation * 512 + self.random.below(64) * 8;
        self.write(&Piece {
            sector: place,
            bytes: 4096,
            file: Some((database, &database_path)),
            ..written
        })?;
        self.flush(&process)?;
        self.event(
            EventKind::Fdatasync,
            &process,
            Some((database, &database_path)),
            None,
            700_000,
        )?;
        self.event(
            EventKind::Unlink,
            &process,
            Some((journal, &journal_path)),
            None,
            0,
        )?;
        self.event(
            EventKind::Delete,
            &process,
            Some((journal, &journal_path)),
            None,
            12_288,
        )?;
        Ok(())
    }

    /// A picture of some megabytes, written back later, with its metadata.
    fn picture(&mut self) -> Result<(), WriteError> {
        let process = process(1300, "camera", Some("com.camera"));
        self.generation = self.generation.wrapping_add(1);
        let number = self.random.below(NAMES);
        let path = format!("/media/DCIM/IMG_{number:05}.jpg");
        let file = identity(4_000_000 + number, self.generation);
        self.event(EventKind::Create, &process, Some((file, &path)), None, 0)?;
        let chunks = 2 + self.random.below(8);
        for _ in 0..chunks {
            let sector = self.allocate(1024);
            let piece = Piece {
                mode: IoMode::Writeback,
                flags: RequestFlags::default(),
                sector,
                bytes: 512 << 10,
                file: Some((file, &path)),
                ..synchronous(&process)
            };
            self.write(&piece)?;
        }
        if self.random.chance(20) {
            let sector = 2048 + self.random.below(64) * 8;
            let kernel = kernel_thread();
            let piece = Piece {
                mode: IoMode::Metadata,
                flags: RequestFlags::META,
                sector,
                bytes: 4096,
                block_type: BlockType::InodeTable,
                ..synchronous(&kernel)
            };
            self.write(&piece)?;
        }
        Ok(())
    }

    /// Thumbnails and pictures are read, partly by read-ahead.
    fn gallery(&mut self) -> Result<(), WriteError> {
        let process = process(1400, "gallery", None);
        let number = self.random.below(NAMES);
        let path = format!("/media/DCIM/IMG_{number:05}.jpg");
        let file = identity(4_000_000 + number, 1);
        let start = DATA_SECTOR + number * 4096;
        for chunk in 0..2 + self.random.below(6) {
            let piece = Piece {
                operation: Operation::Read,
                mode: IoMode::CachedRead,
                flags: if chunk == 0 {
                    RequestFlags::SYNC
                } else {
                    RequestFlags::READAHEAD
                },
                sector: start + chunk * 256,
                bytes: 128 << 10,
                file: Some((file, &path)),
                ..synchronous(&process)
            };
            self.write(&piece)?;
        }
        Ok(())
    }

    /// A commit of ext4's journal: blocks with their homes, then the control block.
    fn commit(&mut self, process: &Arc<Process>, handle: &str) -> Result<(), WriteError> {
        self.transaction += 1;
        self.event(
            EventKind::Contribution,
            process,
            None,
            Some(handle),
            self.transaction,
        )?;
        let kernel = kernel_thread();
        for block in 0..2 + self.random.below(3) {
            let home = 2048 + self.random.below(512) * 8;
            let control = block == 0;
            let sector = JOURNAL_SECTOR + self.next_journal % JOURNAL_SECTORS;
            self.next_journal += 8;
            let piece = Piece {
                mode: IoMode::Journal,
                sector,
                bytes: 4096,
                block_type: if control {
                    BlockType::JournalControl
                } else {
                    BlockType::Journal
                },
                home_sector: (!control).then_some(home),
                ..synchronous(&kernel)
            };
            self.write(&piece)?;
        }
        self.event(EventKind::Commit, &kernel, None, None, self.transaction)
    }

    fn allocate(&mut self, sectors: u64) -> u64 {
        if self.next_data + sectors >= DEVICE_SECTORS {
            self.next_data = DATA_SECTOR;
        }
        let place = self.next_data;
        self.next_data += sectors;
        place
    }

    fn write(&mut self, piece: &Piece<'_>) -> Result<(), WriteError> {
        let (submitter, quality) = match piece.mode {
            IoMode::Writeback => (kernel_thread(), CauseQuality::Folio),
            IoMode::Journal => (Arc::clone(piece.cause), CauseQuality::Transaction),
            _ => (Arc::clone(piece.cause), CauseQuality::Folio),
        };
        let dirtied_ns = (piece.operation == Operation::Write).then_some(self.now_ns);
        if piece.mode == IoMode::Writeback {
            self.now_ns += 1_000_000;
        }
        let run = |sector: u64, bytes: u64, offset: u64| Run {
            block_type: piece.block_type,
            file: piece.file.map(|(file, _)| file),
            path: piece.file.map(|(_, path)| path.into()),
            file_offset: piece.file.map(|_| offset),
            home_sector: piece.home_sector,
            transaction: (piece.mode == IoMode::Journal).then_some(self.transaction),
            cause: Some(Arc::clone(piece.cause)),
            cause_quality: quality,
            dirtied_ns,
            ..Run::unknown(sector, bytes)
        };
        // Some large writes have runs of two owners, as merged ones do.
        let runs = if piece.bytes > 65_536 && self.random.chance(10) {
            let half = piece.bytes / 2;
            vec![
                run(piece.sector, half, 0),
                run(piece.sector + half / 512, half, half),
            ]
        } else {
            vec![run(piece.sector, piece.bytes, 0)]
        };
        self.request(
            piece.operation,
            piece.flags,
            (piece.sector, piece.bytes),
            piece.mode,
            submitter,
            runs,
        )
    }

    fn flush(&mut self, process: &Arc<Process>) -> Result<(), WriteError> {
        let flags = RequestFlags::SYNC;
        self.request(
            Operation::Flush,
            flags,
            (0, 0),
            IoMode::Unknown,
            Arc::clone(process),
            Vec::new(),
        )
    }

    fn request(
        &mut self,
        operation: Operation,
        flags: RequestFlags,
        (sector, bytes): (u64, u64),
        mode: IoMode,
        submitter: Arc<Process>,
        runs: Vec<Run>,
    ) -> Result<(), WriteError> {
        let queued = self.now_ns;
        let issued = queued + 1_000 + self.random.below(20_000);
        let slow = if self.random.chance(1) { 40 } else { 1 };
        let completed = issued + slow * (60_000 + bytes * 12 + self.random.below(90_000));
        self.now_ns += 20_000 + self.random.below(400_000);
        let request = Request {
            id: self.requests,
            device: DEVICE,
            sector,
            bytes,
            operation,
            flags,
            priority: None,
            queued_ns: Some(queued),
            inserted_ns: Some(queued + 500),
            issued_ns: Some(issued),
            completed_ns: Some(completed),
            status: Some(0),
            in_flight: Some(1 + u32::try_from(self.random.below(20)).expect("below 20")),
            hardware_queue: Some(0),
            submitter: Some(submitter),
            mode,
            command: None,
            runs,
        };
        self.requests += 1;
        self.sink.request(&request)
    }

    fn event(
        &mut self,
        kind: EventKind,
        process: &Arc<Process>,
        file: Option<(FileIdentity, &str)>,
        name: Option<&str>,
        value: u64,
    ) -> Result<(), WriteError> {
        self.now_ns += 10_000;
        self.sink.event(&Event {
            time_ns: self.now_ns,
            kind,
            process: Some(Arc::clone(process)),
            file: file.map(|(file, _)| file),
            path: file.map(|(_, path)| path.into()),
            name: name.map(Into::into),
            value,
        })
    }

    fn call_counts(&mut self) -> Result<(), WriteError> {
        let calls = self.requests;
        let messenger = process(1200, "app_process64", Some("com.messenger"));
        let camera = process(1300, "camera", Some("com.camera"));
        self.event(
            EventKind::CallCount,
            &messenger,
            None,
            Some("pwrite64"),
            calls / 2,
        )?;
        self.event(EventKind::CallCount, &messenger, None, Some("fsync"), calls / 9)?;
        self.event(EventKind::CallCount, &camera, None, Some("write"), calls * 7)
    }
}

fn synchronous(cause: &Arc<Process>) -> Piece<'_> {
    Piece {
        operation: Operation::Write,
        mode: IoMode::Synchronous,
        flags: RequestFlags::SYNC,
        sector: 0,
        bytes: 0,
        block_type: BlockType::Data,
        file: None,
        home_sector: None,
        cause,
    }
}

fn process(pid: u32, name: &str, package: Option<&str>) -> Arc<Process> {
    Arc::new(Process {
        pid,
        tid: pid,
        name: name.into(),
        package: package.map(Into::into),
    })
}

fn kernel_thread() -> Arc<Process> {
    process(70, "kworker/u8:1", None)
}

const fn identity(inode: u64, generation: u32) -> FileIdentity {
    FileIdentity {
        file_system: DEVICE,
        inode,
        generation,
    }
}
