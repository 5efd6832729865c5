//! Images made by `mkfs.ubifs`, in memory.

use std::fs;
use std::path::{Path, PathBuf};

use ubifs::format::{Inode, InodeNumber, NodeKind, check};

use super::tool::mkfs;

/// An image in memory, with the path of its file.
#[derive(Clone)]
pub struct Image {
    pub path: PathBuf,
    pub raw: Vec<u8>,
    pub leb: u64,
}

impl Image {
    /// Makes an image of a directory.
    pub fn make(folder: &Path, tree: &Path, min_io: u32, leb: u32, more: &[&str]) -> Self {
        let path = folder.join("image");
        mkfs(tree, &path, min_io, leb, more);
        let raw = fs::read(&path).expect("it was made");
        let leb = u64::from(leb);
        Self { path, raw, leb }
    }

    /// A copy with another file.
    pub fn copy(&self) -> Self {
        Self {
            path: self.path.with_extension("copy"),
            ..self.clone()
        }
    }

    /// Writes the image to its file.
    pub fn write(&self) {
        fs::write(&self.path, &self.raw).expect("there is room");
    }

    /// Offset, kind and length of each node.
    pub fn nodes(&self) -> Vec<(usize, NodeKind, usize)> {
        let places = (0..self.raw.len()).step_by(8);
        places
            .filter_map(|at| {
                let header = check(&self.raw[at..]).ok()?;
                Some((at, header.kind, usize::try_from(header.bytes).expect("small")))
            })
            .collect()
    }

    /// Offset of the first node that satisfies a condition.
    pub fn place_of(&self, condition: impl Fn(&[u8]) -> bool) -> usize {
        let nodes = self.nodes();
        let found = nodes
            .iter()
            .find(|(at, _, bytes)| condition(&self.raw[*at..at + bytes]));
        found.expect("there is such a node").0
    }

    /// Number of the first inode that satisfies a condition.
    pub fn inode_with(&self, condition: impl Fn(&Inode) -> bool) -> InodeNumber {
        let inodes = self.nodes().into_iter().filter(|node| node.1 == NodeKind::Inode);
        let mut inodes = inodes.filter_map(|(at, _, bytes)| Inode::decode(&self.raw[at..at + bytes]).ok());
        let found = inodes
            .find(|inode| condition(inode))
            .expect("there is such an inode");
        found.key.inode_number()
    }
}
