//! GETFSMAP: the kernel's own list of who owns the blocks of ext4 and XFS.

use std::io;
use std::os::fd::AsFd;

use super::ioctl::{FSMAP_HEADER, FSMAP_RECORD, Request, call, halves, pair};
use crate::block_type::BlockType;

/// Records that are asked for at once.
const BATCH: usize = 1024;
const KEY: usize = 8;

const UNWRITTEN: u32 = 0x1;
const ATTRIBUTE_FORK: u32 = 0x2;
const EXTENT_MAP: u32 = 0x4;
const SHARED: u32 = 0x8;
const SPECIAL_OWNER: u32 = 0x10;
const LAST: u32 = 0x20;

/// A range of a device and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Encoded number of the device.
    pub device: u32,
    pub physical: u64,
    pub length: u64,
    pub offset: u64,
    pub owner: Owner,
    pub unwritten: bool,
    pub shared: bool,
}

/// Who owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The file system.
    Special(BlockType),
    /// An inode's content, or what it points to besides.
    Inode(u64, BlockType),
}

/// Calls `emit` with all records of the file system that `file` is on.
pub(crate) fn records(file: impl AsFd, mut emit: impl FnMut(Record)) -> io::Result<()> {
    let mut buffer = vec![0_u64; FSMAP_HEADER + FSMAP_RECORD * BATCH];
    let low = FSMAP_HEADER - 2 * KEY;
    // The upper key: all devices, all bytes, all owners.
    buffer[FSMAP_HEADER - KEY..FSMAP_HEADER].copy_from_slice(&[
        pair(u32::MAX, u32::MAX),
        u64::MAX,
        u64::MAX,
        u64::MAX,
        0,
        0,
        0,
        0,
    ]);
    let batch = u32::try_from(BATCH).expect("it is small");
    loop {
        buffer[0] = 0;
        buffer[1] = pair(batch, 0);
        call(&file, Request::GetFsMap, &mut buffer)?;
        let (_, entries) = halves(buffer[1]);
        let entries = crate::bytes::index(u64::from(entries)).min(BATCH);
        let mut last = entries == 0;
        for at in 0..entries {
            let words = &buffer[FSMAP_HEADER + at * FSMAP_RECORD..][..FSMAP_RECORD];
            let (device, flags) = halves(words[0]);
            last |= flags & LAST != 0;
            emit(Record {
                device,
                physical: words[1],
                length: words[4],
                offset: words[3],
                owner: owner(words[2], flags),
                unwritten: flags & UNWRITTEN != 0,
                shared: flags & SHARED != 0,
            });
        }
        if last {
            return Ok(());
        }
        // The last record is the lower key of the next call; its length says to go on behind it.
        let from = FSMAP_HEADER + (entries - 1) * FSMAP_RECORD;
        let record: Vec<u64> = buffer[from..from + KEY].to_vec();
        buffer[low..low + KEY].copy_from_slice(&record);
    }
}

fn owner(owner: u64, flags: u32) -> Owner {
    if flags & SPECIAL_OWNER == 0 {
        let kind = if flags & ATTRIBUTE_FORK != 0 {
            BlockType::Xattr
        } else if flags & EXTENT_MAP != 0 {
            BlockType::ExtentTree
        } else {
            BlockType::Data
        };
        return Owner::Inode(owner, kind);
    }
    const XFS: u64 = 0x58;
    const EXT4: u64 = 0x66;
    Owner::Special(match (owner >> 32, owner & 0xFFFF_FFFF) {
        (0, 1) => BlockType::Free,
        (XFS, 1) => BlockType::Superblock,
        (XFS, 2) => BlockType::Journal,
        (XFS, 5) => BlockType::InodeTable,
        // Headers of allocation groups, and trees of inodes, references and free space.
        (XFS, 3 | 4 | 6) | (0, 3) => BlockType::Tree,
        (XFS, 8) => BlockType::BadBlocks,
        (EXT4, 1) => BlockType::GroupDescriptors,
        (EXT4, 2) => BlockType::ReservedGroupDescriptors,
        (EXT4, 3) => BlockType::BlockBitmap,
        (EXT4, 4) => BlockType::InodeBitmap,
        _ => BlockType::Unknown,
    })
}
