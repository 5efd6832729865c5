//! Names of files and processes, assembled from records of the programs.
//!
//! A directory entry is identified by its address and is reported again when its name or parent has changed, always
//! before a record refers to it; so following parents at the time of a record yields the path at that time.

use std::collections::HashMap;
use std::sync::Arc;

use results::block_trace::{FileIdentity, Process};

use super::record::{NameRecord, ProcessRecord, ProcessReference};

/// Deeper paths are cut, as in the programs.
const MAX_DEPTH: usize = 40;

#[derive(Debug)]
struct Entry {
    parent: u64,
    name: Box<str>,
}

/// Directory entries and the last known path of each file.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    entries: HashMap<u64, Entry>,
    /// Paths by entry, valid for `epoch`: a changed entry may invalidate any of them.
    built: HashMap<u64, Arc<str>>,
    last: HashMap<FileIdentity, Arc<str>>,
    /// From a scan at the start: without generation, used only until the inode is seen otherwise.
    seeds: HashMap<(results::block_trace::DeviceNumber, u64), Arc<str>>,
}

impl Paths {
    /// Adds an entry.
    pub(crate) fn learn(&mut self, record: &NameRecord) {
        let length = usize::try_from(record.bytes).unwrap_or(0).min(record.name.len());
        let name = printable(&record.name[..length]);
        let entry = Entry {
            parent: record.parent,
            name: name.into(),
        };
        if self.entries.insert(record.dentry, entry).is_some() {
            self.built.clear();
        }
    }

    /// Adds a path found on the mounted file system before the trace.
    pub(crate) fn seed(&mut self, file_system: results::block_trace::DeviceNumber, inode: u64, path: &str) {
        self.seeds.insert((file_system, inode), path.into());
    }

    /// The current path of an entry; for 0, when the kernel has none, the last known path of the file.
    pub(crate) fn path(&mut self, file: FileIdentity, dentry: u64) -> Option<Arc<str>> {
        if dentry == 0 {
            return self
                .last
                .get(&file)
                .or_else(|| self.seeds.get(&(file.file_system, file.inode)))
                .cloned();
        }
        let path = match self.built.get(&dentry) {
            Some(path) => path.clone(),
            None => {
                let path: Arc<str> = self.build(dentry)?.into();
                self.built.insert(dentry, path.clone());
                path
            }
        };
        Some(path)
    }

    /// Records the path of a file; returns the previous one if it differs.
    pub(crate) fn note(&mut self, file: FileIdentity, path: &Arc<str>) -> Option<Arc<str>> {
        self.seeds.remove(&(file.file_system, file.inode));
        let before = self.last.insert(file, path.clone())?;
        (before != *path).then_some(before)
    }

    /// Forgets a deleted file, whose inode number may be reused.
    pub(crate) fn forget(&mut self, file: FileIdentity) {
        self.last.remove(&file);
        self.seeds.remove(&(file.file_system, file.inode));
    }

    fn build(&self, dentry: u64) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        let mut at = dentry;
        let mut whole = false;
        for _ in 0..MAX_DEPTH {
            let entry = self.entries.get(&at)?;
            if entry.parent == at {
                whole = true;
                break;
            }
            names.push(&entry.name);
            at = entry.parent;
        }
        let mut path = if whole { String::new() } else { String::from("...") };
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        if path.is_empty() {
            path.push('/');
        }
        Some(path)
    }
}

/// Keeps UTF-8, and shows other bytes and control characters as `\xNN`.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Name and Android package.
type Named = (Arc<str>, Option<Arc<str>>);

/// Processes by the programs' identifiers.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    names: HashMap<(u32, u64), Named>,
    /// One value per thread, shared by all references to it.
    known: HashMap<(u32, u32, u64), Arc<Process>>,
}

impl Processes {
    /// Whether any record of the trace refers to the process.
    pub(crate) fn has_met(&self, tgid: u32, name: u64) -> bool {
        self.known
            .keys()
            .any(|(pid, _, key)| (*pid, *key) == (tgid, name))
    }
}

