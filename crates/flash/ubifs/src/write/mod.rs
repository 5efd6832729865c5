//! A writable UBIFS.
//!
//! [`Writer`] combines the reader ([`Ubifs`]) with the write path: nodes go to the journal heads, the in-memory
//! journal records their locations, and a commit merges them into the index. All operations are synchronous and need
//! exclusive access; several threads share a writer behind a lock.
//!
//! - [`buffers`]: write buffers of the heads; reads see their content.
//! - [`log`]: the LEBs of the journal. [`space_table`]: free, dirty and taken LEBs (lprops).
//! - [`journal`]: writes the nodes of an operation to a head as one atomic group. [`syncing`]: tracks which writes
//!   are on the medium. [`effect`]: applies the group in memory. [`room`]: budgets the space before the group is
//!   written.
//! - [`names`], [`rename`], [`content`], [`xattrs`]: the operations. [`held`]: open files without a link.
//! - [`merge`]: builds the new index from the old one and the journal. [`commit`], with [`commit_index`],
//!   [`index_gaps`] and [`commit_areas`]: write log, index, LPT, orphans and master node in an order that leaves
//!   either the old or the new state after a power cut at any point. [`gc`]: turns dirty LEBs into empty ones;
//!   [`gc_leb`]: the LEB reserved for it.
//! - [`open`], [`verify`], [`recover`], [`recover_log`], [`recover_space`]: open a medium in any state as a
//!   [`Writer`]: replay by the reader, then a commit.
//!
//! Guarantee: operations before a successful [`Writer::fsync`] survive a power cut; each operation survives entirely
//! or not at all. This needs no commit; [`Writer::commit`] shortens the next mount.
//!
//! Errors: an operation reads all its input before it writes ([`WriteError::Read`]: nothing was written), then
//! writes, then updates memory, which can't fail. A failed write, or a panic, stops the writer for good, because the
//! state of the medium is unknown. Readable data stays readable: an operation becomes visible in memory only after
//! its nodes are in the write buffers, and a commit builds the new index and master node separately and switches to
//! them at the end. State used only for writing (space, log, LPT) is not rolled back, since it is not used after the
//! stop.
//!
//! Not supported: authenticated and encrypted file systems.

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

