//! Layouts and numbers of the FUSE protocol 7.45, native endian as the kernel has them.
//!
//! Source: `include/uapi/linux/fuse.h`. Only what this crate uses is here; names are the kernel's without the prefix
//! `fuse_`. Sizes are checked by a test against that header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol major version.
pub const MAJOR: u32 = 7;
/// Newest protocol minor version this crate knows.
pub const MINOR: u32 = 45;
/// Oldest minor version served: Linux 5.4.
pub const MINOR_OLDEST: u32 = 31;

/// Attributes of an inode (`fuse_attr`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AttrOutBody {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

/// A time in `Statx`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SxTime {
    pub seconds: i64,
    pub nanoseconds: u32,
    pub reserved: i32,
}

/// Attributes in the layout of statx(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Statx {
    pub mask: u32,
    pub blksize: u32,
    pub attributes: u64,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub spare0: u16,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub attributes_mask: u64,
    pub atime: SxTime,
    pub btime: SxTime,
    pub ctime: SxTime,
    pub mtime: SxTime,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub dev_major: u32,
    pub dev_minor: u32,
    pub spare2: [u64; 14],
}

/// Space counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

/// Reply to requests that find or make a name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EntryOut {
    pub nodeid: u64,
    pub generation: u64,
    pub entry_valid: u64,
    pub attr_valid: u64,
    pub entry_valid_nsec: u32,
    pub attr_valid_nsec: u32,
    pub attr: AttrOutBody,
}

/// Reply to GETATTR and SETATTR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: AttrOutBody,
}

/// STATX.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatxIn {
    pub getattr_flags: u32,
    pub reserved: u32,
    pub fh: u64,
    pub sx_flags: u32,
    pub sx_mask: u32,
}

/// Reply to STATX.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatxOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub flags: u32,
    pub spare: [u64; 2],
    pub stat: Statx,
}

/// FORGET.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ForgetIn {
    pub nlookup: u64,
}

/// One inode of BATCH_FORGET.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ForgetOne {
    pub nodeid: u64,
    pub nlookup: u64,
}

/// BATCH_FORGET.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BatchForgetIn {
    pub count: u32,
    pub dummy: u32,
}

/// GETATTR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetattrIn {
    pub getattr_flags: u32,
    pub dummy: u32,
    pub fh: u64,
}

/// MKNOD.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MknodIn {
    pub mode: u32,
    pub rdev: u32,
    pub umask: u32,
    pub padding: u32,
}

/// MKDIR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MkdirIn {
    pub mode: u32,
    pub umask: u32,
}

/// RENAME.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RenameIn {
    pub newdir: u64,
}

/// RENAME2.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Rename2In {
    pub newdir: u64,
    pub flags: u32,
    pub padding: u32,
}

/// LINK.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LinkIn {
    pub oldnodeid: u64,
}

/// SETATTR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetattrIn {
    pub valid: u32,
    pub padding: u32,
    pub fh: u64,
    pub size: u64,
    pub lock_owner: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub unused4: u32,
    pub uid: u32,
    pub gid: u32,
    pub unused5: u32,
}

/// OPEN and OPENDIR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OpenIn {
    pub flags: u32,
    pub open_flags: u32,
}

/// CREATE and TMPFILE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CreateIn {
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
    pub open_flags: u32,
}

/// Reply to OPEN, OPENDIR, and behind `EntryOut` to CREATE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OpenOut {
    pub fh: u64,
    pub open_flags: u32,
    pub backing_id: i32,
}

/// RELEASE and RELEASEDIR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ReleaseIn {
    pub fh: u64,
    pub flags: u32,
    pub release_flags: u32,
    pub lock_owner: u64,
}

/// FLUSH.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FlushIn {
    pub fh: u64,
    pub unused: u32,
    pub padding: u32,
    pub lock_owner: u64,
}

/// READ, READDIR and READDIRPLUS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ReadIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub read_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// WRITE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct WriteIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub write_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// Reply to WRITE and COPY_FILE_RANGE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct WriteOut {
    pub size: u32,
    pub padding: u32,
}

