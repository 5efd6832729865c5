//! What a block is for, as fine as the medium tells, and the three classes of the paper above it.

use std::fmt;

macro_rules! block_types {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        /// What a block is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BlockType {
            $($(#[$doc])* $name,)*
        }

        impl BlockType {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name that people and programs see.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Which class it belongs to.
            pub fn class(self) -> Class {
                match self {
                    $(Self::$name => Class::$class,)*
                }
            }
        }
    };
}

/// The classes of seeds/004, where directories are data; with two more for what has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Where things are.
    Metadata,
    /// The file system's log.
    Journal,
    /// What is in files and directories.
    Data,
    /// Nothing.
    Free,
    /// It can't be told.
    Unknown,
}

impl Class {
    /// The name that people and programs see.
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
    /// What firmware loads, or the boot sector of FAT.
    BootRecord = "boot record", Metadata;
    /// MBR, GPT header or its entries.
    PartitionTable = "partition table", Metadata;
    /// Outside of all partitions.
    Unpartitioned = "unpartitioned", Free;
    /// A superblock, primary or backup.
    Superblock = "superblock", Metadata;
    /// Group descriptors, primary or backup.
    GroupDescriptors = "group descriptors", Metadata;
    /// Room that the group descriptors may grow into.
    ReservedGroupDescriptors = "reserved group descriptors", Metadata;
    /// Which blocks are used.
    BlockBitmap = "block bitmap", Metadata;
    /// Which inodes are used.
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
    /// Inodes to be removed at the next mount.
    OrphanFile = "orphan file", Metadata;
    /// The block by which hosts see that another one has the file system mounted.
    MultiMountProtection = "multi-mount protection", Metadata;
    /// Marked as defective.
    BadBlocks = "bad blocks", Metadata;
    /// A file allocation table.
    Fat = "FAT", Metadata;
    /// Free clusters' hints of FAT32.
    FsInfo = "FSInfo", Metadata;
    /// Reserved sectors of FAT without a use.
    Reserved = "reserved", Metadata;
    /// A node of the trees of XFS or btrfs.
    Tree = "tree", Metadata;
    /// The superblock of the journal.
    JournalSuperblock = "journal superblock", Journal;
    /// Says which blocks follow.
    JournalDescriptor = "journal descriptor", Journal;
    /// Ends a transaction.
    JournalCommit = "journal commit", Journal;
    /// Blocks that must not be replayed.
    JournalRevoke = "journal revoke", Journal;
    /// The area of fast commits.
    JournalFastCommit = "journal fast commit", Journal;
    /// A copy of a metadata block, or of what was there before.
    JournalData = "journal data", Journal;
    /// Anywhere in the journal; which part was not looked at.
    Journal = "journal", Journal;
    /// Names.
    Directory = "directory", Data;
    /// Content of a file.
    Data = "data", Data;
    /// The target of a symbolic link.
    Symlink = "symlink", Data;
    /// The rest of a cluster behind a file's blocks.
    Slack = "slack", Data;
    /// Of a file that is deleted; the place is free and may hold its content.
    Deleted = "deleted", Free;
    /// Nobody's.
    Free = "free", Free;
    /// Marked used, but whose is not known.
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
