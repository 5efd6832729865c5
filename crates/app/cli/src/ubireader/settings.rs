//! `ubireader_utils_info`: the settings of `mkfs.ubifs` and `ubinize` that make the images of a dump again.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use extract::Losses;
use extract::dump::names::Names;
use extract::ubireader::{mkfs_options, section, settings, ubinize_options};
use image::Content;
use outfile::{OutFile, Unfinished};

use super::extract::DEFAULT_FOLDER;
use super::{Common, make_folder, open};
use crate::Finding;
use crate::output::{print_error, print_line};

/// Arguments of `ubireader_utils_info`.
#[derive(Args, Debug)]
pub struct SettingsArguments {
    /// The dump.
    #[command(flatten)]
    pub common: Common,
    /// Only print the settings
    #[arg(short = 'r', long)]
    pub show_only: bool,
    /// The folder to write to [default: ubifs-root]
    #[arg(short, long, value_name = "OUTPATH")]
    pub output_dir: Option<PathBuf>,
}

/// Runs `ubireader_utils_info`.
pub fn run(arguments: &SettingsArguments) -> Result<Finding> {
    let common = &arguments.common;
    let Some(input) = common.open()? else {
        return Ok(Finding::Something);
    };
    if input.partitions().next().is_none() {
        anyhow::bail!("File does not look like UBI data.");
    }
    let of_survey = input.tell();
    let mut losses = Losses::new(print_error);
    let out = arguments
        .output_dir
        .clone()
        .unwrap_or_else(|| DEFAULT_FOLDER.into());
    let mut names = Names::default();
    for partition in input.partitions() {
        let image = format!("img-{}", names.unique(&partition.image_sequence.to_string()));
        let (mut script, mut ini) = ("#!/bin/sh\n".to_owned(), String::new());
        for (place, volume) in partition.volumes.iter().enumerate() {
            let superblock = match volume.content {
                Content::Ubifs => {
                    open(Arc::new(volume.open()), None, &mut losses).map(|ubifs| ubifs.superblock().clone())
                }
                _ => None,
            };
            let file = format!("{image}_{place}.ubifs");
            print_line(&settings(partition, volume, superblock.as_ref()))?;
            if let Some(superblock) = &superblock {
                script += &format!(
                    "/usr/sbin/mkfs.ubifs {} -r ${} {file}\n",
                    mkfs_options(superblock),
                    place + 1
                );
            }
            ini += &section(
                volume,
                &["mode = ubi".to_owned(), format!("image = {file}")],
                " = ",
            );
            ini.push('\n');
        }
        script += &format!(
            "/usr/sbin/ubinize {} -o {image}.ubi {image}.ini\n",
            ubinize_options(partition)
        );
        if !arguments.show_only {
            let folder = out.join(&input.name).join(&image);
            make_folder(&folder)?;
            for (file, content, mode) in [
                (format!("create_ubi_{image}.sh"), &script, Some(SCRIPT_MODE)),
                (format!("{image}.ini"), &ini, None),
            ] {
                let path = folder.join(file);
                print_line(&format!("Writing to: {}", path.display()))?;
                write(&path, content, mode)
                    .with_context(|| format!("{} can't be written", path.display()))?;
            }
        }
    }
    Ok(common.end(&input, of_survey + losses.count()))
}

/// The mode of scripts, whatever the umask is.
const SCRIPT_MODE: u32 = 0o755;

fn write(path: &Path, content: &str, mode: Option<u32>) -> io::Result<()> {
    let mut output = OutFile::create(path, Unfinished::Remove)?;
    output.write_all(content.as_bytes())?;
    let file = output.finish()?;
    match mode {
        Some(mode) => file.set_permissions(Permissions::from_mode(mode)),
        None => Ok(()),
    }
}
