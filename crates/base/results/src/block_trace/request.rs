//! A block request and the owners of its parts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::vocabulary::{BlockType, CauseQuality, DeviceNumber, IoMode, Operation, RequestFlags};

/// One request as seen by a device's queue, or one command as sent by its driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Position in the trace, from 0, ordered by first known time.
    pub id: u64,
    /// The whole device.
    pub device: DeviceNumber,
    /// First sector of 512 bytes on the whole device; 0 for a request without a position (a flush).
    pub sector: u64,
    /// Bytes moved, discarded or zeroed; 0 for a flush.
    pub bytes: u64,
    /// Operation requested.
    pub operation: Operation,
    /// The kernel's request flags.
    pub flags: RequestFlags,
    /// I/O priority, if set.
    pub priority: Option<IoPriority>,
    /// Time when the first part was submitted to the block layer, ns since the trace's start.
    pub queued_ns: Option<u64>,
    /// Time when the request was inserted into the scheduler.
    pub inserted_ns: Option<u64>,
    /// Time when the request was issued to the driver.
    pub issued_ns: Option<u64>,
    /// Completion time.
    pub completed_ns: Option<u64>,
    /// 0, or a positive errno; `None` when no completion was seen.
    pub status: Option<i32>,
    /// Requests in flight at the driver when this one was issued, including itself.
    pub in_flight: Option<u32>,
    /// Hardware queue.
    pub hardware_queue: Option<u16>,
    /// Process that called the block layer; often a kernel thread for buffered writes.
    pub submitter: Option<Arc<Process>>,
    /// Path of the data to the block layer.
    pub mode: IoMode,
    /// The driver's command (eMMC, UFS) that carried the request.
    pub command: Option<DriverCommand>,
    /// The parts, ordered by sector. Empty for a flush.
    pub runs: Vec<Run>,
}

impl Request {
    /// A request of which only the place is known; fill in the rest by struct update.
    #[must_use]
    pub fn at(device: DeviceNumber, operation: Operation, sector: u64, bytes: u64) -> Self {
        let run = Run::unknown(sector, bytes);
        Self {
            id: 0,
            device,
            sector,
            bytes,
            operation,
            flags: RequestFlags::default(),
            priority: None,
            queued_ns: None,
            inserted_ns: None,
            issued_ns: None,
            completed_ns: None,
            status: None,
            in_flight: None,
            hardware_queue: None,
            submitter: None,
            mode: IoMode::Unknown,
            command: None,
            runs: if bytes > 0 { vec![run] } else { Vec::new() },
        }
    }

    /// The earliest known time, by which a trace is ordered.
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

    /// Whether it counts as an I/O: a read or write of at least one byte. Flushes and discards are counted
    /// separately.
    #[must_use]
    pub const fn moves_data(&self) -> bool {
        self.bytes > 0 && matches!(self.operation, Operation::Read | Operation::Write)
    }
}

/// A part of a request with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// First sector, on the same scale as in the request.
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Type of the block in the file system.
    pub block_type: BlockType,
    /// The file system's own term if more specific (`xfs_agfl`, `handle: unlink`).
    pub detail: Option<Arc<str>>,
    /// The owning file, if any.
    pub file: Option<FileIdentity>,
    /// Path when the request was made, from the file system's root; bytes that are not UTF-8 are written `\xNN`.
    pub path: Option<Arc<str>>,
    /// The file has several names (hard links), `path` is one of them, and the one that was used is unknown.
    #[serde(default)]
    pub one_of_names: bool,
    /// Whether the file had already lost its last name when the request was made.
    pub deleted: bool,
    /// Offset in the file, bytes.
    pub file_offset: Option<u64>,
    /// For a journal block: its home location on the device, in sectors of 512 bytes.
    pub home_sector: Option<u64>,
    /// For a journal block: the transaction.
    pub transaction: Option<u64>,
    /// Process that dirtied the page or requested the read.
    pub cause: Option<Arc<Process>>,
    /// How `cause` was determined.
    pub cause_quality: CauseQuality,
    /// Time when the data was dirtied, ns since the trace's start.
    pub dirtied_ns: Option<u64>,
}

impl Run {
    /// A run of known position and unknown owner.
    #[must_use]
    pub const fn unknown(sector: u64, bytes: u64) -> Self {
        Self {
            sector,
            bytes,
            block_type: BlockType::Unknown,
            detail: None,
            file: None,
            path: None,
            one_of_names: false,
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

/// A process at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Process id (the kernel's tgid).
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Name of the process (its thread group leader).
    pub name: Arc<str>,
    /// Android package, from the cgroup or command line, if there is one.
    pub package: Option<Arc<str>>,
}

/// Identity of a file, independent of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Device number reported by `stat`; on btrfs this is not the block device's number.
    pub file_system: DeviceNumber,
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode; 0 if the source has none.
    pub generation: u32,
}

/// Priority of a request, as used by `ionice`.
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
    /// Command number (25 is CMD25), or operation code of a SCSI or UFS command (42 is WRITE(10)).
    pub code: u16,
    /// Command argument; for a SCSI command, the low half of the logical block address.
    pub argument: u32,
    /// Requests carried by the command: more than 1 for a packed command.
    pub packed_requests: u16,
    /// Number of retries.
    pub retries: u16,
    /// Host interrupts while the command was active, including those of other commands in flight.
    pub interrupts: u16,
    /// Bytes moved; `None` for a command without data.
    #[serde(default)]
    pub bytes: Option<u32>,
    /// Tag in the card's command queue (eMMC CQE, UFS task tag).
    #[serde(default)]
    pub tag: Option<u16>,
    /// Whether the card may stay busy after its response (R1b); the busy time belongs to the command.
    #[serde(default)]
    pub waits_busy: bool,
    /// Time when the host controller received the command, ns since the trace's start.
    #[serde(default)]
    pub issued_ns: Option<u64>,
    /// Time when the host controller completed the command.
    #[serde(default)]
    pub completed_ns: Option<u64>,
    /// 0, or a positive errno; `None` when no completion was seen.
    #[serde(default)]
    pub status: Option<i32>,
}
