//! Builds card, host, scheduler and driver from flags and from the files that they name.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use emmc::block::{CfqRules, DeviceKind, QueueRules, RampUp, SchedulerKind};
use emmc::card::{CardFile, TranslationKind};
use emmc::host::HostFile;
use emmc::packing::{Contiguity, PackReads, PackRules, ReliableWrites, StopOrder};
use emmc::simulation::{DiscardMode, DriverMode, Setup};

/// Flags of the whole stack below a load.
#[derive(Args, Debug)]
pub struct SetupArguments {
    /// Card: a name from `tidegate emmc presets`, or a file NAME.toml
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "gt-i9300",
        help_heading = "Card"
    )]
    pub card: String,
    #[command(flatten)]
    pub device: DeviceArguments,

    /// Scheduler: noop, deadline, cfq (Linux 3.0), none, mq-deadline (Linux 4.11 to 6.4)
    #[arg(long, value_name = "NAME", value_parser = scheduler_parser(), default_value = "cfq", help_heading = "Block layer")]
    pub scheduler: SchedulerKind,
    /// Maximum number of requests of one queue in the driver while other queues are busy (cfq)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Block layer")]
    pub cfq_quantum: u32,
    /// Ramp up async writes slowly after late sync requests (cfq low_latency)
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "on",
        help_heading = "Block layer"
    )]
    pub cfq_low_latency: OnOff,
    /// Treat the card as a disk, for which cfq idles after sync requests even if it queues requests (queue/rotational)
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "off",
        help_heading = "Block layer"
    )]
    pub cfq_rotational: OnOff,
    /// Maximum number of waiting requests of each kind (nr_requests)
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(4..=65536), help_heading = "Block layer")]
    pub requests: u32,
    /// Maximum number of requests in the driver [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Block layer")]
    pub tags: Option<u32>,
}

/// Flags of everything below the block layer, except the card.
#[derive(Args, Debug)]
pub struct DeviceArguments {
    /// Translation layer [default: the card's]
    #[arg(long, value_name = "KIND", value_parser = translation_parser(), help_heading = "Card")]
    pub translation: Option<TranslationKind>,
    /// Write cache that answers before the data is programmed, on or off [default: the card's]
    #[arg(long, value_name = "on|off", value_enum, help_heading = "Card")]
    pub cache: Option<OnOff>,
    /// Number of contexts whose data the card separates, 0 to 15; tasks and processes get one each [default: the card's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=15), help_heading = "Card")]
    pub contexts: Option<u32>,
    /// Write metadata to SLC blocks (data tag), on or off [default: the card's]
    #[arg(long, value_name = "on|off", value_enum, help_heading = "Card")]
    pub data_tag: Option<OnOff>,
    /// Treatment of discards: trim (durable, reads zero) or discard (at any time, at the card's choice)
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        default_value = "discard",
        help_heading = "Card"
    )]
    pub discard: DiscardWord,

    /// Host: a name from `tidegate emmc presets`, or a file NAME.toml
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "mshci",
        help_heading = "Driver"
    )]
    pub host: String,
    /// Writes to pack: off, sequential ones only, or random ones too
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value = "sequential",
        help_heading = "Driver"
    )]
    pub pack: PackWord,
    /// Maximum number of requests in a pack, 1 to 63
    #[arg(long, value_name = "N", default_value_t = 62, value_parser = clap::value_parser!(u32).range(1..=63), help_heading = "Driver")]
    pub max_packed: u32,
    /// Order of the tests that end a pack, as in the Samsung, mainline or MSM driver
    #[arg(long, value_name = "DRIVER", value_parser = order_parser(), default_value = "samsung", help_heading = "Driver")]
    pub stop_order: StopOrder,
    /// Pack reads too
    #[arg(long, help_heading = "Driver")]
    pub pack_reads: bool,
    /// Whether the card takes reliable writes in packs (EN_REL_WR), as those of eMMC 4.5 do; otherwise they end a pack (REL)
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "on",
        help_heading = "Driver"
    )]
    pub pack_reliable: OnOff,
    /// Use the eMMC 5.1 command queue with this many tasks, 1 to 32, instead of packing; needs a host with an engine for
    /// it, such as cqhci-hs400 (31 tasks with data, and flushes in the last slot)
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=32),
        conflicts_with_all = ["pack", "max_packed", "stop_order", "pack_reads", "pack_reliable"],
        help_heading = "Driver"
    )]
    pub command_queue: Option<u32>,
}

