//! The log: the list of buds (LEBs of the journal). It is circular within its area; each LEB is unmapped before it is
//! reused.

use media::Leb;
use ubi::{Volume, VolumeError};

use super::buffers::HeadKind;
use crate::file_system::Ubifs;
use crate::format::{CommitStart, LOG_LEB, LogReference, pad};
use crate::scan::to_usize;

/// A bud: a LEB of the journal, from an offset on.
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
    /// LEB of the next node; `offset` is the position in it.
    head: u32,
    offset: u32,
    /// First LEB of the log as of the last commit.
    pub(super) tail: u32,
    pub(super) buds: Vec<Bud>,
}

/// Pads log nodes to whole write units.
pub(super) fn unit(bytes: Vec<u8>, min_io_bytes: u32) -> Vec<u8> {
    let mut bytes = bytes;
    let end = bytes.len().next_multiple_of(8);
    bytes.resize(end, 0);
    bytes.resize(end.next_multiple_of(to_usize(min_io_bytes)), 0);
    pad(&mut bytes[end..]);
    bytes
}

impl Log {
    /// The log that a replay read. The next commit starts in the LEB behind it.
    pub(super) fn of(ubifs: &Ubifs) -> Self {
        let (superblock, tail) = (&ubifs.superblock, ubifs.master.log_leb);
        Self {
            lebs: superblock.log_lebs,
            leb_bytes: superblock.leb_bytes,
            min_io_bytes: superblock.min_io_bytes,
            head: ubifs.report.log_lebs.last().copied().unwrap_or(tail),
            // Treated as full, so that the next node goes to a new LEB.
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

    /// Whether no LEB is left in which a commit could start.
    pub(super) const fn is_full(&self) -> bool {
        self.next(self.head) == self.tail
    }

    /// Whether a reference fits and the next commit still has a LEB to start in.
    pub(super) fn has_room(&self) -> bool {
        let next = self.next(self.head);
        let unit = 64_u32.next_multiple_of(self.min_io_bytes);
        match self.offset + unit <= self.leb_bytes {
            true => next != self.tail,
            false => next != self.tail && self.next(next) != self.tail,
        }
    }

    /// Size of the journal; each bud counts up to the end of its LEB.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.buds
            .iter()
            .map(|bud| u64::from(self.leb_bytes - bud.start))
            .sum()
    }

    /// Adds a bud to the journal.
    pub(super) fn add(&mut self, volume: &dyn Volume, bud: Bud, sequence: u64) -> Result<(), VolumeError> {
        let node = reference(bud, sequence);
        let raw = unit(node, self.min_io_bytes);
        let bytes = u32::try_from(raw.len()).expect("a unit");
        if self.offset + bytes > self.leb_bytes {
            self.head = self.next(self.head);
            self.offset = 0;
            volume.unmap(Leb(self.head))?;
        }
        // Old content of the LEB must not reappear behind the reference.
        if bud.start == 0 {
            volume.unmap(Leb(bud.leb))?;
            volume.map(Leb(bud.leb))?;
        }
        volume.write(Leb(self.head), self.offset, &raw)?;
        self.offset += bytes;
        self.buds.push(bud);
        Ok(())
    }

    /// Starts a commit in the next LEB, with references to the positions of the heads. Returns that LEB.
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

    /// Ends a commit that is on the medium: the log starts at `start`, and the journal consists of the heads. Returns
    /// the LEBs of the log that became obsolete.
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
