//! The watched system calls, and their meaning.

/// A watched call. Numbers in comments are argument positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Open,
    Creat,
    OpenAt,
    OpenAt2,
    Close,
    CloseRange,
    Dup,
    Dup2,
    Dup3,
    Fcntl,
    Read,
    Write,
    ReadVector,
    WriteVector,
    ReadAt,
    WriteAt,
    ReadVectorAt,
    WriteVectorAt,
    SendFile,
    CopyRange,
    Fsync,
    Fdatasync,
    SyncRange,
    Seek,
    TruncateHandle,
    Truncate,
    Allocate,
    StatHandle,
    /// Path 0.
    Stat,
    /// Directory 0, path 1, flags 3 (`newfstatat`) or 2 (`statx`).
    StatAt {
        flags: usize,
    },
    Access,
    AccessAt,
    List,
    Unlink,
    UnlinkAt,
    RemoveDirectory,
    Rename,
    /// Flags 4 for `renameat2`.
    RenameAt {
        has_flags: bool,
    },
    Link,
    LinkAt,
    MakeDirectory,
    MakeDirectoryAt,
    /// A mapping of a file.
    Map,
    /// Counted by name, but not recorded.
    Left(&'static str),
}

/// Condition under which a call stops.
#[derive(Clone, Copy, Debug)]
pub enum Watched {
    /// Always.
    Always,
    /// Unless the descriptor in this argument is -1.
    WithDescriptorAt(u32),
    /// If an argument has one of these values.
    WithArgument {
        /// Position of the argument.
        place: u32,
        /// The values.
        values: &'static [u32],
    },
}

const COMMON: &[(i64, Watch)] = &[
    (libc::SYS_read, Watch::Read),
    (libc::SYS_write, Watch::Write),
    (libc::SYS_close, Watch::Close),
    (libc::SYS_openat, Watch::OpenAt),
    (libc::SYS_pread64, Watch::ReadAt),
    (libc::SYS_pwrite64, Watch::WriteAt),
    (libc::SYS_newfstatat, Watch::StatAt { flags: 3 }),
    (libc::SYS_statx, Watch::StatAt { flags: 2 }),
    (libc::SYS_fstat, Watch::StatHandle),
    (libc::SYS_lseek, Watch::Seek),
    (libc::SYS_mmap, Watch::Map),
    (libc::SYS_fcntl, Watch::Fcntl),
    (libc::SYS_readv, Watch::ReadVector),
    (libc::SYS_writev, Watch::WriteVector),
    (libc::SYS_preadv, Watch::ReadVectorAt),
    (libc::SYS_preadv2, Watch::ReadVectorAt),
    (libc::SYS_pwritev, Watch::WriteVectorAt),
    (libc::SYS_pwritev2, Watch::WriteVectorAt),
    (libc::SYS_fsync, Watch::Fsync),
    (libc::SYS_fdatasync, Watch::Fdatasync),
    (libc::SYS_sync_file_range, Watch::SyncRange),
    (libc::SYS_ftruncate, Watch::TruncateHandle),
    (libc::SYS_truncate, Watch::Truncate),
    (libc::SYS_fallocate, Watch::Allocate),
    (libc::SYS_getdents64, Watch::List),
    (libc::SYS_faccessat, Watch::AccessAt),
    (libc::SYS_faccessat2, Watch::AccessAt),
    (libc::SYS_unlinkat, Watch::UnlinkAt),
    (libc::SYS_renameat2, Watch::RenameAt { has_flags: true }),
    (libc::SYS_linkat, Watch::LinkAt),
    (libc::SYS_mkdirat, Watch::MakeDirectoryAt),
    (libc::SYS_sendfile, Watch::SendFile),
    (libc::SYS_copy_file_range, Watch::CopyRange),
    (libc::SYS_dup, Watch::Dup),
    (libc::SYS_dup3, Watch::Dup3),
    (libc::SYS_openat2, Watch::OpenAt2),
    (libc::SYS_close_range, Watch::CloseRange),
    (libc::SYS_fchmod, Watch::Left("fchmod")),
    (libc::SYS_fchmodat, Watch::Left("fchmodat")),
    (libc::SYS_fchown, Watch::Left("fchown")),
    (libc::SYS_fchownat, Watch::Left("fchownat")),
    (libc::SYS_utimensat, Watch::Left("utimensat")),
    (libc::SYS_readlinkat, Watch::Left("readlinkat")),
    (libc::SYS_symlinkat, Watch::Left("symlinkat")),
    (libc::SYS_setxattr, Watch::Left("setxattr")),
    (libc::SYS_fsetxattr, Watch::Left("fsetxattr")),
    (libc::SYS_getxattr, Watch::Left("getxattr")),
    (libc::SYS_fgetxattr, Watch::Left("fgetxattr")),
    (libc::SYS_fadvise64, Watch::Left("fadvise64")),
    (libc::SYS_flock, Watch::Left("flock")),
    (libc::SYS_msync, Watch::Left("msync")),
    (libc::SYS_sync, Watch::Left("sync")),
    (libc::SYS_syncfs, Watch::Left("syncfs")),
    (libc::SYS_splice, Watch::Left("splice")),
    (
        libc::SYS_io_uring_setup,
        Watch::Left("io_uring_setup (its operations cannot be seen)"),
    ),
];

#[cfg(target_arch = "x86_64")]
const LEGACY: &[(i64, Watch)] = &[
    (libc::SYS_open, Watch::Open),
    (libc::SYS_creat, Watch::Creat),
    (libc::SYS_stat, Watch::Stat),
    (libc::SYS_lstat, Watch::Stat),
    (libc::SYS_access, Watch::Access),
    (libc::SYS_unlink, Watch::Unlink),
    (libc::SYS_rmdir, Watch::RemoveDirectory),
    (libc::SYS_rename, Watch::Rename),
    (libc::SYS_renameat, Watch::RenameAt { has_flags: false }),
    (libc::SYS_link, Watch::Link),
    (libc::SYS_mkdir, Watch::MakeDirectory),
    (libc::SYS_dup2, Watch::Dup2),
    (libc::SYS_getdents, Watch::List),
    (libc::SYS_chmod, Watch::Left("chmod")),
    (libc::SYS_chown, Watch::Left("chown")),
    (libc::SYS_readlink, Watch::Left("readlink")),
    (libc::SYS_symlink, Watch::Left("symlink")),
    (libc::SYS_utimes, Watch::Left("utimes")),
];

#[cfg(target_arch = "aarch64")]
const LEGACY: &[(i64, Watch)] = &[(libc::SYS_renameat, Watch::RenameAt { has_flags: false })];

/// `F_DUPFD`, `F_DUPFD_CLOEXEC` and `F_SETFD`, as Linux numbers them.
const DESCRIPTOR_COMMANDS: &[u32] = &[0, 1030, 2];

/// The watched call with this number, if any.
pub fn of_number(number: u64) -> Option<Watch> {
    let number = i64::try_from(number).ok()?;
    let mut all = COMMON.iter().chain(LEGACY);
    all.find(|(known, _)| *known == number).map(|(_, watch)| *watch)
}

/// All watched calls by number, with their stop conditions.
pub fn watched() -> impl Iterator<Item = (u32, Watched)> {
    COMMON.iter().chain(LEGACY).filter_map(|(number, watch)| {
        let when = match watch {
            Watch::Map => Watched::WithDescriptorAt(4),
            Watch::Fcntl => Watched::WithArgument {
                place: 1,
                values: DESCRIPTOR_COMMANDS,
            },
            _ => Watched::Always,
        };
        Some((u32::try_from(*number).ok()?, when))
    })
}
