//! `Tree` and `Node`: a file system and its inodes.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ubifs::format::Inode;

use super::dump::{FindingRow, within};
use super::guard::{exception, fill, without_gil};
use crate::tree;
use crate::tree::{Extents, Note, Xattrs};

fn rows(notes: &[Note]) -> Vec<FindingRow> {
    notes.iter().map(FindingRow::from).collect()
}

/// An open file system.
#[pyclass(frozen, module = "tidegate._core")]
pub struct Tree(pub Arc<tree::Tree>);

impl Tree {
    fn node(&self, inode: Inode) -> Node {
        Node {
            tree: Arc::clone(&self.0),
            inode,
        }
    }
}

/// Losses as rows; an error if the dump can't be read any more, as much may be missing.
fn damages(py: Python<'_>, tree: &tree::Tree, lost: &[Note]) -> PyResult<Vec<FindingRow>> {
    match lost.first().filter(|first| first.is_unreadable()) {
        Some(first) => Err(exception(py, &tree.lost(first))),
        None => Ok(rows(lost)),
    }
}

/// Files with their names, and losses.
type Listing = (Vec<(Vec<u8>, Node)>, Vec<FindingRow>);

#[pymethods]
impl Tree {
    fn findings(&self) -> Vec<FindingRow> {
        rows(self.0.notes())
    }

    #[getter]
    fn has_encryption(&self) -> bool {
        self.0.has_encryption()
    }

    /// The root directory, and losses.
    fn root(&self, py: Python<'_>) -> PyResult<(Option<Node>, Vec<FindingRow>)> {
        let (root, lost) = without_gil(py, || Ok(self.0.root()))?;
        let lost = damages(py, &self.0, &lost)?;
        Ok((root.map(|inode| self.node(inode)), lost))
    }

    fn inode(&self, py: Python<'_>, number: u32) -> PyResult<Node> {
        Ok(self.node(without_gil(py, || self.0.inode(number))?))
    }

    /// The file of a name in a directory, and losses.
    fn lookup(
        &self,
        py: Python<'_>,
        directory: &Node,
        name: &[u8],
    ) -> PyResult<Option<(Node, Vec<FindingRow>)>> {
        let found = without_gil(py, || self.0.lookup(&directory.inode, name))?;
        let found = found.map(|(inode, lost)| PyResult::Ok((self.node(inode), damages(py, &self.0, &lost)?)));
        found.transpose()
    }

    /// The files of a directory by name, and losses.
    fn list(&self, py: Python<'_>, directory: &Node) -> PyResult<Listing> {
        let (children, lost) = without_gil(py, || Ok(self.0.list(&directory.inode)))?;
        let children = children.into_iter();
        let named = children
            .map(|child| (child.name, self.node(child.inode)))
            .collect();
        Ok((named, damages(py, &self.0, &lost)?))
    }
}

/// An inode of a file system.
#[pyclass(frozen, module = "tidegate._core")]
pub struct Node {
    tree: Arc<tree::Tree>,
    inode: Inode,
}

/// Attributes, as a dictionary.
#[derive(IntoPyObject)]
struct Attributes {
    mode: u32,
    inode: u32,
    links: u32,
    user: u32,
    group: u32,
    size: u64,
    device: Option<(u32, u32)>,
    accessed: (i64, u32),
    modified: (i64, u32),
    changed: (i64, u32),
    xattrs: u32,
}

#[pymethods]
impl Node {
    #[getter]
    fn number(&self) -> u32 {
        self.inode.key.inode_number().0
    }

    #[getter]
    fn size(&self) -> u64 {
        self.inode.size_bytes
    }

    #[getter]
    fn mode(&self) -> u32 {
        self.inode.mode
    }

    #[getter]
    fn links(&self) -> u32 {
        self.inode.links
    }

    fn attributes(&self) -> Attributes {
        let inode = &self.inode;
        let time = |seconds: u64, nanoseconds: u32| (seconds.cast_signed(), nanoseconds.min(999_999_999));
        Attributes {
            mode: inode.mode,
            inode: self.number(),
            links: inode.links,
            user: inode.user,
            group: inode.group,
            size: inode.size_bytes,
            device: inode.device(),
            accessed: time(inode.accessed_seconds, inode.accessed_nanoseconds),
            modified: time(inode.modified_seconds, inode.modified_nanoseconds),
            changed: time(inode.changed_seconds, inode.changed_nanoseconds),
            xattrs: inode.xattr_count,
        }
    }

    /// Bytes of a file, at most up to its end. With `zeros` lost blocks are zeros, and returned; otherwise they are an error.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        bytes: usize,
        zeros: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, Vec<FindingRow>)> {
        let mut lost = Vec::new();
        let bytes = within(self.inode.size_bytes, offset, bytes);
        let is_whole = u64::try_from(bytes).is_ok_and(|bytes| bytes == self.inode.size_bytes);
        if is_whole && let Some((content, lost)) = without_gil(py, || Ok(self.tree.whole(&self.inode)))? {
            return match lost.first().filter(|_| !zeros) {
                Some(first) => Err(exception(py, &self.tree.lost(first))),
                None => Ok((PyBytes::new(py, &content), rows(&lost))),
            };
        }
        let read = fill(py, bytes, |out| {
            lost = self.tree.read(&self.inode, offset, out);
            match lost.first().filter(|_| !zeros) {
                Some(first) => Err(self.tree.lost(first)),
                None => Ok(()),
            }
        })?;
        Ok((read, rows(&lost)))
    }

    /// Target of a symbolic link.
    fn read_link(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        without_gil(py, || self.tree.read_link(&self.inode))
    }

    /// Extended attributes, and losses.
    fn xattrs(&self, py: Python<'_>) -> PyResult<(Xattrs, Vec<FindingRow>)> {
        let (xattrs, lost) = without_gil(py, || Ok(self.tree.xattrs(&self.inode)))?;
        Ok((xattrs, damages(py, &self.tree, &lost)?))
    }

    /// The ranges that are not holes, and losses.
    fn extents(&self, py: Python<'_>) -> PyResult<(Extents, Vec<FindingRow>)> {
        let (extents, lost) = without_gil(py, || Ok(self.tree.extents(&self.inode)))?;
        Ok((extents, damages(py, &self.tree, &lost)?))
    }
}
