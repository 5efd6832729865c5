//! Types of blocks, as fine as the medium reveals, and above them the three classes of the paper.

use std::fmt;

macro_rules! block_types {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        /// Type of a block.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BlockType {
            $($(#[$doc])* $name,)*
        }

        impl BlockType {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in output.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Its class.
            pub fn class(self) -> Class {
                match self {
                    $(Self::$name => Class::$class,)*
                }
            }
        }
    };
}

/// The classes of seeds/004, where directories are data; with two more for blocks without an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// File system structures.
    Metadata,
    /// The file system's log.
    Journal,
    /// Content of files and directories.
    Data,
    /// Unused.
    Free,
    /// Not known.
    Unknown,
}

impl Class {
    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Journal => "journal",
            Self::Data => "data",
            Self::Free => "free",
            Self::Unknown => "unknown",
        }
    }
}

block_types! {
    /// The code that firmware loads, or the boot sector of FAT.
    BootRecord = "boot record", Metadata;
    /// MBR, GPT header or its entries.
    PartitionTable = "partition table", Metadata;
    /// Outside of all partitions.
    Unpartitioned = "unpartitioned", Free;
    /// A superblock, primary or backup.
    Superblock = "superblock", Metadata;
    /// Group descriptors, primary or backup.
    GroupDescriptors = "group descriptors", Metadata;
    /// Reserved for growth of the group descriptors.
    ReservedGroupDescriptors = "reserved group descriptors", Metadata;
    /// Bitmap of used blocks.
    BlockBitmap = "block bitmap", Metadata;
    /// Bitmap of used inodes.
    InodeBitmap = "inode bitmap", Metadata;
    /// Inodes.
    InodeTable = "inode table", Metadata;
    /// A node of a file's extent tree.
    ExtentTree = "extent tree", Metadata;
    /// A block of pointers to a file's blocks.
    IndirectBlock = "indirect block", Metadata;
    /// Extended attributes outside of the inode.
    Xattr = "xattr", Metadata;
    /// Limits and use of users, groups or projects.
    Quota = "quota", Metadata;
    /// Inodes to remove at the next mount.
    OrphanFile = "orphan file", Metadata;
    /// The block by which a host detects that another one has mounted the file system.
    MultiMountProtection = "multi-mount protection", Metadata;
    /// Marked as defective.
    BadBlocks = "bad blocks", Metadata;
    /// A file allocation table.
    Fat = "FAT", Metadata;
    /// FAT32's hints about free clusters.
    FsInfo = "FSInfo", Metadata;
    /// Unused reserved sectors of FAT.
    Reserved = "reserved", Metadata;
    /// A node of the trees of XFS or btrfs.
    Tree = "tree", Metadata;
    /// The superblock of the journal.
    JournalSuperblock = "journal superblock", Journal;
    /// Lists the blocks that follow.
    JournalDescriptor = "journal descriptor", Journal;
    /// Ends a transaction.
    JournalCommit = "journal commit", Journal;
    /// Lists blocks that must not be replayed.
    JournalRevoke = "journal revoke", Journal;
    /// The area of fast commits.
    JournalFastCommit = "journal fast commit", Journal;
    /// A copy of a metadata block, or remains of an earlier transaction.
    JournalData = "journal data", Journal;
    /// Any part of the journal, if it was not read in detail.
    Journal = "journal", Journal;
    /// Names.
    Directory = "directory", Data;
    /// Content of a file.
    Data = "data", Data;
    /// The target of a symbolic link.
    Symlink = "symlink", Data;
    /// The rest of a cluster after a file's blocks.
    Slack = "slack", Data;
    /// Once part of a file now deleted; the block is free and may hold its content.
    Deleted = "deleted", Free;
    /// No owner.
    Free = "free", Free;
    /// Marked used, with an unknown owner.
    Unknown = "unknown", Unknown;
}

impl fmt::Display for BlockType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_data_as_in_the_paper() {
        assert_eq!(BlockType::Directory.class(), Class::Data);
        assert_eq!(BlockType::InodeTable.class(), Class::Metadata);
        assert_eq!(BlockType::JournalCommit.class(), Class::Journal);
    }
}
