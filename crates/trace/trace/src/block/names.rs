//! Names of files and processes, assembled from records of the programs.
//!
//! A directory entry is identified by its address and is reported again when its name or parent has changed, always
//! before a record refers to it; so following parents at the time of a record yields the path at that time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use results::block_trace::{FileIdentity, Process};
use results::shown;

use super::is_in_namespace;
use super::record::{NameRecord, ProcessRecord, ProcessReference};

/// Deeper paths are cut, as in the programs.
const MAX_DEPTH: usize = 40;
/// Bytes of each kind of name that are kept: a program may make names without end.
const MAX_BYTES: usize = 64 << 20;
/// Memory that a name takes beside its text.
const OVERHEAD_BYTES: usize = 64;
/// Processes, and names of processes, that are kept.
const MAX_PROCESSES: usize = 1 << 18;

#[derive(Debug)]
struct Entry {
    parent: u64,
    name: Box<str>,
}

/// Bytes of a kind of name, with a limit.
#[derive(Debug)]
struct Budget {
    bytes: usize,
    limit: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: 0,
            limit: MAX_BYTES,
        }
    }
}

impl Budget {
    const fn has_room(&self, name: &str) -> bool {
        self.bytes + name.len() + OVERHEAD_BYTES <= self.limit
    }

    const fn add(&mut self, name: &str) {
        self.bytes += name.len() + OVERHEAD_BYTES;
    }

    const fn remove(&mut self, name: &str) {
        self.bytes = self.bytes.saturating_sub(name.len() + OVERHEAD_BYTES);
    }
}

/// Directory entries and the last known path of each file. Each kind has a limit; one that is full starts anew.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    entries: HashMap<u64, Entry>,
    entry_budget: Budget,
    /// Paths by entry: a changed entry may invalidate any of them.
    built: HashMap<u64, Arc<str>>,
    built_budget: Budget,
    last: HashMap<FileIdentity, Arc<str>>,
    last_budget: Budget,
    /// From a scan at the start: without generation, used only until the inode is seen otherwise.
    seeds: HashMap<(results::block_trace::DeviceNumber, u64), Arc<str>>,
    seed_budget: Budget,
    /// Number of paths built without their first folders.
    pub cut: u64,
    /// Number of names dropped or not stored at the memory limit.
    pub forgotten: u64,
    /// Entries were dropped that the programs believe to be known: they must send them again.
    pub lacks_entries: bool,
}

impl Paths {
    /// Adds an entry.
    pub(crate) fn learn(&mut self, record: &NameRecord) {
        let length = usize::try_from(record.bytes).unwrap_or(0).min(record.name.len());
        let name = shown::from_bytes(&record.name[..length]);
        if !self.entry_budget.has_room(&name) {
            self.forget_entries();
        }
        self.entry_budget.add(&name);
        let entry = Entry {
            parent: record.parent,
            name: name.into(),
        };
        if let Some(before) = self.entries.insert(record.dentry, entry) {
            self.entry_budget.remove(&before.name);
            self.forget_built();
        }
    }

    /// Drops entries. Folders stay, if they leave room: records that are on their way rest on them.
    fn forget_entries(&mut self) {
        let folders: HashSet<u64> = self.entries.values().map(|entry| entry.parent).collect();
        self.entries.retain(|dentry, _| folders.contains(dentry));
        self.entry_budget.bytes = 0;
        for entry in self.entries.values() {
            self.entry_budget.add(&entry.name);
        }
        if self.entry_budget.bytes > self.entry_budget.limit / 2 {
            self.entries.clear();
            self.entry_budget.bytes = 0;
        }
        self.forget_built();
        self.forgotten += 1;
        self.lacks_entries = true;
    }

    /// Drops the cached paths.
    fn forget_built(&mut self) {
        self.built.clear();
        self.built_budget.bytes = 0;
    }

