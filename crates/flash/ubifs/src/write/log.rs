//! The log: which LEBs the journal has. It goes round in its area; each LEB of it is unmapped before it is written again.

use media::Leb;
use ubi::{Volume, VolumeError};

use super::buffers::HeadKind;
use crate::file_system::Ubifs;
use crate::format::{CommitStart, LOG_LEB, LogReference, pad};
use crate::scan::to_usize;

/// A LEB of the journal, from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bud {
    pub(super) leb: u32,
    pub(super) start: u32,
    pub(super) head: HeadKind,
}

/// The log.
pub(super) struct Log {
    lebs: u32,
    leb_bytes: u32,
    min_io_bytes: u32,
    /// Where the next node goes.
    head: u32,
    offset: u32,
    /// Where the log of the last commit starts.
    pub(super) tail: u32,
    pub(super) buds: Vec<Bud>,
}

/// Units of bytes that the log was last written in.
pub(super) fn unit(bytes: Vec<u8>, min_io_bytes: u32) -> Vec<u8> {
    let mut bytes = bytes;
    let end = bytes.len().next_multiple_of(8);
    bytes.resize(end, 0);
    bytes.resize(end.next_multiple_of(to_usize(min_io_bytes)), 0);
    pad(&mut bytes[end..]);
    bytes
}

impl Log {
    /// The log that a replay read: the next commit starts in the LEB behind it.
    pub(super) fn of(ubifs: &Ubifs) -> Self {
        let (superblock, tail) = (&ubifs.superblock, ubifs.master.log_leb);
        Self {
            lebs: superblock.log_lebs,
            leb_bytes: superblock.leb_bytes,
            min_io_bytes: superblock.min_io_bytes,
            head: ubifs.report.log_lebs.last().copied().unwrap_or(tail),
            // As if it were full.
            offset: superblock.leb_bytes,
            tail,
            buds: Vec::new(),
        }
    }

    const fn next(&self, leb: u32) -> u32 {
        match leb + 1 == LOG_LEB + self.lebs {
            true => LOG_LEB,
            false => leb + 1,
        }
    }

    /// Whether no LEB is left for a commit to start in.
    pub(super) const fn is_full(&self) -> bool {
        self.next(self.head) == self.tail
    }

    /// Whether a reference can be added, and the next commit still has a LEB to start in.
    pub(super) fn has_room(&self) -> bool {
        let next = self.next(self.head);
        let unit = 64_u32.next_multiple_of(self.min_io_bytes);
        match self.offset + unit <= self.leb_bytes {
            true => next != self.tail,
            false => next != self.tail && self.next(next) != self.tail,
        }
    }

    /// Bytes of the journal, each bud counted to the end of its LEB.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.buds
            .iter()
            .map(|bud| u64::from(self.leb_bytes - bud.start))
            .sum()
    }

    /// Adds a LEB to the journal.
    pub(super) fn add(&mut self, volume: &dyn Volume, bud: Bud, sequence: u64) -> Result<(), VolumeError> {
        let node = reference(bud, sequence);
        let raw = unit(node, self.min_io_bytes);
        let bytes = u32::try_from(raw.len()).expect("a unit");
        if self.offset + bytes > self.leb_bytes {
            self.head = self.next(self.head);
            self.offset = 0;
            volume.unmap(Leb(self.head))?;
        }
        // An old content of the LEB must not come back behind the reference.
        if bud.start == 0 {
            volume.unmap(Leb(bud.leb))?;
            volume.map(Leb(bud.leb))?;
        }
        volume.write(Leb(self.head), self.offset, &raw)?;
        self.offset += bytes;
        self.buds.push(bud);
        Ok(())
    }

    /// Starts a commit in the next LEB, with references to where the heads are. Returns that LEB.
    pub(super) fn start_commit(
        &mut self,
        volume: &dyn Volume,
        commit: u64,
        heads: &[Bud],
        sequences: &mut dyn FnMut() -> u64,
    ) -> Result<u32, VolumeError> {
        let mut raw = CommitStart { commit }.encode(sequences());
        for bud in heads {
            raw.extend_from_slice(&reference(*bud, sequences()));
        }
        let raw = unit(raw, self.min_io_bytes);
        self.head = self.next(self.head);
        volume.unmap(Leb(self.head))?;
        volume.write(Leb(self.head), 0, &raw)?;
        self.offset = u32::try_from(raw.len()).expect("less than a LEB");
        Ok(self.head)
    }

    /// The commit is on the medium: the log starts at `start`, the journal has the heads alone. Returns the LEBs of the log
    /// that are of no use any more.
    pub(super) fn end_commit(&mut self, start: u32, heads: Vec<Bud>) -> Vec<u32> {
        let mut old = Vec::new();
        while self.tail != start {
            old.push(self.tail);
            self.tail = self.next(self.tail);
        }
        self.buds = heads;
        old
    }
}

fn reference(bud: Bud, sequence: u64) -> Vec<u8> {
    let node = LogReference {
        leb: bud.leb,
        offset: bud.start,
        head: bud.head.number(),
    };
    node.encode(sequence)
}
