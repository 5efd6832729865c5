//! Maps on-flash attributes and errors to `stat(2)`, `statvfs(3)` and errno.

use ubi::VolumeError;
use vfs::{Attr, FsError, FsResult, IoctlReply, StatFs, Timestamp};

use crate::file_system::UbifsError;
use crate::finding::Damage;
use crate::format::{
    BLOCK_BYTES, EntryKind, INODE_APPEND, INODE_COMPRESS, INODE_DIRSYNC, INODE_ENCRYPTED, INODE_IMMUTABLE,
    INODE_SYNC, Inode, LOG_LEB, NAME_BYTES_MAX, Superblock,
};
use crate::write::WriteError;

/// `FS_IOC_GETFLAGS` for 64-bit and 32-bit programs.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
/// `FS_IOC_SETFLAGS` for 64-bit and 32-bit programs.
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
/// `FS_IOC_FSGETXATTR`. Linux reads it before it sets flags by any ioctl.
const GET_EXTENDED_FLAGS: u32 = 0x801C_581F;
/// Length of its reply (`struct fsxattr`): the flags, then fields that are 0 here.
const EXTENDED_FLAGS_BYTES: usize = 28;

/// UBIFS inode flags that users may change.
pub(super) const CHANGEABLE_FLAGS: u32 =
    INODE_COMPRESS | INODE_SYNC | INODE_IMMUTABLE | INODE_APPEND | INODE_DIRSYNC;

/// UBIFS inode flags with their values in `FS_IOC_GETFLAGS` and in `statx`.
const FLAGS: [(u32, u32, u64); 6] = [
    (INODE_COMPRESS, 0x04, 0x04),
    (INODE_SYNC, 0x08, 0),
    (INODE_IMMUTABLE, 0x10, 0x10),
    (INODE_APPEND, 0x20, 0x20),
    (INODE_DIRSYNC, 0x1_0000, 0),
    (INODE_ENCRYPTED, 0x800, 0x800),
];

/// The errno table for read errors.
pub(super) fn errno(error: &UbifsError) -> FsError {
    match error {
        UbifsError::Damaged { finding, .. } => match finding.damage {
            Damage::Locked(_) => FsError::Host(libc::ENOKEY),
            Damage::Node(_)
            | Damage::Content(_)
            | Damage::Medium(_)
            | Damage::Outside { .. }
            | Damage::Value { .. }
            | Damage::Contradiction(_)
            | Damage::BeyondSize { .. }
            | Damage::Doubtful(_) => FsError::Io,
        },
        UbifsError::NoInode { .. } => FsError::Stale,
        UbifsError::NoName { .. } => FsError::NotFound,
        UbifsError::WrongKind { .. } => FsError::Invalid,
    }
}

/// The errno table for write errors.
pub(super) fn errno_of_write(error: &WriteError) -> FsError {
    match error {
        WriteError::Read(error) => errno(error),
        WriteError::Open(_) | WriteError::Space { .. } | WriteError::Damaged { .. } => FsError::Io,
        WriteError::Unsupported { .. } | WriteError::Untrusted { .. } | WriteError::Stopped { .. } => {
            FsError::ReadOnly
        }
        WriteError::Volume(error) => errno_of_volume(error),
        WriteError::NoSpace { .. } | WriteError::NoInodeNumber { .. } => FsError::NoSpace,
        WriteError::Orphans { .. } => FsError::TooManyOpenFilesInSystem,
        WriteError::FileBytes { .. } => FsError::FileTooBig,
        WriteError::Exists { .. } => FsError::Exists,
        WriteError::NotEmpty { .. } => FsError::NotEmpty,
        WriteError::NotDirectory { .. } => FsError::NotADirectory,
        WriteError::IsDirectory { .. } => FsError::IsADirectory,
        WriteError::Length { .. } => FsError::NameTooLong,
        WriteError::Invalid(_) => FsError::Invalid,
    }
}

const fn errno_of_volume(error: &VolumeError) -> FsError {
    match error {
        VolumeError::ReadOnly { .. } => FsError::ReadOnly,
        // The device lacks a good block for a LEB it promised: deleting files would not help.
        VolumeError::NoSpace { .. }
        | VolumeError::OutOfRange { .. }
        | VolumeError::Misaligned { .. }
        | VolumeError::AlreadyMapped { .. }
        | VolumeError::ChangePending { .. }
        | VolumeError::Damaged { .. }
        | VolumeError::NotMapped { .. }
        | VolumeError::Uncorrectable { .. }
        | VolumeError::Unusable { .. }
        | VolumeError::Device { .. } => FsError::Io,
    }
}

/// Maps an error for an inode reached by name: a missing inode is damage then.
pub(super) const fn behind_a_name(error: FsError) -> FsError {
    match error {
        FsError::Stale => FsError::Io,
        other => other,
    }
}

