//! A UBIFS that can be written.
//!
//! [`Writer`] is the reading half ([`Ubifs`]) and what changes it: nodes go to the journal heads, the journal in memory says
//! where they are, and a commit makes them part of the index. Everything is synchronous and in one owner's hands: who has several
//! threads puts a lock around it.
//!
//! - [`buffers`]: the write buffers of the heads, which reads look through.
//! - [`log`]: which LEBs the journal has. [`space_table`]: what is free, dirty, taken.
//! - [`journal`]: from an operation's nodes to a head, as one atomic group. [`syncing`]: what of it is on the medium. [`effect`]: what that changes in memory. [`room`]: the room for it, before it is written.
//! - [`names`], [`rename`], [`content`], [`xattrs`]: the operations. [`held`]: files that are open without a name.
//! - [`merge`]: the index with the journal's changes. [`commit`], with [`commit_index`], [`index_gaps`] and [`commit_areas`]: log, index, LPT, orphans, master
//!   node, in an order that a power cut at any point leaves the old state or the new one. [`gc`]: LEBs of dirty space become empty ones;
//!   [`gc_leb`]: the one that is kept for that.
//! - [`open`], [`verify`], [`recover`], [`recover_log`], [`recover_space`]: from a medium in any state to a [`Writer`]: the replay of the reading half,
//!   then a commit.
//!
//! Promise: what [`Writer::fsync`] returned for is there after a power cut, each operation entirely or not at all. A commit is
//! not needed for it; [`Writer::commit`] shortens the next mount.
//!
//! Errors: an operation reads all that it needs before it writes anything ([`WriteError::Read`]: nothing of it is there), then writes, and
//! then changes what is in memory, which can't fail. A write that fails, or a panic, stops the writer for good: nothing is written
//! any more, as what is on the medium is not known. What was readable stays readable: an operation shows in memory only once
//! its nodes are in the write buffers, and a commit builds the new index and master node aside and turns to them at the end. State
//! that only writing needs (space, log, LPT) is not put back, as nothing uses it then.
//!
//! Left out: authenticated and encrypted file systems.

mod buffers;
mod commit;
mod commit_areas;
mod commit_index;
mod content;
mod effect;
mod gc;
mod gc_leb;
mod held;
mod index_gaps;
mod index_room;
mod journal;
mod log;
mod merge;
mod names;
mod open;
mod recover;
mod recover_log;
mod recover_space;
mod rename;
mod room;
mod space_table;
mod statistics;
mod syncing;
mod verify;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use thiserror::Error;
use ubi::{Volume, VolumeError};

use self::buffers::WriteBuffers;
use self::gc_leb::GcLeb;
use self::held::{Holds, Orphan};
use self::log::Log;
use self::room::Purpose;
use self::space_table::SpaceTable;
use self::statistics::Counts;
use self::syncing::Unsynced;
use crate::compress::Packer;
use crate::file_system::{Ubifs, UbifsError};
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{Inode, InodeNumber};
use crate::lpt::{LptError, LptGeometry, LptPlace, TableSpace};
use crate::open::OpenError;

pub use names::NewFile;
pub use rename::NameIn;
pub use room::SpaceUser;
pub use statistics::{HeadStatistics, WriterStatistics};

