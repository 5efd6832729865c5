//! Possible directories for measurements: file systems that this user may write to, with their free space.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use serde::Serialize;

/// File systems without storage of their own.
const WITHOUT_STORAGE: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// A directory, and the properties of its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The directory.
    pub path: String,
    /// Type of the file system, if the mount table has it.
    pub file_system_type: Option<String>,
    /// Space free to this user, bytes.
    pub free_bytes: u64,
    /// Size of the file system, bytes.
    pub total_bytes: u64,
}

/// Mount points that this user may write to, the largest file system first.
pub fn places() -> Vec<Place> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let own = rustix::process::geteuid().as_raw();
    let mut places: Vec<Place> = mounts(&without_others(&table, own))
        .into_iter()
        .filter(|(_, kind)| !WITHOUT_STORAGE.contains(&kind.as_str()))
        .filter(|(point, _)| point.is_dir() && access(point, Access::WRITE_OK).is_ok())
        .filter_map(|(point, kind)| described(&point, Some(kind)))
        .filter(|place| place.total_bytes > 0)
        .collect();
    places.sort_by(|one, other| {
        other
            .total_bytes
            .cmp(&one.total_bytes)
            .then(one.path.cmp(&other.path))
    });
    places.dedup_by(|one, other| one.path == other.path);
    places
}

/// The properties of a directory, or the reason why it can't be used for measurements.
pub fn place(directory: &str) -> Result<Place, String> {
    let path = Path::new(directory);
    if !path.is_absolute() {
        return Err(format!(
            "`{directory}` is not an absolute path, which begins with /"
        ));
    }
    match std::fs::metadata(path) {
        Err(error) => return Err(format!("{directory} can't be used: {error}")),
        Ok(found) if !found.is_dir() => return Err(format!("{directory} is not a folder")),
        Ok(_) => {}
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("{directory} can't be written to: {error}"))?;
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let kind = mounts(&String::from_utf8_lossy(&table))
        .into_iter()
        .rev()
        .filter(|(point, _)| resolved.starts_with(point))
        .max_by_key(|(point, _)| point.components().count())
        .map(|(_, kind)| kind);
    described(path, kind).ok_or_else(|| format!("{directory}: its free space can't be found out"))
}

fn described(path: &Path, file_system_type: Option<String>) -> Option<Place> {
    let space = statvfs(path).ok()?;
    Some(Place {
        path: path.to_str()?.to_owned(),
        file_system_type,
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
    })
}

/// The table without the FUSE mounts of users other than `own` and root: their daemons could leave questions unanswered.
fn without_others(table: &str, own: u32) -> String {
    let lines = table
        .lines()
        .filter(|line| fuse_user(line).is_none_or(|user| [0, own].contains(&user)));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The user whose daemon serves a FUSE mount.
fn fuse_user(line: &str) -> Option<u32> {
    let options = line.split_once(" - ")?.1.split(' ').nth(2)?;
    let user = options
        .split(',')
        .find_map(|option| option.strip_prefix("user_id="));
    user?.parse().ok()
}

/// Mount points and types, in the order of the table.
fn mounts(table: &str) -> Vec<(PathBuf, String)> {
    let one = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        Some((
            unescaped(left.split(' ').nth(4)?),
            right.split(' ').next()?.to_owned(),
        ))
    };
    table.lines().filter_map(one).collect()
}

/// Decodes blanks, tabs, line feeds and backslashes, which the table writes as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let text = plain.iter().fold(text.to_owned(), |text, (escaped, letter)| {
        text.replace(escaped, letter)
    });
    PathBuf::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_from_the_table() {
        let table =
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 0:5 / /a\\040b rw shared:1 - tmpfs tmpfs rw\nodd\n";
        assert_eq!(
            mounts(table),
            [
                (PathBuf::from("/"), "ext4".to_owned()),
                (PathBuf::from("/a b"), "tmpfs".to_owned())
            ]
        );
    }

    #[test]
    fn mounts_of_other_users_are_not_asked() {
        let line = |user| format!("30 22 0:50 / /m{user} rw - fuse.x x rw,user_id={user},group_id=0\n");
        let table = [
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n".to_owned(),
            line(0),
            line(7),
            line(8),
        ]
        .concat();
        let left = without_others(&table, 7);
        assert!(
            left.contains("/m0 ") && left.contains("/m7 ") && left.contains("ext4"),
            "{left}"
        );
        assert!(!left.contains("/m8 "), "{left}");
    }

    #[test]
    fn places_to_measure_have_space_and_no_kernel_tables() {
        for place in places() {
            assert!(
                !place.path.starts_with("/proc") && place.total_bytes > 0,
                "{place:?}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_directory_is_said() {
        let folder = tempfile::TempDir::new().unwrap();
        let good = place(folder.path().to_str().unwrap()).unwrap();
        assert!(good.free_bytes > 0 && good.file_system_type.is_some());
        for (directory, word) in [
            ("relative", "absolute"),
            ("/nowhere", "/nowhere"),
            ("/proc/version", "not a folder"),
        ] {
            let reason = place(directory).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    }
}
