//! Records sent by the programs through the ring, byte for byte: the counterpart of `bpf/records.h`.
//!
//! This module does not interpret them. Sizes are checked on both sides at compile time; a record of unknown kind or
//! length is `None`, never guessed.

use results::block_trace::DeviceNumber;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! record {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, { $($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$field_doc])* pub $field: $type),+ }

        const _: () = assert!(size_of::<$name>() == $bytes, "as long as in records.h");
    };
}

record!(ProcessReference, 16, { tgid: u32, tid: u32, name: u64 });

record!(RunPart, 64, {
    inode: u64,
    offset: u64,
    home: u64,
    dentry: u64,
    file_system: u32,
    generation: u32,
    start: u32,
    bytes: u32,
    transaction: u32,
    magic: u32,
    mode: u16,
    kind: u8,
    flags: u8,
    block_bytes: u32,
});

record!(BioRecord, 136, {
    kind: u32,
    device: u32,
    time: u64,
    bio: u64,
    sector: u64,
    bytes: u32,
    operation: u32,
    priority: u16,
    by_kernel: u8,
    without_requests: u8,
    reserved: u32,
    partition: u64,
    submitter: ProcessReference,
    run: RunPart,
});

record!(RunRecord, 80, { kind: u32, mark: u32, bio: u64, run: RunPart });

record!(RequestRecord, 72, {
    kind: u32,
    device: u32,
    sector: u64,
    inserted: u64,
    issued: u64,
    completed: u64,
    bytes: u32,
    operation: u32,
    status: u32,
    in_flight: u32,
    hardware_queue: u16,
    requeues: u16,
    merged: u32,
    bio: u64,
});

record!(MergedRecord, 136, { kind: u32, mark: u32, bio: u64, bios: [u64; MERGED_BIOS] });

record!(BioDoneRecord, 48, {
    kind: u32,
    device: u32,
    time: u64,
    bio: u64,
    sector: u64,
    status: u32,
    operation: u32,
    bytes: u32,
    without_requests: u32,
});

record!(NameRecord, 280, { kind: u32, bytes: u32, dentry: u64, parent: u64, name: [u8; 256] });

record!(ProcessRecord, 32, { kind: u32, tgid: u32, name: u64, comm: [u8; 16] });

record!(WriterRecord, 72, {
    kind: u32,
    file_system: u32,
    time: u64,
    inode: u64,
    position: u64,
    bytes: u64,
    generation: u32,
    by_kernel: u8,
    /// [`dirtied`].
    by: u8,
    mappings: u16,
    dentry: u64,
    process: ProcessReference,
});

record!(EventRecord, 72, {
    kind: u32,
    event: u32,
    time: u64,
    inode: u64,
    dentry: u64,
    value: u64,
    file_system: u32,
    generation: u32,
    detail: u32,
    flags: u32,
    process: ProcessReference,
});

record!(LostRecord, 24, { kind: u32, reserved: u32, time: u64, lost: u64 });

record!(AliasesRecord, 88, {
    kind: u32,
    file_system: u32,
    inode: u64,
    generation: u32,
    reserved: u32,
    dentries: [u64; MAX_ALIASES],
});

record!(DriverRecord, 56, {
    kind: u32,
    device: u32,
    issued: u64,
    completed: u64,
    sector: u64,
    code: u32,
    argument: u32,
    bytes: u32,
    tries: u16,
    interrupts: u16,
    error: i32,
    tag: u16,
    flags: u16,
});

record!(
    /// `struct configuration`.
    Configuration, 1272, {
    devices: [u32; MAX_DEVICES],
    device_count: u32,
    own_tgid: u32,
    ring_bytes: u64,
    iomap_direct: u64,
    legacy_direct: u64,
    legacy_direct_async: u64,
    buffer_head: u64,
    journal_buffer: u64,
    fast_commit_buffer: u64,
    xfs_buffer: u64,
    xfs_log: u64,
    btrfs_simple: u64,
    btrfs_original: u64,
    btrfs_super: u64,
    btrfs_waits: u64,
    raw_direct: u64,
    raw_direct_async: u64,
    waited_for: u64,
    waited_for_too: u64,
    chained: u64,
    mmc_hosts: [u32; MAX_DEVICES],
    interrupts: [u32; MAX_DEVICES],
    counted_calls: [u8; MAX_CALLS],
    descriptors: [u8; MAX_CALLS],
});

record!(
    /// `struct counters`.
    Counters, 184, {
    bios: u64,
    requests: u64,
    lost: u64,
    lost_told: u64,
    half_full: u64,
    slots_taken_twice: u64,
    unseen: u64,
    in_flight: [u64; MAX_DEVICES],
    interrupts: [u64; MAX_DEVICES],
});

record!(CallKey, 16, { tgid: u32, call: u32, name: u64 });

/// Maximum number of devices per trace.
pub(crate) const MAX_DEVICES: usize = 8;
/// Bios in one [`MergedRecord`].
pub(crate) const MERGED_BIOS: usize = 15;
/// Names in one [`AliasesRecord`].
pub(crate) const MAX_ALIASES: usize = 8;
/// Number of system calls that can be counted: numbers from 0.
pub(crate) const MAX_CALLS: usize = 512;

/// In a request record: not reported by the source.
pub(crate) const NO_HARDWARE_QUEUE: u16 = u16::MAX;

