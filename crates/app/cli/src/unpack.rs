//! `tidegate unpack`: everything in a dump of raw flash in one run: all partitions, their volumes, and the files in them.
//!
//! The crate `image` finds and reads, and `extract` names, writes and reports.

use std::fs::File;
use std::iter;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use extract::Budget;
use extract::dump::{Archive, Folder, Unpacking, report};
use extract::folder::Rules;
use image::{Dump, EccHint, Hints, Survey};
use nand::ecc::Choice;
use programs::stop_on_signals;
use ubifs::MasterKey;

use crate::Finding;
use crate::inspect::{Kind, not_understood};
use crate::output::{print_error, print_line, refuse_input_as_output, to_output};
use crate::quantity::{parse_bytes, show_bytes};
use crate::ubi_command::chip::bar;
use crate::ubifs_command::extract::{EXTRACTED_FILES_MAX, archived, spinner};
use crate::ubifs_command::source::KeyFile;

/// Arguments of `tidegate unpack`.
#[derive(Args, Debug)]
#[command(
    after_help = "DIRECTORY gets a folder for each UBI partition, named by its image sequence, with a folder for each \
                  UBIFS, VOLUME.bin for other static volumes, VOLUME.squashfs and VOLUME.img for others, and \
                  report.json. Partitions are found at any byte, with or without OOB, between bootloaders, noise \
                  and erased areas.\n\
                  Dumps are not trusted: nothing is made outside DIRECTORY, and nothing in it that gives rights to \
                  others. Each loss is a line.\n\
                  Exit codes: 0 everything, 1 something was lost, left out or guessed, 2 nothing was understood."
)]
pub struct UnpackArguments {
    /// The dump: a file, a block device, /dev/mtdN, or - for standard input
    pub dump: PathBuf,
    /// Refused with the command that reads the members of an array
    #[arg(hide = true)]
    pub others: Vec<PathBuf>,
    /// The folder to create; it must not exist or be empty
    #[arg(long, short = 'o', value_name = "DIRECTORY")]
    pub output: Option<PathBuf>,
    /// Write a tar archive (PAX) to this file instead; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    pub tar: Option<PathBuf>,
    /// Only list the partitions and volumes
    #[arg(long, conflicts_with_all = ["output", "tar"])]
    pub list: bool,
    /// First byte of the dump to look at; hexadecimal with 0x [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = parse_place, help_heading = "Chip")]
    pub offset: Option<u64>,
    /// Number of bytes to look at [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse_place, help_heading = "Chip")]
    pub length: Option<u64>,
    /// Size of a page, bytes [default: guessed from the headers in the dump]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub page: Option<u64>,
    /// Size of an eraseblock without OOB, bytes [default: as for --page]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub block: Option<u64>,
    /// The same in pages; needs --page
    #[arg(
        long,
        value_name = "N",
        help_heading = "Chip",
        requires = "page",
        conflicts_with = "block"
    )]
    pub pages_per_block: Option<u32>,
    /// Size of a sub-page, bytes; accepted, as reading does not depend on it
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub subpage: Option<u64>,
    /// OOB bytes that follow each page [default: as for --page]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Chip")]
    pub oob: Option<u64>,
    /// ECC of the OOB areas: auto, none, a family or a layout as for `tidegate nand ecc`; see docs/formats/nand-ecc.md
    #[arg(
        long,
        value_name = "auto|none|NAME|SPEC",
        default_value = "auto",
        help_heading = "Chip"
    )]
    pub ecc: String,
    /// A master key of encrypted files (fscrypt): a file with the raw bytes, as for `tidegate ubifs`; repeatable
    #[arg(long = "key", value_name = "[DESCRIPTOR=]FILE")]
    pub keys: Vec<KeyFile>,
    /// Read file systems by all nodes that a scan finds, without the index where it is damaged; each guess is a line
    #[arg(long)]
    pub salvage: bool,
    /// Also write deleted files that can still be had, to VOLUME.deleted
    #[arg(long)]
    pub deleted: bool,
    /// Keep owners, devices, setuid and setgid bits and all extended attributes; only for dumps that you trust
    #[arg(long, conflicts_with = "tar")]
    pub preserve: bool,
    /// Maximum bytes of content to write; files that do not fit are skipped
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64g")]
    pub max_size: u64,
    /// Maximum number of files and folders to create
    #[arg(long, value_name = "N", default_value_t = EXTRACTED_FILES_MAX)]
    pub max_files: u64,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A size, or an offset in hexadecimal.
fn parse_place(text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => {
            u64::from_str_radix(digits, 16).map_err(|_| format!("`{text}` is no hexadecimal number of bytes"))
        }
        None => parse_bytes(text),
    }
}

impl UnpackArguments {
    fn check(&self) -> Result<()> {
        if !self.others.is_empty() {
            let all: Vec<_> = iter::once(&self.dump).chain(&self.others).collect();
            let all: Vec<String> = all.iter().map(|dump| dump.display().to_string()).collect();
            bail!(
                "one dump is unpacked at a time; the members of an array are read by `tidegate ubifs extract {} -o DIRECTORY`",
                all.join(",")
            );
        }
        if self.output.is_none() && self.tar.is_none() && !self.list {
            bail!("name the target with -o DIRECTORY or --tar FILE, or say --list");
        }
        if self.json && self.tar.as_ref().is_some_and(|tar| tar.as_os_str() == "-") {
            bail!("--json with --tar -: both would go to standard output");
        }
        if self.preserve && !rustix::process::geteuid().is_root() {
            bail!("--preserve needs root: nobody else may give files to others or make devices");
        }
        if let Some(tar) = &self.tar {
            refuse_input_as_output(&self.dump, tar)?;
        }
        Ok(())
    }

