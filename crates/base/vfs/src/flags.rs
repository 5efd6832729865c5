//! Flags of calls, with the kernel's values: a flag that this project does not name still reaches the file system.

use crate::Durability;

/// `open(2)` flags (`O_*`, access mode included).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// True when every bit of `flag` is set.
    #[must_use]
    pub const fn has(self, flag: i32) -> bool {
        self.0 & flag == flag
    }

    /// These flags without the bits of `flag`.
    #[must_use]
    pub const fn without(self, flag: i32) -> Self {
        Self(self.0 & !flag)
    }

    /// True for `O_WRONLY` and `O_RDWR`.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self.0 & libc::O_ACCMODE, libc::O_WRONLY | libc::O_RDWR)
    }

    /// True for `O_RDONLY` and `O_RDWR`.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self.0 & libc::O_ACCMODE, libc::O_RDONLY | libc::O_RDWR)
    }

    /// Durability that a change of the file's content through such a descriptor must have when it returns.
    #[must_use]
    pub const fn durability(self) -> Durability {
        // O_SYNC includes the bit of O_DSYNC.
        match self.0 & libc::O_SYNC {
            libc::O_SYNC => Durability::All,
            0 => Durability::None,
            _ => Durability::Data,
        }
    }
}

/// `fallocate(2)` mode (`FALLOC_FL_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FallocateMode(pub i32);

/// `renameat2(2)` flags (`RENAME_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameFlags(pub u32);

/// `setxattr(2)` flags (`XATTR_CREATE`, `XATTR_REPLACE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrFlags(pub i32);
