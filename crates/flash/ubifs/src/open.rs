//! Opens a volume: superblock, master node, journal replay, then recovery of orphans and file sizes.

use std::sync::Arc;

use thiserror::Error;
use ubi::Volume;

use crate::content::Workspaces;
use crate::encryption::Keyring;
use crate::fetch::{self, Extent};
use crate::file_system::{Ubifs, UbifsError};
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{
    COMMIT_LAST_FLAG, EntryKind, HEADER_BYTES, InodeNumber, LOG_LEB, MASTER_DIRTY, MASTER_LEB,
    MASTER_NO_ORPHANS, MASTER_RECOVERED, Master, NodeKind, Orphans, SUPERBLOCK_LEB, Superblock,
};
use crate::index::Index;
use crate::known_inodes::KnownInodes;
use crate::replay::{Replayed, SizeSeen, replay};
use crate::scan::{Found, Stop, next_node, scan, to_usize};

/// Newest known format version.
const VERSION_MAX: u32 = 5;

/// Options for opening a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Memory limit of the index cache, bytes. A node with 8 branches takes about 270.
    pub index_cache_bytes: u64,
    /// Whether [`crate::ReplayReport::applied`] lists each journal node.
    pub lists_nodes: bool,
}

impl OpenOptions {
    /// Default options: an index cache of 8 MiB, enough for 250,000 blocks and names.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            index_cache_bytes: 8 << 20,
            lists_nodes: false,
        }
    }
}

/// Why a volume can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no superblock.
    #[error("{volume}: LEB 0 holds no UBIFS superblock: {damage}")]
    NotUbifs {
        /// Name of the volume.
        volume: Arc<str>,
        /// Content of LEB 0.
        #[source]
        damage: Damage,
    },
    /// A superblock field has an unknown or impossible value.
    #[error("{volume}: superblock: {what} is {found}, expected is {expected}")]
    Superblock {
        /// Name of the volume.
        volume: Arc<str>,
        /// Name of the field.
        what: &'static str,
        /// Value found.
        found: u64,
        /// Possible values.
        expected: String,
    },
    /// There is no master node.
    #[error("{volume}: neither LEB 1 nor LEB 2 holds a master node: where the files are is lost")]
    NoMaster {
        /// Name of the volume.
        volume: Arc<str>,
    },
}

/// See [`Ubifs::open`].
pub(crate) fn open(volume: Arc<dyn Volume>, options: OpenOptions) -> Result<Ubifs, OpenError> {
    let superblock = read_superblock(&*volume)?;
    let mut findings = Vec::new();
    let master = read_master(&*volume, &mut findings)?;
    let Replayed {
        journal,
        report,
        sizes,
    } = replay(&*volume, &superblock, &master, options, &mut findings);
    let root = Place {
        leb: master.root_leb,
        offset: master.root_offset,
        bytes: master.root_bytes,
    };
    let index = Index::new(Arc::clone(&volume), root, options.index_cache_bytes);
    let mut ubifs = Ubifs {
        volume,
        superblock,
        master,
        index,
        journal,
        report,
        findings,
        workspaces: Workspaces::default(),
        keyring: Keyring::default(),
        known_inodes: KnownInodes::default(),
    };
    remove_orphans(&mut ubifs);
    for (inode, seen) in sizes {
        fix_size(&mut ubifs, inode, seen);
    }
    Ok(ubifs)
}

fn read_superblock(volume: &dyn Volume) -> Result<Superblock, OpenError> {
    let not_ubifs = |damage| OpenError::NotUbifs {
        volume: volume.name(),
        damage,
    };
    let place = Place {
        leb: SUPERBLOCK_LEB,
        offset: 0,
        bytes: 4096,
    };
    let raw = fetch::node(volume, place, NodeKind::Superblock).map_err(not_ubifs)?;
    let superblock = Superblock::decode(&raw).map_err(|defect| not_ubifs(defect.into()))?;
    let geometry = volume.geometry();
    let expect = |good: bool, what, found: u64, expected: String| match good {
        true => Ok(()),
        false => Err(OpenError::Superblock {
            volume: volume.name(),
            what,
            found,
            expected,
        }),
    };
    let readable = superblock.version <= VERSION_MAX || superblock.read_version == 0;
    expect(
        readable,
        "format version",
        superblock.version.into(),
        format!("{VERSION_MAX} or less"),
    )?;
    expect(
        superblock.key_format == 0,
        "form of keys",
        superblock.key_format.into(),
        "0".to_owned(),
    )?;
    expect(
        superblock.key_hash <= 1,
        "hash of names",
        superblock.key_hash.into(),
        "0 or 1".to_owned(),
    )?;
    let leb_bytes = superblock.leb_bytes;
    expect(
        leb_bytes == geometry.leb_bytes,
        "LEB size",
        leb_bytes.into(),
        format!("{}, the volume's", geometry.leb_bytes),
    )?;
    let areas = [superblock.log_lebs, superblock.lpt_lebs, superblock.orphan_lebs];
    let reserved = areas.iter().map(|lebs| u64::from(*lebs)).sum::<u64>() + u64::from(LOG_LEB);
    expect(
        reserved < u64::from(superblock.lebs),
        "number of LEBs",
        superblock.lebs.into(),
        format!("more than the {reserved} that are not for files"),
    )?;
    let min_io = superblock.min_io_bytes;
    let possible = min_io.is_multiple_of(8) && min_io >= 8 && min_io <= leb_bytes;
    expect(
        possible,
        "write unit",
        min_io.into(),
        "a multiple of 8 up to the LEB size".to_owned(),
    )?;
    Ok(superblock)
}