/// `enum run_kind`.
pub(crate) mod run_kind {
    pub(crate) const PAGES: u8 = 1;
    pub(crate) const DIRECT: u8 = 2;
    pub(crate) const METADATA: u8 = 3;
    pub(crate) const JOURNAL: u8 = 4;
    pub(crate) const JOURNAL_CONTROL: u8 = 5;
    pub(crate) const FAST_COMMIT: u8 = 6;
    pub(crate) const XFS_BUFFER: u8 = 7;
    pub(crate) const XFS_LOG: u8 = 8;
    pub(crate) const BTRFS: u8 = 9;
    pub(crate) const SUPERBLOCK: u8 = 10;
    pub(crate) const RAW: u8 = 11;
    pub(crate) const SWAP: u8 = 12;
    /// A sector in the journal, with nothing else known; not sent by any program.
    pub(crate) const JOURNAL_PLACE: u8 = 15;
}

/// `enum run_flag`.
pub(crate) mod run_flag {
    pub(crate) const DELETED: u8 = 1;
    pub(crate) const HOME_IS_FILE: u8 = 2;
    pub(crate) const EXTENTS: u8 = 4;
    pub(crate) const XATTR: u8 = 8;
    pub(crate) const DIRECTORY: u8 = 16;
    pub(crate) const JOURNAL_BLOCK: u8 = 32;
    /// For data of files: the file is mapped for stores.
    pub(crate) const MAPPED: u8 = 4;
    /// For data of files: more than once.
    pub(crate) const MAPPED_OFTEN: u8 = 8;
    /// For data of files: its range in the file is larger.
    pub(crate) const COMPRESSED: u8 = 16;
    pub(crate) const ONE_OF_NAMES: u8 = 64;
    pub(crate) const NAME_LOST: u8 = 128;
}

/// `enum dirtied_by`.
pub(crate) mod dirtied {
    pub(crate) const BY_CALL: u8 = 0;
    pub(crate) const BY_CALL_PERHAPS: u8 = 1;
    pub(crate) const IN_CALL: u8 = 2;
    pub(crate) const BY_STORE: u8 = 3;
    pub(crate) const BY_CALL_TO_COME: u8 = 4;
}

/// `enum event_kind`.
pub(crate) mod event_kind {
    pub(crate) const CREATE: u32 = 1;
    pub(crate) const UNLINK: u32 = 2;
    pub(crate) const DELETE: u32 = 3;
    pub(crate) const FSYNC: u32 = 4;
    pub(crate) const FDATASYNC: u32 = 5;
    pub(crate) const COMMIT: u32 = 6;
    pub(crate) const CONTRIBUTION: u32 = 7;
}

/// `enum driver_flag`.
pub(crate) mod driver_flag {
    pub(crate) const HAS_DATA: u16 = 1;
    pub(crate) const WAITS_BUSY: u16 = 2;
    pub(crate) const QUEUED: u16 = 4;
    pub(crate) const SCSI: u16 = 8;
}

/// Any record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record {
    Bio(BioRecord),
    Run(RunRecord),
    Request(RequestRecord),
    BioDone(BioDoneRecord),
    Name(NameRecord),
    Process(ProcessRecord),
    Writer(WriterRecord),
    Event(EventRecord),
    Driver(DriverRecord),
    /// Further bios of the request record that follows.
    Merged(MergedRecord),
    /// Records before this one were lost.
    Lost(LostRecord),
    Aliases(AliasesRecord),
}

impl Record {
    /// `None` if it is not a record of this version.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
        Some(match kind {
            1 => Self::Bio(read_prefix(bytes)?),
            2 => Self::Run(read_prefix(bytes)?),
            3 => Self::Request(read_prefix(bytes)?),
            4 => Self::BioDone(read_prefix(bytes)?),
            5 => Self::Name(read_prefix(bytes)?),
            6 => Self::Process(read_prefix(bytes)?),
            7 => Self::Writer(read_prefix(bytes)?),
            8 => Self::Event(read_prefix(bytes)?),
            10 => Self::Driver(read_prefix(bytes)?),
            11 => Self::Merged(read_prefix(bytes)?),
            12 => Self::Lost(read_prefix(bytes)?),
            13 => Self::Aliases(read_prefix(bytes)?),
            _ => return None,
        })
    }

    /// Time of the record, ns of the monotonic clock; `None` for records that only define names.
    pub(crate) fn time(&self) -> Option<u64> {
        match self {
            Self::Bio(bio) => Some(bio.time),
            Self::Request(request) => Some(request.completed),
            Self::BioDone(done) => Some(done.time),
            Self::Writer(writer) => Some(writer.time),
            Self::Event(event) => Some(event.time),
            Self::Driver(command) => Some(command.completed),
            Self::Lost(lost) => Some(lost.time),
            Self::Run(_) | Self::Name(_) | Self::Process(_) | Self::Merged(_) | Self::Aliases(_) => None,
        }
    }
}

fn read_prefix<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(record, _)| record)
}

/// Decodes the kernel's device number: 12 bits of major above 20 of minor.
pub(crate) fn device_number(kernel: u32) -> DeviceNumber {
    DeviceNumber {
        major: kernel >> 20,
        minor: kernel & 0xF_FFFF,
    }
}

/// Encodes a device number for the kernel.
pub(crate) fn kernel_device(device: DeviceNumber) -> u32 {
    device.major << 20 | device.minor & 0xF_FFFF
}
