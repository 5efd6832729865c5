//! The file systems on which applications are traced.

use clap::ValueEnum;

use crate::loop_disk::{EXT4, FileSystem};

/// File systems that the study can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileSystemKind {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// btrfs
    Btrfs,
}

impl FileSystemKind {
    /// The parameters of mkfs and mount.
    pub const fn file_system(self) -> FileSystem {
        match self {
            Self::Ext4 => EXT4,
            Self::Xfs => FileSystem {
                name: "xfs",
                maker: "mkfs.xfs",
                options: &["-q", "-f"],
                ..EXT4
            },
            Self::Btrfs => FileSystem {
                name: "btrfs",
                maker: "mkfs.btrfs",
                options: &["-q", "-f"],
                ..EXT4
            },
        }
    }

    /// Name for tables.
    pub const fn name(self) -> &'static str {
        self.file_system().name
    }
}
