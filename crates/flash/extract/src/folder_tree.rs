//! The folders that an extraction created, and how to open each again below the first one.
//!
//! Only their names are kept, so a deep tree costs no more than its image. A folder is reopened without following symbolic
//! links (`openat2` with `RESOLVE_BENEATH`, or name by name if Linux lacks it).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use ubifs::format::{Inode, InodeNumber};

use crate::walk::Visited;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A folder of a [`FolderTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderNumber(usize);

impl FolderNumber {
    /// The parent of the first folder.
    pub const OUTSIDE: Self = Self(usize::MAX);
}

/// Folders in the order of their creation.
#[derive(Default)]
pub struct FolderTree {
    folders: Vec<Folder>,
}

struct Folder {
    parent: FolderNumber,
    /// Empty for the first folder.
    name: Vec<u8>,
    number: InodeNumber,
    inode: Inode,
}

/// Opens a folder by its name in another folder.
pub fn open_folder(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd> {
    rustix::fs::openat(parent, name, FOLDER, Mode::empty())
}

impl FolderTree {
    /// Adds a folder that was created.
    pub fn add(&mut self, parent: FolderNumber, visited: &Visited) -> FolderNumber {
        self.folders.push(Folder {
            parent,
            name: visited.name().to_vec(),
            number: visited.number,
            inode: visited.inode.clone(),
        });
        FolderNumber(self.folders.len() - 1)
    }

    /// The folder that was added last.
    pub fn last(&self) -> Option<(FolderNumber, Visited)> {
        let number = FolderNumber(self.folders.len().checked_sub(1)?);
        let names = self.names(number);
        let folder = self.folders.last()?;
        let visited = Visited {
            path: names.join(&b'/'),
            depth: names.len(),
            number: folder.number,
            inode: folder.inode.clone(),
        };
        Some((number, visited))
    }

    /// Removes the folder that was added last.
    pub fn remove_last(&mut self) {
        self.folders.pop();
    }

    /// The path of a name in a folder, from the first folder.
    pub fn path(&self, folder: FolderNumber, name: &[u8]) -> Vec<u8> {
        let mut names = self.names(folder);
        names.push(name);
        names.join(&b'/')
    }

    /// Opens a folder by its path below the first folder, `top`.
    pub fn open(&self, top: BorrowedFd<'_>, folder: FolderNumber) -> Result<OwnedFd> {
        let names = self.names(folder);
        if names.is_empty() {
            return rustix::io::fcntl_dupfd_cloexec(top, 0);
        }
        let path = names.join(&b'/');
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(top, path.as_slice(), FOLDER, Mode::empty(), resolve) {
            // Linux before 5.6, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => open_in_turn(top, &names),
            opened => opened,
        }
    }

    /// The names on the path to a folder.
    fn names(&self, folder: FolderNumber) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut at = folder;
        while let Some(folder) = self.folders.get(at.0) {
            if folder.parent != FolderNumber::OUTSIDE {
                names.push(folder.name.as_slice());
            }
            at = folder.parent;
        }
        names.reverse();
        names
    }
}

fn open_in_turn(top: BorrowedFd<'_>, names: &[&[u8]]) -> Result<OwnedFd> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(top, 0)?;
    for name in names {
        at = open_folder(at.as_fd(), OsStr::from_bytes(name))?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn visited(path: &[u8]) -> Visited {
        let number = InodeNumber(7);
        Visited {
            path: path.to_vec(),
            depth: 0,
            number,
            inode: Inode::unknown(number),
        }
    }

    #[test]
    fn a_way_back_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let mut tree = FolderTree::default();
        let top = tree.add(FolderNumber::OUTSIDE, &visited(b""));
        let a = tree.add(top, &visited(b"a"));
        let b = tree.add(a, &visited(b"a/b"));
        assert_eq!(tree.path(b, b"name"), b"a/b/name");
        assert_eq!(tree.path(top, b"name"), b"name");
        let opened = fs::File::open(folder.path()).unwrap();
        let opened = opened.as_fd();
        for folder in [top, a, b] {
            tree.open(opened, folder).unwrap();
        }
        open_in_turn(opened, &[b"a", b"b"]).unwrap();
        fs::rename(folder.path().join("a"), folder.path().join("c")).unwrap();
        symlink("c", folder.path().join("a")).unwrap();
        tree.open(opened, b).unwrap_err();
        open_in_turn(opened, &[b"a", b"b"]).unwrap_err();
    }
}