/// Why something could not be written. Unless it says otherwise, nothing of the operation is there, and other operations may work. Making room
/// for it may have collected LEBs and committed what was there before.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Something that is needed can't be read. Of a write of several blocks, those before are there.
    #[error(transparent)]
    Read(#[from] UbifsError),
    /// There is no file system, or none that is known.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The table of free space can't be read; files still can.
    #[error("{volume}: {source}; it can be read, not written")]
    Space {
        /// Name of the volume.
        volume: Arc<str>,
        /// Where and why.
        source: LptError,
    },
    /// The file system has something that can't be written.
    #[error("{volume}: {why}; it can be read, not written")]
    Unsupported {
        /// Name of the volume.
        volume: Arc<str>,
        /// What.
        why: &'static str,
    },
    /// Master node, index and LPT contradict each other, or the index can't be read: what is written could destroy files.
    #[error(
        "{volume}: {finding}; it can be read, not written; `tidegate ubifs check` says all that is wrong"
    )]
    Untrusted {
        /// Name of the volume.
        volume: Arc<str>,
        /// Where and why.
        #[source]
        finding: Box<Finding>,
    },
    /// A write to the medium failed. Nothing is written from here on.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// In the middle of a change something can't be read, or contradicts itself. Nothing is written from here on.
    #[error("{volume}: {finding}")]
    Damaged {
        /// Name of the volume.
        volume: Arc<str>,
        /// Where and what.
        #[source]
        finding: Box<Finding>,
    },
    /// Nothing is written any more.
    #[error("{volume}: read-only: {reason}")]
    Stopped {
        /// Name of the volume.
        volume: Arc<str>,
        /// Since which error; or it is unmounted.
        reason: Arc<str>,
    },
    /// No space is left.
    #[error("{volume}: no space is left")]
    NoSpace {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// More inodes without a name are held than can be written down.
    #[error("{volume}: {largest} files are open without a name; no more can be noted")]
    Orphans {
        /// Name of the volume.
        volume: Arc<str>,
        /// How many can be.
        largest: usize,
    },
    /// A file would become too large.
    #[error("byte {asked}: a file has 2 TiB at most")]
    FileBytes {
        /// Up to where it was to go.
        asked: u64,
    },
    /// All 2^32 inode numbers were given out.
    #[error("{volume}: no inode number is left")]
    NoInodeNumber {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The name is there.
    #[error("{directory} has that name")]
    Exists {
        /// Which directory.
        directory: InodeNumber,
    },
    /// The directory has names.
    #[error("{directory} is not empty")]
    NotEmpty {
        /// Which.
        directory: InodeNumber,
    },
    /// It is no directory.
    #[error("{inode} is no directory")]
    NotDirectory {
        /// Which.
        inode: InodeNumber,
    },
    /// It is a directory.
    #[error("{inode} is a directory")]
    IsDirectory {
        /// Which.
        inode: InodeNumber,
    },
    /// A name, a link or a value is too long or has no byte.
    #[error("{what} of {bytes} bytes; {largest} at most can be stored")]
    Length {
        /// What.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The largest.
        largest: u32,
    },
    /// Something can't be, such as a directory below itself.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A UBIFS that can be written; see the module.
pub struct Writer {
    ubifs: Ubifs,
    buffers: Arc<WriteBuffers>,
    /// Below the buffers.
    volume: Arc<dyn Volume>,
    space: SpaceTable,
    log: Log,
    lpt: LptState,
    master_offset: u32,
    index_head: Option<(u32, u32)>,
    /// `None` while the writer is being opened, and while a collection goes on in it.
    gc_leb: Option<GcLeb>,
    /// LEBs that are not collected, as not all that is in use in them can be read; with what the device said, if that may change.
    unreadable_lebs: BTreeMap<u32, Option<Damage>>,
    sequence: u64,
    highest_inode: u32,
    /// Inodes without a name that are held.
    orphans: BTreeMap<u32, Orphan>,
    /// As the last commit listed them.
    listed_orphans: Vec<u32>,
    holds: Holds,
    packer: Packer,
    user: SpaceUser,
    /// Of a file that blocks are being written of: it follows them.
    unwritten_inode: Option<Inode>,
    stopped: Option<Stopped>,
    /// What no room was found for, and how much had become dirty by then.
    exhausted: Option<(Purpose, u64)>,
    /// So many changes the next commit has room for in any case; `None` when it has for all of the index.
    changes_max: Option<usize>,
    /// Bytes that the next commit can put between index nodes, once that was asked for.
    gap_bytes: OnceLock<u64>,
    /// The last sequence number of the last commit.
    committed: u64,
    unsynced: Unsynced,
    counts: Counts,
}

/// Why nothing is written any more.
#[derive(Clone, Debug)]
enum Stopped {
    Unmounted,
    /// The first error.
    Failed(Arc<str>),
}

/// The LPT area.
struct LptState {
    geometry: LptGeometry,
    first: u32,
    spaces: Vec<TableSpace>,
    head: LptPlace,
    /// LEBs of the area that the committed tree is in.
    in_use: BTreeSet<u32>,
}

impl Writer {
    /// What it is like when read. Reads see all that was written, whether it reached the medium or not.
    #[must_use]
    pub const fn read(&self) -> &Ubifs {
        &self.ubifs
    }

    fn name(&self) -> Arc<str> {
        self.volume.name()
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn damaged(&self, finding: Box<Finding>) -> WriteError {
        WriteError::Damaged {
            volume: self.name(),
            finding,
        }
    }

    /// A contradiction in what the master node leads to.
    fn contradiction(&self, subject: Subject, (leb, offset): (u32, u32), why: &'static str) -> WriteError {
        self.damaged(Box::new(Finding {
            inode: None,
            subject,
            place: Place {
                leb,
                offset,
                bytes: 0,
            },
            damage: Damage::Contradiction(why),
        }))
    }

    /// Something that is needed can't be read, and nothing was written yet.
    fn unreadable(&self, finding: Box<Finding>) -> WriteError {
        WriteError::Read(UbifsError::Damaged {
            volume: self.name(),
            finding,
        })
    }

    /// The same of a LEB as a whole.
    fn unreadable_leb(&self, subject: Subject, leb: u32, damage: Damage) -> WriteError {
        let (offset, bytes) = (0, self.ubifs.superblock.leb_bytes);
        self.unreadable(Box::new(Finding {
            inode: None,
            subject,
            place: Place { leb, offset, bytes },
            damage,
        }))
    }

    fn no_space(&self) -> WriteError {
        WriteError::NoSpace { volume: self.name() }
    }

    /// An error in the middle of something that can't be left like that.
    fn fatal(&self, error: WriteError) -> WriteError {
        match error {
            WriteError::Read(UbifsError::Damaged { finding, .. }) => self.damaged(finding),
            other => other,
        }
    }

    /// Stops the writer after an error that may have left something half written.
    fn guard<T>(&mut self, result: Result<T, WriteError>) -> Result<T, WriteError> {
        if let Err(error @ (WriteError::Volume(_) | WriteError::Damaged { .. })) = &result {
            self.stop(&error.to_string());
        }
        result
    }

    /// Writes nothing any more, because of an error. The first one is kept. What was written before it is synced, or known to be lost.
    pub(crate) fn stop(&mut self, error: &str) {
        if self.stopped.is_none() {
            self.stopped = Some(Stopped::Failed(error.into()));
            // Its outcome is noted, and the first error is what is told.
            let _ = self.sync_what_was_written();
        }
    }

    /// The error since which nothing is written any more.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<str>> {
        match &self.stopped {
            Some(Stopped::Failed(error)) => Some(Arc::clone(error)),
            Some(Stopped::Unmounted) | None => None,
        }
    }

    fn check_usable(&self) -> Result<(), WriteError> {
        let reason = match &self.stopped {
            None => return Ok(()),
            Some(Stopped::Unmounted) => "it is unmounted".into(),
            Some(Stopped::Failed(error)) => Arc::clone(error),
        };
        Err(WriteError::Stopped {
            volume: self.name(),
            reason,
        })
    }
}
