//! `tidegate ubifs`: file systems on flash, read without the kernel. Nothing is written to an image.

mod extract;
mod info;
mod list;
mod source;
mod walk;

use anyhow::Result;
use clap::Subcommand;

use self::extract::{CatArguments, ExtractArguments};
use self::info::InfoArguments;
use self::list::{ListArguments, StatArguments, TreeArguments};
use crate::Finding;
use crate::output::print_error;

/// What `tidegate ubifs` does.
#[derive(Debug, Subcommand)]
pub enum UbifsCommand {
    /// Show a file system and what the replay of its journal did
    Info(InfoArguments),
    /// List a directory
    Ls(ListArguments),
    /// List all files below a directory
    Tree(TreeArguments),
    /// Show all attributes of a file
    Stat(StatArguments),
    /// Write the content of a file to standard output
    Cat(CatArguments),
    /// Copy files to a folder of the host, with owners, times, extended attributes, hard links and holes
    Extract(ExtractArguments),
}

/// Runs the command.
pub fn run(command: &UbifsCommand) -> Result<Finding> {
    match command {
        UbifsCommand::Info(arguments) => info::run(arguments),
        UbifsCommand::Ls(arguments) => list::run(arguments),
        UbifsCommand::Tree(arguments) => list::tree(arguments),
        UbifsCommand::Stat(arguments) => list::stat(arguments),
        UbifsCommand::Cat(arguments) => extract::cat(arguments),
        UbifsCommand::Extract(arguments) => extract::run(arguments),
    }
}

/// What was lost, a line each, each once.
#[derive(Debug, Default)]
pub struct Losses(u64);

impl Losses {
    fn tell(&mut self, path: &[u8], what: &dyn std::fmt::Display) {
        self.0 += 1;
        match path.is_empty() {
            true => print_error(&what.to_string()),
            false => print_error(&format!("{}: {what}", walk::shown(path))),
        }
    }

    fn result(&self) -> Finding {
        match self.0 {
            0 => Finding::Nothing,
            _ => Finding::Something,
        }
    }
}
