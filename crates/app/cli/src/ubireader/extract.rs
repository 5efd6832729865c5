//! `ubireader_extract_files` and `ubireader_extract_images`.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use extract::dump::names::{Names, harmless};
use extract::dump::{member, report};
use extract::folder::{self, Rules};
use extract::walk::root;
use extract::{Budget, Losses, Progress};
use image::{Content, DumpVolume, Partition, Volume};
use ubi::format::VolumeKind;

use super::{Common, budget, make_folder, open, stopped, umask};
use crate::Finding;
use crate::output::{print_error, print_line, to_file};
use crate::ubifs_command::extract::spinner;
use crate::ubifs_command::source::KeyFile;

/// The folder of all tools without `-o`.
pub const DEFAULT_FOLDER: &str = "ubifs-root";

/// Arguments of `ubireader_extract_files`.
#[derive(Args, Debug)]
pub struct FilesArguments {
    /// The dump.
    #[command(flatten)]
    pub common: Common,
    /// Keep modes and owners; owners need root
    #[arg(short, long)]
    pub keep_permissions: bool,
    /// Keep extended attributes; needs root
    #[arg(short = 'x', long)]
    pub preserve_xattr: bool,
    /// LEB size of a UBIFS; accepted, and taken from its superblock
    #[arg(short = 'e', long, value_name = "BLOCK_SIZE")]
    pub leb_size: Option<String>,
    /// The folder to write to [default: ubifs-root]
    #[arg(short, long, value_name = "OUTPATH")]
    pub output_dir: Option<PathBuf>,
    /// A file with the master key of encrypted files
    #[arg(short = 'K', long, value_name = "MASTER_KEY")]
    pub master_key: Option<KeyFile>,
}

/// Arguments of `ubireader_extract_images`.
#[derive(Args, Debug)]
pub struct ImagesArguments {
    /// The dump.
    #[command(flatten)]
    pub common: Common,
    /// Write volumes (UBIFS) or whole images (UBI)
    #[arg(short = 'u', long, value_name = "IMAGE_TYPE", default_value = "UBIFS", ignore_case = true, value_parser = ["UBIFS", "UBI"])]
    pub image_type: String,
    /// The folder to write to [default: ubifs-root]
    #[arg(short, long, value_name = "OUTPATH")]
    pub output_dir: Option<PathBuf>,
}

/// Extraction of one run.
struct Files<'a> {
    key: Option<&'a KeyFile>,
    rules: Rules,
    budget: Budget,
    losses: u64,
}

/// Runs `ubireader_extract_files`.
pub fn files(arguments: &FilesArguments) -> Result<Finding> {
    let common = &arguments.common;
    if let Some(key) = &arguments.master_key {
        key.read()?;
    }
    let Some(input) = common.open()? else {
        return Ok(Finding::Something);
    };
    let mut files = Files {
        key: arguments.master_key.as_ref(),
        rules: Rules::UbiReader {
            permissions: arguments.keep_permissions,
            xattrs: arguments.preserve_xattr,
            umask: umask(),
        },
        budget: budget()?,
        losses: input.tell(),
    };
    let out = arguments
        .output_dir
        .clone()
        .unwrap_or_else(|| DEFAULT_FOLDER.into());
    let mut names = Names::default();
    for partition in input.partitions() {
        let folder = out.join(names.unique(&partition.image_sequence.to_string()));
        files.partition(partition, &folder)?;
    }
    let alone = input.survey.parts.len() == 1;
    for bare in input.bare() {
        let folder = match alone {
            true => out.clone(),
            false => out.join(format!("ubifs-{:#x}", bare.offset)),
        };
        files.tree(Arc::new(bare.open()), &folder)?;
    }
    let end = common.end(&input, files.losses);
    Ok(match files.budget.is_stopped() {
        true => stopped(&out),
        false => end,
    })
}

