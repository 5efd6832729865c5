//! Resolves paths and walks a file system: each directory once, each name once per directory, no deeper than [`DEPTH_MAX`].
//!
//! An image may contain anything. The walk keeps one batch of inodes and one directory's names per level of depth.

use std::collections::HashSet;
use std::vec::IntoIter;

use results::shown;
use ubifs::format::{EntryKind, Inode, InodeNumber, ROOT_INODE};
use ubifs::{Entry, Ubifs, UbifsError};

use crate::error::{Result, refused};
use crate::losses::Losses;

/// Maximum nesting of folders. An extraction holds a descriptor of each level.
pub const DEPTH_MAX: usize = 256;
/// Maximum length of a path: Linux takes no longer ones (`PATH_MAX`).
const PATH_BYTES_MAX: usize = 4095;
/// Number of inodes that are fetched together.
const BATCH: usize = 128;

/// A file that the walk has reached.
#[derive(Clone, Debug)]
pub struct Visited {
    /// Path relative to the start of the walk; empty for the start itself.
    pub path: Vec<u8>,
    /// Number of folders between the start and this file.
    pub depth: usize,
    /// Its inode number.
    pub number: InodeNumber,
    /// Its inode.
    pub inode: Inode,
}

impl Visited {
    /// The last component of the path.
    pub fn name(&self) -> &[u8] {
        let start = self.path.iter().rposition(|byte| *byte == b'/');
        &self.path[start.map_or(0, |slash| slash + 1)..]
    }
}

/// The target of a directory entry.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its inode number.
    pub inode: InodeNumber,
    /// The file type stored in the entry.
    pub kind: Option<EntryKind>,
}

/// The root directory.
pub const fn root() -> Named {
    Named {
        inode: ROOT_INODE,
        kind: Some(EntryKind::Directory),
    }
}

