//! `ubireader_list_files`: a line for each file.

use results::shown;
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
