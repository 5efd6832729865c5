//! Buffered writes through a page cache, as seen by the block layer: tio_seq and tio_rand of seeds/002 section 3.3.
//!
//! A writer dirties pages at memory speed up to the dirty limit; write-back submits them to the block layer in
//! chunks. Meanwhile a journal commits every five seconds (a sync write, a flush, a commit block with FUA), and the
//! file system writes its own blocks in place, one by one.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::random::Random;
use super::{Actor, Step, TaskKind, View, write};
use crate::block::Bio;

const PAGE_SECTORS: u64 = 8;

/// Pages that a writer writes back at a time on a phone with 1 GB and Linux 3.0: one and a half times `ratelimit_pages`,
/// which `writeback_set_ratelimit` limits to 1024 there.
pub const WRITE_CHUNK_PAGES: u64 = 1536;

/// A stream through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRules {
    /// Total bytes.
    pub total_bytes: u64,
    /// First sector of the file.
    pub start: u64,
    /// Bytes per write-back chunk: 1024 pages in Linux 3.0.
    pub chunk_bytes: u64,
    /// Speed at which the program dirties pages, bytes per second.
    pub memory_bytes_per_s: u64,
    /// Dirty limit in bytes.
    pub dirty_bytes: u64,
    /// Metadata writes of the file system.
    pub journal: JournalRules,
}

/// Metadata writes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRules {
    /// Commit interval; zero for no journal.
    pub interval: Nanos,
    /// Blocks per commit.
    pub blocks: u64,
    /// Interval of in-place block writes; zero for none.
    pub in_place: Nanos,
    /// First sector of the metadata.
    pub metadata_start: u64,
    /// Sectors of the metadata.
    pub metadata_range: u64,
    /// First sector of the journal.
    pub journal_start: u64,
    /// Sectors of the journal.
    pub journal_range: u64,
    /// Seed.
    pub seed: u64,
}

impl JournalRules {
    /// ext4 as mounted by Android: a commit every 5 s (published default), 6 blocks (assumed), one block in place per
    /// second (assumed: at each wake-up of the flusher, every 5 s, a growing file's inode, bitmap, group descriptor and
    /// extents, and one more), metadata and journal before the data.
    #[must_use]
    pub const fn ext4(seed: u64) -> Self {
        Self {
            interval: Nanos::from_millis(5000),
            blocks: 6,
            in_place: Nanos::from_millis(1000),
            metadata_start: 0,
            metadata_range: 32 << 11,
            journal_start: 32 << 11,
            journal_range: 128 << 11,
            seed,
        }
    }

    fn actors(self) -> Vec<Box<dyn Actor>> {
        let mut actors: Vec<Box<dyn Actor>> = Vec::new();
        if self.interval > Nanos::ZERO {
            actors.push(Box::new(Journal {
                rules: self,
                at: 0,
                phase: 0,
                next: self.interval,
            }));
        }
        if self.in_place > Nanos::ZERO {
            actors.push(Box::new(InPlace {
                rules: self,
                random: Random::named(self.seed, "metadata"),
                next: self.in_place,
                due: false,
            }));
        }
        actors
    }
}

/// tio_seq: the writer with write-back, and the file system's own writes.
#[must_use]
pub fn stream(rules: StreamRules) -> Vec<Box<dyn Actor>> {
    let mut actors: Vec<Box<dyn Actor>> = vec![Box::new(Stream {
        rules,
        given: 0,
        chunk_end: 0,
    })];
    actors.extend(rules.journal.actors());
    actors
}

struct Stream {
    rules: StreamRules,
    given: u64,
    chunk_end: u64,
}

impl Actor for Stream {
    fn step(&mut self, view: &View) -> Step {
        let rules = &self.rules;
        if self.given == rules.total_bytes {
            return if view.outstanding > 0 {
                Step::WaitBelow(0)
            } else {
                Step::Done
            };
        }
        if self.given < self.chunk_end {
            let sector = rules.start + self.given / 512;
            let piece = (self.chunk_end - self.given).min(PAGE_SECTORS * 512);
            self.given += piece;
            return Step::Submit(write(sector, piece / 512, RequestFlags::default()));
        }
        let chunk_end = (self.given + rules.chunk_bytes).min(rules.total_bytes);
        if chunk_end > view.done_bytes + rules.dirty_bytes && view.outstanding > 0 {
            // The dirty limit is reached: the writer continues when more pages are clean.
            return Step::WaitBelow(view.outstanding - 1);
        }
        let made = u128::from(view.now.0) * u128::from(rules.memory_bytes_per_s) / 1_000_000_000;
        if made < u128::from(chunk_end) {
            let at = u128::from(chunk_end) * 1_000_000_000 / u128::from(rules.memory_bytes_per_s.max(1)) + 1;
            return Step::SleepUntil(Nanos(u64::try_from(at).unwrap_or(u64::MAX)));
        }
        self.chunk_end = chunk_end;
        Step::SleepUntil(view.now)
    }
}

