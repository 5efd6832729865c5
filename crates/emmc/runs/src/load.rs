//! The load of a run: a named one, an application, or the requests of a trace.

use std::path::{Path, PathBuf};

use emmc::block::Bio;
use emmc::paper::Mixes;
use emmc::workload::{
    Actor, DirectRules, JournalRules, Order, Pace, PostmarkRules, RandomFileRules, ReaderRules, StreamRules,
    TracedBio, WRITE_CHUNK_PAGES, background_reads, direct, in_context, postmark, random_files, replay,
    stream,
};
use formats::{BadLines, ReadOptions, Skipped, TraceItem};
use media::Nanos;
use results::block_trace::{Operation, RequestFlags};
use results::call_trace::Action;

use crate::RunError;

/// Start of the data of loads with files, in sectors: after metadata and journal.
const DATA_START: u64 = 1 << 19;

/// Files that other programs read: first sector and sectors.
const OTHER_FILES: (u64, u64) = (160 << 11, 96 << 11);

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Sequential writes through the page cache, with a journal.
    TioSeq,
    /// Random writes through the page cache, by four threads.
    TioRand,
    /// Random direct writes.
    RandomWrite,
    /// Random direct reads.
    RandomRead,
    /// Sequential direct writes.
    SequentialWrite,
    /// The transactions of PostMark on ext4.
    Postmark,
    /// An application: a drive synchronisation.
    GoogleDrive,
    /// An application: the installation of many others.
    AppInstall,
}

impl Load {
    /// Names and help texts.
    pub const WORDS: [(Self, &str, &str); 8] = [
        (
            Self::TioSeq,
            "tio-seq",
            "2 GiB sequentially through the page cache, with a journal",
        ),
        (
            Self::TioRand,
            "tio-rand",
            "2 GiB in 4 KiB through the page cache, by 4 threads, each at random in its own file",
        ),
        (Self::RandomWrite, "random-write", "Random direct writes"),
        (Self::RandomRead, "random-read", "Random direct reads"),
        (
            Self::SequentialWrite,
            "sequential-write",
            "Sequential direct writes",
        ),
        (
            Self::Postmark,
            "postmark",
            "5,000 files of 1 MB and 10,000 transactions on ext4 with flex groups",
        ),
        (
            Self::GoogleDrive,
            "google-drive",
            "Requests of a drive synchronisation to the phone",
        ),
        (
            Self::AppInstall,
            "app-install",
            "Requests of the installation of many applications",
        ),
    ];

    /// Name of the load.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(load, ..)| *load == self);
        found.map_or("", |(_, word, _)| word)
    }
}

/// A load and its amounts.
#[derive(Clone, Debug)]
pub struct LoadRules {
    /// The load.
    pub load: Load,
    /// Block trace to replay instead.
    pub replay: Option<PathBuf>,
    /// Whether requests of a trace or application are issued at their recorded times.
    pub traced_pace: bool,
    /// Bytes to write or read in all.
    pub size: Option<u64>,
    /// Bytes of a direct request.
    pub block: u64,
    /// Bytes of the card that direct loads use.
    pub range: Option<u64>,
    /// Outstanding requests of a task.
    pub depth: u32,
    /// Number of tasks of direct loads.
    pub tasks: u16,
    /// Block groups per flex group.
    pub flex_groups: u64,
    /// Time between two journal commits; 0 for none.
    pub commit_every: Nanos,
    /// Mean time between two reads of other programs; 0 for none.
    pub reads_every: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
}