/// Why a write failed. Unless a variant says otherwise, the operation left no trace and later operations may succeed.
/// Budgeting for it may have run garbage collection and committed earlier operations.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A node that the operation needs is unreadable. If a write spans several blocks, the blocks before it were
    /// written.
    #[error(transparent)]
    Read(#[from] UbifsError),
    /// There is no file system, or not one of a supported format.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The LPT is unreadable; files still are readable.
    #[error("{volume}: {source}; it can be read, not written")]
    Space {
        /// Name of the volume.
        volume: Arc<str>,
        /// Location and fault.
        source: LptError,
    },
    /// The file system uses a feature that the writer does not support.
    #[error("{volume}: {why}; it can be read, not written")]
    Unsupported {
        /// Name of the volume.
        volume: Arc<str>,
        /// The feature.
        why: &'static str,
    },
    /// Master node, index and LPT contradict each other, or the index is unreadable: writing could destroy files.
    #[error(
        "{volume}: {finding}; it can be read, not written; `tidegate ubifs check` says all that is wrong"
    )]
    Untrusted {
        /// Name of the volume.
        volume: Arc<str>,
        /// Location and fault.
        #[source]
        finding: Box<Finding>,
    },
    /// A write to the medium failed. The writer stops.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A node was unreadable or contradictory in the middle of a change. The writer stops.
    #[error("{volume}: {finding}")]
    Damaged {
        /// Name of the volume.
        volume: Arc<str>,
        /// Location and fault.
        #[source]
        finding: Box<Finding>,
    },
    /// The writer has stopped.
    #[error("{volume}: read-only: {reason}")]
    Stopped {
        /// Name of the volume.
        volume: Arc<str>,
        /// The error that stopped it, or the unmount.
        reason: Arc<str>,
    },
    /// No space is left.
    #[error("{volume}: no space is left")]
    NoSpace {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The orphan area can't list any more unlinked open inodes.
    #[error("{volume}: {largest} files are open without a name; no more can be noted")]
    Orphans {
        /// Name of the volume.
        volume: Arc<str>,
        /// Capacity of the orphan area, inodes.
        largest: usize,
    },
    /// A file would become too large.
    #[error("byte {asked}: a file has 2 TiB at most")]
    FileBytes {
        /// End of the requested write.
        asked: u64,
    },
    /// All 2^32 inode numbers are used up.
    #[error("{volume}: no inode number is left")]
    NoInodeNumber {
        /// Name of the volume.
        volume: Arc<str>,
    },
    /// The name exists already.
    #[error("{directory} has that name")]
    Exists {
        /// The directory.
        directory: InodeNumber,
    },
    /// The directory is not empty.
    #[error("{directory} is not empty")]
    NotEmpty {
        /// The directory.
        directory: InodeNumber,
    },
    /// Not a directory.
    #[error("{inode} is no directory")]
    NotDirectory {
        /// Inode number.
        inode: InodeNumber,
    },
    /// A directory.
    #[error("{inode} is a directory")]
    IsDirectory {
        /// Inode number.
        inode: InodeNumber,
    },
    /// A name, link target or value is empty or too long.
    #[error("{what} of {bytes} bytes; {largest} at most can be stored")]
    Length {
        /// Kind of the string.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// Maximum length.
        largest: u32,
    },
    /// The request is invalid, such as a move of a directory below itself.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A writable UBIFS; see the module.
pub struct Writer {
    ubifs: Ubifs,
    buffers: Arc<WriteBuffers>,
    /// The volume below the buffers.
    volume: Arc<dyn Volume>,
    space: SpaceTable,
    log: Log,
    lpt: LptState,
    master_offset: u32,
    index_head: Option<(u32, u32)>,
    /// `None` while the writer is being opened and during a collection, which fills this LEB.
    gc_leb: Option<GcLeb>,
    /// LEBs excluded from garbage collection because nodes in them are unreadable; with the device's error if it may
    /// be temporary.
    unreadable_lebs: BTreeMap<u32, Option<Damage>>,
    sequence: u64,
    highest_inode: u32,
    /// Unlinked inodes that are still pinned.
    orphans: BTreeMap<u32, Orphan>,
    /// The orphans listed by the last commit.
    listed_orphans: Vec<u32>,
    holds: Holds,
    packer: Packer,
    user: SpaceUser,
    /// Deferred inode node of a file whose blocks are being written; it is written after them.
    unwritten_inode: Option<Inode>,
    stopped: Option<Stopped>,
    /// Purpose for which no space was found, and the total of dirtied bytes at that time.
    exhausted: Option<(Purpose, u64)>,
    /// Number of journal changes that the next commit is guaranteed to fit; `None` if it can rewrite the whole index.
    changes_max: Option<usize>,
    /// Bytes that the next commit can write into gaps between index nodes, computed on first use.
    gap_bytes: OnceLock<u64>,
    /// Sequence number of the last node when the last commit ended.
    committed: u64,
    unsynced: Unsynced,
    counts: Counts,
}

/// Why the writer has stopped.
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
    /// LEBs of the area that hold the committed LPT.
    in_use: BTreeSet<u32>,
}

impl Writer {
    /// The reader. It sees all operations, including those whose nodes are still buffered.
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

    /// A contradiction found from the master node.
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

    /// An unreadable node, found before anything was written.
    fn unreadable(&self, finding: Box<Finding>) -> WriteError {
        WriteError::Read(UbifsError::Damaged {
            volume: self.name(),
            finding,
        })
    }

    /// Like [`Self::unreadable`], for a whole LEB.
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

    /// Turns a read error into one that stops the writer, for use in the middle of a change.
    fn fatal(&self, error: WriteError) -> WriteError {
        match error {
            WriteError::Read(UbifsError::Damaged { finding, .. }) => self.damaged(finding),
            other => other,
        }
    }

    /// Stops the writer after an error that may have left a change half written.
    fn guard<T>(&mut self, result: Result<T, WriteError>) -> Result<T, WriteError> {
        if let Err(error @ (WriteError::Volume(_) | WriteError::Damaged { .. })) = &result {
            self.stop(&error.to_string());
        }
        result
    }

    /// Stops the writer because of `error`; the first error is kept. Earlier writes are synced, or recorded as lost.
    pub(crate) fn stop(&mut self, error: &str) {
        if self.stopped.is_none() {
            self.stopped = Some(Stopped::Failed(error.into()));
            // A failure is recorded, and the first error is the one reported.
            let _ = self.sync_what_was_written();
        }
    }

    /// The error that stopped the writer.
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
