//! GETFSMAP: the kernel's own list of block owners on ext4 and XFS.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::fstat;

use super::ioctl::{FSMAP_HEADER, FSMAP_RECORD, Request, call, halves, pair};
use crate::block_type::BlockType;

/// Records per request.
const BATCH: usize = 1024;
const KEY: usize = 8;

const UNWRITTEN: u32 = 0x1;
const ATTRIBUTE_FORK: u32 = 0x2;
const EXTENT_MAP: u32 = 0x4;
const SHARED: u32 = 0x8;
const SPECIAL_OWNER: u32 = 0x10;
const LAST: u32 = 0x20;

/// Maximum number of records that [`system_regions`] reads: regions behind them are not reported.
const REGION_RECORDS_MAX: usize = 1 << 20;

/// A range of a device and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Encoded device number.
    pub device: u32,
    pub physical: u64,
    pub length: u64,
    pub offset: u64,
    pub owner: Owner,
    pub unwritten: bool,
    pub shared: bool,
}

/// Owner of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The file system.
    System(SystemOwner),
    /// An inode's content, or its other blocks.
    Inode(u64, BlockType),
}

/// A range that a mounted file system uses for itself, in bytes of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemRegion {
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// Its use.
    pub owner: SystemOwner,
}

/// Use of a range by a file system, in the kernel's terms: a letter for the file system (`X`: XFS, `f`: ext4; none for
/// common uses) and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemOwner {
    /// Letter of the file system.
    pub letter: Option<char>,
    /// Number of the use.
    pub number: u32,
}

/// The regions that the file system at `mountpoint` uses for itself on its own device, as reported by the kernel.
///
/// # Errors
/// If the folder can't be opened, or the file system does not support the request.
pub fn system_regions(mountpoint: &Path) -> io::Result<Vec<SystemRegion>> {
    let folder = File::open(mountpoint)?;
    let device = encoded(fstat(&folder)?.st_dev);
    let (mut regions, mut seen) = (Vec::new(), 0);
    records(&folder, |record| {
        seen += 1;
        if let (Owner::System(owner), true) = (record.owner, record.device == device) {
            regions.push(SystemRegion {
                start: record.physical,
                length: record.length,
                owner,
            });
        }
        if seen < REGION_RECORDS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(regions)
}

/// A device number in the encoding of GETFSMAP: 20 bits of minor number around 12 of major.
pub(crate) fn encoded(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    minor & 0xFF | (major & 0xFFF) << 8 | (minor & !0xFF) << 12
}

/// Calls `emit` with all records of the file system that contains `file`, until it breaks.
pub(crate) fn records(file: impl AsFd, mut emit: impl FnMut(Record) -> ControlFlow<()>) -> io::Result<()> {
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
            let wanted = emit(Record {
                device,
                physical: words[1],
                length: words[4],
                offset: words[3],
                owner: owner(words[2], flags),
                unwritten: flags & UNWRITTEN != 0,
                shared: flags & SHARED != 0,
            });
            if wanted.is_break() {
                return Ok(());
            }
        }
        if last {
            return Ok(());
        }
        // The last record is the lower key of the next call; its length makes the kernel continue behind it.
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
    // The letter is in the upper half of the number's value, whatever the byte order.
    let (high, low) = (owner >> 32, owner & u64::from(u32::MAX));
    Owner::System(SystemOwner {
        letter: u32::try_from(high)
            .ok()
            .and_then(char::from_u32)
            .filter(|letter| *letter != '\0'),
        number: u32::try_from(low).unwrap_or(u32::MAX),
    })
}

impl SystemOwner {
    /// Converts to a block type.
    pub(crate) fn block_type(self) -> BlockType {
        match (self.letter, self.number) {
            (None, 1) => BlockType::Free,
            (Some('X'), 1) => BlockType::Superblock,
            (Some('X'), 2) => BlockType::Journal,
            (Some('X'), 5) => BlockType::InodeTable,
            // Headers of allocation groups, and trees of inodes, references and free space.
            (Some('X'), 3 | 4 | 6) | (None, 3) => BlockType::Tree,
            (Some('X'), 8) => BlockType::BadBlocks,
            (Some('f'), 1) => BlockType::GroupDescriptors,
            (Some('f'), 2) => BlockType::ReservedGroupDescriptors,
            (Some('f'), 3) => BlockType::BlockBitmap,
            (Some('f'), 4) => BlockType::InodeBitmap,
            _ => BlockType::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_told_by_letter_and_number() {
        let of = |letter: char, number: u64| match owner(
            u64::from(u32::from(letter)) << 32 | number,
            SPECIAL_OWNER,
        ) {
            Owner::System(owner) => owner,
            inode @ Owner::Inode(..) => panic!("{inode:?}"),
        };
        assert_eq!(of('f', 3).block_type(), BlockType::BlockBitmap);
        assert_eq!(of('X', 5).letter, Some('X'));
        assert_eq!(of('\0', 1).block_type(), BlockType::Free);
        assert_eq!(owner(131, 0), Owner::Inode(131, BlockType::Data));
    }
}
