//! The closed vocabularies that describe requests. Each word is defined once, here, for every format.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A word that the vocabulary does not contain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{word:?} is no {what}; known are: {known}")]
pub struct UnknownWord {
    /// Name of the vocabulary.
    pub what: &'static str,
    /// The unknown word.
    pub word: String,
    /// The known words.
    pub known: String,
}

pub(super) fn word_of<T: Copy + PartialEq>(value: T, words: &[(T, &'static str)]) -> &'static str {
    words
        .iter()
        .find(|(known, _)| *known == value)
        .map_or("unknown", |(_, word)| word)
}

pub(super) fn parse_word<T: Copy>(
    word: &str,
    words: &[(T, &'static str)],
    what: &'static str,
) -> Result<T, UnknownWord> {
    words
        .iter()
        .find(|(_, known)| *known == word)
        .map(|(value, _)| *value)
        .ok_or_else(|| UnknownWord {
            what,
            word: word.to_owned(),
            known: words
                .iter()
                .map(|(_, known)| *known)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

/// Gives a vocabulary its table, `word`, `FromStr`, `Display` and serde form, all from one word list.
macro_rules! words {
    ($name:ident, $what:literal, { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every value with its word in stored traces and tables.
            pub const WORDS: &'static [(Self, &'static str)] = &[$((Self::$variant, $word)),+];

            /// The word in stored traces and tables.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                parse_word(word, Self::WORDS, $what)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Operation of a block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Reads from the device.
    Read,
    /// Writes to the device.
    Write,
    /// Flushes the device's cache.
    Flush,
    /// Marks the sectors as unused.
    Discard,
    /// Discards the sectors and destroys their old content.
    SecureErase,
    /// Makes the sectors read as zeroes without moving data.
    WriteZeroes,
    /// Appends to a zone.
    ZoneAppend,
    /// Opens, closes, finishes or resets zones.
    ZoneManagement,
    /// A driver's own request (a SCSI or eMMC command).
    Driver,
}

words!(Operation, "operation", {
    Read => "read",
    Write => "write",
    Flush => "flush",
    Discard => "discard",
    SecureErase => "secure_erase",
    WriteZeroes => "write_zeroes",
    ZoneAppend => "zone_append",
    ZoneManagement => "zone_management",
    Driver => "driver",
});

/// Type of a block in its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockType {
    /// File content.
    Data,
    /// Directory content.
    Directory,
    /// Target of a symbolic link, stored in its own block.
    Symlink,
    /// Extended attributes.
    Xattr,
    /// Superblock or a copy of it.
    Superblock,
    /// Group descriptors (ext4), including reserved ones.
    GroupDescriptors,
    /// Block allocation bitmap.
    BlockBitmap,
    /// Inode allocation bitmap.
    InodeBitmap,
    /// Inodes.
    InodeTable,
    /// Block map of a file: extent tree, indirect blocks.
    ExtentTree,
    /// Allocation group headers (XFS).
    AllocationGroup,
    /// Tree node (btrfs), or B+tree node (XFS, nilfs2).
    TreeNode,
    /// A node block (f2fs).
    Node,
    /// Checkpoint, SIT, NAT, SSA (f2fs); checkpoint file (nilfs2).
    Checkpoint,
    /// File allocation table.
    Fat,
    /// FAT boot record and related sectors.
    BootRecord,
    /// Quota file.
    Quota,
    /// Metadata of unknown kind.
    Metadata,
    /// Journal: logged block.
    Journal,
    /// Journal: descriptor, commit, revoke or superblock.
    JournalControl,
    /// Fast commit area (ext4).
    FastCommit,
    /// Log of XFS or btrfs.
    Log,
    /// Swap space.
    Swap,
    /// A device used without a file system.
    Raw,
    /// Unallocated space.
    Free,
    /// Unknown.
    Unknown,
}

words!(BlockType, "type of block", {
    Data => "data",
    Directory => "directory",
    Symlink => "symlink",
    Xattr => "xattr",
    Superblock => "superblock",
    GroupDescriptors => "group_descriptors",
    BlockBitmap => "block_bitmap",
    InodeBitmap => "inode_bitmap",
    InodeTable => "inode_table",
    ExtentTree => "extent_tree",
    AllocationGroup => "allocation_group",
    TreeNode => "tree_node",
    Node => "node",
    Checkpoint => "checkpoint",
    Fat => "fat",
    BootRecord => "boot_record",
    Quota => "quota",
    Metadata => "metadata",
    Journal => "journal",
    JournalControl => "journal_control",
    FastCommit => "fast_commit",
    Log => "log",
    Swap => "swap",
    Raw => "raw",
    Free => "free",
    Unknown => "unknown",
});

impl BlockType {
    /// The paper's class (seeds/004 section 3.2): directory content counts as data there.
    #[must_use]
    pub const fn class(self) -> BlockClass {
        match self {
            Self::Data | Self::Directory | Self::Symlink => BlockClass::Data,
            Self::Journal | Self::JournalControl | Self::FastCommit | Self::Log => BlockClass::Journal,
            Self::Xattr
            | Self::Superblock
            | Self::GroupDescriptors
            | Self::BlockBitmap
            | Self::InodeBitmap
            | Self::InodeTable
            | Self::ExtentTree
            | Self::AllocationGroup
            | Self::TreeNode
            | Self::Node
            | Self::Checkpoint
            | Self::Fat
            | Self::BootRecord
            | Self::Quota
            | Self::Metadata => BlockClass::Metadata,
            Self::Swap | Self::Raw | Self::Free | Self::Unknown => BlockClass::Other,
        }
    }
}

/// The paper's three classes, and a fourth for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockClass {
    /// Content of files and directories.
    Data,
    /// File system metadata.
    Metadata,
    /// Journal or log.
    Journal,
    /// None of these, or unknown.
    Other,
}

words!(BlockClass, "class of blocks", {
    Data => "data",
    Metadata => "metadata",
    Journal => "journal",
    Other => "other",
});

/// How the process behind the data was determined, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CauseQuality {
    /// Dirtied this very folio, or requested this very transfer (direct I/O, reads).
    Folio,
    /// Issued the write call that covers these bytes.
    WriteCall,
    /// Was the last writer of the inode.
    Inode,
    /// Called the block layer; for buffered writes possibly a kernel thread.
    Submitter,
    /// Took part in the journal transaction.
    Transaction,
    /// Not determined.
    None,
}

words!(CauseQuality, "quality of a cause", {
    Folio => "folio",
    WriteCall => "write_call",
    Inode => "inode",
    Submitter => "submitter",
    Transaction => "transaction",
    None => "none",
});

/// Path of data to the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IoMode {
    /// `O_DIRECT`, bypassing the page cache.
    Direct,
    /// Page cache, written out by a user process: fsync, `O_SYNC`, msync, or a full cache.
    Synchronous,
    /// Page cache, written back by the kernel.
    Writeback,
    /// Buffered read, including read-ahead.
    CachedRead,
    /// Write of the journal itself.
    Journal,
    /// Metadata.
    Metadata,
    /// Swapping.
    Swap,
    /// Unknown.
    Unknown,
}

words!(IoMode, "mode of I/O", {
    Direct => "direct",
    Synchronous => "synchronous",
    Writeback => "writeback",
    CachedRead => "cached_read",
    Journal => "journal",
    Metadata => "metadata",
    Swap => "swap",
    Unknown => "unknown",
});

/// The kernel's request flags: those of blktrace's `rwbs` and more. Stored as a number and as letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestFlags(pub u32);

impl RequestFlags {
    /// Synchronous: a caller waits for completion (`S`).
    pub const SYNC: Self = Self(1);
    /// Metadata (`M`).
    pub const META: Self = Self(1 << 1);
    /// Forced unit access: data reaches the medium before completion (`F` after the operation).
    pub const FUA: Self = Self(1 << 2);
    /// The device's cache is flushed first (`F` before the operation).
    pub const PREFLUSH: Self = Self(1 << 3);
    /// Read-ahead (`A`).
    pub const READAHEAD: Self = Self(1 << 4);
    /// Raised priority (`P` in some tools).
    pub const PRIO: Self = Self(1 << 5);
    /// Background I/O.
    pub const BACKGROUND: Self = Self(1 << 6);
    /// Must not block.
    pub const NOWAIT: Self = Self(1 << 7);
    /// Must not be merged.
    pub const NOMERGE: Self = Self(1 << 8);
    /// More I/O is expected soon.
    pub const IDLE: Self = Self(1 << 9);
    /// Atomic write (`U` in newer kernels).
    pub const ATOMIC: Self = Self(1 << 10);
    /// Swapping.
    pub const SWAP: Self = Self(1 << 11);
    /// Polled completion.
    pub const POLLED: Self = Self(1 << 12);

    /// All flags with their words.
    pub const WORDS: [(Self, &'static str); 13] = [
        (Self::SYNC, "sync"),
        (Self::META, "meta"),
        (Self::FUA, "fua"),
        (Self::PREFLUSH, "preflush"),
        (Self::READAHEAD, "readahead"),
        (Self::PRIO, "prio"),
        (Self::BACKGROUND, "background"),
        (Self::NOWAIT, "nowait"),
        (Self::NOMERGE, "nomerge"),
        (Self::IDLE, "idle"),
        (Self::ATOMIC, "atomic"),
        (Self::SWAP, "swap"),
        (Self::POLLED, "polled"),
    ];

    /// Union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The words of the set flags.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS
            .into_iter()
            .filter(move |(flag, _)| self.contains(*flag))
            .map(|(_, word)| word)
    }
}

/// Device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Text that is not a device number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no device number; expected MAJOR:MINOR as in 8:0")]
pub struct ParseDeviceNumberError {
    /// The invalid text.
    pub text: String,
}

impl FromStr for DeviceNumber {
    type Err = ParseDeviceNumberError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceNumberError> {
        let parsed = text.split_once([':', ',']).and_then(|(major, minor)| {
            Some(Self {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        });
        parsed.ok_or_else(|| ParseDeviceNumberError {
            text: text.to_owned(),
        })
    }
}

impl Serialize for DeviceNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_as_its_value() {
        for (value, word) in BlockType::WORDS {
            assert_eq!(word.parse::<BlockType>().as_ref(), Ok(value));
        }
        for (value, word) in Operation::WORDS {
            assert_eq!(word.parse::<Operation>().as_ref(), Ok(value));
        }
        assert!(
            "dirctory"
                .parse::<BlockType>()
                .unwrap_err()
                .to_string()
                .contains("directory")
        );
    }

    #[test]
    fn a_directory_counts_as_data_as_in_the_paper() {
        assert_eq!(BlockType::Directory.class(), BlockClass::Data);
        assert_eq!(BlockType::InodeTable.class(), BlockClass::Metadata);
        assert_eq!(BlockType::FastCommit.class(), BlockClass::Journal);
    }

    #[test]
    fn device_numbers_are_written_as_the_kernel_shows_them() {
        let device = DeviceNumber { major: 259, minor: 3 };
        assert_eq!(device.to_string().parse(), Ok(device));
        assert_eq!("8,16".parse(), Ok(DeviceNumber { major: 8, minor: 16 }));
        assert!("sda".parse::<DeviceNumber>().is_err());
    }

    #[test]
    fn flags_are_told_by_their_words() {
        let flags = RequestFlags::SYNC.with(RequestFlags::FUA);
        assert_eq!(flags.words().collect::<Vec<_>>(), ["sync", "fua"]);
        assert!(!flags.contains(RequestFlags::META));
    }
}
