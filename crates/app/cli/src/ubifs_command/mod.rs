//! `tidegate ubifs`: makes, reads and writes UBIFS without the kernel. Only `mkfs` and `mount -o rw` write.

mod bench;
mod check;
pub mod extract;
mod info;
mod list;
mod log;
mod mkfs;
mod mount;
mod mount_writable;
mod periodic;
pub mod salvage;
pub mod source;

use std::ffi::OsString;

use ::extract::{Losses, SALVAGE_HINT};
use anyhow::Result;
use clap::Subcommand;

use self::bench::UbifsBenchArguments;
use self::check::CheckArguments;
use self::extract::{CatArguments, ExtractArguments, TarArguments};
use self::info::InfoArguments;
use self::list::{ListArguments, StatArguments, TreeArguments};
use self::log::LogArguments;
use self::mkfs::MkfsArguments;
use self::mount::UbifsMountArguments;
use crate::Finding;
use crate::output::print_error;

/// The subcommands of `tidegate ubifs`.
#[derive(Debug, Subcommand)]
pub enum UbifsCommand {
    /// Make a file system, empty or from a folder, in a file or on a volume
    Mkfs(Box<MkfsArguments>),
    /// Mount a file system, read-only unless -o rw is given
    Mount(UbifsMountArguments),
    /// Show a file system and a summary of its journal replay
    Info(InfoArguments),
    /// List a directory
    Ls(ListArguments),
    /// List all files below a directory
    Tree(TreeArguments),
    /// Show all attributes of a file
    Stat(StatArguments),
    /// Print the content of a file
    Cat(CatArguments),
    /// Copy files to a folder of the host, with owners, times, extended attributes, hard links and holes
    Extract(ExtractArguments),
    /// Write files to a tar archive, as extract --tar
    Tar(TarArguments),
    /// Check consistency; report errors with their location and the data that can still be read
    Check(CheckArguments),
    /// Show what the journal replay did and why
    Log(LogArguments),
    /// Measure simulated file systems in virtual time, on one device and on arrays: throughput, mount, applications
    Bench(UbifsBenchArguments),
}

/// Runs the command; `words` are the arguments that it was parsed from.
pub fn run(command: &UbifsCommand, words: &[OsString]) -> Result<Finding> {
    match command {
        UbifsCommand::Mkfs(arguments) => mkfs::run(arguments).map(|()| Finding::Nothing),
        UbifsCommand::Mount(arguments) => mount::run(arguments, words),
        UbifsCommand::Info(arguments) => info::run(arguments),
        UbifsCommand::Ls(arguments) => list::run(arguments),
        UbifsCommand::Tree(arguments) => list::tree(arguments),
        UbifsCommand::Stat(arguments) => list::stat(arguments),
        UbifsCommand::Cat(arguments) => extract::cat(arguments),
        UbifsCommand::Extract(arguments) => extract::run(arguments),
        UbifsCommand::Tar(arguments) => extract::tar(arguments),
        UbifsCommand::Check(arguments) => check::run(arguments),
        UbifsCommand::Log(arguments) => log::run(arguments),
        UbifsCommand::Bench(arguments) => bench::run(arguments),
    }
}

/// The exit code by the number of losses.
pub fn finding(losses: &Losses) -> Finding {
    if losses.count() == 0 {
        return Finding::Nothing;
    }
    if !losses.is_salvaged && losses.has_damage() {
        print_error(SALVAGE_HINT);
    }
    Finding::Something
}
