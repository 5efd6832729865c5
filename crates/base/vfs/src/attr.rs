//! Attributes of files and of the whole file system, in the units of `stat(2)`.

use crate::Caller;

/// A point in time, as `struct timespec`: seconds since the epoch (may be negative) and nanoseconds `0..1_000_000_000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// Type of a file, from the type bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Type bits that are none of the above (a host may answer `DT_UNKNOWN` for a directory entry).
    Unknown,
}

impl FileKind {
    /// The kind in the type bits (`S_IFMT`) of a mode.
    #[must_use]
    pub const fn of_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::Regular,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFBLK => Self::BlockDevice,
            _ => Self::Unknown,
        }
    }

    /// The type bits (`S_IFMT`) of this kind; 0 for [`FileKind::Unknown`].
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => libc::S_IFREG,
            Self::Directory => libc::S_IFDIR,
            Self::Symlink => libc::S_IFLNK,
            Self::Fifo => libc::S_IFIFO,
            Self::Socket => libc::S_IFSOCK,
            Self::CharDevice => libc::S_IFCHR,
            Self::BlockDevice => libc::S_IFBLK,
            Self::Unknown => 0,
        }
    }

    /// The `d_type` of a directory entry of this kind (`DT_*`).
    #[must_use]
    pub const fn dirent_type(self) -> u32 {
        self.mode_bits() >> 12
    }
}

/// Attributes of one inode, in the units of `stat(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode number to show to users (`st_ino`); need not equal the [`crate::Ino`] it is addressed by.
    pub shown_ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, if the file system stores it.
    pub btime: Option<Timestamp>,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file, in the kernel's 32-bit encoding (`new_encode_dev`).
    pub rdev: u32,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// `STATX_ATTR_*` bits (immutable, append, ...) that are set.
    pub attributes: u64,
    /// `STATX_ATTR_*` bits that the file system knows.
    pub attributes_mask: u64,
    /// Each change of this inode is made through the file system or
    /// [reported](crate::FileSystem::report_changes), so a cache above may keep it until then.
    pub is_reported: bool,
}

impl Attr {
    /// The type of the file.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode)
    }
}

/// A new value for a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// An explicit time.
    At(Timestamp),
}

/// The attributes that a [`crate::FileSystem::setattr`] changes; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncates or extends by a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Effect of a truncation or change of owner on setuid, setgid and file capabilities.
    pub privileges: Privileges,
    /// The caller, if it may change mode, owner and group only as the owner of the file: the kernel has checked that by
    /// attributes that may be out of date. [`FsError::Stale`](crate::FsError::Stale) if it is not the owner.
    pub owner: Option<Caller>,
}

/// Effect of a change of content on the privileges that a file gives: setuid, setgid and file capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// The caller has `CAP_FSETID`: all are kept.
    #[default]
    Keep,
    /// The caller lacks it: setuid and capabilities are cleared, and setgid if the file is group-executable or the
    /// caller is not in the file's group, as in Linux 6.0 and later.
    Kill {
        /// The caller's file system group. The kernel protocol does not carry supplementary groups, and they don't
        /// count.
        gid: u32,
    },
}

impl Privileges {
    /// True if privileges are cleared.
    #[must_use]
    pub const fn are_killed(self) -> bool {
        matches!(self, Self::Kill { .. })
    }

    /// The remaining permission bits of `mode`, for a file of the group `file_gid`.
    #[must_use]
    pub const fn left_of(self, mode: u32, file_gid: u32) -> u32 {
        match self {
            Self::Keep => mode,
            Self::Kill { gid } if mode & libc::S_IXGRP != 0 || gid != file_gid => {
                mode & !(libc::S_ISUID | libc::S_ISGID)
            }
            Self::Kill { .. } => mode & !libc::S_ISUID,
        }
    }
}

/// Space and inode counts of a file system, as `statvfs(3)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Total blocks, in units of `fragment_size`.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks free to ordinary users.
    pub blocks_available: u64,
    /// Total inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Unit of the block counts in bytes.
    pub fragment_size: u32,
    /// Longest file name in bytes.
    pub name_max: u32,
}
