//! Reports of changes that bypass a file system: made in a host folder by other programs, for example.
//!
//! A cache above keeps names, attributes and listings for as long as each change is either made through the file system
//! or reported here. Reports are sent from a thread of the file system that holds no lock and serves no call: a listener
//! may block until calls in progress have returned.

use crate::Ino;

/// A change that bypassed the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A name was added or removed, or leads to another file.
    Name {
        /// Its directory.
        parent: Ino,
        /// The name.
        name: &'a [u8],
    },
    /// Owner, mode, times, number of links, ACLs or other extended attributes of an inode.
    Attributes(Ino),
    /// Content and attributes of a file, or names and attributes of a directory.
    Content(Ino),
    /// Any name may have changed.
    AllNames,
}

/// Receives [`Change`]s.
pub trait ChangeListener: Send + Sync {
    /// Takes a change in. False if the cache does not know the inode: if an answer with it is on its way, the cache will
    /// keep what the answer says, so the reporter repeats the report until the inode is forgotten or known.
    fn changed(&self, change: Change<'_>) -> bool;

    /// No further change will be reported. The reporter then reports all names and all inodes that it knows as changed.
    fn ended(&self, reason: &str);
}

/// Ends the reports when it is dropped.
pub type Reports = Box<dyn Send + Sync>;

/// Changes that bypass a file system.
pub enum Bypass {
    /// There are none.
    Never,
    /// They are reported until this value is dropped.
    Reported(Reports),
}
