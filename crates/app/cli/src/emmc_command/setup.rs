//! Which card, host, scheduler and driver: flags, and the files that they may name.

use std::path::Path;

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use emmc::block::{CfqRules, QueueRules, RampUp, SchedulerKind};
use emmc::card::{CardFile, TranslationKind};
use emmc::host::HostFile;
use emmc::packing::{Contiguity, PackReads, PackRules, StopOrder};
use emmc::simulation::{DiscardMode, DriverMode, Setup};

/// Flags of everything around a load.
#[derive(Args, Debug)]
pub struct SetupArguments {
    /// Card: a name of `tidegate emmc presets`, or a file NAME.toml
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "gt-i9300",
        help_heading = "Card"
    )]
    pub card: String,
    #[command(flatten)]
    pub device: DeviceArguments,

    /// Scheduler: noop, deadline, cfq (Linux 3.0), none, mq-deadline, bfq, kyber (today)
    #[arg(long, value_name = "NAME", value_parser = scheduler_parser(), default_value = "cfq", help_heading = "Block layer")]
    pub scheduler: SchedulerKind,
    /// Requests of one queue in the driver (cfq)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Block layer")]
    pub cfq_quantum: u32,
    /// Whether writes that nobody waits for ramp up after others were late (cfq)
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "on",
        help_heading = "Block layer"
    )]
    pub cfq_low_latency: OnOff,
    /// Requests that wait at most, of each kind (nr_requests)
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(4..=65536), help_heading = "Block layer")]
    pub requests: u32,
    /// Requests in the driver at most [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Block layer")]
    pub tags: Option<u32>,
}

/// Flags of everything below the block layer, but for which card it is.
#[derive(Args, Debug)]
pub struct DeviceArguments {
    /// Translation layer [default: the card's]
    #[arg(long, value_name = "KIND", value_parser = translation_parser(), help_heading = "Card")]
    pub translation: Option<TranslationKind>,
    /// Cache that answers before the program, on or off [default: the card's]
    #[arg(long, value_name = "on|off", value_enum, help_heading = "Card")]
    pub cache: Option<OnOff>,
    /// What discards become: trim (durable, reads zero) or discard (when the card likes)
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        default_value = "discard",
        help_heading = "Card"
    )]
    pub discard: DiscardWord,

    /// Host: a name of `tidegate emmc presets`, or a file NAME.toml
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "mshci",
        help_heading = "Driver"
    )]
    pub host: String,
    /// Which writes are packed: none, those that follow each other, or any
    #[arg(
        long,
        value_name = "WHICH",
        value_enum,
        default_value = "sequential",
        help_heading = "Driver"
    )]
    pub pack: PackWord,
    /// Most requests of a pack, 1 to 63
    #[arg(long, value_name = "N", default_value_t = 62, value_parser = clap::value_parser!(u32).range(1..=63), help_heading = "Driver")]
    pub max_packed: u32,
    /// Order of the tests that end a pack: that of the Samsung, mainline or MSM driver
    #[arg(long, value_name = "DRIVER", value_parser = order_parser(), default_value = "samsung", help_heading = "Driver")]
    pub stop_order: StopOrder,
    /// Pack reads as well
    #[arg(long, help_heading = "Driver")]
    pub pack_reads: bool,
    /// Use the command queue of eMMC 5.1 with so many tasks, 1 to 32, in place of packing
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32), help_heading = "Driver")]
    pub command_queue: Option<u32>,
}

/// Which writes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PackWord {
    /// None
    Off,
    /// Those that follow each other
    Sequential,
    /// Any
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

/// What discards become.
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
    /// Reads the files and puts everything together.
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
                ..CfqRules::USUAL
            },
            limit: self.requests,
            tags: self.tags,
            ..QueueRules::usual(self.scheduler)
        }
    }
}

impl DeviceArguments {
    /// Puts a card into the host that the flags describe.
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
            ..PackRules::PHONE
        })
    }
}

/// The card of a name or file.
pub fn card_file(name: &str) -> Result<CardFile> {
    Ok(match toml_text(name)? {
        Some(text) => CardFile::parse(name, &text)?,
        None => CardFile::preset(name)?,
    })
}

/// The text of a file, when the name is that of one.
fn toml_text(name: &str) -> Result<Option<String>> {
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(None);
    }
    std::fs::read_to_string(path)
        .map(Some)
        .with_context(|| format!("{name} can't be read"))
}
