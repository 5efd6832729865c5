//! One request to a device, and who is behind each piece of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::vocabulary::{BlockType, CauseQuality, DeviceNumber, IoMode, Operation, RequestFlags};

/// One request as a device's queue saw it, or one command as its driver sent it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Position in the trace, from 0, in the order of the first known time.
    pub id: u64,
    /// The whole device.
    pub device: DeviceNumber,
    /// First sector of 512 bytes on the whole device; 0 for a request that has no place (a flush).
    pub sector: u64,
    /// Bytes moved, discarded or zeroed; 0 for a flush.
    pub bytes: u64,
    /// What is asked of the device.
    pub operation: Operation,
    /// The kernel's flags of the request.
    pub flags: RequestFlags,
    /// I/O priority, where one was set.
    pub priority: Option<IoPriority>,
    /// When the first piece was given to the block layer, ns since the trace's start.
    pub queued_ns: Option<u64>,
    /// When the request went to the scheduler.
    pub inserted_ns: Option<u64>,
    /// When the request went to the driver.
    pub issued_ns: Option<u64>,
    /// When the device had done it.
    pub completed_ns: Option<u64>,
    /// 0, or the error's number (positive errno); `None` when no completion was seen.
    pub status: Option<i32>,
    /// Requests that the driver had in flight when this one was issued, itself included.
    pub in_flight: Option<u32>,
    /// Hardware queue.
    pub hardware_queue: Option<u16>,
    /// Who called the block layer: for buffered writes often a kernel thread.
    pub submitter: Option<Arc<Process>>,
    /// How the data came here.
    pub mode: IoMode,
    /// Set for what a driver sent (eMMC, UFS): the command around the request.
    pub command: Option<DriverCommand>,
    /// The pieces, in the order of their sectors. Empty for a flush.
    pub runs: Vec<Run>,
}

impl Request {
    /// The first time that is known, by which a trace is ordered.
    #[must_use]
    pub fn first_ns(&self) -> Option<u64> {
        [
            self.queued_ns,
            self.inserted_ns,
            self.issued_ns,
            self.completed_ns,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The sector after the last one.
    #[must_use]
    pub const fn end_sector(&self) -> u64 {
        self.sector.saturating_add(self.bytes.div_ceil(512))
    }

    /// Whether it is an I/O for counting: it has bytes and moves them. Flushes and discards are counted apart.
    #[must_use]
    pub const fn moves_data(&self) -> bool {
        self.bytes > 0 && matches!(self.operation, Operation::Read | Operation::Write)
    }
}

/// A piece of a request that has one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// First sector, as in the request.
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// What the file system keeps there.
    pub block_type: BlockType,
    /// The file system's own word for it where it is finer (`xfs_agfl`, `handle: unlink`).
    pub detail: Option<Arc<str>>,
    /// The file, where the piece belongs to one.
    pub file: Option<FileIdentity>,
    /// Path when the request was made, from the file system's root; bytes that are not UTF-8 are written `\xNN`.
    pub path: Option<Arc<str>>,
    /// Whether the file had no name any more when the request was made.
    pub deleted: bool,
    /// Offset in the file, bytes.
    pub file_offset: Option<u64>,
    /// For a block of the journal: its home on the device, in sectors of 512 bytes.
    pub home_sector: Option<u64>,
    /// For a block of the journal: the transaction.
    pub transaction: Option<u64>,
    /// Who made the data: dirtied the page, or asked for the read.
    pub cause: Option<Arc<Process>>,
    /// How the cause was found.
    pub cause_quality: CauseQuality,
    /// When the data was dirtied, ns since the trace's start.
    pub dirtied_ns: Option<u64>,
}

impl Run {
    /// A run of which nothing but its place is known.
    #[must_use]
    pub const fn unknown(sector: u64, bytes: u64) -> Self {
        Self {
            sector,
            bytes,
            block_type: BlockType::Unknown,
            detail: None,
            file: None,
            path: None,
            deleted: false,
            file_offset: None,
            home_sector: None,
            transaction: None,
            cause: None,
            cause_quality: CauseQuality::None,
            dirtied_ns: None,
        }
    }
}

/// A process at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Process id (the kernel's tgid).
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name of the process (of its group leader).
    pub name: Arc<str>,
    /// Android package, from the cgroup or command line, where there is one.
    pub package: Option<Arc<str>>,
}

/// What a file is beyond its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Device number that `stat` tells; on btrfs not the block device's.
    pub file_system: DeviceNumber,
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode; 0 where the source has none.
    pub generation: u32,
}

/// Priority of a request, as `ionice` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IoPriority {
    /// 1 real time, 2 best effort, 3 idle.
    pub class: u8,
    /// 0 is the highest.
    pub level: u16,
}

/// A command that a driver sent to its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DriverCommand {
    /// Number of the command (25 is CMD25), or the operation code of a SCSI command, which UFS's are too (42 is WRITE(10)).
    pub code: u16,
    /// Its argument; of a SCSI command the low half of the logical block's address.
    pub argument: u32,
    /// Requests that it carries: more than 1 for a packed command.
    pub packed_requests: u16,
    /// How often it was tried again.
    pub retries: u16,
    /// Interrupts of the host while it had the command: where several are under way, those of the others too.
    pub interrupts: u16,
    /// Bytes that it moves; `None` for a command without data.
    #[serde(default)]
    pub bytes: Option<u32>,
    /// Its tag in the card's own queue (CQE of eMMC, task tag of UFS).
    #[serde(default)]
    pub tag: Option<u16>,
    /// Whether the card may stay busy after its answer (response R1b), which is part of the command's time.
    #[serde(default)]
    pub waits_busy: bool,
    /// When the host controller got it, ns since the trace's start.
    #[serde(default)]
    pub issued_ns: Option<u64>,
    /// When the host controller had done it.
    #[serde(default)]
    pub completed_ns: Option<u64>,
    /// 0, or the error's number (positive errno); `None` when its end was not seen.
    #[serde(default)]
    pub status: Option<i32>,
}
