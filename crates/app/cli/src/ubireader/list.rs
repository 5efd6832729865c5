//! `ubireader_list_files`: directories of each UBIFS, or a copy of one file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use extract::content::{Run, RunReader};
use extract::ubireader::list_line;
use extract::walk::{Next, resolve, walk};
use extract::{Budget, Losses};
use ubifs::Ubifs;
use ubifs::format::EntryKind;

use super::{Common, STOPPED, budget, open};
use crate::Finding;
use crate::output::{print_error, print_line, refuse_input_as_output};
use crate::ubifs_command::source::KeyFile;

/// Arguments of `ubireader_list_files`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// The dump.
    #[command(flatten)]
    pub common: Common,
    /// LEB size of a UBIFS; accepted, and taken from its superblock
    #[arg(short = 'e', long, value_name = "BLOCK_SIZE")]
    pub leb_size: Option<String>,
    /// The directory to list
    #[arg(short = 'P', long, value_name = "LISTPATH")]
    pub path: Option<String>,
    /// A file to copy
    #[arg(short = 'C', long, value_name = "COPYFILE", requires = "copy_dest")]
    pub copy: Option<String>,
    /// The file or folder to copy it to
    #[arg(short = 'D', long, value_name = "COPYFILEDEST", requires = "copy")]
    pub copy_dest: Option<PathBuf>,
    /// A file with the master key of encrypted files
    #[arg(short = 'K', long, value_name = "MASTER_KEY")]
    pub master_key: Option<KeyFile>,
    /// List everything below the directory, with absolute paths
    #[arg(short, long, requires = "path")]
    pub recursive: bool,
}

/// Runs `ubireader_list_files`.
pub fn run(arguments: &ListArguments) -> Result<Finding> {
    if let Some(key) = &arguments.master_key {
        key.read()?;
    }
    let common = &arguments.common;
    let Some(input) = common.open()? else {
        return Ok(Finding::Something);
    };
    if let Some(target) = &arguments.copy_dest {
        refuse_input_as_output(&common.filepath, target)?;
    }
    let of_survey = input.tell();
    let mut losses = Losses::new(print_error);
    // A list ends at once by a signal, as nothing is written.
    let budget = arguments.copy.as_ref().map(|_| budget()).transpose()?;
    let (mut is_listed, mut copies) = (false, 0_u64);
    let of_partitions = input.partitions().flat_map(|partition| &partition.volumes);
    let volumes = of_partitions
        .filter(|volume| volume.content == image::Content::Ubifs)
        .map(image::Volume::open)
        .chain(input.bare().map(image::BareVolume::open));
    for volume in volumes {
        let Some(ubifs) = open(Arc::new(volume), arguments.master_key.as_ref(), &mut losses) else {
            continue;
        };
        if let Some(path) = &arguments.path {
            is_listed |= list(&ubifs, path, arguments.recursive, &mut losses)?;
        }
        if let (Some(path), Some(target), Some(budget)) = (&arguments.copy, &arguments.copy_dest, &budget) {
            copies += u64::from(copy(&ubifs, path, target, budget, &mut losses)?);
            if budget.is_stopped() {
                print_error("stopped before its end");
                return Ok(Finding::Code(STOPPED));
            }
        }
    }
    if copies > 1 {
        print_error(&format!(
            "note: {copies} file systems have this file; the copy is that of the last one"
        ));
    }
    let listing = arguments.path.as_ref().filter(|_| !is_listed);
    let copying = arguments.copy.as_ref().filter(|_| copies == 0);
    for path in listing.into_iter().chain(copying) {
        losses.tell(path.as_bytes(), &"no file system of the dump has it");
    }
    Ok(common.end(&input, of_survey + losses.count()))
}

/// Lists a directory. `false` if this file system has none: there may be others.
fn list(ubifs: &Ubifs, path: &str, is_recursive: bool, losses: &mut Losses) -> Result<bool> {
    let Ok(start) = resolve(ubifs, path) else {
        return Ok(false);
    };
    let above = path.trim_end_matches('/');
    walk(ubifs, start, losses, &mut |visited, losses| {
        if visited.path.is_empty() {
            return anyhow::Ok(Next::Below);
        }
        let name = match is_recursive {
            true => [above.as_bytes(), b"/", &visited.path].concat(),
            false => visited.path.clone(),
        };
        print_line(&list_line(ubifs, visited, &name, losses))?;
        anyhow::Ok(match is_recursive {
            true => Next::Below,
            false => Next::Past,
        })
    })?;
    Ok(true)
}

/// Copies a file. `false` if this file system has none: there may be others.
fn copy(ubifs: &Ubifs, path: &str, target: &Path, budget: &Budget, losses: &mut Losses) -> Result<bool> {
    let Ok(named) = resolve(ubifs, path) else {
        return Ok(false);
    };
    let mut lost = Vec::new();
    let inode = ubifs.inode_lossy(named.inode, named.kind, &mut lost);
    for finding in &lost {
        losses.tell(path.as_bytes(), finding);
    }
    let Some(inode) = inode else { return Ok(true) };
    if inode.kind() != Some(EntryKind::File) {
        bail!("{path}: it is no regular file");
    }
    ubifs.check_key(&inode)?;
    // A forged inode may claim any size.
    if let Err(error) = budget.take_bytes(inode.size_bytes) {
        losses.tell_error(path.as_bytes(), &error);
        return Ok(true);
    }
    let target = match (target.is_dir(), path.rsplit('/').next()) {
        (true, Some(name)) => target.join(name),
        _ => target.to_owned(),
    };
    let all = [Run {
        offset: 0,
        bytes: inode.size_bytes,
    }];
    let mut reader = RunReader::new(ubifs, &inode, &all);
    super::extract::copy(&mut reader, &target, budget)?;
    for finding in &reader.lost {
        losses.tell(path.as_bytes(), finding);
    }
    Ok(true)
}
