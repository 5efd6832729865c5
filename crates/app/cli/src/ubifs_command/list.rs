//! `tidegate ubifs ls`, `tree` and `stat`.

use anyhow::Result;
use clap::Args;
use report::number::date_and_time;
use results::shown;
use ubifs::Ubifs;
use ubifs::format::{EntryKind, Inode, InodeNumber};

use super::source::SourceArguments;
use super::walk::{Next, resolve, walk};
use super::{Losses, salvage};
use crate::Finding;
use crate::output::{Printed, print_line};

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
    let mut losses = Losses::default();
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
    Ok(losses.result())
}

/// Runs `tree`.
pub fn tree(arguments: &TreeArguments) -> Result<Finding> {
    let mut losses = Losses::default();
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
        Ok(match print_line(&line)? {
            Printed::Done => Next::Below,
            Printed::Closed => Next::Stop,
        })
    })?;
    Ok(losses.result())
}

/// Runs `stat`.
pub fn stat(arguments: &StatArguments) -> Result<Finding> {
    let mut losses = Losses::default();
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
    Ok(losses.result())
}

fn details(ubifs: &Ubifs, number: InodeNumber, inode: &Inode, path: &[u8], losses: &mut Losses) -> String {
    let time = |seconds: u64, nanoseconds: u32| format!("{}.{nanoseconds:09}", timestamp(seconds));
    let mut lines = vec![
        format!("path      {}", shown::name(path)),
        format!("inode     {}, {} links", number.0, inode.links),
        format!("mode      {} ({:o})", mode(inode), inode.mode),
        format!("owner     {}:{}", inode.user, inode.group),
        format!("size      {} bytes", inode.size_bytes),
        format!("flags     {:#x}", inode.flags),
        format!(
            "accessed  {}",
            time(inode.accessed_seconds, inode.accessed_nanoseconds)
        ),
        format!(
            "modified  {}",
            time(inode.modified_seconds, inode.modified_nanoseconds)
        ),
        format!(
            "changed   {}",
            time(inode.changed_seconds, inode.changed_nanoseconds)
        ),
    ];
    let mut lost = Vec::new();
    match inode.kind() {
        Some(EntryKind::File) => {
            let blocks = ubifs.blocks_lossy(number, &mut lost).len();
            lines.push(format!("blocks    {blocks} of 4096 bytes"));
        }
        Some(EntryKind::Symlink) => lines.push(format!("target    {}", target(ubifs, inode))),
        _ => {}
    }
    if let Some((major, minor)) = inode.device() {
        lines.push(format!("device    {major}:{minor}"));
    }
    for xattr in ubifs.xattrs_lossy(number, &mut lost) {
        lines.push(format!(
            "xattr     {}=\"{}\"",
            shown::name(&xattr.name),
            shown::name(&xattr.value)
        ));
    }
    for finding in &lost {
        losses.tell(path, finding);
    }
    lines.join("\n")
}

fn target(ubifs: &Ubifs, link: &Inode) -> String {
    match ubifs.read_link(link) {
        Ok(target) => shown::name(&target),
        Err(_) => "(encrypted)".to_owned(),
    }
}

fn attributes(inode: &Inode) -> String {
    let size = match inode.device() {
        Some((major, minor)) => format!("{major}:{minor}"),
        None => inode.size_bytes.to_string(),
    };
    format!(
        "{} {:>3} {:>5} {:>5} {size:>10} {}",
        mode(inode),
        inode.links,
        inode.user,
        inode.group,
        timestamp(inode.modified_seconds)
    )
}

fn mode(inode: &Inode) -> String {
    let kind = match inode.kind() {
        Some(EntryKind::File) => '-',
        Some(EntryKind::Directory) => 'd',
        Some(EntryKind::Symlink) => 'l',
        Some(EntryKind::BlockDevice) => 'b',
        Some(EntryKind::CharacterDevice) => 'c',
        Some(EntryKind::Fifo) => 'p',
        Some(EntryKind::Socket) => 's',
        None => '?',
    };
    let bit = |bit: u32, letter: char| if inode.mode >> bit & 1 == 1 { letter } else { '-' };
    let mut text = String::from(kind);
    for (class, special, letters) in [(6, 11, ('s', 'S')), (3, 10, ('s', 'S')), (0, 9, ('t', 'T'))] {
        text.push(bit(class + 2, 'r'));
        text.push(bit(class + 1, 'w'));
        text.push(match (bit(special, 'x'), bit(class, 'x')) {
            ('x', 'x') => letters.0,
            ('x', _) => letters.1,
            (_, other) => other,
        });
    }
    text
}

/// Formats seconds since 1970 as a date and time in UTC.
pub(super) fn timestamp(seconds: u64) -> String {
    date_and_time(seconds.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00");
        assert_eq!(timestamp(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(timestamp((-1_i64).cast_unsigned()), "1969-12-31 23:59:59");
    }
}
