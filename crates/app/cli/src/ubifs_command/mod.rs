//! `tidegate ubifs`: makes, reads and writes UBIFS without the kernel. Only `mkfs` and `mount -o rw` write.

mod attributes;
mod bench;
mod check;
pub mod content;
pub mod extract;
pub mod folder;
pub mod folder_tree;
mod info;
mod list;
mod log;
mod mkfs;
mod mount;
mod mount_writable;
mod periodic;
pub mod salvage;
pub mod source;
pub mod tar_archive;
pub mod walk;

use std::ffi::OsString;

use anyhow::Result;
use clap::Subcommand;
use results::shown;
use ubifs::UbifsError;

use self::bench::UbifsBenchArguments;
use self::check::CheckArguments;
use self::extract::{CatArguments, ExtractArguments, TarArguments};
use self::info::InfoArguments;
use self::list::{ListArguments, StatArguments, TreeArguments};
use self::log::LogArguments;
use self::mkfs::MkfsArguments;
use self::mount::UbifsMountArguments;
use crate::Finding;
use crate::output::{print_error, with_causes};

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

/// Lost data, printed to standard error as it is found, one line per loss.
#[derive(Debug, Default)]
pub struct Losses {
    count: u64,
    /// Copies of the printed lines, for a JSON document.
    lines: Vec<String>,
    /// Total length of `lines`.
    bytes: usize,
    /// Path of the file system, in front of those of its files.
    prefix: Vec<u8>,
    /// The hint to `--salvage` is needless.
    is_salvaged: bool,
    /// Number of losses that the medium is not the reason of.
    left_out: u64,
}

/// Maximum number of lines kept for a document.
const LINES_MAX: usize = 10_000;
/// Maximum total length of these lines; paths can be long.
const LINE_BYTES_MAX: usize = 4 << 20;

impl Losses {
    /// Losses of a file system that is one of several.
    pub fn below(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
            // The commands for several take no `--salvage`.
            is_salvaged: true,
            ..Self::default()
        }
    }

    /// Number of losses.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Whether a salvage may get more: something is damaged.
    pub const fn has_damage(&self) -> bool {
        self.count > self.left_out
    }

    /// The printed lines, unless there were very many.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Prints and counts a loss.
    pub fn tell(&mut self, path: &[u8], what: &dyn std::fmt::Display) {
        self.count += 1;
        let path = match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_vec(),
            (false, true) => self.prefix.clone(),
            (false, false) => [&self.prefix, b"/".as_slice(), path].concat(),
        };
        let line = match path.is_empty() {
            true => what.to_string(),
            false => format!("{}: {what}", shown::name(&path)),
        };
        print_error(&line);
        if self.lines.len() < LINES_MAX && self.bytes < LINE_BYTES_MAX {
            self.bytes += line.len();
            self.lines.push(line);
        }
    }

    /// As [`Self::tell`], for something that is left out although it is whole.
    pub fn leave_out(&mut self, path: &[u8], what: &dyn std::fmt::Display) {
        self.left_out += 1;
        self.tell(path, what);
    }

    /// As [`Self::tell`], for an error, which is damage only if the reader of UBIFS has found it.
    pub fn tell_error(&mut self, path: &[u8], error: &anyhow::Error) {
        self.left_out += u64::from(error.downcast_ref::<UbifsError>().is_none());
        self.tell(path, &with_causes(error));
    }

    /// The exit code by the number of losses.
    pub fn result(&self) -> Finding {
        if self.count == 0 {
            return Finding::Nothing;
        }
        if !self.is_salvaged && self.has_damage() {
            print_error(salvage::HINT);
        }
        Finding::Something
    }
}
