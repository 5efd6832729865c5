//! Problems of a medium, as values: place, expected and found.
//!
//! Every loss in a map is one of these. Their number is bounded: beyond [`KEPT_MAX`] they are only counted.

use std::fmt;

/// Maximum number of findings kept; more are counted.
pub const KEPT_MAX: usize = 10_000;

/// Place of a problem. Offsets count from the start of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The superblock or boot record.
    Superblock,
    /// A block group.
    Group(u64),
    /// An inode.
    Inode(u64),
    /// A node of an inode's tree of extents or blocks.
    Tree {
        /// Its inode.
        inode: u64,
        /// Offset of the node, or `None` for the root in the inode.
        byte: Option<u64>,
    },
    /// A block of a directory.
    Directory {
        /// The directory's inode; 0 if it is unknown.
        inode: u64,
        /// Offset of the block.
        byte: u64,
    },
    /// An offset.
    Byte(u64),
    /// The journal.
    Journal,
    /// A FAT, counted from 0.
    Fat(u8),
    /// A partition table.
    PartitionTable,
    /// A file or folder of a mounted file system.
    Path(String),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => write!(formatter, "superblock"),
            Self::Group(group) => write!(formatter, "group {group}"),
            Self::Inode(inode) => write!(formatter, "inode {inode}"),
            Self::Tree { inode, byte: None } => write!(formatter, "inode {inode}, root of its blocks"),
            Self::Tree {
                inode,
                byte: Some(byte),
            } => write!(formatter, "inode {inode}, tree node at byte {byte}"),
            Self::Directory { inode, byte } => {
                write!(formatter, "directory inode {inode}, block at byte {byte}")
            }
            Self::Byte(byte) => write!(formatter, "byte {byte}"),
            Self::Journal => write!(formatter, "journal"),
            Self::Fat(number) => write!(formatter, "FAT {number}"),
            Self::PartitionTable => write!(formatter, "partition table"),
            Self::Path(path) => write!(formatter, "{path}"),
        }
    }
}

/// Kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// A checksum is wrong.
    Checksum,
    /// A field has an invalid value.
    Field,
    /// A pointer leads outside the medium.
    OutOfRange,
    /// Two owners claim the same bytes.
    CrossLink,
    /// A chain or tree leads back to itself.
    Loop,
    /// Owned, but marked free.
    UsedButFree,
    /// Marked used, but without an owner.
    UsedButUnowned,
    /// A name leads to no file.
    DanglingName,
    /// A file has no name.
    Nameless,
    /// The medium could not be read.
    Unreadable,
    /// A limit on memory or work was reached.
    Bound,
    /// A primary copy was damaged and replaced by a backup.
    Backup,
    /// A structure that this reader does not support.
    Unsupported,
}

impl FindingKind {
    /// The name in machine-readable output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Field => "field",
            Self::OutOfRange => "out-of-range",
            Self::CrossLink => "cross-link",
            Self::Loop => "loop",
            Self::UsedButFree => "used-but-free",
            Self::UsedButUnowned => "used-but-unowned",
            Self::DanglingName => "dangling-name",
            Self::Nameless => "nameless",
            Self::Unreadable => "unreadable",
            Self::Bound => "bound",
            Self::Backup => "backup",
            Self::Unsupported => "unsupported",
        }
    }
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind.
    pub kind: FindingKind,
    /// Place.
    pub place: Place,
    /// Expected value.
    pub expected: String,
    /// Value found.
    pub found: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: expected {}, found {}",
            self.place, self.expected, self.found
        )
    }
}

/// The findings of one map, and notes about it that are not damage.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    total: u64,
    notes: Vec<String>,
}

impl Findings {
    /// The findings that were kept, in order of discovery.
    pub fn list(&self) -> &[Finding] {
        &self.kept
    }

    /// Total number of findings, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Notes that a user of the map must know, and that are not damage.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether there is a finding of this kind.
    pub fn any(&self, kind: FindingKind) -> bool {
        self.kept.iter().any(|finding| finding.kind == kind)
    }

    pub(crate) fn add(
        &mut self,
        kind: FindingKind,
        place: Place,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        self.total += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(Finding {
                kind,
                place,
                expected: expected.into(),
                found: found.into(),
            });
        }
    }

    /// Appends the findings of a part.
    pub(crate) fn append(&mut self, other: Self) {
        let room = KEPT_MAX.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room));
        self.total += other.total;
        self.notes.extend(other.notes);
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}