impl Processes {
    /// Adds a name.
    pub(crate) fn learn(&mut self, record: &ProcessRecord) {
        let end = record
            .comm
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(record.comm.len());
        let name: Arc<str> = printable(&record.comm[..end]).into();
        let package = package_of(record.tgid).map(Arc::from);
        self.names.insert((record.tgid, record.name), (name, package));
    }

    /// The process of a reference.
    pub(crate) fn get(&mut self, reference: ProcessReference) -> Arc<Process> {
        let names = &self.names;
        let made = || {
            let (name, package) = names
                .get(&(reference.tgid, reference.name))
                .cloned()
                .unwrap_or_else(|| (Arc::from("?"), None));
            Arc::new(Process {
                pid: reference.tgid,
                tid: reference.tid,
                name,
                package,
            })
        };
        self.known
            .entry((reference.tgid, reference.tid, reference.name))
            .or_insert_with(made)
            .clone()
    }
}

/// The Android package of a process: its command line is the package's name if its cgroup is an application's.
fn package_of(pid: u32) -> Option<String> {
    let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    if !cgroup.lines().any(is_application_cgroup) {
        return None;
    }
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    package_in_command(&command)
}

/// `/apps/uid_10123/pid_4242` and the older `/uid_10123/pid_4242`, with application uids from 10000.
fn is_application_cgroup(line: &str) -> bool {
    line.split('/').any(|part| {
        part.strip_prefix("uid_")
            .and_then(|uid| uid.parse::<u32>().ok())
            .is_some_and(|uid| uid % 100_000 >= 10_000)
    })
}

fn package_in_command(command: &[u8]) -> Option<String> {
    let first = command.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(first).ok()?;
    let package = text.split(':').next()?;
    let parts: Vec<&str> = package.split('.').collect();
    let is_word = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    (parts.len() >= 2 && parts.iter().all(is_word)).then(|| package.to_owned())
}

#[cfg(test)]
mod tests {
    use results::block_trace::DeviceNumber;

    use super::*;

    fn name(dentry: u64, parent: u64, text: &[u8]) -> NameRecord {
        let mut name = [0; 256];
        name[..text.len()].copy_from_slice(text);
        NameRecord {
            kind: 5,
            bytes: u32::try_from(text.len()).unwrap(),
            dentry,
            parent,
            name,
        }
    }

    const FILE: FileIdentity = FileIdentity {
        file_system: DeviceNumber { major: 7, minor: 0 },
        inode: 12,
        generation: 3,
    };

    #[test]
    fn a_renamed_folder_changes_the_path_of_what_is_in_it() {
        let mut paths = Paths::default();
        paths.learn(&name(1, 1, b"/"));
        paths.learn(&name(2, 1, b"old"));
        paths.learn(&name(3, 2, b"file"));
        assert_eq!(paths.path(FILE, 3).as_deref(), Some("/old/file"));
        paths.learn(&name(2, 1, b"new"));
        assert_eq!(paths.path(FILE, 3).as_deref(), Some("/new/file"));
    }

    #[test]
    fn without_an_entry_the_last_path_of_this_very_generation_is_told() {
        let mut paths = Paths::default();
        paths.learn(&name(1, 1, b"/"));
        paths.learn(&name(3, 1, b"file"));
        let path = paths.path(FILE, 3).unwrap();
        assert_eq!(paths.note(FILE, &path), None);
        assert_eq!(paths.path(FILE, 0).as_deref(), Some("/file"));
        let other = FileIdentity {
            generation: 4,
            ..FILE
        };
        assert_eq!(paths.path(other, 0), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_by_number() {
        assert_eq!(printable(b"a\xffb"), "a\\xffb");
    }

    #[test]
    fn a_package_is_told_only_for_applications() {
        assert!(is_application_cgroup("0::/apps/uid_10123/pid_77"));
        assert!(!is_application_cgroup("0::/system/uid_1000/pid_77"));
        assert!(!is_application_cgroup("0::/user.slice"));
        assert_eq!(
            package_in_command(b"com.example.app:remote\0--x\0").as_deref(),
            Some("com.example.app")
        );
        assert_eq!(package_in_command(b"/usr/bin/app.sh\0"), None);
        assert_eq!(package_in_command(b"zygote64\0"), None);
    }
}