impl Files<'_> {
    fn partition(&mut self, partition: &Partition, folder: &Path) -> Result<()> {
        let mut names = Names::default();
        for volume in &partition.volumes {
            if self.budget.is_stopped() {
                return Ok(());
            }
            let name = harmless(&volume.name());
            let place = name.as_bytes();
            self.losses += volume
                .findings
                .iter()
                .map(|finding| report::tell(print_error, place, finding))
                .sum::<u64>();
            if let Some(line) = member::told(volume) {
                print_error(&format!("{name}: {line}"));
                self.losses += 1;
                self.image(volume, &folder.join(names.unique(&format!("{name}.img"))))?;
                continue;
            }
            // The content at which ubi_reader ends is kept.
            let ending = match (volume.content, volume.kind) {
                (Content::Ubifs | Content::Empty, _) => "",
                (Content::Squashfs, _) => ".squashfs",
                (Content::Known(_) | Content::Unknown, VolumeKind::Static) => ".bin",
                (Content::Known(_) | Content::Unknown, VolumeKind::Dynamic) => ".img",
            };
            let target = folder.join(names.unique(&format!("{name}{ending}")));
            match volume.content {
                Content::Ubifs => self.tree(Arc::new(volume.open()), &target)?,
                Content::Empty => make_folder(&target)?,
                _ => self.image(volume, &target)?,
            }
        }
        Ok(())
    }

    fn tree(&mut self, volume: Arc<DumpVolume>, folder: &Path) -> Result<()> {
        if self.budget.is_stopped() {
            return Ok(());
        }
        if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("Output directory is not empty. {}", folder.display());
        }
        let mut losses = Losses::below(print_error, folder.as_os_str().as_encoded_bytes());
        if let Some(ubifs) = open(volume, self.key, &mut losses) {
            if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                make_folder(parent)?;
            }
            print_line(&format!("Extracting files to: {}", folder.display()))?;
            let mut progress = Progress::new(spinner());
            let extracted = folder::extract(
                &ubifs,
                root(),
                folder,
                self.rules,
                &self.budget,
                &mut losses,
                &mut progress,
            );
            progress.finish();
            if let Err(error) = extracted {
                losses.tell_error(b"", &error);
            }
        }
        self.losses += losses.count();
        Ok(())
    }

    fn image(&mut self, volume: &Volume, file: &Path) -> Result<()> {
        self.losses += write_image(volume, file, &self.budget)?;
        Ok(())
    }
}

/// Writes the content of a volume; the number of losses.
fn write_image(volume: &Volume, file: &Path, budget: &Budget) -> Result<u64> {
    if let Some(folder) = file.parent() {
        make_folder(folder)?;
    }
    let mut stream = volume.stream();
    if let Err(error) = budget.take_bytes(stream.length_bytes()) {
        print_error(&format!("{}: {error}", file.display()));
        return Ok(1);
    }
    if !copy(&mut stream, file, budget)? {
        return Ok(0);
    }
    let place = file.as_os_str().as_encoded_bytes();
    Ok(stream
        .findings()
        .iter()
        .map(|finding| report::tell(print_error, place, finding))
        .sum())
}

/// Runs `ubireader_extract_images`.
pub fn images(arguments: &ImagesArguments) -> Result<Finding> {
    let common = &arguments.common;
    let Some(input) = common.open()? else {
        return Ok(Finding::Something);
    };
    if input.partitions().next().is_none() {
        bail!("File does not look like UBI data.");
    }
    let mut losses = input.tell();
    let budget = budget()?;
    let out = arguments
        .output_dir
        .clone()
        .unwrap_or_else(|| DEFAULT_FOLDER.into());
    let folder = out.join(&input.name);
    let mut names = Names::default();
    for partition in input.partitions() {
        let sequence = names.unique(&partition.image_sequence.to_string());
        if arguments.image_type.eq_ignore_ascii_case("UBI") {
            make_folder(&folder)?;
            copy(
                &mut partition.blocks(&input.dump),
                &folder.join(format!("img-{sequence}.ubi")),
                &budget,
            )?;
            continue;
        }
        let mut names = Names::default();
        for volume in &partition.volumes {
            let name = names.unique(&harmless(&volume.name()));
            losses += volume
                .findings
                .iter()
                .map(|finding| report::tell(print_error, name.as_bytes(), finding))
                .sum::<u64>();
            losses += write_image(
                volume,
                &folder.join(format!("img-{sequence}_vol-{name}.ubifs")),
                &budget,
            )?;
        }
    }
    let end = common.end(&input, losses);
    Ok(match budget.is_stopped() {
        true => stopped(&out),
        false => end,
    })
}

/// Copies a stream to a file. `false` if the run is stopped before its end: there is no such file then.
pub fn copy(stream: &mut dyn Read, file: &Path, budget: &Budget) -> Result<bool> {
    let mut buffer = vec![0; 1 << 20];
    let copied = to_file(file, &mut |out: &mut dyn Write| {
        loop {
            ensure!(!budget.is_stopped(), "stopped");
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                bytes => out
                    .write_all(&buffer[..bytes])
                    .with_context(|| format!("{} can't be written", file.display()))?,
            }
        }
    });
    match copied {
        Err(_) if budget.is_stopped() => Ok(false),
        copied => copied.map(|()| true),
    }
}
