//! The files of one file system: numbers, and names stored once.
//!
//! A name consists of its own bytes and its directory; paths are built on demand. Files are kept in the order of their
//! inode numbers, so that a lookup is a binary search. Memory: 56 bytes per file, 20 per name, and the bytes of the
//! names.
//!
//! A path that does not lead to the root (a damaged directory, a cycle) starts with `<inode N>` instead of a `/`: it is
//! never invented.

use crate::bytes;
use crate::finding::{FindingKind, Findings, Place};

/// No file, or no name.
const NONE: u32 = u32::MAX;

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Special,
    /// Part of the file system itself: journal, quota, trees.
    System,
}

impl FileKind {
    /// The name in machine-readable output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Special => "special",
            Self::System => "system",
        }
    }
}

/// Whether a file is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// In use.
    Alive,
    /// In use, but its last name was removed while a process had it open.
    Orphan,
    /// Deleted; its attributes may be stale.
    Deleted,
}

/// Whether a directory is connected to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Unknown,
    /// Being determined.
    Climbing,
    Root,
    Nowhere,
}

/// Attributes of a file apart from its names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRecord {
    pub inode: u64,
    pub size: u64,
    /// Time of deletion, in seconds since 1970.
    pub deleted_at: u32,
    pub generation: u32,
    pub links: u32,
    pub kind: FileKind,
    pub life: Life,
    /// Names in this directory are ciphertext.
    pub encrypted: bool,
    /// A directory with hash blocks among its blocks of names.
    pub indexed: bool,
    /// Its list of names, maintained by the table.
    pub names: NameList,
}

/// The names of a file, and for a directory whether it is connected to the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameList {
    first: u32,
    last: u32,
    count: u32,
    reach: Reach,
}

impl FileRecord {
    pub(crate) fn new(inode: u64, generation: u32, kind: FileKind) -> Self {
        Self {
            inode,
            size: 0,
            deleted_at: 0,
            generation,
            links: 1,
            kind,
            life: Life::Alive,
            encrypted: false,
            indexed: false,
            names: NameList {
                first: NONE,
                last: NONE,
                count: 0,
                reach: Reach::Unknown,
            },
        }
    }
}

/// Encoding of a stored name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// Plain bytes.
    Plain,
    /// Ciphertext: shown as `<encrypted:...>`, the bytes in URL-safe base 64.
    Encrypted,
}

#[derive(Clone, Copy, Debug)]
struct NameRecord {
    parent: u32,
    start: u32,
    next: u32,
    length: u16,
    coding: Coding,
    doubtful: bool,
}

/// All files of a file system.
#[derive(Debug, Default)]
pub(crate) struct FileTable {
    files: Vec<FileRecord>,
    names: Vec<NameRecord>,
    arena: Vec<u8>,
    root: Option<u32>,
    /// Files in order of their inode numbers; empty if they were added in that order.
    order: Vec<u32>,
}

impl FileTable {
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn get(&self, file: u32) -> Option<&FileRecord> {
        self.files.get(bytes::index(u64::from(file)))
    }

    fn get_mut(&mut self, file: u32) -> Option<&mut FileRecord> {
        self.files.get_mut(bytes::index(u64::from(file)))
    }

    pub(crate) fn all(&self) -> &[FileRecord] {
        &self.files
    }

    /// Adds a file. If inode numbers do not ascend, [`FileTable::sort`] must be called at the end.
    pub(crate) fn push(&mut self, record: FileRecord) -> Option<u32> {
        let at = u32::try_from(self.files.len()).ok().filter(|at| *at != NONE)?;
        self.files.push(record);
        Some(at)
    }

    /// Sorts files added in any order, so that they can be found by inode number.
    pub(crate) fn sort(&mut self) {
        let all = u32::try_from(self.files.len()).unwrap_or(NONE);
        let mut order: Vec<u32> = (0..all).collect();
        order.sort_by_key(|file| self.get(*file).map(|record| record.inode));
        self.order = order;
    }

    pub(crate) fn by_inode(&self, inode: u64) -> Option<u32> {
        if self.order.is_empty() {
            let found = self.files.binary_search_by_key(&inode, |record| record.inode);
            return u32::try_from(found.ok()?).ok();
        }
        let number = |file: &u32| self.get(*file).map_or(u64::MAX, |record| record.inode);
        let found = self.order.binary_search_by_key(&inode, number).ok()?;
        self.order.get(found).copied()
    }

