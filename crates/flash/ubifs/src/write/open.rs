//! Opens a medium in any state as a [`Writer`]. The reader replays the journal; this module updates the space
//! accounting to match, cleans up after the power cut, and commits the replayed journal. Nothing is left to recover
//! afterwards.
//!
//! A power cut during recovery is just another unclean state: each change before the commit's master node either
//! repeats the effect of the replay (a torn LEB without the nodes that the replay dropped) or affects only unused
//! areas.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ubi::Volume;

use super::buffers::WriteBuffers;
use super::held::Holds;
use super::log::Log;
use super::space_table::SpaceTable;
use super::syncing::Unsynced;
use super::verify::verify;
use super::{Counts, LptState, SpaceUser, WriteError, Writer};
use crate::compress::{Compressor, Packer};
use crate::file_system::{Ubifs, UbifsError};
use crate::format::{Compression, LOG_LEB, Superblock, SuperblockFlags};
use crate::lpt::{self, LptGeometry};
use crate::open::OpenOptions;
use crate::scan::to_usize;
use crate::space::LebSpace;

impl Writer {
    /// Opens a file system for writing: recovers it, grows it to the size of its volume, and commits.
    pub fn open(volume: Arc<dyn Volume>, options: OpenOptions) -> Result<Self, WriteError> {
        let geometry = volume.geometry();
        let buffers = Arc::new(WriteBuffers::new(
            Arc::clone(&volume),
            geometry.min_io_bytes.max(8),
        ));
        let ubifs = Ubifs::open(buffers.clone(), options)?;
        if let Some(finding) = ubifs.findings().first() {
            return Err(WriteError::Read(UbifsError::Damaged {
                volume: volume.name(),
                finding: Box::new(finding.clone()),
            }));
        }
        check_supported(&ubifs, &*volume)?;
        let old = ubifs.superblock.clone();
        let loaded = lpt::load(&*volume, &old, &ubifs.master).map_err(|source| WriteError::Space {
            volume: volume.name(),
            source,
        })?;
        let verified = verify(&ubifs, &loaded)?;
        let superblock = grown(&old, geometry.lebs);
        let first = LOG_LEB + superblock.log_lebs + superblock.lpt_lebs + superblock.orphan_lebs;
        let mut lebs = loaded.lebs;
        lebs.resize(
            to_usize(superblock.lebs - first),
            LebSpace::empty(superblock.leb_bytes),
        );
        let lpt_first = LptGeometry::first_leb(superblock.log_lebs);
        let mut writer = Self {
            space: SpaceTable::new(first, superblock.leb_bytes, superblock.min_io_bytes, lebs),
            log: Log::of(&ubifs),
            lpt: LptState {
                geometry: LptGeometry::of(&superblock),
                first: lpt_first,
                spaces: loaded.spaces,
                head: verified.lpt_head,
                in_use: loaded.in_use,
            },
            master_offset: 0,
            index_head: Some(verified.index_head),
            gc_leb: None,
            unreadable_lebs: BTreeMap::new(),
            sequence: ubifs.report.sequence_max,
            highest_inode: highest_inode(&ubifs).max(verified.highest_inode),
            orphans: BTreeMap::new(),
            listed_orphans: Vec::new(),
            holds: Holds::default(),
            packer: Packer::quick(Compressor::Only(
                Compression::from_number(superblock.compression).unwrap_or(Compression::None),
            )),
            user: SpaceUser::Privileged,
            unwritten_inode: None,
            stopped: None,
            exhausted: None,
            changes_max: None,
            gap_bytes: OnceLock::new(),
            committed: 0,
            unsynced: Unsynced::default(),
            counts: Counts::default(),
            ubifs,
            buffers,
            volume,
        };
        writer.recover(&old, superblock)?;
        Ok(writer)
    }
}

fn check_supported(ubifs: &Ubifs, volume: &dyn Volume) -> Result<(), WriteError> {
    let flags = SuperblockFlags(ubifs.superblock.flags);
    let unsupported = |why| {
        Err(WriteError::Unsupported {
            volume: volume.name(),
            why,
        })
    };
    if flags.has(SuperblockFlags::AUTHENTICATION) {
        return unsupported("it is authenticated");
    }
    if flags.has(SuperblockFlags::ENCRYPTION) {
        return unsupported("it has encrypted files");
    }
    if ubifs.superblock.version > 5 {
        return unsupported("its format is of a later version");
    }
    if ubifs.superblock.min_io_bytes != volume.geometry().min_io_bytes.max(8) {
        return unsupported("its write unit is not the volume's");
    }
    if ubifs.superblock.lebs > volume.geometry().lebs {
        return unsupported("it has more LEBs than its volume");
    }
    if volume.frozen().is_some() {
        return unsupported("its volume is read-only");
    }
    Ok(())
}

/// The superblock with the volume's number of LEBs, within the limit for growth.
fn grown(superblock: &Superblock, lebs: u32) -> Superblock {
    let lebs = lebs.min(superblock.lebs_max).max(superblock.lebs);
    Superblock {
        lebs,
        ..superblock.clone()
    }
}

fn highest_inode(ubifs: &Ubifs) -> u32 {
    let of_master = u32::try_from(ubifs.master.highest_inode).unwrap_or(u32::MAX);
    let journal = &ubifs.journal;
    let seen = journal.all_plain().map(|(key, _)| key.inode_number());
    seen.chain(journal.removed_inodes())
        .map(|inode| inode.0)
        .max()
        .unwrap_or(0)
        .max(of_master)
}
