//! Changes nodes of a volume and repairs their CRCs; lists folders and archives.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ubifs::format::{Group, HEADER_BYTES, Inode, NodeKind, check, seal};

use super::bench::Bench;

impl Bench {
    /// Renames entries `from` to `to`, which has the same length. Keeps their keys.
    pub fn rename_in_image(&self, from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len());
        let mut changed = 0;
        self.change_nodes(NodeKind::Entry, |node| {
            // The name follows the fixed fields and ends with a zero byte.
            if node[56..].strip_suffix(&[0]) == Some(from) {
                node[56..56 + to.len()].copy_from_slice(to);
                changed += 1;
            }
        });
        assert_eq!(changed, 1, "entries with that name");
    }

    /// Changes the fields of inodes without inline data.
    pub fn change_inodes(&self, mut change: impl FnMut(&mut Inode)) {
        self.change_nodes(NodeKind::Inode, |node| {
            let mut inode = Inode::decode(node).expect("mkfs made it");
            change(&mut inode);
            let sequence = u64::from_le_bytes(node[8..16].try_into().expect("8 bytes"));
            node.copy_from_slice(&inode.encode(sequence, Group::None));
        });
    }

    /// Changes all nodes of a kind.
    pub fn change_nodes(&self, kind: NodeKind, mut change: impl FnMut(&mut [u8])) {
        let mut raw = fs::read(self.path("volume")).expect("it was made");
        for at in (0..raw.len() - HEADER_BYTES).step_by(8) {
            let Ok(header) = check(&raw[at..]) else { continue };
            if header.kind == kind {
                let bytes = usize::try_from(header.bytes).expect("small");
                let node = &mut raw[at..at + bytes];
                change(node);
                seal(node, kind, Group::None, header.sequence);
            }
        }
        fs::write(self.path("volume"), raw).expect("written");
    }

    /// The file names that GNU tar lists.
    pub fn names_in_archive(&self, archive: &str) -> Vec<String> {
        let listed = Command::new("tar")
            .args(["-tf", archive])
            .current_dir(&self.0)
            .output()
            .expect("tar runs");
        assert!(listed.status.success(), "{listed:?}");
        let names = String::from_utf8_lossy(&listed.stdout);
        names.lines().map(str::to_owned).collect()
    }
}

/// A folder and everything below it: mode, owner, group and time, then the content.
pub fn snapshot(folder: &Path) -> BTreeMap<PathBuf, ([i64; 4], Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let status = fs::symlink_metadata(&path).expect("it is there");
        let content = match status.file_type() {
            kind if kind.is_file() => fs::read(&path).expect("it can be read"),
            kind if kind.is_symlink() => fs::read_link(&path)
                .expect("it is one")
                .into_os_string()
                .into_encoded_bytes(),
            _ => Vec::new(),
        };
        if status.is_dir() {
            pending.extend(
                fs::read_dir(&path)
                    .expect("listed")
                    .map(|entry| entry.expect("listed").path()),
            );
        }
        let attributes = [
            status.mode().into(),
            status.uid().into(),
            status.gid().into(),
            status.mtime(),
        ];
        all.insert(path, (attributes, content));
    }
    all
}
