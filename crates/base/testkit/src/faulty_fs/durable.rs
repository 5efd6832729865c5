//! Model of the state after a power cut: it keeps only data whose durability was requested.
//!
//! A synchronous write makes its own bytes durable, a sync of a file all its content, a sync of a folder its names.
//! Real file systems often keep more; a caller may not rely on it.

use std::collections::{BTreeMap, BTreeSet};

use vfs::{DirEntry, DirSink, Entry, FileSystem, Ino, OpenFlags, Privileges, SeekFrom};

use crate::mem_fs::content::{Content, to_usize};

/// Content and names that are on the medium.
#[derive(Debug, Default)]
pub struct Durable {
    files: BTreeMap<Ino, Content>,
    folders: BTreeMap<Ino, BTreeMap<Vec<u8>, Ino>>,
    /// Every inode that was returned, for a sync of everything.
    known: BTreeSet<Ino>,
}

impl Durable {
    /// Makes the bytes of a synchronous write durable.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) {
        self.files.entry(ino).or_default().write(offset, data);
    }

    /// Records an inode that exists.
    pub fn know(&mut self, ino: Ino) {
        self.known.insert(ino);
    }

    /// Makes a file durable in its current state.
    pub fn take<F: FileSystem>(&mut self, below: &F, ino: Ino) {
        if let Some(content) = content_of(below, ino) {
            self.files.insert(ino, content);
        }
    }

    /// Makes the names of a folder durable in their current state.
    pub fn take_names<F: FileSystem>(&mut self, below: &F, ino: Ino) {
        if let Some(names) = names_of(below, ino) {
            self.folders.insert(ino, names);
        }
    }

    /// Makes everything durable.
    pub fn take_all<F: FileSystem>(&mut self, below: &F) {
        for ino in self.known.clone() {
            self.take(below, ino);
            self.take_names(below, ino);
        }
        self.take_names(below, Ino::ROOT);
    }

    /// The durable content of a file by its name in the root.
    pub fn file(&self, name: &[u8]) -> Option<Vec<u8>> {
        let ino = self.folders.get(&Ino::ROOT)?.get(name)?;
        let Some(content) = self.files.get(ino) else {
            return Some(Vec::new());
        };
        let mut bytes = vec![0; to_usize(content.size())];
        content.read(0, &mut bytes);
        Some(bytes)
    }
}

/// `None` if the inode is not a file, or is gone.
fn content_of<F: FileSystem>(below: &F, ino: Ino) -> Option<Content> {
    let opened = below
        .open(ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .ok()?;
    let mut content = Content::default();
    let read_all = || {
        let size = below.getattr(ino, Some(opened.handle)).ok()?.size;
        let mut at = 0;
        while let Ok(start) = below.lseek(ino, opened.handle, SeekFrom::Data(at)) {
            let end = below.lseek(ino, opened.handle, SeekFrom::Hole(start)).ok()?;
            let mut bytes = vec![0; to_usize(end - start)];
            let read = below.read(ino, opened.handle, start, &mut bytes).ok()?;
            content.write(start, &bytes[..read]);
            at = end;
        }
        content.set_size(size);
        Some(content)
    };
    let content = read_all();
    below.release(ino, opened.handle);
    content
}

/// `None` if the inode is not a folder, or is gone.
fn names_of<F: FileSystem>(below: &F, ino: Ino) -> Option<BTreeMap<Vec<u8>, Ino>> {
    let handle = below.opendir(ino).ok()?;
    let mut names = Names::default();
    let listed = below.readdir_plus(ino, handle, 0, &mut names);
    below.releasedir(ino, handle);
    for named in names.0.values() {
        below.forget(*named, 1);
    }
    listed.ok().map(|()| names.0)
}

/// A sink for every name that has an inode.
#[derive(Default)]
struct Names(BTreeMap<Vec<u8>, Ino>);

impl DirSink for Names {
    fn fits(&self, _name_bytes: usize) -> bool {
        true
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        if let Some(entry) = entry {
            self.0.insert(name.name.to_vec(), entry.ino);
        }
    }
}
