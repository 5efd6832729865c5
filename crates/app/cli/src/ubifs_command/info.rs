//! `tidegate ubifs info`.

use anyhow::Result;
use clap::Args;
use extract::Losses;
use extract::texts::{file_system, file_system_json};

use super::finding;
use super::source::SourceArguments;
use crate::Finding;
use crate::output::{print_error, print_line};

/// Arguments of `tidegate ubifs info`.
#[derive(Args, Debug)]
pub struct InfoArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &InfoArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
    let ubifs = arguments.source.open(&mut losses)?;
    let text = match arguments.json {
        true => file_system_json(&ubifs).to_string(),
        false => file_system(&ubifs),
    };
    print_line(&text)?;
    Ok(finding(&losses))
}
