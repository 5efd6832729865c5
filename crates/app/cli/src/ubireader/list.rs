//! `ubireader_list_files`: directories of each UBIFS, or a copy of one file.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use results::shown;
use ubifs::Ubifs;
use ubifs::format::{EntryKind, Inode};

use super::{Common, open};
use crate::Finding;
use crate::output::{print_line, refuse_input_as_output, to_file};
use crate::ubifs_command::Losses;
use crate::ubifs_command::content::{Run, RunReader};
use crate::ubifs_command::source::KeyFile;
use crate::ubifs_command::walk::{Next, Visited, resolve, walk};

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
    let mut losses = Losses::default();
    let mut is_found = false;
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
            is_found |= list(&ubifs, path, arguments.recursive, &mut losses)?;
        }
        if let (Some(path), Some(target)) = (&arguments.copy, &arguments.copy_dest) {
            is_found |= copy(&ubifs, path, target, &mut losses)?;
        }
    }
    if let Some(path) = arguments
        .copy
        .as_ref()
        .or(arguments.path.as_ref())
        .filter(|_| !is_found)
    {
        losses.tell(path.as_bytes(), &"no file system of the dump has it");
    }
    Ok(common.end(of_survey + losses.count()))
}

/// Lists a directory. `false` if this file system has none: there may be others.
fn list(ubifs: &Ubifs, path: &str, is_recursive: bool, losses: &mut Losses) -> Result<bool> {
    let Ok(start) = resolve(ubifs, path) else {
        return Ok(false);
    };
    let above = path.trim_end_matches('/');
    walk(ubifs, start, losses, &mut |visited, losses| {
        if visited.path.is_empty() {
            return Ok(Next::Below);
        }
        let name = match is_recursive {
            true => [above.as_bytes(), b"/", &visited.path].concat(),
            false => visited.path.clone(),
        };
        print_line(&line(ubifs, visited, &name, losses))?;
        Ok(match is_recursive {
            true => Next::Below,
            false => Next::Past,
        })
    })?;
    Ok(true)
}

fn line(ubifs: &Ubifs, visited: &Visited, name: &[u8], losses: &mut Losses) -> String {
    let inode = &visited.inode;
    let target = match inode.kind() {
        Some(EntryKind::Symlink) => match ubifs.read_link(inode) {
            Ok(target) => format!(" -> {}", shown::name(&target)),
            Err(error) => {
                losses.tell(&visited.path, &error);
                " ->".to_owned()
            }
        },
        _ => String::new(),
    };
    let size = match inode.kind() {
        Some(EntryKind::File) => inode.size_bytes,
        _ => 0,
    };
    format!(
        "{:>6o} {:>2} {} {} {size:>7} {} {}{target}",
        inode.mode,
        inode.links,
        inode.user,
        inode.group,
        date(inode),
        shown::name(name)
    )
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Month, day and time in UTC.
fn date(inode: &Inode) -> String {
    let seconds = inode.modified_seconds.cast_signed();
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years.
    let day_of_era = days.saturating_add(719_468).rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = usize::try_from((month_from_march + 2) % 12).unwrap_or(0);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{} {day:02} {hour:02}:{minute:02}", MONTHS[month])
}

/// Copies a file. `false` if this file system has none: there may be others.
fn copy(ubifs: &Ubifs, path: &str, target: &std::path::Path, losses: &mut Losses) -> Result<bool> {
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
    let target = match (target.is_dir(), path.rsplit('/').next()) {
        (true, Some(name)) => target.join(name),
        _ => target.to_owned(),
    };
    let all = [Run {
        offset: 0,
        bytes: inode.size_bytes,
    }];
    let mut reader = RunReader::new(ubifs, &inode, &all);
    to_file(&target, &mut |out: &mut dyn Write| {
        while let Some((_, piece)) = reader.next_piece().filter(|(_, piece)| !piece.is_empty()) {
            out.write_all(piece)?;
        }
        Ok(())
    })?;
    for finding in &reader.lost {
        losses.tell(path.as_bytes(), finding);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ubifs::format::InodeNumber;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds: i64| {
            let mut inode = Inode::unknown(InodeNumber(1));
            inode.modified_seconds = seconds.cast_unsigned();
            date(&inode)
        };
        assert_eq!(at(0), "Jan 01 00:00");
        assert_eq!(at(1_582_934_400 + 3661), "Feb 29 01:01");
        assert_eq!(at(1_577_923_200), "Jan 02 00:00");
        assert_eq!(at(-60), "Dec 31 23:59");
        at(i64::MAX);
        at(i64::MIN);
    }
}
