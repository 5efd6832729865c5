//! File listings in the format of the guest's `lab-hash`, to compare our reader with Linux.

use std::collections::BTreeMap;

use ubifs::Ubifs;
use ubifs::format::{EntryKind, Inode, InodeNumber, ROOT_INODE};

use super::sha256::sha256;

/// Maps a path to the rest of its line.
pub type Lines = BTreeMap<String, String>;

/// Parses the output of `lab-hash`.
pub fn lines(text: &str) -> Lines {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(path, rest)| (path.to_owned(), rest.to_owned()))
        .collect()
}

/// Lists a file system like the guest's `lab-hash`.
pub fn tree_of(ubifs: &Ubifs) -> Lines {
    let mut tree = Lines::new();
    let mut pending = vec![(ROOT_INODE, String::new())];
    while let Some((number, path)) = pending.pop() {
        let inode = ubifs.inode(number).expect("it can be read");
        if inode.kind() == Some(EntryKind::Directory) {
            for entry in ubifs.read_directory(number).expect("it can be read") {
                let name = escaped(&entry.name);
                pending.push((
                    entry.inode,
                    if path.is_empty() {
                        name
                    } else {
                        format!("{path}/{name}")
                    },
                ));
            }
        }
        let path = if path.is_empty() { ".".to_owned() } else { path };
        tree.insert(path, line(ubifs, number, &inode));
    }
    tree
}

fn line(ubifs: &Ubifs, number: InodeNumber, inode: &Inode) -> String {
    let kind = inode.kind().expect("a kind");
    let (letter, content) = match kind {
        EntryKind::File => {
            let mut content = vec![0; usize::try_from(inode.size_bytes).expect("small")];
            ubifs.read(inode, 0, &mut content).expect("it can be read");
            ('-', sha256(&content))
        }
        EntryKind::Symlink => ('l', format!("->{}", escaped(&target(ubifs, inode)))),
        EntryKind::Directory => ('d', "-".to_owned()),
        EntryKind::Fifo => ('p', "-".to_owned()),
        EntryKind::Socket => ('s', "-".to_owned()),
        EntryKind::BlockDevice | EntryKind::CharacterDevice => {
            let (major, minor) = inode.device().expect("a device");
            (
                if kind == EntryKind::BlockDevice { 'b' } else { 'c' },
                format!("{major}:{minor}"),
            )
        }
    };
    let size = match kind {
        EntryKind::Directory => 0,
        EntryKind::Symlink => u64::try_from(target(ubifs, inode).len()).expect("short"),
        _ => inode.size_bytes,
    };
    let time = |seconds: u64, ns: u32| seconds * 1_000_000_000 + u64::from(ns);
    let times = [
        time(inode.modified_seconds, inode.modified_nanoseconds),
        time(inode.changed_seconds, inode.changed_nanoseconds),
        time(inode.accessed_seconds, inode.accessed_nanoseconds),
    ];
    let times = times.map(|time| time.to_string()).join(" ");
    let mut names = ubifs.xattr_names(number).expect("they can be read");
    names.sort();
    let xattrs: String = names
        .iter()
        .map(|name| {
            let value = ubifs.xattr(number, name).expect("it can be read");
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            format!(" {}={hex}", String::from_utf8_lossy(name))
        })
        .collect();
    format!(
        "{letter} {:04o} {} {} {} {size} {times} {content}{xattrs}",
        inode.mode & 0o7777,
        inode.user,
        inode.group,
        inode.links,
    )
}

fn target(ubifs: &Ubifs, link: &Inode) -> Vec<u8> {
    ubifs.read_link(link).expect("a target")
}

/// Escapes a name like `lab-hash`.
pub fn escaped(name: &[u8]) -> String {
    name.iter()
        .map(|byte| match byte {
            33..=126 if *byte != b'\\' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        })
        .collect()
}

/// Fails and prints all differences.
pub fn assert_same(ours: &Lines, linux: &Lines, what: &str) {
    let differing: Vec<_> = ours
        .keys()
        .chain(linux.keys())
        .filter(|path| ours.get(*path) != linux.get(*path))
        .map(|path| {
            format!(
                "{path}\n  ours:  {:?}\n  Linux: {:?}",
                ours.get(path),
                linux.get(path)
            )
        })
        .collect();
    assert!(differing.is_empty(), "{what}: {}", differing.join("\n"));
}
