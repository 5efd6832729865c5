//! `tidegate ubifs ls`, `tree` and `stat`.

use anyhow::Result;
use clap::Args;
use extract::Losses;
use extract::texts::{attributes, details, target};
use extract::walk::{Next, resolve, walk};
use results::shown;
use ubifs::format::EntryKind;

use super::source::SourceArguments;
use super::{finding, salvage};
use crate::Finding;
use crate::output::{Printed, print_error, print_line};

/// Arguments of `tidegate ubifs ls`.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// The directory
    #[arg(default_value = "/")]
    pub path: String,
    /// Show mode, links, owner, group, size and time too
    #[arg(long, short = 'l')]
    pub long: bool,
}

/// Arguments of `tidegate ubifs tree`.
#[derive(Args, Debug)]
pub struct TreeArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// The directory to start from
    #[arg(default_value = "/")]
    pub path: String,
}

/// Arguments of `tidegate ubifs stat`.
#[derive(Args, Debug)]
pub struct StatArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// The file
    pub path: String,
}

/// Runs `ls`.
pub fn run(arguments: &ListArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
    if arguments.source.deleted {
        return salvage::list_deleted(&arguments.source);
    }
    let ubifs = arguments.source.open(&mut losses)?;
    let directory = resolve(&ubifs, &arguments.path)?.inode;
    let mut lost = Vec::new();
    let mut entries = ubifs.read_directory_lossy(directory, &mut lost);
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for finding in &lost {
        losses.tell(arguments.path.as_bytes(), finding);
    }
    for entry in entries {
        let line = match arguments.long {
            false => shown::name(&entry.name),
            true => match ubifs.inode(entry.inode) {
                Ok(inode) => format!("{} {}", attributes(&inode), shown::name(&entry.name)),
                Err(error) => {
                    losses.tell(&entry.name, &error);
                    continue;
                }
            },
        };
        if print_line(&line)? == Printed::Closed {
            break;
        }
    }
    Ok(finding(&losses))
}

/// Runs `tree`.
pub fn tree(arguments: &TreeArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
    let ubifs = arguments.source.open(&mut losses)?;
    let start = resolve(&ubifs, &arguments.path)?;
    walk(&ubifs, start, &mut losses, &mut |visited, _| {
        let path = if visited.path.is_empty() {
            b"."
        } else {
            visited.path.as_slice()
        };
        let target = match visited.inode.kind() {
            Some(EntryKind::Symlink) => format!(" -> {}", target(&ubifs, &visited.inode)),
            _ => String::new(),
        };
        let line = format!("{} {}{target}", attributes(&visited.inode), shown::name(path));
        anyhow::Ok(match print_line(&line)? {
            Printed::Done => Next::Below,
            Printed::Closed => Next::Stop,
        })
    })?;
    Ok(finding(&losses))
}

/// Runs `stat`.
pub fn stat(arguments: &StatArguments) -> Result<Finding> {
    let mut losses = Losses::new(print_error);
    let ubifs = arguments.source.open(&mut losses)?;
    let number = resolve(&ubifs, &arguments.path)?.inode;
    let inode = ubifs.inode(number)?;
    print_line(&details(
        &ubifs,
        number,
        &inode,
        arguments.path.as_bytes(),
        &mut losses,
    ))?;
    Ok(finding(&losses))
}
