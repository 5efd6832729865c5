//! Attribution of each piece of a bio to a process, a file and a type of block, as of its submission to the block
//! layer.
//!
//! It stores earlier records: names, writers, journal transactions, owners of written sectors. It does not join
//! requests and does not read the ring.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use formats::pieces::end as end_of_run;
use results::block_trace::{
    BlockType, CauseQuality, DeviceNumber, Event, EventKind, FileIdentity, IoMode, Operation, Process, Run,
};

use super::classify;
use super::layout::Layouts;
use super::names::{Paths, Processes};
use super::owners::Owners;
use super::record::{
    AliasesRecord, BioRecord, EventRecord, MAX_ALIASES, RunPart, WriterRecord, device_number, dirtied,
    event_kind, run_flag, run_kind,
};
use super::request_flags;
use super::transactions::Transactions;
use super::writers::{Claim, Writer, Writers};

const PAGE_BYTES: u64 = 4096;
/// Maximum number of homes of logged blocks, and of block types, to remember.
const MAX_BLOCKS: usize = 1 << 20;
/// Maximum number of files with several names whose names are kept.
const MAX_LINKED: usize = 1 << 14;

/// Types of ext4 handles, by number.
const HANDLE_TYPES: [&str; 13] = [
    "misc",
    "inode",
    "write_page",
    "map_blocks",
    "dir",
    "truncate",
    "quota",
    "resize",
    "migrate",
    "move_extents",
    "xattr",
    "ext_convert",
    "fc_wait",
];

/// The last transaction that logged a block, and its only contributor if there was one.
type Logged = (u32, Option<Arc<Process>>);

/// All known names, writers and positions.
#[derive(Debug, Default)]
pub(crate) struct Attribution {
    pub paths: Paths,
    pub processes: Processes,
    pub writers: Writers,
    pub layouts: Layouts,
    /// CLOCK_MONOTONIC at the trace's start.
    pub start: u64,
    /// By device, the last owners of written sectors.
    owners: HashMap<u32, Owners>,
    transactions: Transactions,
    /// Directory entries of files that have several, as of their last request.
    linked: HashMap<FileIdentity, [u64; MAX_ALIASES]>,
    /// By device and sector of a logged block's home.
    logged: HashMap<(u32, u64), Logged>,
    /// By device and sector, the type of a metadata block that was written.
    kinds: HashMap<(u32, u64), BlockType>,
    deleted: HashSet<FileIdentity>,
    /// File systems whose files were read or written.
    pub file_systems: HashSet<DeviceNumber>,
    /// Number of times that kinds, logged blocks, deleted or linked files were dropped at the memory limit.
    forgotten: u64,
}

impl Attribution {
    /// Time since the trace's start.
    pub(crate) fn since_start(&self, time: u64) -> u64 {
        time.saturating_sub(self.start)
    }

    /// Number of owners, kinds and transactions dropped at the memory limit.
    pub(crate) fn forgotten(&self) -> u64 {
        let owners: u64 = self.owners.values().map(|owners| owners.forgotten).sum();
        self.forgotten + owners + self.transactions.forgotten
    }

    /// Records were lost: drops all knowledge that one of them may have changed.
    pub(crate) fn lose(&mut self) {
        self.paths.lose();
        self.writers.lose();
        for owners in self.owners.values_mut() {
            owners.lose();
        }
        self.transactions.lose();
        self.linked.clear();
        self.logged.clear();
        self.kinds.clear();
    }

    /// Whether names were dropped at the memory limit, since the last call, that the programs believe to be known.
    pub(crate) fn lacks_names(&mut self) -> bool {
        let entries = std::mem::take(&mut self.paths.lacks_entries);
        std::mem::take(&mut self.processes.lacks_names) || entries
    }

    /// Records the directory entries of a file that has several.
    pub(crate) fn has_names(&mut self, record: &AliasesRecord) {
        let file = FileIdentity {
            file_system: device_number(record.file_system),
            inode: record.inode,
            generation: record.generation,
        };
        if self.linked.len() >= MAX_LINKED {
            self.linked.clear();
            self.forgotten += 1;
        }
        self.linked.insert(file, record.dentries);
    }

    /// Records the new path of a file that was renamed.
    pub(crate) fn renamed(&mut self, file: FileIdentity, path: &Arc<str>) {
        self.paths.note(file, path);
    }

