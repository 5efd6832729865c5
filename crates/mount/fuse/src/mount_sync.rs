//! Syncs that a mount with `sync` or `dirsync` adds to calls that change something.
//!
//! For such a mount the kernel marks writes as synchronous and does nothing else: a FUSE daemon does not learn of
//! either option when names or attributes change. So the daemon does the syncs that an in-kernel file system does
//! itself, as ext4 does:
//! - `dirsync` and `sync`: creating, removing, linking and renaming return when the names are on the medium.
//! - `sync`: so do changes of size, extended attributes, and copies. Changes of mode, owner and times do not, as on
//!   ext4.
//!
//! It does not cover writes, whose mode states their durability, or a remount, which the kernel does not report to
//! FUSE.

use vfs::{FsError, FsResult, Ino, OpenFlags, Privileges};

use crate::dispatch::Dispatcher;

/// Changes that the mount options require to be synced at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountSync {
    /// None.
    #[default]
    Nothing,
    /// Names (`dirsync`).
    Names,
    /// Names, writes and attributes (`sync`).
    All,
}

impl Dispatcher {
    /// If the mount requires it, syncs the directory `directory`, in which a name has just changed.
    pub(crate) fn sync_names(&self, directory: Ino) -> FsResult<()> {
        if self.mount_sync < MountSync::Names {
            return Ok(());
        }
        self.sync_directory(directory)
    }

    /// If the mount requires it, syncs a file of which more than mode, owner and times has just changed.
    ///
    /// Uses its own handle: an fsync on a program's handle would consume the error of an earlier write.
    pub(crate) fn sync_change(&self, ino: Ino) -> FsResult<()> {
        if self.mount_sync < MountSync::All {
            return Ok(());
        }
        let fs = &self.file_system;
        match fs.open(ino, OpenFlags(libc::O_RDONLY), Privileges::Keep) {
            Ok(opened) => {
                let synced = fs.fsync(ino, opened.handle, false);
                fs.release(ino, opened.handle);
                self.or_everything(synced)
            }
            Err(FsError::IsADirectory) => self.sync_directory(ino),
            Err(_) => fs.sync(),
        }
    }

    fn sync_directory(&self, directory: Ino) -> FsResult<()> {
        let fs = &self.file_system;
        // The directory is writable but not readable, or has been removed meanwhile.
        let Ok(handle) = fs.opendir(directory) else {
            return fs.sync();
        };
        let synced = fs.fsyncdir(directory, handle, false);
        fs.releasedir(directory, handle);
        self.or_everything(synced)
    }

    /// Falls back to syncing everything on hosts that answer `EINVAL` because they can't sync a single file or
    /// directory.
    fn or_everything(&self, synced: FsResult<()>) -> FsResult<()> {
        match synced {
            Err(FsError::Invalid) => self.file_system.sync(),
            other => other,
        }
    }
}
