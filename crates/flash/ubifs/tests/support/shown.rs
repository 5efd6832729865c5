//! Lists a mount through `vfs::FileSystem`, in the format of the guest's `lab-hash`.

use std::sync::Arc;

use ubifs::{MountedOptions, MountedUbifs, Ubifs};
use vfs::{Attr, DirEntry, DirSink, Entry, FileKind, FileSystem, Ino, OpenFlags, Privileges};

use super::lab_lines::{Lines, escaped};
use super::sha256::sha256;

/// Lists all files of an undamaged file system.
pub fn shown_by(ubifs: Ubifs) -> Lines {
    let no_loss = Box::new(|finding: &ubifs::Finding| panic!("{finding}"));
    let mounted = MountedUbifs::new(Arc::new(ubifs), MountedOptions::standard(), no_loss);
    let mut tree = Lines::new();
    let root = mounted.getattr(Ino::ROOT, None).expect("there is a root");
    let mut pending = vec![(Ino::ROOT, root, String::new())];
    while let Some((ino, attr, path)) = pending.pop() {
        if attr.kind() == FileKind::Directory {
            for (name, entry) in list(&mounted, ino) {
                assert_eq!(mounted.lookup(ino, &name), Ok(entry), "{}", escaped(&name));
                let name = escaped(&name);
                let path = if path.is_empty() {
                    name
                } else {
                    format!("{path}/{name}")
                };
                pending.push((entry.ino, entry.attr, path));
            }
        }
        let path = if path.is_empty() { ".".to_owned() } else { path };
        tree.insert(path, line(&mounted, ino, &attr));
    }
    tree
}

fn line(mounted: &MountedUbifs, ino: Ino, attr: &Attr) -> String {
    let (letter, content) = match attr.kind() {
        FileKind::Regular => ('-', sha256(&content(mounted, ino, attr.size))),
        FileKind::Symlink => {
            let target = mounted.readlink(ino).expect("a target");
            ('l', format!("->{}", escaped(&target)))
        }
        FileKind::Directory => ('d', "-".to_owned()),
        FileKind::Fifo => ('p', "-".to_owned()),
        FileKind::Socket => ('s', "-".to_owned()),
        kind @ (FileKind::BlockDevice | FileKind::CharDevice) => {
            let (major, minor) = (
                (attr.rdev >> 8) & 0xFFF,
                (attr.rdev & 0xFF) | ((attr.rdev >> 12) & 0xF_FF00),
            );
            let letter = if kind == FileKind::BlockDevice { 'b' } else { 'c' };
            (letter, format!("{major}:{minor}"))
        }
        FileKind::Unknown => panic!("mode {:o} is no kind of file", attr.mode),
    };
    let size = if attr.kind() == FileKind::Directory {
        0
    } else {
        attr.size
    };
    let times = [attr.mtime, attr.ctime, attr.atime]
        .map(|time| (time.seconds * 1_000_000_000 + i64::from(time.nanoseconds)).to_string())
        .join(" ");
    let names = mounted.listxattr(ino).expect("a list");
    let mut names: Vec<&[u8]> = names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    let xattr = |name: &&[u8]| {
        let value = mounted.getxattr(ino, name).expect("a value");
        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(" {}={hex}", String::from_utf8_lossy(name))
    };
    let xattrs: String = names.iter().map(xattr).collect();
    format!(
        "{letter} {:04o} {} {} {} {size} {times} {content}{xattrs}",
        attr.mode & 0o7777,
        attr.uid,
        attr.gid,
        attr.nlink,
    )
}

fn content(mounted: &MountedUbifs, ino: Ino, size: u64) -> Vec<u8> {
    let file = mounted
        .open(ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .expect("it opens");
    let mut content = vec![0; usize::try_from(size).expect("small")];
    for (number, out) in (0..).zip(content.chunks_mut(128 << 10)) {
        let read = mounted.read(ino, file.handle, number * (128 << 10), out);
        assert_eq!(read, Ok(out.len()));
    }
    mounted.release(ino, file.handle);
    content
}

/// Entries of a directory, requested in small portions.
fn list(mounted: &MountedUbifs, ino: Ino) -> Vec<(Vec<u8>, Entry)> {
    let handle = mounted.opendir(ino).expect("it opens");
    let (mut all, mut offset) = (Vec::new(), 0);
    loop {
        let mut some = Portion {
            room: 100,
            names: Vec::new(),
            next: offset,
        };
        mounted
            .readdir_plus(ino, handle, offset, &mut some)
            .expect("it is listed");
        if some.next == offset {
            mounted.releasedir(ino, handle);
            return all;
        }
        offset = some.next;
        all.append(&mut some.names);
    }
}

/// A portion of a listing.
struct Portion {
    room: usize,
    names: Vec<(Vec<u8>, Entry)>,
    next: u64,
}

impl DirSink for Portion {
    fn fits(&self, _: usize) -> bool {
        self.room > 0
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        (self.room, self.next) = (self.room - 1, name.next_offset);
        match (name.name, entry) {
            (b"." | b"..", _) => {}
            (_, Some(entry)) => self.names.push((name.name.to_vec(), *entry)),
            (name, None) => panic!("{}: no entry", escaped(name)),
        }
    }
}