    /// Records that a range of a file was dirtied.
    pub(crate) fn wrote(&mut self, record: &WriterRecord) {
        let file = FileIdentity {
            file_system: device_number(record.file_system),
            inode: record.inode,
            generation: record.generation,
        };
        let by_call = [
            dirtied::BY_CALL,
            dirtied::BY_CALL_TO_COME,
            dirtied::BY_CALL_PERHAPS,
        ];
        let quality = if by_call.contains(&record.by) {
            CauseQuality::WriteCall
        } else {
            CauseQuality::Folio
        };
        let writer = Writer {
            process: self.processes.get(record.process),
            quality,
            time: self.since_start(record.time),
            through: record.dentry,
            is_shared: record.mappings > 1,
        };
        // The cache writes whole pages: a write to one byte dirties its whole page.
        let start = record.position / PAGE_BYTES * PAGE_BYTES;
        let end = record
            .position
            .saturating_add(record.bytes)
            .next_multiple_of(PAGE_BYTES);
        // A kernel thread that writes by a call does so for itself, as that of a loop device.
        let claim = match record.by {
            dirtied::BY_CALL => Claim::Call,
            // A call for one page writes all of it or nothing; a failure is not known.
            dirtied::BY_CALL_TO_COME if end - start <= PAGE_BYTES => Claim::Call,
            dirtied::BY_CALL_TO_COME | dirtied::BY_CALL_PERHAPS => Claim::CallToCome,
            _ if record.by_kernel != 0 => Claim::Kernel,
            dirtied::BY_STORE => Claim::Store,
            _ => Claim::Folio,
        };
        self.writers.wrote(file, start, end, writer, claim);
    }

    /// Converts an event of the programs to one of the trace.
    pub(crate) fn event(&mut self, record: &EventRecord) -> Option<Event> {
        let process = self.processes.get(record.process);
        let file = (record.inode != 0).then(|| FileIdentity {
            file_system: device_number(record.file_system),
            inode: record.inode,
            generation: record.generation,
        });
        let path = match file {
            // Its other names remain.
            Some(file) if record.event == event_kind::UNLINK && record.value > 0 => {
                self.paths.path(file, record.dentry)
            }
            Some(file) if record.flags & u32::from(run_flag::NAME_LOST) == 0 => {
                self.paths.sighted(file, record.dentry)
            }
            _ => None,
        };
        let mut name = None;
        let kind = match record.event {
            event_kind::CREATE => EventKind::Create,
            event_kind::UNLINK => EventKind::Unlink,
            event_kind::DELETE => EventKind::Delete,
            event_kind::FSYNC => EventKind::Fsync,
            event_kind::FDATASYNC => EventKind::Fdatasync,
            event_kind::COMMIT => EventKind::Commit,
            event_kind::CONTRIBUTION => EventKind::Contribution,
            _ => return None,
        };
        match kind {
            EventKind::Unlink => {
                if let Some(file) = file {
                    self.writers.unnamed(file, record.dentry);
                }
            }
            EventKind::Delete => {
                if let Some(file) = file {
                    self.writers.forget(file);
                    self.paths.forget(file);
                    if self.deleted.len() >= MAX_BLOCKS {
                        self.deleted.clear();
                        self.forgotten += 1;
                    }
                    self.deleted.insert(file);
                }
            }
            EventKind::Contribution => {
                let transaction = u32::try_from(record.value).unwrap_or(0);
                self.transactions
                    .contributed(record.file_system, transaction, Arc::clone(&process));
                let handle = usize::try_from(record.detail)
                    .ok()
                    .and_then(|at| HANDLE_TYPES.get(at));
                name = handle.map(|word| Arc::from(*word));
            }
            EventKind::Commit => {
                let transaction = u32::try_from(record.value).unwrap_or(0);
                self.transactions.committed(record.file_system, transaction);
            }
            _ => {}
        }
        Some(Event {
            time_ns: self.since_start(record.time),
            kind,
            process: Some(process),
            file,
            path,
            name,
            value: record.value,
        })
    }

    /// Splits a bio into runs with one owner each, in order and without gaps; also returns the I/O mode.
    pub(crate) fn bio(&mut self, bio: &BioRecord, parts: &[RunPart]) -> (Vec<Run>, IoMode) {
        let operation = request_flags::operation(bio.operation);
        if matches!(operation, Operation::Discard | Operation::SecureErase) {
            return (self.discarded(bio), IoMode::Unknown);
        }
        let mut runs = Vec::with_capacity(parts.len());
        for part in parts {
            self.part(bio, part, operation, &mut runs);
        }
        let runs = without_gaps(runs, bio.sector, u64::from(bio.bytes));
        if operation == Operation::Write {
            let owners = self.owners.entry(bio.device).or_default();
            for run in &runs {
                owners.wrote(run);
            }
        }
        let mode = classify::mode(&bio.run, operation, bio.by_kernel != 0);
        (runs, mode)
    }