impl LoadRules {
    /// Tasks that make the load on a card of `card_sectors` with `contexts` contexts. Each task has its own context;
    /// in a replay each process has one, and `left_out` gets what can't be replayed.
    ///
    /// # Errors
    /// [`RunError`] when the load does not fit the card.
    pub fn actors(
        &self,
        card_sectors: u64,
        contexts: u32,
        left_out: impl FnOnce(&LeftOut),
    ) -> Result<Vec<Box<dyn Actor>>, RunError> {
        let has_size = match self.load {
            Load::Postmark | Load::GoogleDrive | Load::AppInstall => false,
            _ => self.replay.is_none(),
        };
        if self.size.is_some() && !has_size {
            return Err(RunError::FixedSize);
        }
        if let Some(path) = &self.replay {
            let (requests, unknown) = read_trace(path, card_sectors, contexts)?;
            left_out(&unknown);
            return Ok(vec![replay(requests, self.pace())]);
        }
        let mut actors = self.tasks(card_sectors)?;
        if self.reads_every > Nanos::ZERO && matches!(self.load, Load::TioSeq | Load::TioRand) {
            actors.push(background_reads(ReaderRules {
                every: self.reads_every,
                sectors: 32,
                start: OTHER_FILES.0,
                range: OTHER_FILES.1,
                seed: self.seed,
            }));
        }
        Ok(match contexts {
            0 => actors,
            _ => (0..)
                .zip(actors)
                .map(|(number, actor)| in_context(actor, context_of(number, contexts)))
                .collect(),
        })
    }

    fn tasks(&self, card_sectors: u64) -> Result<Vec<Box<dyn Actor>>, RunError> {
        let bytes = self.size.unwrap_or(2 << 30);
        let needed = match self.load {
            Load::TioSeq | Load::TioRand => DATA_START * 512 + bytes,
            _ => 0,
        };
        if needed > card_sectors * 512 {
            return Err(RunError::CardTooSmall {
                needed,
                has: card_sectors * 512,
            });
        }
        let least = match self.load {
            Load::TioSeq => 4096,
            Load::TioRand => 4 * 4096,
            Load::RandomWrite | Load::RandomRead | Load::SequentialWrite => {
                self.block.saturating_mul(u64::from(self.tasks))
            }
            _ => 0,
        };
        if bytes < least {
            return Err(RunError::TooFewBytes { bytes, least });
        }
        let journal = JournalRules {
            interval: self.commit_every,
            ..JournalRules::ext4(self.seed)
        };
        Ok(match self.load {
            Load::TioSeq => stream(StreamRules {
                total_bytes: bytes / 4096 * 4096,
                start: DATA_START,
                chunk_bytes: 4 << 20,
                memory_bytes_per_s: 200_000_000,
                dirty_bytes: 64 << 20,
                journal,
            }),
            Load::TioRand => random_files(RandomFileRules {
                files: 4,
                file_bytes: (bytes / 4).max(4096),
                pages: bytes / 4 / 4096,
                start: DATA_START,
                batch: WRITE_CHUNK_PAGES,
                page_time: Nanos::from_micros(10),
                journal,
                seed: self.seed,
            }),
            Load::RandomWrite => self.direct(card_sectors, bytes, Operation::Write, Order::Random)?,
            Load::RandomRead => self.direct(card_sectors, bytes, Operation::Read, Order::Random)?,
            Load::SequentialWrite => self.direct(card_sectors, bytes, Operation::Write, Order::Sequential)?,
            Load::Postmark => postmark(PostmarkRules {
                files: 5000,
                file_bytes: 1_000_000,
                transactions: 10_000,
                flex_groups: self.flex_groups,
                groups: (card_sectors >> 18).max(1),
                interval: Nanos::from_millis(5000),
                seed: self.seed,
            }),
            Load::GoogleDrive => vec![replay(application("google-drive", self.seed)?, self.pace())],
            Load::AppInstall => vec![replay(application("app-install", self.seed)?, self.pace())],
        })
    }

    fn direct(
        &self,
        card_sectors: u64,
        bytes: u64,
        operation: Operation,
        order: Order,
    ) -> Result<Vec<Box<dyn Actor>>, RunError> {
        let sectors = self.block / 512;
        let range = self.range.map_or(card_sectors, |bytes| bytes / 512);
        if !self.block.is_multiple_of(512) {
            return Err(RunError::Block(self.block));
        }
        if sectors == 0 || sectors > range || range > card_sectors {
            return Err(RunError::Range {
                block: self.block,
                range,
                card_sectors,
            });
        }
        let task = |number: u16| {
            direct(DirectRules {
                operation,
                order,
                sectors,
                piece_sectors: 1024,
                count: bytes / self.block / u64::from(self.tasks),
                start: 0,
                range,
                depth: self.depth,
                seed: self.seed + u64::from(number),
            })
        };
        Ok((0..self.tasks).map(task).collect())
    }

