//! `tidegate ubifs log`.

use anyhow::Result;
use clap::Args;
use extract::Losses;
use extract::texts::{journal, journal_json};
use ubifs::OpenOptions;

use super::finding;
use super::source::SourceArguments;
use crate::Finding;
use crate::output::{Printed, print_error, print_line};

/// Arguments of `tidegate ubifs log`.
#[derive(Args, Debug)]
#[command(
    after_help = "Shows what a mount would do; writes nothing. Damage is a line each on standard error, and the exit code is 1."
)]
pub struct LogArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// Show each node of the journal too, in replay order
    #[arg(long)]
    pub nodes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &LogArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
    let options = OpenOptions {
        lists_nodes: arguments.nodes,
        ..OpenOptions::standard()
    };
    let ubifs = arguments.source.open_with(options, &mut losses)?;
    if arguments.json {
        print_line(&journal_json(&ubifs).to_string())?;
        return Ok(finding(&losses));
    }
    for line in journal(&ubifs) {
        if print_line(&line)? == Printed::Closed {
            break;
        }
    }
    Ok(finding(&losses))
}