/// Random writes to files through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomFileRules {
    /// Number of files, each with a thread.
    pub files: u16,
    /// Bytes per file.
    pub file_bytes: u64,
    /// Pages that each thread writes.
    pub pages: u64,
    /// First sector of the first file.
    pub start: u64,
    /// Pages that a thread dirties before it writes some back: [`WRITE_CHUNK_PAGES`] in Linux 3.0.
    pub batch: u64,
    /// Time to dirty a page.
    pub page_time: Nanos,
    /// Metadata writes of the file system.
    pub journal: JournalRules,
    /// Seed.
    pub seed: u64,
}

/// tio_rand: one thread per file, which writes back its own dirty pages in offset order.
#[must_use]
pub fn random_files(rules: RandomFileRules) -> Vec<Box<dyn Actor>> {
    let mut actors: Vec<Box<dyn Actor>> = (0..rules.files)
        .map(|file| {
            let start = rules.start + u64::from(file) * rules.file_bytes / 512;
            Box::new(RandomFile {
                rules,
                start,
                random: Random::named(rules.seed, &format!("file {file}")),
                batch: Vec::new(),
                made: 0,
            })
        })
        .map(|actor| -> Box<dyn Actor> { actor })
        .collect();
    actors.extend(rules.journal.actors());
    actors
}

struct RandomFile {
    rules: RandomFileRules,
    start: u64,
    random: Random,
    /// Pages to write, the next one last.
    batch: Vec<u64>,
    made: u64,
}

impl Actor for RandomFile {
    fn step(&mut self, view: &View) -> Step {
        if let Some(page) = self.batch.pop() {
            let sector = self.start + page * PAGE_SECTORS;
            return Step::Submit(write(sector, PAGE_SECTORS, RequestFlags::default()));
        }
        if self.made == self.rules.pages {
            return if view.outstanding > 0 {
                Step::WaitBelow(0)
            } else {
                Step::Done
            };
        }
        let count = self.rules.batch.min(self.rules.pages - self.made);
        let pages = self.rules.file_bytes / (PAGE_SECTORS * 512);
        self.made += count;
        self.batch = (0..count).map(|_| self.random.below(pages)).collect();
        self.batch.sort_unstable_by(|one, other| other.cmp(one));
        self.batch.dedup();
        Step::SleepUntil(view.now + self.rules.page_time.times(count))
    }
}

/// A journal: a sync write, a flush, the commit block.
struct Journal {
    rules: JournalRules,
    at: u64,
    phase: u8,
    next: Nanos,
}

impl Actor for Journal {
    fn step(&mut self, view: &View) -> Step {
        let sectors = self.rules.blocks * PAGE_SECTORS;
        if self.at + sectors + PAGE_SECTORS > self.rules.journal_range {
            self.at = 0;
        }
        let place = self.rules.journal_start + self.at;
        self.phase += 1;
        match self.phase {
            1 => Step::SleepUntil(self.next),
            2 => {
                self.at += sectors;
                Step::Submit(write(place, sectors, RequestFlags::SYNC))
            }
            4 => Step::Submit(Bio {
                sector: 0,
                sectors: 0,
                operation: Operation::Flush,
                flags: RequestFlags::PREFLUSH.with(RequestFlags::SYNC),
                context: 0,
            }),
            6 => {
                self.at += PAGE_SECTORS;
                let flags = RequestFlags::SYNC.with(RequestFlags::FUA);
                Step::Submit(write(place, PAGE_SECTORS, flags))
            }
            8 => {
                self.phase = 0;
                self.next = Nanos((self.next + self.rules.interval).0.max(view.now.0));
                Step::SleepUntil(view.now)
            }
            _ => Step::WaitBelow(0),
        }
    }

    fn kind(&self) -> TaskKind {
        TaskKind::Background
    }
}

/// Asynchronous in-place writes of file system blocks.
struct InPlace {
    rules: JournalRules,
    random: Random,
    next: Nanos,
    due: bool,
}

impl Actor for InPlace {
    fn step(&mut self, _: &View) -> Step {
        self.due = !self.due;
        if self.due {
            return Step::SleepUntil(self.next);
        }
        self.next += self.rules.in_place;
        let blocks = self.rules.metadata_range / PAGE_SECTORS;
        let sector = self.rules.metadata_start + self.random.below(blocks) * PAGE_SECTORS;
        Step::Submit(write(sector, PAGE_SECTORS, RequestFlags::default()))
    }

    fn kind(&self) -> TaskKind {
        TaskKind::Background
    }
}
