//! The tools of ubi_reader 0.8 over the reader of this program: their options, the layout of their output and their exit
//! codes, so that unblob, binwalk, EMBA and FACT call them unchanged through links.
//!
//! Differences are in docs/guide/unpack.md: more is found and nothing ends at the first volume without UBIFS. Exit codes:
//! 0 done, 1 a loss without `-w` or nothing that was understood, 2 wrong arguments, 130 stopped by a signal.

mod display;
mod extract;
mod list;
mod settings;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::extract::dump::report;
use ::extract::{Budget, Losses};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use image::{
    BareVolume, Dump, DumpVolume, EccHint, Hints, Part, Partition, Severity, Survey, open_ubifs,
    unreadable_since,
};
use rustix::fs::Mode;
use ubifs::{OpenOptions, Ubifs};

use crate::Finding;
use crate::output::{print_error, with_causes};
use crate::ubifs_command::extract::{EXTRACTED_BYTES_MAX, EXTRACTED_FILES_MAX};
use crate::ubifs_command::source::KeyFile;
use crate::unpack;

/// The tools.
#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Extract the files of each UBIFS (ubireader_extract_files)
    ExtractFiles(extract::FilesArguments),
    /// Extract the volumes, or whole UBI images (ubireader_extract_images)
    ExtractImages(extract::ImagesArguments),
    /// Show UBI partitions and UBIFS superblocks (ubireader_display_info)
    DisplayInfo(display::DisplayArguments),
    /// List directories, or copy one file (ubireader_list_files)
    ListFiles(list::ListArguments),
    /// Write the settings that make the images again (ubireader_utils_info)
    UtilsInfo(settings::SettingsArguments),
}

/// Options that all tools have.
#[derive(Args, Debug)]
pub struct Common {
    /// The dump
    pub filepath: PathBuf,
    /// Print more; accepted, and all messages are printed anyway
    #[arg(short, long)]
    pub log: bool,
    /// Print everything; accepted, and all messages are printed anyway
    #[arg(short, long)]
    pub verbose_log: bool,
    /// Size of an eraseblock, bytes [default: guessed]
    #[arg(short, long, value_name = "BLOCK_SIZE", value_parser = parse_integer)]
    pub peb_size: Option<u64>,
    /// First byte of the dump to look at [default: 0]
    #[arg(short, long, value_name = "START_OFFSET", value_parser = parse_integer)]
    pub start_offset: Option<u64>,
    /// Byte of the dump to stop before [default: its end]
    #[arg(short = 'n', long, value_name = "END_OFFSET", value_parser = parse_integer)]
    pub end_offset: Option<u64>,
    /// Byte from which on UBI is searched; as --start-offset [default: 0]
    #[arg(short, long, value_name = "GUESS_OFFSET", value_parser = parse_integer)]
    pub guess_offset: Option<u64>,
    /// Exit with 0 when something was lost
    #[arg(short, long)]
    pub warn_only_block_read_errors: bool,
    /// Use blocks with damaged headers; accepted, and always the case
    #[arg(short, long)]
    pub ignore_block_header_errors: bool,
    /// Use blocks with image sequence 0; accepted, and always the case
    #[arg(short = 'f', long)]
    pub u_boot_fix: bool,
}

/// An integer of Python: decimal, or 0x...
fn parse_integer(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("`{text}` is no number of bytes"))
}

/// Runs a tool.
pub fn run(tool: &Tool) -> Result<Finding> {
    match tool {
        Tool::ExtractFiles(arguments) => extract::files(arguments),
        Tool::ExtractImages(arguments) => extract::images(arguments),
        Tool::DisplayInfo(arguments) => display::run(arguments),
        Tool::ListFiles(arguments) => list::run(arguments),
        Tool::UtilsInfo(arguments) => settings::run(arguments),
    }
}

/// An opened dump.
struct Input {
    dump: Arc<Dump>,
    survey: Survey,
    /// Last component of its path.
    name: String,
}