    fn discarded(&mut self, bio: &BioRecord) -> Vec<Run> {
        let owners = self.owners.entry(bio.device).or_default();
        let mut runs = owners.take(bio.sector, u64::from(bio.bytes));
        for run in &mut runs {
            run.deleted |= run.file.is_some_and(|file| self.deleted.contains(&file));
        }
        runs
    }

    fn part(&mut self, bio: &BioRecord, part: &RunPart, operation: Operation, runs: &mut Vec<Run>) {
        let sector = bio.sector + u64::from(part.start) / 512;
        let bytes = u64::from(part.bytes);
        let (block_type, detail) = classify::block_type(part);
        let submitter = self.processes.get(bio.submitter);
        let mut run = Run {
            block_type,
            detail: detail.map(Arc::from),
            ..Run::unknown(sector, bytes)
        };
        let names_file = matches!(
            part.kind,
            run_kind::PAGES | run_kind::DIRECT | run_kind::BTRFS | run_kind::JOURNAL
        ) && part.inode != 0;
        if names_file {
            let file = FileIdentity {
                file_system: device_number(part.file_system),
                inode: part.inode,
                generation: part.generation,
            };
            self.file_systems.insert(file.file_system);
            run.file = Some(file);
            run.file_offset = Some(part.offset);
            run.deleted = part.flags & run_flag::DELETED != 0;
            if part.flags & run_flag::NAME_LOST == 0 {
                run.path = self.paths.sighted(file, part.dentry);
                run.one_of_names = part.flags & run_flag::ONE_OF_NAMES != 0 && run.path.is_some();
            }
        }
        match part.kind {
            run_kind::PAGES | run_kind::BTRFS if operation == Operation::Write && names_file => {
                return self.written_pages(run, bio, part.flags, submitter, runs);
            }
            run_kind::JOURNAL | run_kind::JOURNAL_CONTROL => self.journal(&mut run, bio, part),
            run_kind::METADATA => self.metadata(&mut run, bio, operation, submitter),
            _ => asked_by(&mut run, bio, operation, submitter),
        }
        runs.push(run);
    }

    /// Adds data of the page cache: each page belongs to its last writer.
    fn written_pages(
        &mut self,
        run: Run,
        bio: &BioRecord,
        flags: u8,
        submitter: Arc<Process>,
        runs: &mut Vec<Run>,
    ) {
        let (Some(file), Some(offset)) = (run.file, run.file_offset) else {
            runs.push(run);
            return;
        };
        for (from, to, writer) in self.writers.split(file, offset, offset + run.bytes) {
            let mut piece = run.clone();
            piece.sector = run.sector + (from - offset) / 512;
            piece.bytes = to - from;
            piece.file_offset = Some(from);
            if let Some(writer) = &writer {
                self.name_by(&mut piece, writer);
            }
            match writer {
                Some(writer) => {
                    piece.cause_quality = self.quality(file, &writer, flags);
                    piece.cause = Some(writer.process);
                    piece.dirtied_ns = Some(writer.time);
                }
                None if bio.by_kernel == 0 => {
                    piece.cause = Some(submitter.clone());
                    piece.cause_quality = CauseQuality::Submitter;
                }
                None => {}
            }
            runs.push(piece);
        }
        self.writers.written_out(file, offset, offset + run.bytes);
    }

    /// The quality of a page's writer. Stores to a page that is mapped and dirty are not seen: with several processes that
    /// may have stored, it is only one that wrote to the file. So is that of data that btrfs has compressed, as its range in the
    /// file is larger than that on the medium, and not told.
    fn quality(&self, file: FileIdentity, writer: &Writer, flags: u8) -> CauseQuality {
        // No call was seen: further writes to a dirty page are not seen either.
        let is_mapped = flags & run_flag::MAPPED != 0 || writer.quality == CauseQuality::Folio;
        let by_several = flags & run_flag::MAPPED_OFTEN != 0 || is_mapped && self.writers.are_several(file);
        let is_compressed = flags & run_flag::COMPRESSED != 0;
        if by_several || is_compressed || writer.is_shared {
            CauseQuality::Inode
        } else {
            writer.quality
        }
    }

    /// Names a piece of a file with several names by the one that was written through, if it is known and still there. It
    /// is not sure if no call was seen, as another may have been used since.
    fn name_by(&mut self, run: &mut Run, writer: &Writer) {
        let through = writer.through;
        let Some(file) = run.file.filter(|_| run.one_of_names && through != 0) else {
            return;
        };
        let is_there = |entries: &[u64; MAX_ALIASES]| entries.contains(&through);
        if self.linked.get(&file).is_some_and(is_there)
            && let Some(path) = self.paths.path(file, through)
        {
            run.path = Some(path);
            run.one_of_names = writer.quality != CauseQuality::WriteCall;
        }
    }

