//! The load of a run: a named one, or the requests of a trace.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use emmc::block::Bio;
use emmc::workload::{
    Actor, DirectRules, JournalRules, Order, Pace, PostmarkRules, RandomFileRules, ReaderRules, StreamRules,
    TracedBio, WRITE_CHUNK_PAGES, background_reads, direct, in_context, postmark, random_files, replay,
    stream,
};
use formats::{ReadOptions, TraceItem};
use media::Nanos;
use results::block_trace::{Operation, RequestFlags};
use results::call_trace::Action;

use crate::quantity::{parse_bytes, parse_nanos};

/// Start of the data of loads with files, in sectors: after metadata and journal.
const DATA_START: u64 = 1 << 19;

/// Files that other programs read: first sector and sectors.
const OTHER_FILES: (u64, u64) = (160 << 11, 96 << 11);

/// Flags of the load.
#[derive(Args, Debug)]
pub struct LoadArguments {
    /// Load
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value = "tio-rand",
        help_heading = "Load"
    )]
    pub load: LoadWord,
    /// Replay the requests of this block trace instead of a load, in any format that `tidegate trace` reads
    #[arg(long, value_name = "TRACE", help_heading = "Load")]
    pub replay: Option<std::path::PathBuf>,
    /// Issue the requests of a trace or application at their recorded times [default: as fast as the card can]
    #[arg(long, help_heading = "Load")]
    pub traced_pace: bool,
    /// Bytes to write (or read) in all; postmark, applications and replays have their own [default: as in the study, 2 GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Load")]
    pub size: Option<u64>,
    /// Size of one request (random-write, random-read, sequential-write)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4k", help_heading = "Load")]
    pub block: u64,
    /// Size of the part of the card that direct loads use [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Load")]
    pub range: Option<u64>,
    /// Number of outstanding requests (direct loads, replay)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Load")]
    pub depth: u32,
    /// Number of tasks, each with its share of the bytes and with --depth requests (direct loads)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Load")]
    pub tasks: u16,
    /// Number of block groups per flex group (postmark)
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64), help_heading = "Load")]
    pub flex_groups: u64,
    /// Time between two journal commits caused by syncs of programs (tio loads); 0 for none
    #[arg(long, value_name = "DURATION", value_parser = parse_nanos, default_value = "5s", help_heading = "Load")]
    pub commit_every: Nanos,
    /// Mean time between two reads of 16 KiB by other programs, in the background of the tio loads; 0 for none
    #[arg(long, value_name = "DURATION", value_parser = parse_nanos, default_value = "0", help_heading = "Load")]
    pub reads_every: Nanos,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,
    /// Size of the part of the card, from its start, that counts as written before the run; takes no time [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Load")]
    pub written: Option<u64>,
    /// Bytes overwritten before the run, in random units of 4 KiB of the whole card: a used card; takes no time [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Load")]
    pub rewritten: Option<u64>,
}

/// Named loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadWord {
    /// 2 GiB sequentially through the page cache, with a journal
    TioSeq,
    /// 2 GiB in 4 KiB through the page cache, by 4 threads, each at random in its own file
    TioRand,
    /// Random direct writes
    RandomWrite,
    /// Random direct reads
    RandomRead,
    /// Sequential direct writes
    SequentialWrite,
    /// 5,000 files of 1 MB and 10,000 transactions on ext4 with flex groups
    Postmark,
    /// Requests of a drive synchronisation to the phone
    GoogleDrive,
    /// Requests of the installation of many applications
    AppInstall,
}

