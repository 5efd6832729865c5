//! The only table between errors and `errno`.
//!
//! Layers below name the error; the edge that talks to the kernel calls [`FsError::errno`], which is the only place
//! where a number is chosen. An errno that a host returned and that has no name here is passed on as [`FsError::Host`],
//! unchanged.

use thiserror::Error;

/// Result of a file system call.
pub type FsResult<T> = Result<T, FsError>;

/// Error of a file system call.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum FsError {
    /// `EPERM`
    #[error("operation not permitted")]
    NotPermitted,
    /// `ENOENT`
    #[error("no such file or directory")]
    NotFound,
    /// `EINTR`
    #[error("interrupted")]
    Interrupted,
    /// `EIO`
    #[error("input/output error")]
    Io,
    /// `ENXIO`
    #[error("no such device or address")]
    NoSuchDevice,
    /// `EBADF`
    #[error("bad file handle")]
    BadHandle,
    /// `EAGAIN`
    #[error("try again")]
    TryAgain,
    /// `ENOMEM`
    #[error("out of memory")]
    OutOfMemory,
    /// `EACCES`
    #[error("permission denied")]
    AccessDenied,
    /// `EBUSY`
    #[error("device or resource busy")]
    Busy,
    /// `EEXIST`
    #[error("file exists")]
    Exists,
    /// `EXDEV`
    #[error("invalid cross-device link")]
    CrossDevice,
    /// `ENOTDIR`
    #[error("not a directory")]
    NotADirectory,
    /// `EISDIR`
    #[error("is a directory")]
    IsADirectory,
    /// `EINVAL`
    #[error("invalid argument")]
    Invalid,
    /// `EMFILE`
    #[error("too many open files")]
    TooManyOpenFiles,
    /// `ENFILE`
    #[error("too many open files in the system")]
    TooManyOpenFilesInSystem,
    /// `ENOTTY`
    #[error("inappropriate ioctl")]
    NotATerminal,
    /// `ETXTBSY`
    #[error("text file busy")]
    TextBusy,
    /// `EFBIG`
    #[error("file too large")]
    FileTooBig,
    /// `ENOSPC`
    #[error("no space left on device")]
    NoSpace,
    /// `EROFS`
    #[error("read-only file system")]
    ReadOnly,
    /// `EMLINK`
    #[error("too many links")]
    TooManyLinks,
    /// `ERANGE`
    #[error("result out of range")]
    OutOfRange,
    /// `ENAMETOOLONG`
    #[error("file name too long")]
    NameTooLong,
    /// `ENOSYS`
    #[error("function not implemented")]
    NoSuchCall,
    /// `ENOTEMPTY`
    #[error("directory not empty")]
    NotEmpty,
    /// `ELOOP`
    #[error("too many levels of symbolic links")]
    TooManySymlinks,
    /// `ENODATA`
    #[error("no data available")]
    NoData,
    /// `EOVERFLOW`
    #[error("value too large")]
    Overflow,
    /// `EOPNOTSUPP`
    #[error("operation not supported")]
    NotSupported,
    /// `ESTALE`
    #[error("stale file handle")]
    Stale,
    /// `EDQUOT`
    #[error("disk quota exceeded")]
    Quota,
    /// `ESHUTDOWN`
    #[error("file system is shut down")]
    Shutdown,
    /// An errno of the host that has no name in this table.
    #[error("host error {0}")]
    Host(i32),
}

impl FsError {
    /// The `errno` of this error, always positive.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::NotPermitted => libc::EPERM,
            Self::NotFound => libc::ENOENT,
            Self::Interrupted => libc::EINTR,
            Self::Io => libc::EIO,
            Self::NoSuchDevice => libc::ENXIO,
            Self::BadHandle => libc::EBADF,
            Self::TryAgain => libc::EAGAIN,
            Self::OutOfMemory => libc::ENOMEM,
            Self::AccessDenied => libc::EACCES,
            Self::Busy => libc::EBUSY,
            Self::Exists => libc::EEXIST,
            Self::CrossDevice => libc::EXDEV,
            Self::NotADirectory => libc::ENOTDIR,
            Self::IsADirectory => libc::EISDIR,
            Self::Invalid => libc::EINVAL,
            Self::TooManyOpenFiles => libc::EMFILE,
            Self::TooManyOpenFilesInSystem => libc::ENFILE,
            Self::NotATerminal => libc::ENOTTY,
            Self::TextBusy => libc::ETXTBSY,
            Self::FileTooBig => libc::EFBIG,
            Self::NoSpace => libc::ENOSPC,
            Self::ReadOnly => libc::EROFS,
            Self::TooManyLinks => libc::EMLINK,
            Self::OutOfRange => libc::ERANGE,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::NoSuchCall => libc::ENOSYS,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::TooManySymlinks => libc::ELOOP,
            Self::NoData => libc::ENODATA,
            Self::Overflow => libc::EOVERFLOW,
            Self::NotSupported => libc::EOPNOTSUPP,
            Self::Stale => libc::ESTALE,
            Self::Quota => libc::EDQUOT,
            Self::Shutdown => libc::ESHUTDOWN,
            Self::Host(errno) => errno,
        }
    }

    /// The error for `errno` (positive).
    #[must_use]
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            libc::EPERM => Self::NotPermitted,
            libc::ENOENT => Self::NotFound,
            libc::EINTR => Self::Interrupted,
            libc::EIO => Self::Io,
            libc::ENXIO => Self::NoSuchDevice,
            libc::EBADF => Self::BadHandle,
            libc::EAGAIN => Self::TryAgain,
            libc::ENOMEM => Self::OutOfMemory,
            libc::EACCES => Self::AccessDenied,
            libc::EBUSY => Self::Busy,
            libc::EEXIST => Self::Exists,
            libc::EXDEV => Self::CrossDevice,
            libc::ENOTDIR => Self::NotADirectory,
            libc::EISDIR => Self::IsADirectory,
            libc::EINVAL => Self::Invalid,
            libc::EMFILE => Self::TooManyOpenFiles,
            libc::ENFILE => Self::TooManyOpenFilesInSystem,
            libc::ENOTTY => Self::NotATerminal,
            libc::ETXTBSY => Self::TextBusy,
            libc::EFBIG => Self::FileTooBig,
            libc::ENOSPC => Self::NoSpace,
            libc::EROFS => Self::ReadOnly,
            libc::EMLINK => Self::TooManyLinks,
            libc::ERANGE => Self::OutOfRange,
            libc::ENAMETOOLONG => Self::NameTooLong,
            libc::ENOSYS => Self::NoSuchCall,
            libc::ENOTEMPTY => Self::NotEmpty,
            libc::ELOOP => Self::TooManySymlinks,
            libc::ENODATA => Self::NoData,
            libc::EOVERFLOW => Self::Overflow,
            libc::EOPNOTSUPP => Self::NotSupported,
            libc::ESTALE => Self::Stale,
            libc::EDQUOT => Self::Quota,
            libc::ESHUTDOWN => Self::Shutdown,
            other => Self::Host(other),
        }
    }
}

impl From<std::io::Error> for FsError {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::Io, Self::from_errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_comes_out_as_it_went_in() {
        for errno in 1..=133 {
            assert_eq!(FsError::from_errno(errno).errno(), errno);
        }
    }
}
