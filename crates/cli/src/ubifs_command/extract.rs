//! `tidegate ubifs extract` and `cat`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use ubifs::format::EntryKind;

use super::Losses;
use super::content::{Run, RunReader};
use super::source::SourceArguments;
use super::walk::{Visited, resolve};
use super::{folder, tar_archive};
use crate::Finding;
use crate::output::{Printed, print_bytes, print_line};

/// Arguments of `tidegate ubifs extract`.
#[derive(Args, Debug)]
#[command(
    after_help = "Owners, devices and extended attributes other than user.* need root; without it owners stay the \
                        user's and the rest is told and left out. An archive needs no root: it holds all but sockets. What is damaged \
                        is told, a line each; the exit code is 1 then."
)]
pub struct ExtractArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// What to copy: a file, or a directory with all below it
    #[arg(default_value = "/")]
    pub path: String,
    /// The folder that it becomes; it must not exist, or be empty
    #[arg(long, short = 'o', value_name = "FOLDER", required_unless_present = "tar")]
    pub output: Option<PathBuf>,
    /// Write a tar archive (PAX) to this file instead, or to standard output for -
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub tar: Option<PathBuf>,
    /// Print what was copied and what was lost as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tidegate ubifs cat`.
#[derive(Args, Debug)]
pub struct CatArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// The file
    pub path: String,
}

/// What was copied so far, which a bar on the terminal shows.
pub struct Progress {
    bar: ProgressBar,
    directories: u64,
    files: u64,
    others: u64,
    bytes: u64,
}

impl Progress {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {pos} files, {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        Self {
            bar: ProgressBar::new_spinner().with_style(style),
            directories: 0,
            files: 0,
            others: 0,
            bytes: 0,
        }
    }

    /// Counts a file that was come by.
    pub fn count(&mut self, visited: &Visited) {
        match visited.inode.kind() {
            Some(EntryKind::Directory) => self.directories += 1,
            Some(EntryKind::File) => {
                self.files += 1;
                self.bytes = self.bytes.saturating_add(visited.inode.size_bytes);
            }
            _ => self.others += 1,
        }
        self.bar.inc(1);
        if !self.bar.is_hidden() {
            self.bar.set_message(super::walk::shown(&visited.path).to_owned());
        }
    }
}

/// Runs `cat`. Blocks that are lost are zeros.
pub fn cat(arguments: &CatArguments) -> Result<Finding> {
    let mut losses = Losses::default();
    let ubifs = arguments.source.open(&mut losses)?;
    let named = resolve(&ubifs, &arguments.path)?;
    let mut lost = Vec::new();
    let inode = ubifs.inode_lossy(named.inode, named.kind, &mut lost);
    for finding in lost.drain(..) {
        losses.tell(arguments.path.as_bytes(), &finding);
    }
    let Some(inode) = inode else {
        bail!("{}: without its inode it can't be read", arguments.path)
    };
    if inode.kind() != Some(EntryKind::File) {
        bail!("{}: it is no regular file", arguments.path);
    }
    ubifs.check_key(&inode)?;
    let all = [Run {
        offset: 0,
        bytes: inode.size_bytes,
    }];
    let mut reader = RunReader::new(&ubifs, &inode, &all);
    while let Some((_, piece)) = reader.next_piece() {
        if piece.is_empty() || print_bytes(piece)? == Printed::Closed {
            break;
        }
        for finding in reader.lost.drain(..) {
            losses.tell(arguments.path.as_bytes(), &finding);
        }
    }
    for finding in &reader.lost {
        losses.tell(arguments.path.as_bytes(), finding);
    }
    Ok(losses.result())
}

/// Runs `extract`.
pub fn run(arguments: &ExtractArguments) -> Result<Finding> {
    let mut losses = Losses::default();
    if arguments.json && arguments.tar.as_ref().is_some_and(|tar| tar.as_os_str() == "-") {
        bail!("--json with --tar -: both would go to standard output");
    }
    let ubifs = arguments.source.open(&mut losses)?;
    let start = resolve(&ubifs, &arguments.path)?;
    let mut progress = Progress::new();
    match (&arguments.output, &arguments.tar) {
        (Some(root), _) => folder::extract(&ubifs, start, root, &mut losses, &mut progress)?,
        (None, Some(archive)) => tar_archive::write(&ubifs, start, archive, &mut losses, &mut progress)?,
        (None, None) => bail!("say where to: -o FOLDER or --tar FILE"),
    }
    progress.bar.finish_and_clear();
    if arguments.json {
        let document = json!({
            "directories": progress.directories, "files": progress.files, "others": progress.others,
            "bytes": progress.bytes, "losses": losses.count, "lost": losses.lines,
        });
        print_line(&document.to_string())?;
    }
    Ok(losses.result())
}
