//! Where a mounted file system keeps its metadata, asked with `FS_IOC_GETFSMAP` (ext4, XFS).
//!
//! JUSTIFICATION for `unsafe`: the ioctl has no safe form. It reads and writes one buffer whose size it is told.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use results::block_trace::{BlockType, DeviceNumber};

/// `_IOWR('X', 59, struct fsmap_head)`; the head has 192 bytes.
const GETFSMAP: libc::c_ulong = 0xC0C0_583B;
/// Words of 64 bits of the head, of one key or record, and records asked for at once.
const HEAD_WORDS: usize = 24;
const RECORD_WORDS: usize = 8;
const RECORDS: usize = 4096;
/// Where in the head the two keys are, and where the number of answers is.
const LOW_KEY: usize = 8;
const HIGH_KEY: usize = 16;
/// The owner is a kind of metadata, not a file; and this is the last record.
const SPECIAL_OWNER: u32 = 0x10;
const LAST: u32 = 0x20;
/// Answers at most: beyond it the rest stays plain metadata.
const MAX_ANSWERS: usize = 1 << 20;

/// A region of metadata, in sectors of the whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub start: u64,
    pub end: u64,
    pub block_type: BlockType,
}

/// Regions of the file system that `mountpoint` is on; empty where it does not tell.
pub(crate) fn regions(mountpoint: &Path, device: DeviceNumber) -> Vec<Region> {
    let Ok(folder) = File::open(mountpoint) else {
        return Vec::new();
    };
    let partition = fs::read_to_string(format!("/sys/dev/block/{device}/start"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let mut regions = Vec::new();
    let mut buffer = vec![0_u64; HEAD_WORDS + RECORDS * RECORD_WORDS];
    // The high key: everything. Its first word is device and flags.
    buffer[HIGH_KEY..HIGH_KEY + 5].fill(u64::MAX);
    let mut seen = 0;
    loop {
        set_halves(&mut buffer[1], u32::try_from(RECORDS).unwrap_or(0), 0);
        // SAFETY: the descriptor is open; the buffer holds the head and as many records as the head says, and the
        // kernel writes no further. It is aligned for 64-bit fields.
        let answer = unsafe { libc::ioctl(folder.as_raw_fd(), GETFSMAP, buffer.as_mut_ptr()) };
        let (_, entries) = halves(buffer[1]);
        let entries = usize::try_from(entries).unwrap_or(0).min(RECORDS);
        if answer != 0 || entries == 0 {
            return regions;
        }
        seen += entries;
        let mut last = false;
        for record in buffer[HEAD_WORDS..].chunks_exact(RECORD_WORDS).take(entries) {
            let (_, flags) = halves(record[0]);
            last |= flags & LAST != 0;
            if flags & SPECIAL_OWNER == 0 {
                continue;
            }
            if let Some(block_type) = owner(record[2]) {
                regions.push(Region {
                    start: partition + record[1] / 512,
                    end: partition + (record[1] + record[4]) / 512,
                    block_type,
                });
            }
        }
        if last || seen >= MAX_ANSWERS {
            return regions;
        }
        // The low key of the next question is the last answer.
        let place = HEAD_WORDS + (entries - 1) * RECORD_WORDS;
        buffer.copy_within(place..place + RECORD_WORDS, LOW_KEY);
    }
}

/// A special owner is a letter in the upper half and a number in the lower one.
fn owner(word: u64) -> Option<BlockType> {
    let (number, letter) = halves(word);
    Some(match (char::from_u32(letter)?, number) {
        ('X', 1) => BlockType::Superblock,
        ('X', 2) => BlockType::Log,
        ('X', 3) => BlockType::AllocationGroup,
        ('X', 4 | 6) => BlockType::TreeNode,
        ('X', 5) => BlockType::InodeTable,
        ('f', 1 | 2) => BlockType::GroupDescriptors,
        ('f', 3) => BlockType::BlockBitmap,
        ('f', 4) => BlockType::InodeBitmap,
        _ => return None,
    })
}

/// The two 32-bit fields that lie in one word, in the order of memory.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

fn set_halves(word: &mut u64, first: u32, second: u32) {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    *word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_told_by_letter_and_number() {
        let word = |letter: char, number: u64| u64::from(u32::from(letter)) << 32 | number;
        assert_eq!(owner(word('f', 3)), Some(BlockType::BlockBitmap));
        assert_eq!(owner(word('X', 5)), Some(BlockType::InodeTable));
        assert_eq!(owner(word('\0', 1)), None, "free space is no metadata");
    }
}