/// FSYNC and FSYNCDIR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FsyncIn {
    pub fh: u64,
    pub fsync_flags: u32,
    pub padding: u32,
}

/// SETXATTR with SETXATTR_EXT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetxattrIn {
    pub size: u32,
    pub flags: u32,
    pub setxattr_flags: u32,
    pub padding: u32,
}

/// GETXATTR and LISTXATTR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetxattrIn {
    pub size: u32,
    pub padding: u32,
}

/// Reply to GETXATTR and LISTXATTR of size 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetxattrOut {
    pub size: u32,
    pub padding: u32,
}

/// INIT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub flags2: u32,
    pub unused: [u32; 11],
}

/// Reply to INIT.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

/// `IoctlIn::flags`: the caller is a 32-bit program.
pub const IOCTL_COMPAT: u32 = 1;
/// `ioctl_in.flags`: on a directory.
pub const IOCTL_DIR: u32 = 1 << 4;

/// IOCTL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoctlIn {
    pub fh: u64,
    pub flags: u32,
    pub cmd: u32,
    pub arg: u64,
    pub in_size: u32,
    pub out_size: u32,
}

/// Reply to IOCTL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IoctlOut {
    pub result: i32,
    pub flags: u32,
    pub in_iovs: u32,
    pub out_iovs: u32,
}

/// FALLOCATE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FallocateIn {
    pub fh: u64,
    pub offset: u64,
    pub length: u64,
    pub mode: u32,
    pub padding: u32,
}

/// LSEEK.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LseekIn {
    pub fh: u64,
    pub offset: u64,
    pub whence: u32,
    pub padding: u32,
}

/// Reply to LSEEK.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct LseekOut {
    pub offset: u64,
}

/// COPY_FILE_RANGE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyFileRangeIn {
    pub fh_in: u64,
    pub off_in: u64,
    pub nodeid_out: u64,
    pub fh_out: u64,
    pub off_out: u64,
    pub len: u64,
    pub flags: u64,
}

/// Reply to COPY_FILE_RANGE_64.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyFileRangeOut {
    pub bytes_copied: u64,
}

/// Header of every request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub total_extlen: u16,
    pub padding: u16,
}

/// Header of every reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

/// A READDIR record, followed by the name and padding to 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Dirent {
    pub ino: u64,
    pub off: u64,
    pub namelen: u32,
    pub kind: u32,
}

/// Argument of `FUSE_DEV_IOC_BACKING_OPEN`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct BackingMap {
    pub fd: i32,
    pub flags: u32,
    pub padding: u64,
}

/// Body of `FUSE_NOTIFY_INVAL_INODE`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct NotifyInvalInodeOut {
    pub ino: u64,
    pub off: i64,
    pub len: i64,
}

/// Notification: invalidate a name, which follows with a NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct NotifyInvalEntryOut {
    pub parent: u64,
    pub namelen: u32,
    pub flags: u32,
}

/// io_uring: fields of a request beside its headers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UringEntInOut {
    pub flags: u64,
    pub commit_id: u64,
    pub payload_sz: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// io_uring: the command area of a submission.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UringCmdReq {
    pub flags: u64,
    pub commit_id: u64,
    pub qid: u16,
    pub padding: [u8; 6],
}

