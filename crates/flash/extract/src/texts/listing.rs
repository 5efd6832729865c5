//! Attributes of files.

use report::number::date_and_time;
use results::shown;
use ubifs::Ubifs;
use ubifs::format::{EntryKind, Inode, InodeNumber};

use crate::losses::Losses;

/// All attributes of a file, as lines.
pub fn details(
    ubifs: &Ubifs,
    number: InodeNumber,
    inode: &Inode,
    path: &[u8],
    losses: &mut Losses,
) -> String {
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

/// The target of a symbolic link.
#[must_use]
pub fn target(ubifs: &Ubifs, link: &Inode) -> String {
    match ubifs.read_link(link) {
        Ok(target) => shown::name(&target),
        Err(_) => "(encrypted)".to_owned(),
    }
}

/// The attributes of a file on one line.
#[must_use]
pub fn attributes(inode: &Inode) -> String {
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
#[must_use]
pub fn timestamp(seconds: u64) -> String {
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
