//! postmark on ext4 with flex groups (seeds/002 section 3.4, figure 15), as seen by the block layer.
//!
//! Published: 10,000 transactions on 5,000 files of 1 MB, block groups per flex group from 1 on. The layout is
//! ext4's: groups of 128 MiB; a flex group keeps the bitmaps and inode tables of its groups in its first group, each
//! kind together. Assumed: files fill the groups in turn; half of the transactions create or delete, half read or
//! append (postmark's defaults); reads hit the page cache; write-back writes the changed file system blocks every 5
//! s, in sector order.

use std::collections::BTreeSet;

use media::Nanos;
use results::block_trace::RequestFlags;

use super::random::Random;
use super::{Actor, Step, View, write};
use crate::block::Bio;

const BLOCK: u64 = 8;
const GROUP_SECTORS: u64 = 128 << 11;
/// Inode table of a group: 8,192 inodes of 256 bytes.
const TABLE_BLOCKS: u64 = 512;
/// Bitmaps of blocks and inodes, and the table.
const METADATA_BLOCKS: u64 = 2 + TABLE_BLOCKS;
const INODES_PER_GROUP: u64 = 8192;

/// Parameters of postmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostmarkRules {
    /// Initial number of files.
    pub files: u64,
    /// Bytes per file.
    pub file_bytes: u64,
    /// Transactions.
    pub transactions: u64,
    /// Block groups per flex group.
    pub flex_groups: u64,
    /// Block groups of the file system.
    pub groups: u64,
    /// Interval of write-backs of the file system's own blocks.
    pub interval: Nanos,
    /// Seed.
    pub seed: u64,
}

/// Postmark: one task that writes data, and the file system's blocks when they are due.
#[must_use]
pub fn postmark(rules: PostmarkRules) -> Vec<Box<dyn Actor>> {
    vec![Box::new(Postmark {
        random: Random::named(rules.seed, "postmark"),
        rules,
        done: 0,
        due: rules.interval,
        dirty: BTreeSet::new(),
        work: Vec::new(),
    })]
}

struct Postmark {
    rules: PostmarkRules,
    random: Random,
    done: u64,
    due: Nanos,
    /// First sectors of changed file system blocks.
    dirty: BTreeSet<u64>,
    /// Bios to submit, the next one last.
    work: Vec<Bio>,
}

/// First sectors of a group's metadata: block bitmap, inode bitmap, inode table.
fn metadata_of(group: u64, flex: u64) -> (u64, u64, u64) {
    let (first, within) = (group / flex * flex * GROUP_SECTORS, group % flex);
    let base = first + 2 * BLOCK;
    (
        base + within * BLOCK,
        base + (flex + within) * BLOCK,
        base + (2 * flex + within * TABLE_BLOCKS) * BLOCK,
    )
}

/// First sector of the data of a group.
fn data_of(group: u64, flex: u64) -> u64 {
    let metadata = if group.is_multiple_of(flex) {
        2 + flex * METADATA_BLOCKS
    } else {
        2
    };
    group * GROUP_SECTORS + metadata.min(GROUP_SECTORS / BLOCK / 2) * BLOCK
}

impl Postmark {
    fn file(&self, number: u64) -> (u64, u64) {
        // Files are distributed over the groups in turn, so that files adjacent in time are not adjacent on the card.
        let group = number % self.rules.groups;
        let within = number / self.rules.groups;
        let sectors = self.rules.file_bytes.div_ceil(4096) * BLOCK;
        let data = data_of(group, self.rules.flex_groups);
        let room = ((group + 1) * GROUP_SECTORS - data) / sectors.max(1);
        (group, data + within % room.max(1) * sectors)
    }

    /// Marks a file's inode and bitmaps as changed.
    fn touch(&mut self, number: u64, group: u64) {
        let (blocks, inodes, table) = metadata_of(group, self.rules.flex_groups);
        let inode = number / self.rules.groups % INODES_PER_GROUP;
        self.dirty.insert(blocks);
        self.dirty.insert(inodes);
        self.dirty.insert(table + inode / 16 * BLOCK);
    }

    fn data(&mut self, sector: u64, sectors: u64) {
        let mut at = sectors;
        while at > 0 {
            let piece = at.min(1024);
            at -= piece;
            self.work.push(write(sector + at, piece, RequestFlags::default()));
        }
    }

    fn act(&mut self) {
        let sectors = self.rules.file_bytes.div_ceil(4096) * BLOCK;
        if self.done < self.rules.files {
            let number = self.done;
            let (group, sector) = self.file(number);
            self.touch(number, group);
            self.data(sector, sectors);
        } else {
            let number = self.random.below(self.rules.files);
            let (group, sector) = self.file(number);
            match self.random.below(4) {
                0 => {
                    self.touch(number, group);
                    self.data(sector, sectors);
                }
                // A deletion; Android mounts without discards, so the card is not told.
                1 => self.touch(number, group),
                2 => {
                    self.touch(number, group);
                    self.data(sector, BLOCK);
                }
                // A read that hits the page cache; access times are not stored.
                _ => {}
            }
        }
        self.done += 1;
    }
}

impl Actor for Postmark {
    fn step(&mut self, view: &View) -> Step {
        if let Some(bio) = self.work.pop() {
            return Step::Submit(bio);
        }
        let ended = self.done == self.rules.files + self.rules.transactions;
        if (view.now >= self.due || ended) && !self.dirty.is_empty() {
            self.due = view.now + self.rules.interval;
            for sector in std::mem::take(&mut self.dirty).into_iter().rev() {
                self.work.push(write(sector, BLOCK, RequestFlags::default()));
            }
            return Step::WaitBelow(0);
        }
        if ended {
            return if view.outstanding > 0 {
                Step::WaitBelow(0)
            } else {
                Step::Done
            };
        }
        self.act();
        // Time of the program and the page cache: 20 us per transaction.
        Step::SleepUntil(view.now + Nanos::from_micros(20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flex groups of one: each group's metadata is in the group. With 16: all in the first, with adjacent bitmaps.
    #[test]
    fn flex_groups_bring_metadata_together() {
        assert_eq!(metadata_of(5, 1).0, 5 * GROUP_SECTORS + 2 * BLOCK);
        assert_eq!(metadata_of(5, 16).0, 2 * BLOCK + 5 * BLOCK);
        assert_eq!(metadata_of(6, 16).0 - metadata_of(5, 16).0, BLOCK);
        assert_eq!(metadata_of(20, 16).0, 16 * GROUP_SECTORS + 2 * BLOCK + 4 * BLOCK);
    }
}
