//! The trait [`FileSystem`] and the values of its calls.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{
    Attr, Bypass, ChangeListener, FallocateMode, FileKind, FsError, FsResult, OpenFlags, Privileges,
    RenameFlags, SetAttr, StatFs, XattrFlags,
};

/// An inode number assigned by the file system; valid until it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// The caller's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User of the process (its file system uid).
    pub uid: u32,
    /// Group of the process.
    pub gid: u32,
    /// Process, 0 if the kernel itself makes the call.
    pub pid: u32,
}

/// A name found or created: the inode (its lookup counted once more, see [`FileSystem::forget`]) and its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub ino: Ino,
    /// Distinguishes successive uses of one `Ino`.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// Attributes of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask: applied if the parent has no default ACL.
    pub umask: u32,
    /// Device number of a special file, in the kernel's 32-bit encoding; else 0.
    pub rdev: u32,
}

/// Result of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its handle.
    pub handle: Handle,
}

/// Data and metadata that must be on the medium when a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// None: a later fsync requests it.
    None,
    /// The data, and the metadata needed to read it back (`O_DSYNC`, `RWF_DSYNC`): as after `fdatasync(2)`.
    Data,
    /// Data and all metadata of the file (`O_SYNC`, `RWF_SYNC`): as after `fsync(2)`.
    All,
}

/// Mode of a write: the open flags, the durability that they request, and the privileges that it clears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMode {
    /// Flags of the open file description at the time of the write (`O_APPEND` and `O_DIRECT` may change by `fcntl`), with
    /// the bits of `O_SYNC` that the write itself (`RWF_SYNC`, `RWF_DSYNC`) or a synchronous mount adds.
    pub flags: OpenFlags,
    /// Effect of the write on setuid, setgid and file capabilities.
    pub privileges: Privileges,
    /// Write-back from a page cache above: `handle` is any writable handle of the inode, the data was accepted before,
    /// and `O_APPEND`, `O_SYNC` and `O_DIRECT` of that handle do not apply.
    pub from_page_cache: bool,
}

impl WriteMode {
    /// Durability that the write must have when it returns.
    #[must_use]
    pub const fn durability(self) -> Durability {
        if self.from_page_cache {
            Durability::None
        } else {
            self.flags.durability()
        }
    }

    /// The data goes to the end of the file at the time of the write; the offset is a guess.
    #[must_use]
    pub const fn appends(self) -> bool {
        self.flags.has(libc::O_APPEND) && !self.from_page_cache
    }

    /// The write bypasses page caches (`O_DIRECT`). This promises no durability.
    #[must_use]
    pub const fn is_direct(self) -> bool {
        self.flags.has(libc::O_DIRECT) && !self.from_page_cache
    }
}

/// Start and kind of a search for data or holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFrom {
    /// `SEEK_DATA`
    Data(u64),
    /// `SEEK_HOLE`
    Hole(u64),
}

/// One copy between two open files, offsets and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// File to read.
    pub source: (Ino, Handle),
    /// Offset to read from.
    pub source_offset: u64,
    /// File to write.
    pub target: (Ino, Handle),
    /// Offset to write to.
    pub target_offset: u64,
    /// Requested bytes.
    pub length: u64,
    /// Effect of the copy on the target's setuid, setgid and file capabilities.
    pub privileges: Privileges,
}

/// Result of an ioctl: the return value and the bytes for the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoctlReply {
    /// Return value, not negative.
    pub result: i32,
    /// Output data.
    pub data: Vec<u8>,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name, any bytes but `/` and NUL.
    pub name: &'a [u8],
    /// Inode number as shown to users.
    pub shown_ino: u64,
    /// Its type, [`FileKind::Unknown`] if the host does not report it.
    pub kind: FileKind,
    /// Offset from which the listing continues after this name.
    pub next_offset: u64,
}

/// Receives the names of a directory listing until it is full.
pub trait DirSink {
    /// True if a name of `name_bytes` bytes still fits. Called before each [`DirSink::push`].
    fn fits(&self, name_bytes: usize) -> bool;
    /// Adds one name; `entry` carries the inode if the listing includes attributes, and the caller must then forget its
    /// counted lookup. It is `None` for `.` and `..`, and for a name that has vanished or can't be looked up.
    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>);
}

