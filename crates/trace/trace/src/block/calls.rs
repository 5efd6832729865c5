//! System calls that are counted: those handled by a file system, by number and name.

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

/// Name of a counted call.
pub(crate) fn name(number: u32) -> Option<&'static str> {
    COUNTED
        .iter()
        .find(|(known, _)| u32::try_from(*known) == Ok(number))
        .map(|(_, name)| *name)
}