    fn hints(&self) -> Result<Hints> {
        let size = |name: &str, value: Option<u64>| {
            let size = value.map(u32::try_from).transpose();
            size.map_err(|_| anyhow!("--{name} is more than 4 GiB"))
        };
        let pages = self.pages_per_block.map(u64::from);
        let block = self
            .page
            .zip(pages)
            .map(|(page, pages)| page.saturating_mul(pages));
        let hints = Hints {
            page_bytes: size("page", self.page)?,
            block_bytes: size("block", self.block.or(block))?,
            oob_bytes: size("oob", self.oob)?,
            ecc: self.ecc()?,
        };
        hints.check()?;
        Ok(hints)
    }

    fn ecc(&self) -> Result<EccHint> {
        Ok(match self.ecc.as_str() {
            "auto" => EccHint::Find,
            "none" => EccHint::Ignore,
            text => EccHint::Given(
                Choice::parse(text)
                    .context("--ecc names no layout; `tidegate nand ecc --list` has the known ones")?,
            ),
        })
    }

    fn open(&self) -> Result<Arc<Dump>> {
        let dump = open_dump(&self.dump)?;
        if (self.offset, self.length) == (None, None) {
            return Ok(Arc::new(dump));
        }
        let name = dump.name();
        let window = dump.window(self.offset.unwrap_or(0), self.length);
        Ok(Arc::new(window.map_err(|error| anyhow!("{name}: {error}"))?))
    }
}

/// Opens a dump; `-` is standard input.
pub fn open_dump(path: &Path) -> Result<Dump> {
    if path.as_os_str() != "-" {
        let shown = path.display();
        let several = path.to_str().is_some_and(|text| text.contains(',')) && !path.exists();
        return Dump::open(path).with_context(|| match several {
            true => format!(
                "{shown} can't be read; the members of an array are read by `tidegate ubifs extract {shown} -o DIRECTORY`"
            ),
            false => format!("{shown} can't be read"),
        });
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    input
        .and_then(|input| Dump::of_file("standard input", File::from(input)))
        .context("standard input can't be read")
}

/// Surveys a dump, with a progress bar on a terminal.
pub fn survey(dump: &Arc<Dump>, hints: &Hints) -> Survey {
    let progress = bar(dump.bytes(), "reading");
    let survey = image::survey(dump, hints, &mut |bytes| progress.set_position(bytes));
    progress.finish_and_clear();
    survey
}

/// Runs the command.
pub fn run(arguments: &UnpackArguments) -> Result<Finding> {
    arguments.check()?;
    let keys: Vec<MasterKey> = arguments.keys.iter().map(KeyFile::read).collect::<Result<_>>()?;
    let hints = arguments.hints()?;
    let dump = arguments.open()?;
    // Until here nothing was written, so that a signal ends the program at once.
    let survey = survey(&dump, &hints);
    if survey.parts.is_empty() {
        return Err(nothing_found(&arguments.dump, &dump, &survey));
    }
    let budget = Budget::new(arguments.max_size, arguments.max_files, stop_on_signals()?);
    let unpacking = Unpacking {
        dump: &dump,
        survey: &survey,
        keys: &keys,
        salvages: arguments.salvage,
        lists_deleted: arguments.deleted,
        budget: &budget,
        tell: print_error,
        watch: spinner,
    };
    let (report, losses) = match (&arguments.output, &arguments.tar) {
        (Some(root), _) => {
            let rules = match arguments.preserve {
                true => Rules::Preserve,
                false => Rules::Harmless,
            };
            let mut folder = Folder::create(root, rules)?;
            let done = unpacking.run(Some(&mut folder))?;
            folder.finish(&done.0.to_string())?;
            done
        }
        (None, Some(archive)) => {
            let mut done = None;
            let written = to_output(archive, &mut |out| {
                let mut target = Archive::new(out);
                let unpacked = archived(unpacking.run(Some(&mut target)))?;
                archived(target.finish(&unpacked.0.to_string()))?;
                done = Some(unpacked);
                Ok(())
            });
            written.with_context(|| format!("{} can't be written", archive.display()))?;
            done.context("the archive was not written")?
        }
        (None, None) => unpacking.run(None)?,
    };
    if arguments.json {
        print_line(&report.to_string())?;
    } else if arguments.tar.as_ref().is_none_or(|tar| tar.as_os_str() != "-") {
        print_line(&report::as_text(&report))?;
    }
    if budget.is_stopped() {
        print_error("stopped before its end: the folder holds whole files, but not all");
        return Ok(Finding::Something);
    }
    Ok(match losses {
        0 => Finding::Nothing,
        _ => Finding::Something,
    })
}

/// The error about a dump without UBI and UBIFS.
pub fn nothing_found(path: &Path, dump: &Dump, survey: &Survey) -> anyhow::Error {
    let hints: String = survey
        .findings
        .iter()
        .map(|finding| format!("; {finding}"))
        .collect();
    let error = anyhow!(
        "{}: no UBI and no UBIFS was found in {} of it{hints}",
        path.display(),
        show_bytes(dump.bytes())
    );
    match path.as_os_str() == "-" {
        true => error,
        false => not_understood(
            path,
            "a dump with UBI or UBIFS",
            &[Kind::Ubi, Kind::Nand, Kind::Ubifs],
            error,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sizes_or_hexadecimal() {
        assert_eq!(parse_place("0x1F000"), Ok(0x1F000));
        assert_eq!(parse_place("4k"), Ok(4096));
        parse_place("0xg").expect_err("no digit");
    }
}
