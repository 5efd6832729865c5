//! `--salvage` and `--deleted`: reading by a scan of the whole volume ([`ubifs::salvage`]).

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use extract::texts::timestamp;
use extract::walk::{Next, root, walk};
use extract::{Losses, guess_lines};
use results::shown;
use ubi::Volume;
use ubifs::Ubifs;
use ubifs::format::{EntryKind, InodeNumber};
use ubifs::salvage::{DeletedFile, Salvage, SalvageOptions};

use super::finding;
use super::source::{Devices, SourceArguments};
use crate::Finding;
use crate::output::{Printed, print_error, print_line};

fn scan(source: &SourceArguments, volume: Arc<dyn Volume>) -> Salvage {
    let options = SalvageOptions {
        lists_deleted: source.deleted,
        ..SalvageOptions::standard(&*volume)
    };
    Salvage::scan(volume, options)
}

/// Opens the volume. Missing members of an array are losses.
fn volume(source: &SourceArguments, losses: &mut Losses) -> Result<Arc<dyn Volume>> {
    let (volume, devices) = source.volume_and_devices()?;
    for line in devices.iter().flat_map(Devices::missing_told) {
        losses.tell(&[], &line);
    }
    Ok(volume)
}

/// Salvages a volume: the file system without keys, and the guesses.
pub fn of_volume(source: &SourceArguments, volume: Arc<dyn Volume>) -> Result<(Ubifs, Vec<String>)> {
    let salvage = scan(source, volume);
    if source.deleted {
        let tree = salvage.into_deleted_tree(Vec::new());
        return Ok((tree.context("deleted files were not collected")?, Vec::new()));
    }
    let guesses = guess_lines(&salvage);
    Ok((salvage.into_tree(Vec::new()), guesses))
}

/// Opens the file system of a source. Losses and guesses go to `losses`.
pub fn open(source: &SourceArguments, losses: &mut Losses) -> Result<Ubifs> {
    let volume = volume(source, losses)?;
    let (ubifs, guesses) = of_volume(source, volume)?;
    losses.is_salvaged = true;
    for finding in ubifs.findings() {
        losses.tell(&[], finding);
    }
    for guess in &guesses {
        losses.tell(&[], guess);
    }
    Ok(ubifs.with_keys(source.master_keys()?))
}

/// Runs `ls --deleted`: a line for each deleted file, with the time of its deletion, its size, and how much is left.
pub fn list_deleted(source: &SourceArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
    losses.is_salvaged = true;
    let salvage = scan(source, volume(source, &mut losses)?);
    let files = salvage.deleted().to_vec();
    let tree = salvage
        .into_deleted_tree(source.master_keys()?)
        .context("deleted files were not collected")?;
    let mut paths: HashMap<InodeNumber, Vec<u8>> = HashMap::new();
    walk(&tree, root(), &mut losses, &mut |visited, _| {
        paths.insert(visited.number, visited.path.clone());
        anyhow::Ok(Next::Below)
    })?;
    let mut lines: Vec<(&[u8], &DeletedFile)> = files
        .iter()
        .filter_map(|file| Some((paths.get(&file.inode)?.as_slice(), file)))
        .collect();
    lines.sort_unstable_by_key(|(path, file)| (*path, file.inode));
    for (path, file) in lines {
        if print_line(&line(path, file))? == Printed::Closed {
            break;
        }
    }
    Ok(finding(&losses))
}

fn line(path: &[u8], file: &DeletedFile) -> String {
    let deleted = file.deleted_seconds.map_or_else(
        || "time unknown       ".to_owned(),
        |seconds| timestamp(seconds.cast_unsigned()),
    );
    let left = match (file.kind, file.is_whole()) {
        (EntryKind::Directory, _) => "directory".to_owned(),
        (_, true) => "whole".to_owned(),
        (_, false) if file.blocks_found == file.blocks => "all, maybe older".to_owned(),
        (_, false) => format!("{} of {} blocks", file.blocks_found, file.blocks),
    };
    format!(
        "{deleted} {:>12} {left:>18} {}",
        file.size_bytes,
        shown::name(path)
    )
}