    const fn pace(&self) -> Pace {
        if self.traced_pace {
            Pace::Traced
        } else {
            Pace::Depth(self.depth)
        }
    }
}

/// The requests of an application of `tidegate bench app`, as the eMMC driver saw them: already merged.
///
/// # Errors
/// [`RunError`] when there is no such application.
pub fn application(name: &str, seed: u64) -> Result<Vec<TracedBio>, RunError> {
    let application =
        bench::app::application(name).ok_or_else(|| RunError::NoApplication(name.to_owned()))?;
    let trace = application.generate(seed, bench::app::Scale::WHOLE)?;
    let requests = trace.calls.iter().filter_map(|call| {
        let (operation, offset, bytes) = match call.action {
            Action::BlockRead { offset, bytes } => (Operation::Read, offset, bytes),
            Action::BlockWrite { offset, bytes } => (Operation::Write, offset, bytes),
            Action::BlockDiscard { offset, bytes } => (Operation::Discard, offset, bytes),
            Action::BlockFlush => (Operation::Flush, 0, 0),
            _ => return None,
        };
        let bio = Bio {
            sector: offset / 512,
            sectors: bytes / 512,
            operation,
            flags: RequestFlags::NOMERGE,
            context: 0,
        };
        Some(TracedBio {
            at: Nanos(call.at_ns),
            bio,
        })
    });
    Ok(requests.collect())
}

/// The loads of the study that the generator of applications makes.
///
/// # Errors
/// [`RunError`] when the generator refuses.
pub fn mixes(seed: u64) -> Result<Mixes, RunError> {
    Ok(Mixes {
        google_drive: application("google-drive", seed)?,
        app_install: application("app-install", seed)?,
    })
}

/// The context, from 1 on, of a task or process with this number, from 0 on; 0 without contexts.
fn context_of(number: u64, contexts: u32) -> u8 {
    let place = number
        .checked_rem(u64::from(contexts))
        .map_or(0, |place| place + 1);
    u8::try_from(place).unwrap_or_default()
}

/// Parts of a trace that a card can't replay.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Requests beyond the card, or of a kind that it does not know.
    pub requests: u64,
    /// Lines that can't be read.
    pub lines: Skipped,
}

/// The requests of a block trace, and what is left out.
fn read_trace(path: &Path, card_sectors: u64, contexts: u32) -> Result<(Vec<TracedBio>, LeftOut), RunError> {
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Skip,
    };
    let mut source = formats::open(path, options)?;
    let (mut requests, mut beyond) = (Vec::new(), 0_u64);
    let mut processes: Vec<u32> = Vec::new();
    while let Some(item) = source.next_item()? {
        let TraceItem::Request(request) = item else {
            continue;
        };
        let known = matches!(
            request.operation,
            Operation::Read | Operation::Write | Operation::Flush | Operation::Discard
        );
        if !known || request.end_sector() > card_sectors {
            beyond += 1;
            continue;
        }
        let context = match &request.submitter {
            Some(process) if contexts > 0 && request.operation == Operation::Write => {
                let known = processes.iter().position(|known| *known == process.pid);
                let number = known.unwrap_or(processes.len());
                if known.is_none() {
                    processes.push(process.pid);
                }
                context_of(u64::try_from(number).unwrap_or_default(), contexts)
            }
            _ => 0,
        };
        requests.push(TracedBio {
            at: Nanos(request.queued_ns.or(request.first_ns()).unwrap_or_default()),
            bio: Bio {
                sector: request.sector,
                sectors: request.bytes.div_ceil(512),
                operation: request.operation,
                flags: request.flags,
                context,
            },
        });
    }
    requests.sort_by_key(|request| request.at);
    let left_out = LeftOut {
        requests: beyond,
        lines: source.skipped().cloned().unwrap_or_default(),
    };
    Ok((requests, left_out))
}
