//! `tidegate ubifs extract` and `cat`.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use extract::content::{Run, RunReader};
use extract::folder::{self, Rules};
use extract::walk::{Visited, resolve};
use extract::{Budget, ExtractError, Losses, Progress, Watch, tar_archive};
use indicatif::{ProgressBar, ProgressStyle};
use programs::stop_on_signals;
use results::shown;
use serde_json::json;
use ubifs::format::EntryKind;

use super::finding;
use super::source::SourceArguments;
use crate::Finding;
use crate::output::{Printed, print_bytes, print_error, print_line, refuse_input_as_output, to_output};
use crate::quantity::{about_bytes, parse_bytes};

/// Bytes that are extracted at most, unless `--max-size` says otherwise.
pub const EXTRACTED_BYTES_MAX: u64 = 64 << 30;

/// Files and folders that are made at most, unless `--max-files` says otherwise.
pub const EXTRACTED_FILES_MAX: u64 = 10_000_000;

/// Arguments of `tidegate ubifs extract`.
#[derive(Args, Debug)]
#[command(
    after_help = "Images are not trusted: nothing is made outside DIRECTORY, and nothing in it that gives rights \
                  to others. Owners, devices, setuid and setgid bits and extended attributes other than user.* \
                  need --preserve, which needs root. An archive holds all of them without root; it has no form \
                  for sockets. Each damaged or omitted file is a line, and the exit code is 1. Ctrl-C leaves \
                  only whole files in DIRECTORY and no archive."
)]
pub struct ExtractArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// Copy this file, or this directory with everything below it
    #[arg(default_value = "/")]
    pub path: String,
    /// The folder to create; it must not exist or be empty
    #[arg(long, short = 'o', value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
    /// Write a tar archive (PAX) to this file instead; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub tar: Option<PathBuf>,
    /// Keep owners, devices, setuid and setgid bits and all extended attributes; only for images that you trust
    #[arg(long, conflicts_with = "tar")]
    pub preserve: bool,
    /// Maximum bytes of content to copy; files that do not fit are skipped
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64g")]
    pub max_size: u64,
    /// Maximum number of files and folders to create
    #[arg(long, value_name = "N", default_value_t = EXTRACTED_FILES_MAX)]
    pub max_files: u64,
    /// Print the result and the losses as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `tidegate ubifs tar`.
#[derive(Args, Debug)]
pub struct TarArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// Copy this file, or this directory with everything below it
    #[arg(default_value = "/")]
    pub path: String,
    /// The archive; - is standard output
    #[arg(long, short = 'o', value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
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

/// A spinner on a terminal, with the number of files.
struct Spinner(ProgressBar);

impl Watch for Spinner {
    fn visit(&mut self, visited: &Visited) {
        self.0.inc(1);
        if !self.0.is_hidden() {
            self.0.set_message(shown::name(&visited.path));
        }
    }

    fn finish(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Starts a spinner.
pub fn spinner() -> Box<dyn Watch> {
    let style = ProgressStyle::with_template("{spinner} {pos} files, {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    Box::new(Spinner(ProgressBar::new_spinner().with_style(style)))
}

/// The result of writing an archive; a pipe closed by its reader must be seen as such by `to_output`.
pub fn archived<T>(written: Result<T, ExtractError>) -> Result<T> {
    written.map_err(|error| match error.host().map(io::Error::kind) {
        Some(kind @ ErrorKind::BrokenPipe) => io::Error::from(kind).into(),
        _ => error.into(),
    })
}

/// Runs `cat`. Lost blocks are printed as zeros.
pub fn cat(arguments: &CatArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
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
    Ok(finding(&losses))
}

/// Runs `tar`: `extract --tar`.
pub fn tar(arguments: &TarArguments) -> Result<Finding> {
    run(&ExtractArguments {
        source: arguments.source.clone(),
        path: arguments.path.clone(),
        output: None,
        tar: Some(arguments.output.clone()),
        preserve: false,
        max_size: EXTRACTED_BYTES_MAX,
        max_files: EXTRACTED_FILES_MAX,
        json: false,
    })
}

/// Runs `extract`.
pub fn run(arguments: &ExtractArguments) -> Result<Finding> {
    if arguments.output.is_none() && arguments.tar.is_none() {
        bail!("name the target with -o DIRECTORY or --tar FILE");
    }
    let mut losses = Losses::new(print_error);
    if arguments.json && arguments.tar.as_ref().is_some_and(|tar| tar.as_os_str() == "-") {
        bail!("--json with --tar -: both would go to standard output");
    }
    if arguments.preserve && !rustix::process::geteuid().is_root() {
        bail!("--preserve needs root: nobody else may give files to others or make devices");
    }
    if let Some(tar) = &arguments.tar {
        for image in arguments.source.images()? {
            refuse_input_as_output(&image, tar)?;
        }
    }
    let ubifs = arguments.source.open(&mut losses)?;
    let start = resolve(&ubifs, &arguments.path)?;
    let mut progress = Progress::new(spinner());
    let budget = Budget::new(arguments.max_size, arguments.max_files, stop_on_signals()?);
    match (&arguments.output, &arguments.tar) {
        (Some(root), _) => {
            let rules = match arguments.preserve {
                true => Rules::Preserve,
                false => Rules::Harmless,
            };
            folder::extract(&ubifs, start, root, rules, &budget, &mut losses, &mut progress)?;
        }
        (None, Some(archive)) => {
            to_output(archive, &mut |out| {
                archived(tar_archive::write(
                    &ubifs,
                    start,
                    out,
                    &budget,
                    &mut losses,
                    &mut progress,
                ))
            })?;
        }
        (None, None) => bail!("name the target with -o DIRECTORY or --tar FILE"),
    }
    progress.finish();
    if arguments.json {
        let document = json!({
            "directories": progress.directories, "files": progress.files, "others": progress.others,
            "bytes": progress.bytes, "losses": losses.count(), "lost": losses.lines(), "complete": !budget.is_stopped(),
        });
        print_line(&document.to_string())?;
    } else if let Some(target) = arguments.output.as_ref().or(arguments.tar.as_ref())
        && target.as_os_str() != "-"
    {
        print_line(&format!(
            "{} files, {} to {}",
            progress.files,
            about_bytes(progress.bytes),
            target.display(),
        ))?;
    }
    if let (true, Some(root)) = (budget.is_stopped(), &arguments.output) {
        print_error(&format!(
            "stopped before its end: {} holds whole files, but not all",
            root.display()
        ));
        return Ok(Finding::Something);
    }
    Ok(finding(&losses))
}
