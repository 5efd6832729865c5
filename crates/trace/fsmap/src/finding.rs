//! What is wrong with a medium, as values: where, what was expected, what was found.
//!
//! Every loss of a map is one of these. Their number is bounded: past [`KEPT_MAX`] they are counted alone.

use std::fmt;

/// Findings that are kept; more are counted.
pub const KEPT_MAX: usize = 10_000;

/// Where something is wrong. Bytes count from the start of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The superblock or boot record.
    Superblock,
    /// A block group.
    Group(u64),
    /// An inode.
    Inode(u64),
    /// A byte of an inode's tree of extents or blocks.
    Tree {
        /// Whose.
        inode: u64,
        /// Where the node lies, or `None` for the root in the inode.
        byte: Option<u64>,
    },
    /// A block of a directory.
    Directory {
        /// Whose; 0 when it is not known.
        inode: u64,
        /// Where the block lies.
        byte: u64,
    },
    /// A byte.
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

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// A checksum does not fit.
    Checksum,
    /// A field has a value that it can't have.
    Field,
    /// A pointer leads out of the medium.
    OutOfRange,
    /// Two owners claim one place.
    CrossLink,
    /// A chain or tree comes back to itself.
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
    /// A bound on memory or work was reached.
    Bound,
    /// A primary copy was damaged, and a backup used.
    Backup,
    /// A part that this reader does not know.
    Unsupported,
}

impl FindingKind {
    /// The name that programs see.
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

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Where.
    pub place: Place,
    /// What should be there.
    pub expected: String,
    /// What is there.
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

/// The findings of one map, and facts about it that are no damage.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    kept: Vec<Finding>,
    total: u64,
    notes: Vec<String>,
}

impl Findings {
    /// The findings that were kept, in the order in which they were met.
    pub fn list(&self) -> &[Finding] {
        &self.kept
    }

    /// How many there were, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Facts that a reader of the map must know, and that are no damage.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether there is one of a kind.
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

    /// Takes over the findings of a part.
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