    fn journal(&mut self, run: &mut Run, bio: &BioRecord, part: &RunPart) {
        run.transaction = (part.transaction != 0).then_some(u64::from(part.transaction));
        let only = self.transactions.only_one(part.file_system, part.transaction);
        if let Some(process) = &only {
            run.cause = Some(process.clone());
            run.cause_quality = CauseQuality::Transaction;
        }
        if part.kind == run_kind::JOURNAL_CONTROL {
            return;
        }
        let block_sectors = u64::from(part.block_bytes) / 512;
        let home = bio.partition + part.home * block_sectors;
        run.home_sector = Some(home);
        if part.flags & run_flag::HOME_IS_FILE != 0 {
            if let (Some(file), Some(offset)) = (run.file, run.file_offset)
                && let Some((_, _, Some(writer))) = self
                    .writers
                    .split(file, offset, offset + run.bytes)
                    .into_iter()
                    .next()
            {
                self.name_by(run, &writer);
                run.cause_quality = self.quality(file, &writer, part.flags);
                run.cause = Some(writer.process);
                run.dirtied_ns = Some(writer.time);
                self.writers.journalled(file, offset, offset + run.bytes);
            }
            run.detail = Some(Arc::from("home: data"));
            return;
        }
        if self.logged.len() >= MAX_BLOCKS {
            self.logged.clear();
            self.forgotten += 1;
        }
        self.logged.insert((bio.device, home), (part.transaction, only));
        let kind = classify::content(part.flags).or_else(|| self.layouts.block_type(bio.device, home));
        if let Some(kind) = kind {
            self.learn_kind(bio.device, home, kind);
            run.detail = Some(format!("home: {kind}").into());
        }
    }

    fn metadata(&mut self, run: &mut Run, bio: &BioRecord, operation: Operation, submitter: Arc<Process>) {
        if run.block_type == BlockType::Metadata {
            let known = self.layouts.block_type(bio.device, run.sector);
            let known = known.or_else(|| self.kinds.get(&(bio.device, run.sector)).copied());
            run.block_type = known.unwrap_or(BlockType::Metadata);
        } else {
            self.learn_kind(bio.device, run.sector, run.block_type);
        }
        let logged = self.logged.get(&(bio.device, run.sector));
        match logged {
            Some((transaction, only)) if operation == Operation::Write => {
                run.transaction = Some(u64::from(*transaction));
                if let Some(process) = only {
                    run.cause = Some(process.clone());
                    run.cause_quality = CauseQuality::Transaction;
                }
            }
            _ => asked_by(run, bio, operation, submitter),
        }
    }

    fn learn_kind(&mut self, device: u32, sector: u64, kind: BlockType) {
        if self.kinds.len() >= MAX_BLOCKS {
            self.kinds.clear();
            self.forgotten += 1;
        }
        self.kinds.insert((device, sector), kind);
    }
}

/// Sets the submitter as the cause: exact for reads and direct I/O of a user's process.
fn asked_by(run: &mut Run, bio: &BioRecord, operation: Operation, submitter: Arc<Process>) {
    let by_kernel = bio.by_kernel != 0;
    let is_exact = !by_kernel
        && (operation == Operation::Read || matches!(bio.run.kind, run_kind::DIRECT | run_kind::RAW));
    if by_kernel && operation != Operation::Read {
        return;
    }
    run.cause = Some(submitter);
    run.cause_quality = if is_exact {
        CauseQuality::Folio
    } else {
        CauseQuality::Submitter
    };
}

/// Runs in the order of their sectors that cover the whole; a piece whose record was lost, or that another one overlaps, is
/// unknown.
fn without_gaps(runs: Vec<Run>, sector: u64, bytes: u64) -> Vec<Run> {
    let end = sector + bytes.div_ceil(512);
    let mut whole = Vec::with_capacity(runs.len());
    let mut at = sector;
    for run in runs {
        if run.bytes == 0 || run.sector < at || end_of_run(&run) > end {
            continue;
        }
        if run.sector > at {
            whole.push(Run::unknown(at, (run.sector - at) * 512));
        }
        at = run.sector + run.bytes.div_ceil(512);
        whole.push(run);
    }
    if at < end {
        whole.push(Run::unknown(at, (end - at) * 512));
    }
    whole
}
