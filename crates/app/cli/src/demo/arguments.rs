//! Arguments of `tidegate demo`, part of the single definition in `arguments.rs`.

use std::path::PathBuf;

use clap::Args;

use crate::quantity::parse_bytes;

/// Arguments of `tidegate demo`.
#[derive(Args, Debug)]
#[command(
    after_help = "As root it makes an ext4 in an image file in DIRECTORY, on a loop device, and measures there; \
                  otherwise in DIRECTORY as it is. Everything that it makes is removed at the end, also after \
                  Ctrl-C, which reports the rounds done until then. It takes less than two minutes: on slow \
                  machines rounds, then sizes are cut down."
)]
pub struct DemoArguments {
    /// Work in this directory; it is created if missing
    #[arg(default_value = "out")]
    pub directory: PathBuf,
    /// Run N rounds, each with every configuration once, in rotated order [default: 6 or more, until the intervals
    /// are narrow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Set the size of the file written, in bytes
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = parse_bytes)]
    pub size: u64,
    /// Write the HTML report to this file, and the run records next to it as .jsonl
    #[arg(long, value_name = "FILE", default_value = "out/demo.html")]
    pub report: PathBuf,
    /// Also write a chart of the throughputs to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print the run records as JSON lines instead of the table
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if the configurations are not in the order of the paper
    #[arg(long)]
    pub strict: bool,
}
