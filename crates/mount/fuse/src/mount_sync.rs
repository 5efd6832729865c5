//! What a mount with `sync` or `dirsync` adds to calls: the sync of what they changed.
//!
//! For such a mount the kernel marks writes as synchronous and does nothing else: FUSE hears nothing of either option when
//! names or attributes change. So the syncs that a file system of the kernel makes itself are made here, by what ext4 does:
//! - `dirsync` and `sync`: making, removing, linking and renaming names returns when the names are on the medium.
//! - `sync`: so do changes of size, extended attributes, and copies. Mode, owner and times don't, on ext4 neither.
//!
//! It is not: about writes, whose durability is in their mode, or about a remount, of which FUSE hears nothing.

use vfs::{FsError, FsResult, Ino, OpenFlags, Privileges};

use crate::dispatch::Dispatcher;

/// What the options of a mount ask to be synced with each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountSync {
    /// Nothing.
    #[default]
    Nothing,
    /// Names (`dirsync`).
    Names,
    /// Names, writes and attributes (`sync`).
    All,
}

impl Dispatcher {
    /// Puts the names in `directory`, one of which was just changed, on the medium if the mount asks for it.
    pub(crate) fn sync_names(&self, directory: Ino) -> FsResult<()> {
        if self.mount_sync < MountSync::Names {
            return Ok(());
        }
        self.sync_directory(directory)
    }

    /// Puts a file of which more than mode, owner and times was just changed on the medium if the mount asks for it.
    ///
    /// By a handle of its own: the fsync of a program's would take the error of an earlier write from it.
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
        // A folder that can be written to and not read, or was removed meanwhile.
        let Ok(handle) = fs.opendir(directory) else {
            return fs.sync();
        };
        let synced = fs.fsyncdir(directory, handle, false);
        fs.releasedir(directory, handle);
        self.or_everything(synced)
    }

    /// Hosts that can't sync one file or folder say that the call is invalid.
    fn or_everything(&self, synced: FsResult<()>) -> FsResult<()> {
        match synced {
            Err(FsError::Invalid) => self.file_system.sync(),
            other => other,
        }
    }
}
