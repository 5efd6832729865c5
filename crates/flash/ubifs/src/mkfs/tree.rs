//! Content of a new file system: files by number (0 is the root), and directories that name them. Several names of a
//! file are hard links. The content of host files is read only when it is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Number of a file in a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub usize);

/// A time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds; may be negative.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Attributes of a file of any type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, encoded as `st_mode`; the type follows from the content.
    pub permissions: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Access time (atime).
    pub accessed: Time,
    /// Time of the last content change (mtime).
    pub modified: Time,
    /// Time of the last attribute change (ctime).
    pub changed: Time,
    /// Extended attributes: name including prefix, and value.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Type and content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory with its entries.
    Directory(BTreeMap<Vec<u8>, FileNumber>),
    /// A regular file with the content of a host file.
    HostFile(PathBuf),
    /// A regular file with this content.
    Bytes(Vec<u8>),
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A character device.
    CharacterDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Attributes.
    pub attributes: Attributes,
    /// Type and content.
    pub content: Content,
}

/// Files of a new file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    files: Vec<TreeFile>,
    /// Extended attributes of host files that UBIFS can't have, such as ACLs.
    pub(super) xattrs_left_out: u64,
}

impl Tree {
    /// The number of the root.
    pub const ROOT: FileNumber = FileNumber(0);

    /// A tree with an empty root directory.
    #[must_use]
    pub fn empty(root: Attributes) -> Self {
        Self {
            files: vec![TreeFile {
                attributes: root,
                content: Content::Directory(BTreeMap::new()),
            }],
            xattrs_left_out: 0,
        }
    }

    /// Number of extended attributes of host files that UBIFS can't have, such as ACLs.
    #[must_use]
    pub const fn xattrs_left_out(&self) -> u64 {
        self.xattrs_left_out
    }

    /// Returns a file.
    #[must_use]
    pub fn file(&self, number: FileNumber) -> &TreeFile {
        &self.files[number.0]
    }

    /// Returns a file for modification.
    pub fn file_mut(&mut self, number: FileNumber) -> &mut TreeFile {
        &mut self.files[number.0]
    }

    /// Number of files.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.files.len()
    }

    /// Adds a file without a name.
    pub fn add(&mut self, file: TreeFile) -> FileNumber {
        self.files.push(file);
        FileNumber(self.files.len() - 1)
    }

    /// Adds a name to a file; returns `false` if `directory` is not a directory or already has the name.
    #[must_use]
    pub fn link(&mut self, directory: FileNumber, name: Vec<u8>, file: FileNumber) -> bool {
        match &mut self.files[directory.0].content {
            Content::Directory(names) if !names.contains_key(&name) => {
                names.insert(name, file);
                true
            }
            _ => false,
        }
    }

    /// Looks up a name in a directory.
    #[must_use]
    pub fn lookup(&self, directory: FileNumber, name: &[u8]) -> Option<FileNumber> {
        match &self.files[directory.0].content {
            Content::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Makes root the owner of all files.
    pub fn squash_owners(&mut self) {
        for file in &mut self.files {
            (file.attributes.user, file.attributes.group) = (0, 0);
        }
    }

    /// Clamps modification times to `latest`, and sets access and change times to the modification time.
    pub fn clamp_times(&mut self, latest: Time) {
        for TreeFile { attributes, .. } in &mut self.files {
            attributes.modified = attributes.modified.min(latest);
            // These depend on when a tree was copied or read, and would differ between builds.
            attributes.accessed = attributes.modified;
            attributes.changed = attributes.modified;
        }
    }
}