/// A file system addressed by inodes.
///
/// Names are bytes without `/` and NUL, offsets and lengths are bytes. Permission checks are the caller's
/// responsibility (the kernel makes them by mode and ACL before it sends a request); `Caller` determines the owner of
/// new files. Methods with a default body are those that a file system may lack; the default answers as Linux does for
/// such a file system.
pub trait FileSystem: Send + Sync + 'static {
    /// Announces the device number (12 bits major, 20 bits minor) of the mount that shows this file system, before any
    /// other call. A file system that shows other mounts never enters this one, where each call would wait for itself.
    fn mounted_as(&self, _device: u32) {}

    /// Starts reporting changes that bypass this file system to `listener`. The caller answers no other call before
    /// this one has returned, so no change is missed. The error is the reason why changes can't be reported: a cache
    /// above then limits the time that it keeps anything.
    fn report_changes(&self, _listener: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        Err("this file system does not report changes".to_owned())
    }

    /// Each change of the names in `directory` is made through this file system or reported.
    fn reports_names_of(&self, _directory: Ino) -> bool {
        false
    }

    /// Offsets of a listing denote positions in the directory, not in one handle: another handle may continue it. True
    /// only if this holds for every directory.
    fn lists_by_offset(&self) -> bool {
        false
    }

    /// Finds `name` in the directory `parent` and counts one more lookup of the inode.
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry>;
    /// Subtracts `count` lookups of `ino`; at zero the number may be reused. Never fails; an unknown inode is ignored.
    fn forget(&self, ino: Ino, count: u64);
    /// Attributes of an inode, by an open handle if there is one.
    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr>;
    /// Changes attributes; size first, then owner, mode, times. Returns the resulting attributes.
    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr>;
    /// Target of a symbolic link.
    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Creates a file, device node, FIFO or socket.
    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry>;
    /// Creates a directory.
    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry>;
    /// Creates a symbolic link to `target`.
    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry>;
    /// Removes a name of a file. In a sticky directory, [`FsError::Stale`] if the name now leads to a file that
    /// `caller` may not remove; this also applies to `rmdir`, and to both names of `rename`.
    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()>;
    /// Removes an empty directory.
    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()>;
    /// Renames; `caller` also owns the whiteout that `RENAME_WHITEOUT` leaves.
    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()>;
    /// Gives `ino` one more name.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry>;

    /// Opens a file. `O_CREAT` and `O_EXCL` are never among the flags; `privileges` goes with `O_TRUNC`.
    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened>;
    /// Creates a regular file and opens it. If the name exists: [`FsError::Exists`] with `O_EXCL`, otherwise
    /// [`FsError::Stale`], even if the flags would allow opening the file. The kernel found the name free, and has
    /// checked no rights on the file that has taken it since; after this error it looks the name up again and checks.
    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)>;
    /// Creates an unnamed file in the directory `parent` (`O_TMPFILE`) and opens it.
    fn tmpfile(
        &self,
        _caller: &Caller,
        _parent: Ino,
        _node: NewNode,
        _flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        Err(FsError::NotSupported)
    }
    /// Fills `out` from `offset`; returns the number of bytes. Fewer than requested means the end of the file and
    /// nothing else: a failure part of the way is an error of the whole call.
    fn read(&self, ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize>;
    /// Writes all of `data` at `offset`, or at the end of the file if the mode [appends](WriteMode::appends), with the
    /// [durability](WriteMode::durability) that the mode requests.
    ///
    /// A short count is returned only if some bytes could be written before a failure, which the next write will
    /// return; those bytes have the durability. If data was written and could not be made durable, the call fails.
    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize>;
    /// A descriptor of the handle is being closed (once for each `close(2)` of a duplicate): write out delayed data and
    /// return a write error that has not been reported on this handle.
    fn flush(&self, ino: Ino, handle: Handle) -> FsResult<()>;
    /// Syncs the file, as `fsync(2)` or, with `data_only`, `fdatasync(2)`.
    fn fsync(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()>;
    /// The last reference to the handle is gone.
    fn release(&self, ino: Ino, handle: Handle);
    /// True if the content that the caller cached for this inode before `handle` was opened still certainly matches the file.
    /// Asked at most once for a handle, after its open and before the caller uses what it cached; a caller that caches
    /// nothing does not ask.
    fn cache_still_valid(&self, _ino: Ino, _handle: Handle) -> bool {
        false
    }
    /// A host file with the same content as this file, which the kernel may read and write instead of sending requests.
    /// `None` if data must pass through this file system. The answer is the same for all handles of one inode.
    fn backing_file(&self, _ino: Ino, _handle: Handle) -> Option<Arc<OwnedFd>> {
        None
    }

    /// Data may be stored, or refused, only at an fsync or close of the handle that wrote it, as by a server of FUSE: a layer above
    /// must not pass it down by another one. Called after an open for writing.
    fn keeps_data_by_handle(&self, _ino: Ino, _handle: Handle) -> bool {
        false
    }

    /// The file requires synchronous writes by itself: the attribute `S` of chattr(1), or a host file system mounted
    /// with `sync`. This file system then makes each write durable as [`Durability::Data`] whatever its mode says, and
    /// a layer above must not delay it. Called after an open for writing, and after each ioctl.
    fn is_synchronous(&self, _ino: Ino, _handle: Handle) -> bool {
        false
    }

    /// A name of the file for people, such as in a log line; not for opening it. `None` if none is known.
    fn path_of(&self, _ino: Ino, _handle: Option<Handle>) -> Option<PathBuf> {
        None
    }

    /// Allocates, punches, zeroes, collapses or inserts space; `privileges` as in [`WriteMode`].
    fn fallocate(
        &self,
        _ino: Ino,
        _handle: Handle,
        _mode: FallocateMode,
        _offset: u64,
        _length: u64,
        _privileges: Privileges,
    ) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
    /// Finds the next data or hole; `NoSuchDevice` past the end.
    fn lseek(&self, ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64>;
    /// Copies within the file system; returns the bytes copied.
    fn copy_file_range(&self, _copy: &CopyRange) -> FsResult<u64> {
        Err(FsError::NotSupported)
    }
    /// An ioctl with input data and a limit for the output in bytes.
    fn ioctl(
        &self,
        _ino: Ino,
        _handle: Handle,
        _command: u32,
        _input: &[u8],
        _output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        Err(FsError::NotATerminal)
    }

    /// Opens a directory for listing.
    fn opendir(&self, ino: Ino) -> FsResult<Handle>;
    /// Lists names from `offset` (0, or a `next_offset`), in a stable order, until the sink is full or the end.
    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()>;
    /// Like [`FileSystem::readdir`], each name with its entry (its lookup counted as by `lookup`).
    fn readdir_plus(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()>;
    /// Syncs the directory.
    fn fsyncdir(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()>;
    /// The last reference to the directory handle is gone.
    fn releasedir(&self, ino: Ino, handle: Handle);

    /// Space of the file system that holds `ino`.
    fn statfs(&self, ino: Ino) -> FsResult<StatFs>;
    /// Syncs all files and names.
    fn sync(&self) -> FsResult<()>;

    /// Sets an extended attribute. `clear_setgid`: the new ACL also clears the setgid bit.
    fn setxattr(
        &self,
        _ino: Ino,
        _name: &[u8],
        _value: &[u8],
        _flags: XattrFlags,
        _clear_setgid: bool,
    ) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
    /// Sets (or, without a value, removes) an ACL for `caller`, which may do so only as the owner of the file: the kernel
    /// has checked that by attributes that may be out of date. [`FsError::Stale`] if it is not the owner.
    fn set_acl(
        &self,
        _caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        match value {
            Some(value) => self.setxattr(ino, name, value, flags, clear_setgid),
            None => self.removexattr(ino, name),
        }
    }
    /// Value of an extended attribute.
    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::NotSupported)
    }
    /// Names of the extended attributes, each terminated by NUL.
    fn listxattr(&self, _ino: Ino) -> FsResult<Vec<u8>> {
        Err(FsError::NotSupported)
    }
    /// Removes an extended attribute.
    fn removexattr(&self, _ino: Ino, _name: &[u8]) -> FsResult<()> {
        Err(FsError::NotSupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(flags: i32, from_page_cache: bool) -> WriteMode {
        WriteMode {
            flags: OpenFlags(libc::O_WRONLY | flags),
            privileges: Privileges::Keep,
            from_page_cache,
        }
    }

    #[test]
    fn durability_follows_the_flags_unless_a_page_cache_above_took_the_write() {
        assert_eq!(mode(0, false).durability(), Durability::None);
        assert_eq!(mode(libc::O_DIRECT, false).durability(), Durability::None);
        assert_eq!(mode(libc::O_DSYNC, false).durability(), Durability::Data);
        assert_eq!(mode(libc::O_SYNC, false).durability(), Durability::All);
        assert_eq!(mode(libc::O_SYNC, true).durability(), Durability::None);
        assert!(mode(libc::O_APPEND, false).appends() && !mode(libc::O_APPEND, true).appends());
        assert!(mode(libc::O_DIRECT, false).is_direct() && !mode(libc::O_DIRECT, true).is_direct());
    }
}