/// Request numbers (`enum fuse_opcode`).
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const BMAP: u32 = 37;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const POLL: u32 = 40;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;

    /// One more than the largest number above: the size of a table by opcode.
    pub const COUNT: usize = 54;

    /// Name of a request in lower case.
    pub const fn name(opcode: u32) -> &'static str {
        match opcode {
            LOOKUP => "lookup",
            FORGET => "forget",
            GETATTR => "getattr",
            SETATTR => "setattr",
            READLINK => "readlink",
            SYMLINK => "symlink",
            MKNOD => "mknod",
            MKDIR => "mkdir",
            UNLINK => "unlink",
            RMDIR => "rmdir",
            RENAME => "rename",
            LINK => "link",
            OPEN => "open",
            READ => "read",
            WRITE => "write",
            STATFS => "statfs",
            RELEASE => "release",
            FSYNC => "fsync",
            SETXATTR => "setxattr",
            GETXATTR => "getxattr",
            LISTXATTR => "listxattr",
            REMOVEXATTR => "removexattr",
            FLUSH => "flush",
            INIT => "init",
            OPENDIR => "opendir",
            READDIR => "readdir",
            RELEASEDIR => "releasedir",
            FSYNCDIR => "fsyncdir",
            GETLK => "getlk",
            SETLK => "setlk",
            SETLKW => "setlkw",
            ACCESS => "access",
            CREATE => "create",
            INTERRUPT => "interrupt",
            BMAP => "bmap",
            DESTROY => "destroy",
            IOCTL => "ioctl",
            POLL => "poll",
            NOTIFY_REPLY => "notify_reply",
            BATCH_FORGET => "batch_forget",
            FALLOCATE => "fallocate",
            READDIRPLUS => "readdirplus",
            RENAME2 => "rename2",
            LSEEK => "lseek",
            COPY_FILE_RANGE => "copy_file_range",
            SYNCFS => "syncfs",
            TMPFILE => "tmpfile",
            STATX => "statx",
            COPY_FILE_RANGE_64 => "copy_file_range_64",
            _ => "unknown",
        }
    }

    /// Size in bytes of the fixed structure after the header; names and data follow it.
    pub const fn fixed_bytes(opcode: u32) -> usize {
        use super::{
            BatchForgetIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetIn, FsyncIn, GetattrIn,
            GetxattrIn, InitIn, IoctlIn, LinkIn, LseekIn, MkdirIn, MknodIn, OpenIn, ReadIn, ReleaseIn,
            Rename2In, RenameIn, SetattrIn, SetxattrIn, StatxIn, WriteIn,
        };
        match opcode {
            FORGET => size_of::<ForgetIn>(),
            GETATTR => size_of::<GetattrIn>(),
            SETATTR => size_of::<SetattrIn>(),
            MKNOD => size_of::<MknodIn>(),
            MKDIR => size_of::<MkdirIn>(),
            RENAME => size_of::<RenameIn>(),
            RENAME2 => size_of::<Rename2In>(),
            LINK => size_of::<LinkIn>(),
            OPEN | OPENDIR => size_of::<OpenIn>(),
            READ | READDIR | READDIRPLUS => size_of::<ReadIn>(),
            WRITE => size_of::<WriteIn>(),
            RELEASE | RELEASEDIR => size_of::<ReleaseIn>(),
            FSYNC | FSYNCDIR => size_of::<FsyncIn>(),
            SETXATTR => size_of::<SetxattrIn>(),
            GETXATTR | LISTXATTR => size_of::<GetxattrIn>(),
            FLUSH => size_of::<FlushIn>(),
            INIT => size_of::<InitIn>(),
            CREATE | TMPFILE => size_of::<CreateIn>(),
            IOCTL => size_of::<IoctlIn>(),
            BATCH_FORGET => size_of::<BatchForgetIn>(),
            FALLOCATE => size_of::<FallocateIn>(),
            LSEEK => size_of::<LseekIn>(),
            COPY_FILE_RANGE | COPY_FILE_RANGE_64 => size_of::<CopyFileRangeIn>(),
            STATX => size_of::<StatxIn>(),
            _ => 0,
        }
    }
}