/// The newest valid master node. Each is written to both LEBs, the first one first; a power cut in between leaves the
/// second LEB stale.
fn read_master(volume: &dyn Volume, findings: &mut Vec<Finding>) -> Result<Master, OpenError> {
    let mut candidates: Vec<(u32, LastMaster)> = Vec::new();
    for leb in [MASTER_LEB, MASTER_LEB + 1] {
        match last_master(volume, leb) {
            Ok(found) => candidates.extend(found.map(|found| (leb, found))),
            Err(damage) => findings.push(Finding {
                inode: None,
                subject: Subject::Master,
                place: Place {
                    leb,
                    offset: 0,
                    bytes: 0,
                },
                damage,
            }),
        }
    }
    // On a tie, prefer the first LEB. A recovered master there wins over anything still left in the second LEB.
    let best = candidates.into_iter().rev().max_by_key(|(leb, last)| {
        let is_recovered = *leb == MASTER_LEB && last.is_of_recovery;
        (is_recovered, last.master.commit, last.sequence)
    });
    best.map(|(_, last)| last.master).ok_or(OpenError::NoMaster {
        volume: volume.name(),
    })
}

/// The last valid master node of a LEB.
struct LastMaster {
    sequence: u64,
    master: Master,
    /// Whether a recovery wrote it and nothing follows.
    is_of_recovery: bool,
}

fn last_master(volume: &dyn Volume, leb: u32) -> Result<Option<LastMaster>, Damage> {
    let raw = fetch::extent_of_leb(volume, leb, Extent::WrittenFrom(0))?;
    let mut last = None;
    let mut from = 0;
    loop {
        let scanned = scan(&raw, from);
        for Found { offset, header } in scanned.nodes {
            if header.kind == NodeKind::Master {
                let master = Master::decode(&raw[offset..])?;
                last = Some(LastMaster {
                    sequence: header.sequence,
                    is_of_recovery: offset == 0
                        && master.flags & MASTER_RECOVERED != 0
                        && matches!(scanned.stop, Stop::Erased),
                    master,
                });
            }
        }
        match scanned.stop {
            Stop::Erased => return Ok(last),
            Stop::Broken(_) => match next_node(&raw, scanned.end + 8) {
                Some(next) => from = next,
                None => return Ok(last),
            },
        }
    }
}

/// Deletes the orphans listed in the orphan area: unlinked inodes that were open at the power cut.
fn remove_orphans(ubifs: &mut Ubifs) {
    let dirty = ubifs.master.flags & MASTER_DIRTY != 0;
    if !dirty || ubifs.master.flags & MASTER_NO_ORPHANS != 0 {
        return;
    }
    let superblock = &ubifs.superblock;
    let first = LOG_LEB
        .saturating_add(superblock.log_lebs)
        .saturating_add(superblock.lpt_lebs);
    let lebs = first..first.saturating_add(superblock.orphan_lebs);
    let mut newest: Option<(u64, bool)> = None;
    'lebs: for leb in lebs {
        let raw = match fetch::leb(&*ubifs.volume, leb) {
            Ok(raw) => raw,
            Err(damage) => {
                ubifs.findings.push(Finding {
                    inode: None,
                    subject: Subject::Orphans,
                    place: Place {
                        leb,
                        offset: 0,
                        bytes: 0,
                    },
                    damage,
                });
                continue;
            }
        };
        for Found { offset, header } in scan(&raw, 0).nodes {
            let node = &raw[offset..offset + to_usize(header.bytes).max(HEADER_BYTES)];
            let Some(orphans) = (header.kind == NodeKind::Orphans)
                .then(|| Orphans::decode(node).ok())
                .flatten()
            else {
                continue;
            };
            let commit = orphans.commit & !COMMIT_LAST_FLAG;
            // Nodes with a lower commit number behind the last node of a commit are leftovers.
            if newest.is_some_and(|(newest, complete)| complete && commit < newest) {
                break 'lebs;
            }
            for number in orphans
                .inodes
                .iter()
                .filter_map(|number| u32::try_from(*number).ok())
            {
                remove_if_unlinked(ubifs, InodeNumber(number));
            }
            newest = Some((commit, orphans.commit & COMMIT_LAST_FLAG != 0));
        }
    }
}

fn remove_if_unlinked(ubifs: &mut Ubifs, inode: InodeNumber) {
    match ubifs.inode(inode) {
        Ok(found) if found.links == 0 => {
            ubifs.journal.remove_inode(inode);
            ubifs.report.orphans.push(inode);
        }
        // Already deleted, or linked again.
        Ok(_) | Err(UbifsError::NoInode { .. }) => {}
        Err(error) => keep(ubifs, error),
    }
}

/// Reports damage that keeps recovery incomplete: a read-write open has to refuse it, since its commit would make the
/// loss permanent.
fn keep(ubifs: &mut Ubifs, error: UbifsError) {
    if let UbifsError::Damaged { finding, .. } = error {
        ubifs.findings.push(*finding);
    }
}

/// Extends a file to the end of its data: a power cut can lose the inode that is written after the data, which leaves
/// the size too small.
fn fix_size(ubifs: &mut Ubifs, number: InodeNumber, seen: SizeSeen) {
    if seen.inode.is_some_and(|size| size >= seen.data) {
        return;
    }
    match ubifs.inode(number) {
        Ok(inode) if inode.kind() == Some(EntryKind::File) && inode.size_bytes < seen.data => {
            ubifs.journal.sizes.insert(number, seen.data);
            ubifs.report.sizes.push((number, seen.data));
        }
        Ok(_) => {}
        // The file was never completed: the power cut lost its inode.
        Err(UbifsError::NoInode { .. }) => ubifs.journal.remove_inode(number),
        Err(error) => keep(ubifs, error),
    }
}