    /// Adds a path found on the mounted file system before the trace.
    pub(crate) fn seed(&mut self, file_system: results::block_trace::DeviceNumber, inode: u64, path: &str) {
        if !self.seed_budget.has_room(path) {
            self.forgotten += 1;
            return;
        }
        self.seed_budget.add(path);
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
                if !self.built_budget.has_room(&path) {
                    self.forget_built();
                }
                self.built_budget.add(&path);
                self.built.insert(dentry, path.clone());
                path
            }
        };
        Some(path)
    }

    /// The current path of an entry, which becomes the last known one of the file; for 0 as [`Self::path`].
    pub(crate) fn sighted(&mut self, file: FileIdentity, dentry: u64) -> Option<Arc<str>> {
        let path = self.path(file, dentry)?;
        self.note(file, &path);
        Some(path)
    }

    /// Records the path of a file.
    pub(crate) fn note(&mut self, file: FileIdentity, path: &Arc<str>) {
        self.seeds.remove(&(file.file_system, file.inode));
        if !self.last_budget.has_room(path) {
            self.last.clear();
            self.last_budget.bytes = 0;
            self.forgotten += 1;
        }
        self.last_budget.add(path);
        if let Some(before) = self.last.insert(file, path.clone()) {
            self.last_budget.remove(&before);
        }
    }

    /// Records were lost, perhaps of new names: forgets the paths that no entry vouches for. Entries stay: one whose
    /// record was lost is sent again.
    pub(crate) fn lose(&mut self) {
        self.last.clear();
        self.last_budget.bytes = 0;
        self.seeds.clear();
        self.seed_budget.bytes = 0;
    }

    /// Forgets a deleted file, whose inode number may be reused.
    pub(crate) fn forget(&mut self, file: FileIdentity) {
        if let Some(path) = self.last.remove(&file) {
            self.last_budget.remove(&path);
        }
        self.seeds.remove(&(file.file_system, file.inode));
    }

    fn build(&mut self, dentry: u64) -> Option<String> {
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
        self.cut += u64::from(!whole);
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

/// Name and Android package.
type Named = (Arc<str>, Option<Arc<str>>);

/// Processes by the programs' identifiers.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    names: HashMap<(u32, u64), Named>,
    /// The last name learnt of each process.
    newest: HashMap<u32, Arc<str>>,
    /// One value per thread, shared by all references to it.
    known: HashMap<(u32, u32, u64), Arc<Process>>,
    /// Number of times that all were dropped at the memory limit.
    pub forgotten: u64,
    /// Names were dropped that the programs believe to be known: they must send them again.
    pub lacks_names: bool,
}

impl Processes {
    /// The processes, by number and name, to which records of the trace refer.
    pub(crate) fn met(&self) -> HashSet<(u32, u64)> {
        self.known.keys().map(|(pid, _, name)| (*pid, *name)).collect()
    }

    /// The name of a process by its number alone; if it had several, the last one learnt.
    pub(crate) fn name_of(&self, pid: u32) -> Option<Arc<str>> {
        self.newest.get(&pid).cloned()
    }

    /// Adds a name.
    pub(crate) fn learn(&mut self, record: &ProcessRecord) {
        let end = record
            .comm
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(record.comm.len());
        let name: Arc<str> = shown::from_bytes(&record.comm[..end]).into();
        if self.names.len() >= MAX_PROCESSES {
            self.names.clear();
            self.newest.clear();
            self.forgotten += 1;
            self.lacks_names = true;
        }
        let package = package_of(record.tgid)
            .filter(|_| !is_in_namespace())
            .map(Arc::from);
        self.newest.insert(record.tgid, Arc::clone(&name));
        self.names.insert((record.tgid, record.name), (name, package));
    }

