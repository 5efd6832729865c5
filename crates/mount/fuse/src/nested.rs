//! File systems that are mounted on folders or files of this mount.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// True if a process that this one can see has a file system mounted on a folder or file of the mount with this device
/// number. True too if that can't be found out.
pub fn are_mounted_on(device: u32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else {
        return true;
    };
    let mut seen = HashSet::new();
    let tables = processes.flatten().filter_map(|process| {
        let is_new = seen.insert(fs::read_link(process.path().join("ns/mnt")).ok()?);
        is_new.then(|| read(&process.path())).flatten()
    });
    let mut tables = tables.peekable();
    tables.peek().is_none() || tables.any(|table| has_nested(&table, device))
}

fn read(process: &Path) -> Option<String> {
    fs::read_to_string(process.join("mountinfo")).ok()
}

/// `table` has the format of `/proc/self/mountinfo`: number, number of the mount below, device, and more.
fn has_nested(table: &str, device: u32) -> bool {
    let device = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let fields = |line: &'_ str| {
        let mut fields = line.split(' ').map(str::to_owned);
        Some((fields.next()?, fields.next()?, fields.next()?))
    };
    let mounts: Vec<_> = table.lines().filter_map(fields).collect();
    let own: HashSet<_> = mounts
        .iter()
        .filter(|(_, _, on)| *on == device)
        .map(|(number, ..)| number)
        .collect();
    mounts.iter().any(|(_, below, _)| own.contains(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_on_the_mount_itself_is_nested() {
        let alone = "20 1 254:0 / / rw\n30 20 0:50 / /mnt rw - fuse.tidegate s rw\n31 20 0:51 / /other rw\n";
        assert!(!has_nested(alone, 50));
        let nested = format!("{alone}32 30 0:52 / /mnt/below rw\n");
        assert!(has_nested(&nested, 50));
        assert!(!has_nested(&nested, 51));
    }
}
