//! Imports a host directory as a [`Tree`]: types, permissions, owners, times, hard links, and the extended attributes
//! that UBIFS supports (`user.`, `trusted.`, `security.`), as far as the process may read them. Others, such as ACLs, are
//! counted: Linux' UBIFS has no handler for them and would neither show nor obey them. Contents are read later.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use super::{Attributes, Content, FileNumber, Time, Tree, TreeFile};

/// Maximum length in Linux of a list of attribute names, and of a value.
const XATTR_BYTES_MAX: usize = 64 << 10;
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

/// Why a host directory can't be imported.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct HostError {
    /// Path on the host.
    pub path: String,
    /// The host's error.
    pub source: std::io::Error,
}

/// Imports a host directory, which becomes the root.
pub fn tree_of_folder(root: &Path) -> Result<Tree, HostError> {
    let meta = fs::metadata(root).map_err(at(root))?;
    let mut left_out = 0;
    let mut tree = Tree::empty(attributes(root, &meta, &mut left_out)?);
    let mut known: HashMap<(u64, u64), FileNumber> = HashMap::new();
    let mut pending = vec![(root.to_owned(), Tree::ROOT)];
    while let Some((folder, directory)) = pending.pop() {
        let entries = fs::read_dir(&folder).map_err(at(&folder))?;
        let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
        let mut paths = paths.map_err(at(&folder))?;
        paths.sort();
        // A name that moves within the folder meanwhile may be listed twice.
        paths.dedup();
        for path in paths {
            let meta = fs::symlink_metadata(&path).map_err(at(&path))?;
            let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
            let identity = (meta.dev(), meta.ino());
            let linked = known.get(&identity).copied().filter(|_| !meta.is_dir());
            let file = match linked {
                Some(file) => file,
                None => {
                    let attributes = attributes(&path, &meta, &mut left_out)?;
                    let content = content(&path, &meta)?;
                    tree.add(TreeFile { attributes, content })
                }
            };
            if meta.nlink() > 1 {
                known.insert(identity, file);
            }
            let is_new = tree.link(directory, name, file);
            assert!(is_new, "a folder has each name once");
            if meta.is_dir() {
                pending.push((path, file));
            }
        }
    }
    tree.xattrs_left_out = left_out;
    Ok(tree)
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> HostError {
    let path = path.display().to_string();
    move |source| HostError {
        path: path.clone(),
        source,
    }
}

fn attributes(path: &Path, meta: &Metadata, left_out: &mut u64) -> Result<Attributes, HostError> {
    let time = |seconds, nanoseconds: i64| Time {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or(0),
    };
    Ok(Attributes {
        permissions: meta.mode() & 0o7777,
        user: meta.uid(),
        group: meta.gid(),
        accessed: time(meta.atime(), meta.atime_nsec()),
        modified: time(meta.mtime(), meta.mtime_nsec()),
        changed: time(meta.ctime(), meta.ctime_nsec()),
        xattrs: xattrs(path, left_out).map_err(|errno| at(path)(errno.into()))?,
    })
}

fn content(path: &Path, meta: &Metadata) -> Result<Content, HostError> {
    let kind = meta.file_type();
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Ok(if kind.is_dir() {
        Content::Directory(BTreeMap::new())
    } else if kind.is_file() {
        Content::HostFile(path.to_owned())
    } else if kind.is_symlink() {
        let target: PathBuf = fs::read_link(path).map_err(at(path))?;
        Content::Symlink(target.into_os_string().into_vec())
    } else if kind.is_char_device() {
        Content::CharacterDevice { major, minor }
    } else if kind.is_block_device() {
        Content::BlockDevice { major, minor }
    } else if kind.is_fifo() {
        Content::Fifo
    } else {
        Content::Socket
    })
}

/// Extended attributes of a path, without following a link. Empty if the host file system does not support them. Those that
/// UBIFS can't have are added to `left_out`.
fn xattrs(path: &Path, left_out: &mut u64) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let names = match filled(|out| rustix::fs::llistxattr(path, out)) {
        Ok(names) => names,
        Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(BTreeMap::new()),
        Err(errno) => return Err(errno),
    };
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            *left_out += 1;
            continue;
        }
        match filled(|out| rustix::fs::lgetxattr(path, name, out)) {
            Ok(value) => {
                found.insert(name.to_vec(), value);
            }
            // Removed in the meantime.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}

/// Runs a host call with a buffer that grows until the result fits. An empty buffer can't be used to query the
/// length: rustix then returns 0.
fn filled(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut out = vec![0; 4096];
    loop {
        match call(&mut out) {
            Ok(bytes) => {
                out.truncate(bytes);
                return Ok(out);
            }
            Err(Errno::RANGE) if out.len() < XATTR_BYTES_MAX => out.resize(XATTR_BYTES_MAX, 0),
            Err(errno) => return Err(errno),
        }
    }
}