/// Attributes of an inode with the given number of 4096-byte blocks.
pub(super) fn attr(inode: &Inode, blocks: u64) -> Attr {
    let time = |seconds: u64, nanoseconds: u32| Timestamp {
        seconds: seconds.cast_signed(),
        nanoseconds: nanoseconds.min(999_999_999),
    };
    let (attributes, attributes_mask) = FLAGS.iter().fold((0, 0), |(set, known), (flag, _, statx)| {
        let bit = if inode.flags & flag != 0 { *statx } else { 0 };
        (set | bit, known | statx)
    });
    Attr {
        shown_ino: inode.key.inode_number().0.into(),
        size: inode.size_bytes,
        blocks: blocks.saturating_mul(u64::from(BLOCK_BYTES) / 512),
        atime: time(inode.accessed_seconds, inode.accessed_nanoseconds),
        mtime: time(inode.modified_seconds, inode.modified_nanoseconds),
        ctime: time(inode.changed_seconds, inode.changed_nanoseconds),
        btime: None,
        mode: inode.mode,
        nlink: inode.links,
        uid: inode.user,
        gid: inode.group,
        rdev: device_number(inode),
        block_size: BLOCK_BYTES,
        attributes,
        attributes_mask,
        is_reported: true,
    }
}

/// The kernel's 32-bit device number: 12 bits of the major number between the lower 8 and upper 12 bits of the minor.
fn device_number(inode: &Inode) -> u32 {
    let (major, minor) = inode.device().unwrap_or_default();
    (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12
}

/// Statistics of the main area. `free_bytes` includes the reserved pool.
pub(super) fn statfs(superblock: &Superblock, free_bytes: u64) -> StatFs {
    let others = [
        LOG_LEB,
        superblock.log_lebs,
        superblock.lpt_lebs,
        superblock.orphan_lebs,
    ];
    let others = others.iter().map(|lebs| u64::from(*lebs)).sum();
    let lebs = u64::from(superblock.lebs).saturating_sub(others);
    let blocks = |bytes: u64| bytes / u64::from(BLOCK_BYTES);
    let all = blocks(lebs * u64::from(superblock.leb_bytes));
    let free = blocks(free_bytes).min(all);
    StatFs {
        blocks: all,
        blocks_free: free,
        blocks_available: blocks(free_bytes.saturating_sub(superblock.reserve_bytes)).min(all),
        files: 0,
        files_free: 0,
        block_size: BLOCK_BYTES,
        fragment_size: BLOCK_BYTES,
        name_max: NAME_BYTES_MAX,
    }
}

/// Whether users see an extended attribute. Others (the policy of an encrypted file) are internal.
pub(super) fn is_shown(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system."];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) && !name.contains(&0)
}

/// Checks the namespace of an extended attribute: as in Linux, UBIFS has three, and no POSIX ACLs (`system.`).
pub(super) fn check_namespace(name: &[u8]) -> FsResult<()> {
    let namespaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let rest = namespaces.iter().find_map(|prefix| name.strip_prefix(*prefix));
    match rest {
        None => Err(FsError::NotSupported),
        Some([]) => Err(FsError::Invalid),
        Some(_) => Ok(()),
    }
}

/// The flags set by a `chattr`; `None` for other ioctls.
pub(super) fn flags_to_set(command: u32, input: &[u8]) -> Option<FsResult<u32>> {
    if !SET_FLAGS.contains(&command) {
        return None;
    }
    let Some(wanted) = input.first_chunk().map(|raw| u32::from_le_bytes(*raw)) else {
        return Some(Err(FsError::Invalid));
    };
    let known = FLAGS.iter().filter(|(flag, ..)| CHANGEABLE_FLAGS & flag != 0);
    let (flags, rest) = known.fold((0, wanted), |(flags, rest), (flag, number, _)| {
        let set = if wanted & number != 0 { *flag } else { 0 };
        (flags | set, rest & !number)
    });
    Some(match rest {
        0 => Ok(flags),
        _ => Err(FsError::NotSupported),
    })
}

/// Answers the ioctls that read flags: from `lsattr`, and from Linux before a `chattr`.
pub(super) fn ioctl(inode: &Inode, command: u32, output_bytes_max: usize) -> FsResult<IoctlReply> {
    if command == GET_EXTENDED_FLAGS {
        let known = [
            (INODE_IMMUTABLE, 0x08),
            (INODE_APPEND, 0x10),
            (INODE_SYNC, 0x20_u32),
        ];
        let set = known.iter().filter(|(flag, _)| inode.flags & flag != 0);
        let flags = set.fold(0, |flags, (_, number)| flags | number);
        let mut data = flags.to_le_bytes().to_vec();
        data.resize(EXTENDED_FLAGS_BYTES.min(output_bytes_max), 0);
        return Ok(IoctlReply { result: 0, data });
    }
    if !GET_FLAGS.contains(&command) {
        return Err(FsError::NotATerminal);
    }
    let flags = FLAGS.iter().fold(0, |flags, (flag, number, _)| {
        flags | if inode.flags & flag != 0 { *number } else { 0 }
    });
    let of_directory = match inode.kind() {
        Some(EntryKind::Directory) => flags,
        _ => flags & !0x1_0000,
    };
    let mut data = u64::from(of_directory).to_le_bytes().to_vec();
    data.truncate(output_bytes_max);
    Ok(IoctlReply { result: 0, data })
}

#[cfg(test)]
mod tests {
    use media::Leb;

    use super::*;

    /// `ENOSPC` would make users delete files, which frees no good block.
    #[test]
    fn a_device_without_a_good_block_is_no_full_file_system() {
        let volume = "chip:data".into();
        let worn_out = VolumeError::NoSpace { volume, leb: Leb(7) };
        assert_eq!(errno_of_write(&WriteError::Volume(worn_out)), FsError::Io);
        let full = WriteError::NoSpace {
            volume: "chip:data".into(),
        };
        assert_eq!(errno_of_write(&full), FsError::NoSpace);
    }
}
