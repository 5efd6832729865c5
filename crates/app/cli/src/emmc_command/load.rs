//! The load of a run, as flags.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use media::Nanos;
use runs::load::{LeftOut, Load, LoadRules};

use crate::output;
use crate::quantity::{parse_bytes, parse_nanos};

/// Flags of the load.
#[derive(Args, Debug)]
pub struct LoadArguments {
    /// Load
    #[arg(
        long,
        value_name = "NAME",
        value_parser = load_parser(),
        default_value = "tio-rand",
        help_heading = "Load"
    )]
    pub load: Load,
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

fn load_parser() -> impl TypedValueParser<Value = Load> {
    let known = Load::WORDS.map(|(_, word, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(known).try_map(|word| {
        let found = Load::WORDS.iter().find(|(_, known, _)| *known == word);
        found.map(|(load, ..)| *load).ok_or("unknown")
    })
}

impl LoadArguments {
    /// The load described by the flags.
    pub fn rules(&self) -> LoadRules {
        LoadRules {
            load: self.load,
            replay: self.replay.clone(),
            traced_pace: self.traced_pace,
            size: self.size,
            block: self.block,
            range: self.range,
            depth: self.depth,
            tasks: self.tasks,
            flex_groups: self.flex_groups,
            commit_every: self.commit_every,
            reads_every: self.reads_every,
            seed: self.seed,
        }
    }
}

/// Prints what a replay leaves out.
pub fn describe_left_out(left_out: &LeftOut) {
    if left_out.requests > 0 {
        output::print_error(&format!(
            "{} requests are left out: beyond the card, or of a kind that it does not know",
            left_out.requests
        ));
    }
    crate::trace_command::input::describe_skipped(&left_out.lines);
}
