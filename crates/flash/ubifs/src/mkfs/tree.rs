//! Content of a new file system: files by number, 0 is the root; directories name them. A file with several names is a
//! hard link. Contents of regular files stay on the host until they are written.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Number of a file in a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub usize);

/// Seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// May be negative.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Attributes of a file of any type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions as `st_mode` has them; the type follows from the content.
    pub permissions: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Last access.
    pub accessed: Time,
    /// Last change of the content.
    pub modified: Time,
    /// Last change of the attributes.
    pub changed: Time,
    /// Extended attributes: name with prefix, value.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Type and content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory and its names.
    Directory(BTreeMap<Vec<u8>, FileNumber>),
    /// A regular file with the content of one of the host.
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
    /// What every file has.
    pub attributes: Attributes,
    /// What it is.
    pub content: Content,
}

/// Files of a new file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    files: Vec<TreeFile>,
}

impl Tree {
    /// The number of the root.
    pub const ROOT: FileNumber = FileNumber(0);

    /// A root without a name in it.
    #[must_use]
    pub fn empty(root: Attributes) -> Self {
        Self {
            files: vec![TreeFile {
                attributes: root,
                content: Content::Directory(BTreeMap::new()),
            }],
        }
    }

    /// A file.
    #[must_use]
    pub fn file(&self, number: FileNumber) -> &TreeFile {
        &self.files[number.0]
    }

    /// A file, to be changed.
    pub fn file_mut(&mut self, number: FileNumber) -> &mut TreeFile {
        &mut self.files[number.0]
    }

    /// How many files there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.files.len()
    }

    /// Adds a file that has no name yet.
    pub fn add(&mut self, file: TreeFile) -> FileNumber {
        self.files.push(file);
        FileNumber(self.files.len() - 1)
    }

    /// Gives a file a name; `false` where `directory` is none, or has the name.
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

    /// What a directory has under a name.
    #[must_use]
    pub fn lookup(&self, directory: FileNumber, name: &[u8]) -> Option<FileNumber> {
        match &self.files[directory.0].content {
            Content::Directory(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Makes all files root's.
    pub fn squash_owners(&mut self) {
        for file in &mut self.files {
            (file.attributes.user, file.attributes.group) = (0, 0);
        }
    }

    /// Takes all times that are later back to `latest`.
    pub fn clamp_times(&mut self, latest: Time) {
        for TreeFile { attributes, .. } in &mut self.files {
            attributes.modified = attributes.modified.min(latest);
            // When a tree was copied or read differs between two builds, however old its content.
            attributes.accessed = attributes.modified;
            attributes.changed = attributes.modified;
        }
    }
}