    /// The process of a reference.
    pub(crate) fn get(&mut self, reference: ProcessReference) -> Arc<Process> {
        if self.known.len() >= MAX_PROCESSES {
            self.known.clear();
            self.forgotten += 1;
        }
        let key = (reference.tgid, reference.tid, reference.name);
        if let Some(known) = self.known.get(&key) {
            return Arc::clone(known);
        }
        let named = self.names.get(&(reference.tgid, reference.name)).cloned();
        let is_named = named.is_some();
        let (name, package) = named.unwrap_or_else(|| (Arc::from("?"), None));
        let process = Arc::new(Process {
            pid: reference.tgid,
            tid: reference.tid,
            name,
            package,
        });
        // A name whose record was lost is sent again.
        if is_named {
            self.known.insert(key, Arc::clone(&process));
        }
        process
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
    fn a_path_without_its_first_folders_is_counted() {
        let mut paths = Paths::default();
        paths.learn(&name(1, 1, b"/"));
        let depth = u64::try_from(MAX_DEPTH).unwrap();
        for number in 2..=depth + 1 {
            paths.learn(&name(number, number - 1, b"x"));
        }
        assert!(paths.path(FILE, depth).unwrap().starts_with("/x"));
        assert_eq!(paths.cut, 0);
        assert!(paths.path(FILE, depth + 1).unwrap().starts_with(".../x"));
        assert_eq!(paths.cut, 1);
    }

    #[test]
    fn without_an_entry_the_last_path_of_this_very_generation_is_told() {
        let mut paths = Paths::default();
        paths.learn(&name(1, 1, b"/"));
        paths.learn(&name(3, 1, b"file"));
        let path = paths.path(FILE, 3).unwrap();
        paths.note(FILE, &path);
        assert_eq!(paths.path(FILE, 0).as_deref(), Some("/file"));
        let other = FileIdentity {
            generation: 4,
            ..FILE
        };
        assert_eq!(paths.path(other, 0), None);
    }

    #[test]
    fn names_without_end_take_no_memory_without_end_and_are_counted() {
        let mut paths = Paths::default();
        for budget in [
            &mut paths.entry_budget,
            &mut paths.last_budget,
            &mut paths.seed_budget,
        ] {
            budget.limit = 100 * (8 + OVERHEAD_BYTES);
        }
        for number in 1..10_000_u64 {
            paths.learn(&name(number, number - 1, format!("{number:08}").as_bytes()));
            let file = FileIdentity {
                inode: number,
                ..FILE
            };
            paths.note(file, &Arc::from(format!("{number:08}")));
            paths.seed(FILE.file_system, number, "12345678");
        }
        assert!(paths.entries.len() <= 100 && paths.last.len() <= 100 && paths.seeds.len() <= 100);
        assert!(paths.forgotten >= 3 * 90, "{}", paths.forgotten);
        assert!(paths.lacks_entries, "the programs must send those in use again");
        // The newest name is still known.
        let last = FileIdentity { inode: 9_999, ..FILE };
        assert_eq!(paths.path(last, 0).as_deref(), Some("00009999"));
        paths.forget(last);
        assert_eq!(paths.path(last, 0), None);
    }

    #[test]
    fn a_file_in_a_known_folder_has_its_path_after_names_were_dropped() {
        let mut paths = Paths::default();
        paths.entry_budget.limit = 100 * (8 + OVERHEAD_BYTES);
        paths.learn(&name(1, 1, b"/"));
        paths.learn(&name(2, 1, b"folder"));
        for number in 3..10_000_u64 {
            paths.learn(&name(number, 2, format!("{number:08}").as_bytes()));
        }
        assert!(paths.lacks_entries && paths.entries.len() <= 100);
        assert_eq!(paths.path(FILE, 9_999).as_deref(), Some("/folder/00009999"));
    }

    #[test]
    fn processes_without_end_are_forgotten_and_counted() {
        let mut processes = Processes::default();
        for tid in 0..=u32::try_from(MAX_PROCESSES).unwrap() {
            // Names are bounded too: only the known ones are in question here.
            processes.names.clear();
            processes
                .names
                .insert((1, u64::from(tid)), (Arc::from("name"), None));
            let _process = processes.get(ProcessReference {
                tgid: 1,
                tid,
                name: u64::from(tid),
            });
        }
        assert_eq!((processes.known.len(), processes.forgotten), (1, 1));
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