/// Resolves a path. Does not follow symbolic links.
pub fn resolve(ubifs: &Ubifs, path: &str) -> Result<Named> {
    let mut at = root();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
        match ubifs.lookup(at.inode, name.as_bytes()) {
            Ok(Entry { inode, kind, .. }) => at = Named { inode, kind },
            Err(UbifsError::NoName { .. }) => {
                return refused(format!("{path}: there is no \"{name}\" in this file system"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at)
}

/// Tells the walk how to continue after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Descend, if this is a directory.
    Below,
    /// Skip the content of this directory.
    Past,
    /// End the walk.
    Stop,
}

/// A directory whose entries are being visited.
struct Level {
    entries: IntoIter<Entry>,
    /// Entries with their inodes, `None` if unreadable.
    batch: IntoIter<(Entry, Option<Inode>)>,
    /// Length of the directory's path.
    path_bytes: usize,
}

impl Level {
    /// The next entry, with its inode if that can be read.
    fn next(&mut self, ubifs: &Ubifs) -> Option<(Entry, Option<Inode>)> {
        if self.batch.as_slice().is_empty() {
            let entries: Vec<Entry> = self.entries.by_ref().take(BATCH).collect();
            let numbers: Vec<InodeNumber> = entries.iter().map(|entry| entry.inode).collect();
            let inodes = ubifs.inodes(&numbers).into_iter().map(Result::ok);
            self.batch = entries.into_iter().zip(inodes).collect::<Vec<_>>().into_iter();
        }
        self.batch.next()
    }
}

/// Visits a file and, for a directory, everything below it: parents first, names in order.
pub fn walk<E>(
    ubifs: &Ubifs,
    start: Named,
    losses: &mut Losses,
    visit: &mut dyn FnMut(&Visited, &mut Losses) -> Result<Next, E>,
) -> Result<(), E> {
    let mut walk = Walk {
        ubifs,
        path: Vec::new(),
        levels: Vec::new(),
        directories: HashSet::new(),
        visit,
    };
    let mut next = walk.come_by(start, None, losses)?;
    while next != Next::Stop {
        let Some(level) = walk.levels.last_mut() else {
            break;
        };
        walk.path.truncate(level.path_bytes);
        let Some((entry, inode)) = level.next(ubifs) else {
            walk.levels.pop();
            continue;
        };
        if level.path_bytes > 0 {
            walk.path.push(b'/');
        }
        walk.path.extend_from_slice(&entry.name);
        let (inode_number, kind) = (entry.inode, entry.kind);
        next = match refusal(&entry.name, &walk.path) {
            None => walk.come_by(
                Named {
                    inode: inode_number,
                    kind,
                },
                inode,
                losses,
            )?,
            Some(why) => {
                losses.tell(&walk.path, &why);
                Next::Past
            }
        };
    }
    Ok(())
}

struct Walk<'a, E> {
    ubifs: &'a Ubifs,
    /// Path of the file being visited.
    path: Vec<u8>,
    levels: Vec<Level>,
    /// Directories visited so far.
    directories: HashSet<InodeNumber>,
    visit: &'a mut dyn FnMut(&Visited, &mut Losses) -> Result<Next, E>,
}

impl<E> Walk<'_, E> {
    /// Visits the file at `path`.
    fn come_by(&mut self, named: Named, fetched: Option<Inode>, losses: &mut Losses) -> Result<Next, E> {
        let number = named.inode;
        let inode = match fetched {
            Some(inode) => inode,
            None => {
                let mut lost = Vec::new();
                let inode = self.ubifs.inode_lossy(number, named.kind, &mut lost);
                for finding in &lost {
                    losses.tell(&self.path, finding);
                }
                let Some(inode) = inode else { return Ok(Next::Past) };
                inode
            }
        };
        let is_directory = inode.kind() == Some(EntryKind::Directory);
        if is_directory && !self.directories.insert(number) {
            let why = "the directory has a second place in the tree; it is left out here";
            losses.tell(&self.path, &why);
            return Ok(Next::Past);
        }
        let visited = Visited {
            path: self.path.clone(),
            depth: self.levels.len(),
            number,
            inode,
        };
        let next = (self.visit)(&visited, losses)?;
        if is_directory && next == Next::Below {
            match self.levels.len() < DEPTH_MAX {
                true => self.descend(number, losses),
                false => losses.tell(
                    &self.path,
                    &format!("it is {DEPTH_MAX} folders deep; its content is left out"),
                ),
            }
        }
        Ok(next)
    }

    fn descend(&mut self, directory: InodeNumber, losses: &mut Losses) {
        let mut lost = Vec::new();
        let mut entries = self.ubifs.read_directory_lossy(directory, &mut lost);
        for finding in &lost {
            losses.tell(&self.path, finding);
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries.dedup_by(|later, first| {
            let is_second = later.name == first.name;
            if is_second {
                let what = format!(
                    "it has the name {} twice; the second one is left out",
                    shown::name(&later.name)
                );
                losses.tell(&self.path, &what);
            }
            is_second
        });
        self.levels.push(Level {
            entries: entries.into_iter(),
            batch: Vec::new().into_iter(),
            path_bytes: self.path.len(),
        });
    }
}

/// The reason to skip a name: an image may hold any bytes, and they must not lead out of a folder.
fn refusal(name: &[u8], path: &[u8]) -> Option<String> {
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        return Some("no file of a host can have this name; it is left out".to_owned());
    }
    let is_long = path.len() > PATH_BYTES_MAX;
    is_long.then(|| format!("its path has more than {PATH_BYTES_MAX} bytes; it is left out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_a_folder_are_refused() {
        for name in [b"".as_slice(), b".", b"..", b"/etc", b"a/b", b"a\0b"] {
            assert!(refusal(name, name).is_some(), "{name:?}");
        }
        for name in [b"...".as_slice(), b"..a", b" ", b"\x1b[2J", b"\xFF"] {
            assert_eq!(refusal(name, name), None, "{name:?}");
        }
        assert!(refusal(b"a", &[b'a'; PATH_BYTES_MAX + 1]).is_some());
    }
}
