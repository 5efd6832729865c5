//! System calls by number: those that are counted, with their names, and those that work on descriptors.

/// Number and name of each.
pub(crate) const COUNTED: &[(libc::c_long, &str)] = &[
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_readv, "readv"),
    (libc::SYS_preadv, "preadv"),
    (libc::SYS_preadv2, "preadv2"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_sendfile, "sendfile"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_io_submit, "io_submit"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sync, "sync"),
    (libc::SYS_syncfs, "syncfs"),
    (libc::SYS_sync_file_range, "sync_file_range"),
    (libc::SYS_msync, "msync"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_openat2, "openat2"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_truncate, "truncate"),
    (libc::SYS_fallocate, "fallocate"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, "creat"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename"),
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    (libc::SYS_renameat, "renameat"),
];

const FIRST: u8 = 1;
const FIRST_AND_SECOND: u8 = 0b11;
const FIRST_AND_THIRD: u8 = 0b101;
/// The call writes to this argument's file.
const TO_FIRST: u8 = FIRST << 4;
const TO_THIRD: u8 = 0b100 << 4;

/// Calls that move, sync or change data of descriptors: number, the bits of the arguments that are descriptors, and four bits
/// above, that of the argument to whose file the call writes.
pub(crate) const DESCRIPTORS: &[(libc::c_long, u8)] = &[
    (libc::SYS_read, FIRST),
    (libc::SYS_pread64, FIRST),
    (libc::SYS_readv, FIRST),
    (libc::SYS_preadv, FIRST),
    (libc::SYS_preadv2, FIRST),
    (libc::SYS_write, FIRST | TO_FIRST),
    (libc::SYS_pwrite64, FIRST | TO_FIRST),
    (libc::SYS_writev, FIRST | TO_FIRST),
    (libc::SYS_pwritev, FIRST | TO_FIRST),
    (libc::SYS_pwritev2, FIRST | TO_FIRST),
    (libc::SYS_readahead, FIRST),
    (libc::SYS_fadvise64, FIRST),
    (libc::SYS_fsync, FIRST),
    (libc::SYS_fdatasync, FIRST),
    (libc::SYS_sync_file_range, FIRST),
    (libc::SYS_ftruncate, FIRST),
    (libc::SYS_fallocate, FIRST),
    (libc::SYS_sendfile, FIRST_AND_SECOND | TO_FIRST),
    (libc::SYS_splice, FIRST_AND_THIRD | TO_THIRD),
    (libc::SYS_copy_file_range, FIRST_AND_THIRD | TO_THIRD),
];

/// Name of a counted call.
pub(crate) fn name(number: u32) -> Option<&'static str> {
    COUNTED
        .iter()
        .find(|(known, _)| u32::try_from(*known) == Ok(number))
        .map(|(_, name)| *name)
}