    pub(crate) fn set_generation(&mut self, file: u32, generation: u32) {
        if let Some(record) = self.get_mut(file) {
            record.generation = generation;
        }
    }

    pub(crate) fn set_root(&mut self, file: u32) {
        self.root = Some(file);
        if let Some(record) = self.get_mut(file) {
            record.names.reach = Reach::Root;
        }
    }

    /// Adds a name of `file` in the directory `parent`. `doubtful`: the block it was read from failed its checksum.
    pub(crate) fn add_name(
        &mut self,
        file: u32,
        parent: u32,
        name: &[u8],
        doubtful: bool,
    ) -> Result<(), NameBound> {
        let start = u32::try_from(self.arena.len()).map_err(|_| NameBound)?;
        let at = u32::try_from(self.names.len())
            .ok()
            .filter(|at| *at != NONE)
            .ok_or(NameBound)?;
        let length = u16::try_from(name.len()).map_err(|_| NameBound)?;
        let encrypted = self.get(parent).is_some_and(|record| record.encrypted);
        self.arena.extend_from_slice(name);
        self.names.push(NameRecord {
            parent,
            start,
            next: NONE,
            length,
            coding: if encrypted {
                Coding::Encrypted
            } else {
                Coding::Plain
            },
            doubtful,
        });
        let Some(record) = self.get_mut(file) else {
            return Ok(());
        };
        let last = record.names.last;
        record.names.last = at;
        record.names.count = record.names.count.saturating_add(1);
        if last == NONE {
            record.names.first = at;
        } else if let Some(name) = self.names.get_mut(bytes::index(u64::from(last))) {
            name.next = at;
        }
        Ok(())
    }

    pub(crate) fn name_count(&self, file: u32) -> u32 {
        self.get(file).map_or(0, |record| record.names.count)
    }

    /// The paths of a file, in the order in which its names were found; the first one is the one to report.
    pub(crate) fn paths(&self, file: u32) -> impl Iterator<Item = Path> + '_ {
        let mut next = self.get(file).map_or(NONE, |record| record.names.first);
        let root = (self.root == Some(file)).then(|| Path {
            bytes: b"/".to_vec(),
            doubtful: false,
        });
        root.into_iter().chain(std::iter::from_fn(move || {
            let name = self.names.get(bytes::index(u64::from(next)))?;
            next = name.next;
            Some(self.path_of(name))
        }))
    }

    fn path_of(&self, name: &NameRecord) -> Path {
        let mut parts = vec![name];
        let mut doubtful = name.doubtful;
        let mut directory = name.parent;
        // A connected directory leads to the root in finitely many steps; any other ends the walk at once.
        let top = loop {
            if self.root == Some(directory) {
                break None;
            }
            let Some(record) = self.get(directory) else {
                break Some(0);
            };
            let parent = self.names.get(bytes::index(u64::from(record.names.first)));
            let Some(parent) = parent.filter(|_| record.names.reach == Reach::Root) else {
                break Some(record.inode);
            };
            doubtful |= parent.doubtful;
            parts.push(parent);
            directory = parent.parent;
        };
        let mut path = top.map_or_else(Vec::new, |inode| format!("<inode {inode}>").into_bytes());
        for part in parts.iter().rev() {
            path.push(b'/');
            self.append(part, &mut path);
        }
        Path {
            bytes: path,
            doubtful,
        }
    }

    fn append(&self, name: &NameRecord, path: &mut Vec<u8>) {
        let start = bytes::index(u64::from(name.start));
        let raw = self
            .arena
            .get(start..start + usize::from(name.length))
            .unwrap_or_default();
        match name.coding {
            Coding::Plain => path.extend_from_slice(raw),
            Coding::Encrypted => {
                path.extend_from_slice(b"<encrypted:");
                append_base64(raw, path);
                path.push(b'>');
            }
        }
    }

    /// Determines the directories that are connected to the root. Called once, when all names are known; reports the
    /// others.
    pub(crate) fn connect(&mut self, findings: &mut Findings) {
        let mut walk = Vec::new();
        for file in 0..u32::try_from(self.files.len()).unwrap_or(NONE) {
            if self
                .get(file)
                .is_some_and(|record| record.kind == FileKind::Directory)
            {
                self.connect_one(file, &mut walk);
            }
        }
        for record in &self.files {
            let system = record.kind == FileKind::System;
            if system || record.life != Life::Alive || record.names.reach == Reach::Root {
                continue;
            }
            if record.names.count == 0 {
                findings.add(
                    FindingKind::Nameless,
                    Place::Inode(record.inode),
                    format!("{} names", record.links),
                    "none",
                );
            } else if record.kind == FileKind::Directory {
                findings.add(
                    FindingKind::Loop,
                    Place::Inode(record.inode),
                    "a directory below the root",
                    "names that do not lead there",
                );
            }
        }
    }

    /// Climbs from a directory to one whose state is known, and assigns that state to all on the way.
    fn connect_one(&mut self, file: u32, walk: &mut Vec<u32>) {
        walk.clear();
        let mut at = file;
        let reach = loop {
            let first_name = match self.get_mut(at) {
                Some(record) if record.kind == FileKind::Directory => match record.names.reach {
                    Reach::Unknown => {
                        record.names.reach = Reach::Climbing;
                        record.names.first
                    }
                    // Back at a directory of this climb: a cycle.
                    Reach::Climbing => break Reach::Nowhere,
                    known => break known,
                },
                _ => break Reach::Nowhere,
            };
            walk.push(at);
            match self.names.get(bytes::index(u64::from(first_name))) {
                Some(name) => at = name.parent,
                None => break Reach::Nowhere,
            }
        };
        for at in walk.iter() {
            if let Some(record) = self.get_mut(*at) {
                record.names.reach = reach;
            }
        }
    }
}