/// INIT flags, both words as one (`FUSE_*`).
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const ABORT_ERROR: u64 = 1 << 21;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of an OPEN reply (`FOPEN_*`).
pub mod fopen {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const NOFLUSH: u32 = 1 << 5;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// `setattr_in.valid` (`FATTR_*`).
pub mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `getattr_in.getattr_flags`: `fh` is valid.
pub const GETATTR_FH: u32 = 1;
/// `write_in.write_flags`: delayed write from the page cache.
pub const WRITE_CACHE: u32 = 1;
/// `write_in.write_flags`: kill setuid and setgid.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `open_in.open_flags`: kill setuid and setgid.
pub const OPEN_KILL_SUIDGID: u32 = 1;
/// `fsync_in.fsync_flags`: data only.
pub const FSYNC_FDATASYNC: u32 = 1;
/// `setxattr_in.setxattr_flags`: clear setgid with the access ACL.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1;

/// Code of the notification `FUSE_NOTIFY_INVAL_INODE`, sent in the error field of a message with `unique` 0.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// Code of `FUSE_NOTIFY_INVAL_ENTRY`.
pub const NOTIFY_INVAL_ENTRY: i32 = 3;
/// Code of `FUSE_NOTIFY_INC_EPOCH`, which invalidates every name.
pub const NOTIFY_INC_EPOCH: i32 = 8;
/// First protocol minor version with [`NOTIFY_INC_EPOCH`]: Linux 6.16.
pub const INC_EPOCH_MINOR: u32 = 44;

/// `_IOR(229, 0, uint32_t)`: makes a second descriptor of a connection.
pub const DEV_IOC_CLONE: u32 = 0x8004_e500;
/// `_IOW(229, 1, struct fuse_backing_map)`: registers a backing file.
pub const DEV_IOC_BACKING_OPEN: u32 = 0x4010_e501;
/// `_IOW(229, 2, uint32_t)`: unregisters a backing file.
pub const DEV_IOC_BACKING_CLOSE: u32 = 0x4004_e502;

/// io_uring: bytes of each of the two header areas of a request.
pub const URING_HEADER_BYTES: usize = 128;
/// io_uring: register a request buffer and fetch.
pub const URING_CMD_REGISTER: u32 = 1;
/// io_uring: commit a reply and fetch the next request.
pub const URING_CMD_COMMIT_AND_FETCH: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_sizes_of_the_kernels_header() {
        let sizes = [
            ("AttrOutBody", size_of::<AttrOutBody>(), 88),
            ("Statx", size_of::<Statx>(), 256),
            ("StatfsOut", size_of::<StatfsOut>(), 80),
            ("EntryOut", size_of::<EntryOut>(), 128),
            ("AttrOut", size_of::<AttrOut>(), 104),
            ("StatxIn", size_of::<StatxIn>(), 24),
            ("StatxOut", size_of::<StatxOut>(), 288),
            ("SetattrIn", size_of::<SetattrIn>(), 88),
            ("OpenOut", size_of::<OpenOut>(), 16),
            ("ReleaseIn", size_of::<ReleaseIn>(), 24),
            ("ReadIn", size_of::<ReadIn>(), 40),
            ("WriteIn", size_of::<WriteIn>(), 40),
            ("InitIn", size_of::<InitIn>(), 64),
            ("InitOut", size_of::<InitOut>(), 64),
            ("IoctlIn", size_of::<IoctlIn>(), 32),
            ("IoctlOut", size_of::<IoctlOut>(), 16),
            ("FallocateIn", size_of::<FallocateIn>(), 32),
            ("CopyFileRangeIn", size_of::<CopyFileRangeIn>(), 56),
            ("InHeader", size_of::<InHeader>(), 40),
            ("OutHeader", size_of::<OutHeader>(), 16),
            ("BackingMap", size_of::<BackingMap>(), 16),
            ("UringEntInOut", size_of::<UringEntInOut>(), 32),
            ("UringCmdReq", size_of::<UringCmdReq>(), 24),
            ("SetxattrIn", size_of::<SetxattrIn>(), 16),
            ("LseekIn", size_of::<LseekIn>(), 24),
            ("CreateIn", size_of::<CreateIn>(), 16),
            ("NotifyInvalInodeOut", size_of::<NotifyInvalInodeOut>(), 24),
            ("NotifyInvalEntryOut", size_of::<NotifyInvalEntryOut>(), 16),
        ];
        for (name, ours, kernel) in sizes {
            assert_eq!(ours, kernel, "{name}");
        }
    }

    #[test]
    fn every_fixed_structure_fits_the_uring_header_area() {
        for opcode in 0..64 {
            assert!(
                opcode::fixed_bytes(opcode) <= URING_HEADER_BYTES,
                "opcode {opcode}"
            );
        }
    }
}