/// Writes to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PackWord {
    /// No writes
    Off,
    /// Only sequential writes
    Sequential,
    /// Any writes
    Random,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// On
    On,
    /// Off
    Off,
}

/// Treatment of discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiscardWord {
    /// TRIM
    Trim,
    /// DISCARD
    Discard,
}

fn word_parser<T: Copy + Send + Sync + 'static>(
    words: &'static [(T, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let known = PossibleValuesParser::new(words.iter().map(|(_, word)| *word));
    known.try_map(move |word| {
        let found = words.iter().find(|(_, known)| *known == word);
        found.map(|(value, _)| *value).ok_or("unknown")
    })
}

fn translation_parser() -> impl TypedValueParser<Value = TranslationKind> {
    word_parser(&TranslationKind::WORDS)
}

fn order_parser() -> impl TypedValueParser<Value = StopOrder> {
    word_parser(&StopOrder::WORDS)
}

fn scheduler_parser() -> impl TypedValueParser<Value = SchedulerKind> {
    word_parser(&SchedulerKind::WORDS)
}

impl SetupArguments {
    /// Reads the files and builds the setup.
    pub fn setup(&self) -> Result<Setup> {
        self.device.setup(card_file(&self.card)?, self.queue())
    }

    fn queue(&self) -> QueueRules {
        QueueRules {
            cfq: CfqRules {
                quantum: self.cfq_quantum,
                ramp_up: match self.cfq_low_latency {
                    OnOff::On => RampUp::On,
                    OnOff::Off => RampUp::Off,
                },
                device: match self.cfq_rotational {
                    OnOff::On => DeviceKind::Disk,
                    OnOff::Off => DeviceKind::Flash,
                },
                ..CfqRules::USUAL
            },
            limit: self.requests,
            tags: self.tags,
            ..QueueRules::usual(self.scheduler)
        }
    }
}

impl DeviceArguments {
    /// Puts a card into the host described by the flags.
    pub fn setup(&self, mut card: CardFile, queue: QueueRules) -> Result<Setup> {
        let host = match toml_text(&self.host)? {
            Some(text) => HostFile::parse(&self.host, &text)?,
            None => HostFile::preset(&self.host)?,
        };
        if let Some(kind) = self.translation {
            card.translation.kind = kind;
            if matches!(kind, TranslationKind::Fast | TranslationKind::Last) {
                card.translation.unit_bytes = card.flash.page_bytes;
            }
        }
        if let Some(cache) = self.cache {
            card.controller.cache = cache == OnOff::On;
        }
        if let Some(contexts) = self.contexts {
            card.controller.contexts = contexts;
        }
        if let Some(data_tag) = self.data_tag {
            card.controller.data_tag = data_tag == OnOff::On;
        }
        if self.command_queue.is_some_and(|tasks| tasks > host.queue_slots) {
            bail!(
                "the host {} has {} slots for a command queue; use --host cqhci-hs400, or packed commands",
                host.name,
                host.queue_slots
            );
        }
        Ok(Setup {
            card,
            host,
            queue,
            driver: self.driver(),
            discard: match self.discard {
                DiscardWord::Trim => DiscardMode::Trim,
                DiscardWord::Discard => DiscardMode::Discard,
            },
        })
    }

    fn driver(&self) -> DriverMode {
        if let Some(depth) = self.command_queue {
            return DriverMode::CommandQueue(depth);
        }
        let contiguity = match self.pack {
            PackWord::Random => Contiguity::Free,
            PackWord::Off | PackWord::Sequential => Contiguity::Needed,
        };
        DriverMode::Packed(PackRules {
            order: self.stop_order,
            max_requests: if self.pack == PackWord::Off {
                1
            } else {
                self.max_packed
            },
            contiguity,
            reads: if self.pack_reads {
                PackReads::Yes
            } else {
                PackReads::No
            },
            reliable: match self.pack_reliable {
                OnOff::On => ReliableWrites::Packed,
                OnOff::Off => ReliableWrites::Alone,
            },
        })
    }
}

/// The card of a preset or file.
pub fn card_file(name: &str) -> Result<CardFile> {
    Ok(match toml_text(name)? {
        Some(text) => CardFile::parse(name, &text)?,
        None => CardFile::preset(name)?,
    })
}

/// The text of the file, if the name ends in `.toml`.
fn toml_text(name: &str) -> Result<Option<String>> {
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(None);
    }
    programs::small_text::read(path)
        .map(Some)
        .with_context(|| format!("{name} can't be read"))
}