/// The limit on names was reached: 4 GiB.
#[derive(Debug)]
pub(crate) struct NameBound;

/// A path in the mapped file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// Its bytes; they need not be UTF-8.
    pub bytes: Vec<u8>,
    /// It was read from a directory block with a wrong checksum.
    pub doubtful: bool,
}

fn append_base64(raw: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for group in raw.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| u32::from(bytes::byte(group, at)));
        let bits = a << 16 | b << 8 | c;
        for digit in 0..=group.len() {
            let value = bits >> (18 - 6 * digit) & 63;
            out.push(DIGITS[bytes::index(u64::from(value))]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(table: &FileTable, file: u32) -> Vec<String> {
        table
            .paths(file)
            .map(|path| String::from_utf8(path.bytes).expect("these names are UTF-8"))
            .collect()
    }

    fn table() -> FileTable {
        let mut table = FileTable::default();
        for inode in 2..8 {
            let kind = if inode < 6 {
                FileKind::Directory
            } else {
                FileKind::Regular
            };
            table.push(FileRecord::new(inode, 0, kind));
        }
        table.set_root(0);
        table
    }

    #[test]
    fn hard_links_give_all_their_paths_the_first_first() {
        let mut table = table();
        table.add_name(1, 0, b"a", false).expect("few names");
        table.add_name(4, 1, b"x", false).expect("few names");
        table.add_name(4, 0, b"y", true).expect("few names");
        table.connect(&mut Findings::default());
        assert_eq!(shown(&table, 4), ["/a/x", "/y"]);
        assert_eq!(
            table.paths(4).map(|path| path.doubtful).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(shown(&table, 0), ["/"]);
    }

    #[test]
    fn a_cycle_of_directories_is_found_and_ends() {
        let mut table = table();
        table.add_name(1, 2, b"a", false).expect("few names");
        table.add_name(2, 1, b"b", false).expect("few names");
        table.add_name(4, 2, b"x", false).expect("few names");
        let mut findings = Findings::default();
        table.connect(&mut findings);
        assert_eq!(shown(&table, 4), ["<inode 4>/x"]);
        assert!(findings.any(FindingKind::Loop));
        assert!(findings.any(FindingKind::Nameless));
    }

    #[test]
    fn ciphertext_is_shown_in_base_64() {
        let mut table = table();
        table.get_mut(0).expect("the root is there").encrypted = true;
        table
            .add_name(4, 0, &[0xFF, 0xFE, 0xFD, 0x00], false)
            .expect("few names");
        assert_eq!(shown(&table, 4), ["/<encrypted:__79AA>"]);
    }
}