impl Common {
    /// Opens and surveys the dump. `None` if nothing is understood, which is exit code 1.
    fn open(&self) -> Result<Option<Input>> {
        let path = &self.filepath;
        if !path.exists() {
            bail!("{}: File path doesn't exist.", path.display());
        }
        let dump = unpack::open_dump(path)?;
        let start = self.start_offset.or(self.guess_offset).unwrap_or(0);
        let length = self.end_offset.map(|end| end.saturating_sub(start));
        let dump = match dump.window(start, length) {
            Ok(dump) => Arc::new(dump),
            Err(error) => {
                print_error(&format!("{}: {error}", path.display()));
                return Ok(None);
            }
        };
        let hints = Hints {
            page_bytes: None,
            block_bytes: self
                .peb_size
                .map(u32::try_from)
                .transpose()
                .context("--peb-size is too large")?,
            oob_bytes: None,
            ecc: EccHint::Find,
        };
        hints.check()?;
        let survey = unpack::survey(&dump, &hints);
        if survey.parts.is_empty() {
            let error = unpack::nothing_found(path, &dump, &survey);
            print_error(&with_causes(&error));
            return Ok(None);
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Some(Input {
            name: name.to_string_lossy().into_owned(),
            dump,
            survey,
        }))
    }

    /// The exit code for this number of losses, and those of the dump since it was surveyed.
    fn end(&self, input: &Input, losses: u64) -> Finding {
        let late = unreadable_since(&input.dump);
        let late: u64 = late
            .iter()
            .map(|finding| report::tell(print_error, b"", finding))
            .sum();
        match losses + late > 0 && !self.warn_only_block_read_errors {
            true => Finding::Something,
            false => Finding::Nothing,
        }
    }
}

/// The exit code of Python after Ctrl-C.
pub const STOPPED: u8 = 130;

/// Tells that a run was stopped, and its exit code.
fn stopped(out: &Path) -> Finding {
    print_error(&format!(
        "stopped before its end: {} holds whole files, but not all",
        out.display()
    ));
    Finding::Code(STOPPED)
}

impl Input {
    fn partitions(&self) -> impl Iterator<Item = &Partition> {
        self.survey.parts.iter().filter_map(|part| match part {
            Part::Ubi(partition) => Some(partition),
            Part::Ubifs(_) => None,
        })
    }

    fn bare(&self) -> impl Iterator<Item = &BareVolume> {
        self.survey.parts.iter().filter_map(|part| match part {
            Part::Ubi(_) => None,
            Part::Ubifs(bare) => Some(bare),
        })
    }

    /// Prints the findings of the survey; the number of losses.
    fn tell(&self) -> u64 {
        let of_partitions = self.partitions().flat_map(|partition| &partition.findings);
        let all = self.survey.findings.iter().chain(of_partitions);
        all.map(|finding| report::tell(print_error, b"", finding)).sum()
    }
}

/// Opens a UBIFS. Losses are printed.
fn open(volume: Arc<DumpVolume>, key: Option<&KeyFile>, losses: &mut Losses) -> Option<Ubifs> {
    let opened = open_ubifs(volume, OpenOptions::standard())
        .map_err(|error| anyhow!(error))
        .and_then(|opened| {
            let keys = key.iter().map(|key| key.read()).collect::<Result<_>>()?;
            Ok((opened.ubifs.with_keys(keys), opened.findings))
        });
    match opened {
        Ok((ubifs, decisions)) => {
            for finding in decisions {
                match finding.severity() {
                    Severity::Loss => losses.tell(b"", &finding),
                    Severity::Note => print_error(&format!("note: {finding}")),
                }
            }
            for finding in ubifs.findings() {
                losses.tell(b"", finding);
            }
            Some(ubifs)
        }
        Err(error) => {
            losses.tell(b"", &with_causes(&error));
            None
        }
    }
}

/// A budget that no tool of ubi_reader lets the user set.
fn budget() -> Result<Budget> {
    let stop: Arc<AtomicBool> = programs::stop_on_signals()?;
    Ok(Budget::new(EXTRACTED_BYTES_MAX, EXTRACTED_FILES_MAX, stop))
}

/// The mask of the modes of new files.
fn umask() -> u32 {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

/// Makes a folder and those above it.
fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} can't be made", folder.display()))
}
