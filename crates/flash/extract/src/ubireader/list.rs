//! `ubireader_list_files`: a line for each file.

use results::{calendar, shown};
use ubifs::Ubifs;
use ubifs::format::{EntryKind, Inode};

use crate::losses::Losses;
use crate::walk::Visited;

/// A file of a directory.
pub fn list_line(ubifs: &Ubifs, visited: &Visited, name: &[u8], losses: &mut Losses) -> String {
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
    let (_, month, day) = calendar::date(seconds.div_euclid(calendar::DAY_SECONDS));
    let second = seconds.rem_euclid(calendar::DAY_SECONDS);
    let month = usize::try_from(month - 1).unwrap_or(0);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{} {day:02} {hour:02}:{minute:02}", MONTHS[month])
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
