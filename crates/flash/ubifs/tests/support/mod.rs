//! File trees as text, one line per file, to compare the host with UBIFS.

pub mod array_of;
pub mod cut_again;
pub mod ends;
pub mod fault_run;
#[expect(
    clippy::print_stdout,
    reason = "the number of faults, for who asks with --nocapture"
)]
pub mod fault_sweep;
pub mod faulty;
#[path = "../../../ubi/tests/support/faulty_chip.rs"]
pub mod faulty_chip;
#[expect(dead_code, reason = "syncs that fail are for tests of UBI")]
#[path = "../../../ubi/tests/support/hosted_chip.rs"]
pub mod hosted_chip;
pub mod image;
pub mod lab_lines;
pub mod linux;
pub mod linux_journal;
pub mod lost;
pub mod medium;
pub mod one_chip;
pub mod patient;
pub mod rig;
pub mod script;
pub mod sha256;
pub mod shown;
pub mod sweep;
pub mod tool;
pub mod turns;
pub mod unsteady;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ubifs::format::{EntryKind, InodeNumber, ROOT_INODE};
use ubifs::{Finding, Ubifs};

/// Maps a path to a description of the file.
pub type Tree = BTreeMap<String, String>;

/// Lists a host directory.
pub fn tree_of_host(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = fs::symlink_metadata(&path).expect("small, and possible on this host");
        let content = if meta.is_file() {
            digest(&fs::read(&path).expect("small, and possible on this host"))
        } else if meta.is_symlink() {
            digest(
                fs::read_link(&path)
                    .expect("small, and possible on this host")
                    .as_os_str()
                    .as_bytes(),
            )
        } else {
            0
        };
        let name = path
            .strip_prefix(root)
            .expect("small, and possible on this host")
            .to_string_lossy()
            .into_owned();
        let size = if meta.is_dir() { 0 } else { meta.size() };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        let times = meta.mtime();
        let line = format!(
            "{:o} {links} {}:{} {size} {times} {content:08x}",
            meta.mode(),
            meta.uid(),
            meta.gid()
        );
        tree.insert(name, line);
        if meta.is_dir() {
            pending.extend(
                fs::read_dir(&path)
                    .expect("small, and possible on this host")
                    .map(|entry| entry.expect("small, and possible on this host").path()),
            );
        }
    }
    tree
}

/// Lists a UBIFS. Damage is added to `lost`.
pub fn tree_of(ubifs: &Ubifs, lost: &mut Vec<Finding>) -> Tree {
    let mut tree = Tree::new();
    let mut pending: Vec<(InodeNumber, String)> = vec![(ROOT_INODE, String::new())];
    // A damaged file system may have a directory below itself.
    while let Some((number, path)) = pending.pop().filter(|_| tree.len() < 100_000) {
        let Ok(inode) = ubifs.inode(number) else {
            tree.insert(path, "lost".to_owned());
            continue;
        };
        let is_directory = inode.kind() == Some(EntryKind::Directory);
        let content = match inode.kind() {
            Some(EntryKind::File) if inode.size_bytes < 64 << 20 => {
                let mut content =
                    vec![0; usize::try_from(inode.size_bytes).expect("small, and possible on this host")];
                ubifs.read_lossy(&inode, 0, &mut content, lost);
                digest(&content)
            }
            Some(EntryKind::Symlink) => {
                digest(&ubifs.read_link(&inode).expect("small, and possible on this host"))
            }
            _ => 0,
        };
        let size = if is_directory { 0 } else { inode.size_bytes };
        let links = if is_directory { 0 } else { inode.links };
        let owner = format!("{}:{}", inode.user, inode.group);
        let time = inode.modified_seconds;
        let line = format!("{:o} {links} {owner} {size} {time} {content:08x}", inode.mode);
        if is_directory && path.len() < 2000 {
            for entry in ubifs.read_directory_lossy(number, lost) {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let path = if path.is_empty() {
                    name
                } else {
                    format!("{path}/{name}")
                };
                pending.push((entry.inode, path));
            }
        }
        tree.insert(path, line);
    }
    tree
}

fn digest(content: &[u8]) -> u32 {
    ubifs::format::crc(content)
}
