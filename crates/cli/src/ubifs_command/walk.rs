//! Paths in a file system, and all files below one of them, each directory once.

use std::collections::HashSet;

use anyhow::{Result, bail};
use ubifs::format::{EntryKind, Inode, InodeNumber, ROOT_INODE};
use ubifs::{Entry, Ubifs, UbifsError};

use super::Losses;

/// A file that was come by.
#[derive(Clone, Debug)]
pub struct Visited {
    /// Its path below where the walk began; empty for that itself.
    pub path: Vec<u8>,
    /// Its number.
    pub number: InodeNumber,
    /// Its inode.
    pub inode: Inode,
}

/// A path for people: bytes that are no UTF-8, and control characters, are escaped.
pub fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    match text.contains(|letter: char| letter.is_control() || letter == '\u{FFFD}') {
        true => path.escape_ascii().to_string(),
        false => text.into_owned(),
    }
}

/// What a name leads to.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The inode.
    pub inode: InodeNumber,
    /// What the name says that it is.
    pub kind: Option<EntryKind>,
}

/// What a path names. Symbolic links are not followed.
pub fn resolve(ubifs: &Ubifs, path: &str) -> Result<Named> {
    let mut at = Named {
        inode: ROOT_INODE,
        kind: Some(EntryKind::Directory),
    };
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        match ubifs.lookup(at.inode, name.as_bytes()) {
            Ok(Entry { inode, kind, .. }) => at = Named { inode, kind },
            Err(UbifsError::NoName { .. }) => bail!("{path}: there is no \"{name}\" in this file system"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at)
}

/// Visits a file and, where it is a directory, all below it: parents first, names in their order.
pub fn walk(
    ubifs: &Ubifs,
    start: Named,
    losses: &mut Losses,
    visit: &mut dyn FnMut(&Visited, &mut Losses) -> Result<()>,
) -> Result<()> {
    let mut pending = vec![(start, Vec::new(), None)];
    let mut directories = HashSet::new();
    while let Some((Named { inode: number, kind }, path, fetched)) = pending.pop() {
        let inode = match fetched {
            Some(inode) => inode,
            None => {
                let mut lost = Vec::new();
                let inode = ubifs.inode_lossy(number, kind, &mut lost);
                for finding in &lost {
                    losses.tell(&path, finding);
                }
                let Some(inode) = inode else { continue };
                inode
            }
        };
        let is_directory = inode.kind() == Some(EntryKind::Directory);
        if is_directory && !directories.insert(number) {
            losses.tell(
                &path,
                &"the directory has a second place in the tree; it is left out here",
            );
            continue;
        }
        let visited = Visited { path, number, inode };
        visit(&visited, losses)?;
        if is_directory {
            let mut lost = Vec::new();
            let mut entries = ubifs.read_directory_lossy(number, &mut lost);
            for finding in &lost {
                losses.tell(&visited.path, finding);
            }
            entries.sort_by(|one, other| other.name.cmp(&one.name));
            let numbers: Vec<InodeNumber> = entries.iter().map(|entry| entry.inode).collect();
            for (entry, fetched) in entries.iter().zip(ubifs.inodes(&numbers)) {
                let mut path = visited.path.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&entry.name);
                if is_possible(&entry.name) {
                    let (inode, kind) = (entry.inode, entry.kind);
                    pending.push((Named { inode, kind }, path, fetched.ok()));
                } else {
                    losses.tell(&path, &"no file of a host can have this name; it is left out");
                }
            }
        }
    }
    Ok(())
}

/// Whether a name is one: an image may hold any bytes, and they must not lead out of a folder.
fn is_possible(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}