impl LoadArguments {
    /// Tasks that make the load on a card of `card_sectors` with `contexts` contexts. Each task has its own context;
    /// in a replay each process has one.
    pub fn actors(&self, card_sectors: u64, contexts: u32) -> Result<Vec<Box<dyn Actor>>> {
        let has_size = match self.load {
            LoadWord::Postmark | LoadWord::GoogleDrive | LoadWord::AppInstall => false,
            _ => self.replay.is_none(),
        };
        if self.size.is_some() && !has_size {
            bail!("--size has no effect on postmark, on applications and on a replay: leave it out");
        }
        if let Some(path) = &self.replay {
            return Ok(vec![replay(
                read_trace(path, card_sectors, contexts)?,
                self.pace(),
            )]);
        }
        let mut actors = self.tasks(card_sectors)?;
        if self.reads_every > Nanos::ZERO && matches!(self.load, LoadWord::TioSeq | LoadWord::TioRand) {
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

    fn tasks(&self, card_sectors: u64) -> Result<Vec<Box<dyn Actor>>> {
        let bytes = self.size.unwrap_or(2 << 30);
        let needed = match self.load {
            LoadWord::TioSeq | LoadWord::TioRand => DATA_START * 512 + bytes,
            _ => 0,
        };
        if needed > card_sectors * 512 {
            bail!(
                "the load needs {needed} bytes of the card, which has {}; take a smaller --size or another --card",
                card_sectors * 512
            );
        }
        let least = match self.load {
            LoadWord::TioSeq => 4096,
            LoadWord::TioRand => 4 * 4096,
            LoadWord::RandomWrite | LoadWord::RandomRead | LoadWord::SequentialWrite => {
                self.block.saturating_mul(u64::from(self.tasks))
            }
            _ => 0,
        };
        if bytes < least {
            bail!("--size {bytes} is less than one request of each task: take {least} or more");
        }
        let journal = JournalRules {
            interval: self.commit_every,
            ..JournalRules::ext4(self.seed)
        };
        Ok(match self.load {
            LoadWord::TioSeq => stream(StreamRules {
                total_bytes: bytes / 4096 * 4096,
                start: DATA_START,
                chunk_bytes: 4 << 20,
                memory_bytes_per_s: 200_000_000,
                dirty_bytes: 64 << 20,
                journal,
            }),
            LoadWord::TioRand => random_files(RandomFileRules {
                files: 4,
                file_bytes: (bytes / 4).max(4096),
                pages: bytes / 4 / 4096,
                start: DATA_START,
                batch: WRITE_CHUNK_PAGES,
                page_time: Nanos::from_micros(10),
                journal,
                seed: self.seed,
            }),
            LoadWord::RandomWrite => self.direct(card_sectors, bytes, Operation::Write, Order::Random)?,
            LoadWord::RandomRead => self.direct(card_sectors, bytes, Operation::Read, Order::Random)?,
            LoadWord::SequentialWrite => {
                self.direct(card_sectors, bytes, Operation::Write, Order::Sequential)?
            }
            LoadWord::Postmark => postmark(PostmarkRules {
                files: 5000,
                file_bytes: 1_000_000,
                transactions: 10_000,
                flex_groups: self.flex_groups,
                groups: (card_sectors >> 18).max(1),
                interval: Nanos::from_millis(5000),
                seed: self.seed,
            }),
            LoadWord::GoogleDrive => vec![replay(application("google-drive", self.seed)?, self.pace())],
            LoadWord::AppInstall => vec![replay(application("app-install", self.seed)?, self.pace())],
        })
    }

    fn direct(
        &self,
        card_sectors: u64,
        bytes: u64,
        operation: Operation,
        order: Order,
    ) -> Result<Vec<Box<dyn Actor>>> {
        let sectors = self.block / 512;
        let range = self.range.map_or(card_sectors, |bytes| bytes / 512);
        if !self.block.is_multiple_of(512) {
            bail!("--block {} is no multiple of a sector, 512 bytes", self.block);
        }
        if sectors == 0 || sectors > range || range > card_sectors {
            bail!(
                "writes of {} bytes in a range of {range} sectors do not fit the card of {card_sectors} sectors; \
                 choose another --block or --range",
                self.block
            );
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
pub fn application(name: &str, seed: u64) -> Result<Vec<TracedBio>> {
    let application =
        bench::app::application(name).with_context(|| format!("there is no application {name:?}"))?;
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

/// The context, from 1 on, of a task or process with this number, from 0 on; 0 without contexts.
fn context_of(number: u64, contexts: u32) -> u8 {
    let place = number
        .checked_rem(u64::from(contexts))
        .map_or(0, |place| place + 1);
    u8::try_from(place).unwrap_or_default()
}

/// The requests of a block trace; those beyond the card are dropped with a message.
fn read_trace(path: &std::path::Path, card_sectors: u64, contexts: u32) -> Result<Vec<TracedBio>> {
    let options = ReadOptions {
        format: None,
        bad_lines: formats::BadLines::Skip,
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
    if beyond > 0 {
        crate::output::print_error(&format!(
            "{beyond} requests are left out: beyond the card, or of a kind that it does not know"
        ));
    }
    if let Some(skipped) = source.skipped() {
        crate::trace_command::input::describe_skipped(skipped);
    }
    requests.sort_by_key(|request| request.at);
    Ok(requests)
}
