//! The checker (fsck): verifies that everything on a medium is consistent, and reports each fault with its location.
//!
//! It has its own walk over the volume and shares with the rest of this crate only the format module and the
//! decompressors (enforced by a test), so that checker and file system are independent of each other. It writes
//! nothing.
//!
//! In this order: superblock; both master nodes; the index as of the last commit (levels, order of keys, overlaps,
//! hashes on authenticated file systems, and HMACs if a key is given); the LPT and the space sums against that index;
//! every node that the index refers to; the log and the journal, applied as a mount would recover them; values that a
//! mount trusts unread; orphans; then names against inodes, blocks against sizes, and the counts of links,
//! directories and extended attributes.
//!
//! A power cut is no damage: faults that it explains are notes. Memory: some 100 bytes for each node of the medium,
//! less than three times the volume's size in total.

mod areas;
mod authentication;
mod fault;
mod files;
mod hash;
mod index;
mod journal;
mod load;
mod lpt;
mod master_places;
mod medium;
mod model;
mod space;
mod trusted;

use std::collections::BTreeSet;

use ubi::{TornEnd, Volume};

use self::authentication::Authenticator;
pub use self::fault::{Area, At, CheckFinding, CheckReport, Counts, Fault};
use self::hash::NodeHash;
pub use self::lpt::{LptDefect, LptKind};
use self::medium::{Medium, Spot, to_usize};
use self::model::Model;
use self::trusted::{Known, Sequences};
use crate::decompress::{DecompressError, decompress};
use crate::format::{
    Compression, Data, InodeNumber, LOG_LEB, MASTER_DIRTY, MASTER_LEB, MASTER_NO_ORPHANS, Master,
    SUPERBLOCK_LEB, Superblock, SuperblockFlags,
};

/// Checks the file system of a volume.
#[must_use]
pub fn check(volume: &dyn Volume) -> CheckReport {
    check_with(volume, None)
}

/// Like [`check`], with the key of an authenticated file system.
#[must_use]
pub fn check_with_key(volume: &dyn Volume, key: &[u8]) -> CheckReport {
    check_with(volume, Some(key))
}

fn check_with(volume: &dyn Volume, key: Option<&[u8]>) -> CheckReport {
    let mut medium = Medium::new(volume);
    let mut report = CheckReport::default();
    let fatal = |area, at, fault| CheckFinding {
        area,
        inode: None,
        path: None,
        at: Some(at),
        fault,
    };
    let superblock = match areas::superblock(&mut medium) {
        Ok(superblock) => superblock,
        Err(fault) => {
            let at = At {
                leb: SUPERBLOCK_LEB,
                offset: 0,
            };
            report.findings.push(fatal(Area::Superblock, at, fault));
            return report;
        }
    };
    let (masters, broken) = areas::masters(&mut medium);
    let Some(masters) = masters else {
        let found = broken
            .into_iter()
            .map(|(at, fault)| fatal(Area::Master, at, fault));
        report.findings.extend(found);
        let at = At {
            leb: MASTER_LEB,
            offset: 0,
        };
        let fault =
            Fault::Contradiction("neither LEB 1 nor LEB 2 holds a master node: where the files are is lost");
        report.findings.push(fatal(Area::Master, at, fault));
        return report;
    };
    let is_authenticated = SuperblockFlags(superblock.flags).has(SuperblockFlags::AUTHENTICATION);
    let hash = match is_authenticated {
        true => NodeHash::from_number(superblock.hash_algorithm),
        false => None,
    };
    let mut checker = Checker {
        medium,
        master: masters.master(),
        master_at: None,
        superblock,
        hash,
        authenticator: hash.zip(key).map(|(hash, key)| Authenticator::new(hash, key)),
        report,
        sequences: Sequences::default(),
    };
    checker.sequences.add(masters.sequence());
    checker.master_at = Some(masters.place());
    if is_authenticated && hash.is_none() {
        checker.note("the hash algorithm is not known here: hashes are not verified".to_owned());
    }
    if checker.is_dirty() {
        checker.note("not unmounted: the journal is what a mount would recover".to_owned());
    }
    areas::superblock_fields(&mut checker);
    masters.judge(&mut checker);
    if is_authenticated {
        authentication::superblock_and_master(&mut checker);
    } else if key.is_some() {
        checker.note("the file system is not authenticated: the key is for nothing".to_owned());
    }
    checker.files();
    checker.finish()
}

/// State of a running check.
struct Checker<'a> {
    medium: Medium<'a>,
    superblock: Superblock,
    master: Master,
    master_at: Option<At>,
    hash: Option<NodeHash>,
    authenticator: Option<Authenticator>,
    report: CheckReport,
    sequences: Sequences,
}

impl Checker<'_> {
    fn files(&mut self) {
        let root = Spot {
            leb: self.master.root_leb,
            offset: self.master.root_offset,
            bytes: self.master.root_bytes,
        };
        let root_hash = self.master.root_hash;
        let walked = index::walk(self, root, &root_hash);
        self.report.counts.index_nodes = u64::try_from(walked.nodes.len()).unwrap_or(u64::MAX);
        let spaces = space::check(self, &walked);
        let mut model = Model::default();
        let unread = load::load(self, &walked, &mut model);
        let index_is_whole = !walked.is_torn;
        drop(walked);
        let (journal, buds) = journal::read(self);
        if let Some(spaces) = spaces {
            let (spaces, buds) = (&spaces, &buds);
            trusted::check(self, &Known { spaces, buds });
        }
        let keys = journal::apply(self, journal, &mut model);
        load::tell_unread(self, &mut model, unread, &keys);
        let listed = match self.master.flags & MASTER_NO_ORPHANS {
            0 => areas::orphans(self),
            _ => BTreeSet::new(),
        };
        files::check(self, &mut model, &listed, index_is_whole);
        self.report.counts.lebs_read = self.medium.lebs_read;
        let parents = model.parents();
        for finding in &mut self.report.findings {
            finding.path = finding.inode.and_then(|inode| model::path_of(&parents, inode));
        }
    }

    fn finish(self) -> CheckReport {
        self.report
    }

    fn tell(&mut self, area: Area, inode: Option<InodeNumber>, at: Option<At>, fault: Fault) {
        self.report.findings.push(CheckFinding {
            area,
            inode,
            path: None,
            at,
            fault,
        });
    }

    fn note(&mut self, text: String) {
        self.report.notes.push(text);
    }

    /// Whether the end of a LEB of the log or journal that looks torn counts as such. If the volume knows that it was
    /// lost through damage, that is a fault; if it does not know, a doubt.
    fn is_torn(&mut self, area: Area, end: At, text: String) -> bool {
        match self.medium.torn_end(end) {
            TornEnd::Plausible => self.note(text),
            TornEnd::Doubtful(why) => self.report.doubts.push(format!(
                "{text}; it may be damage instead, and what was synced last be lost: {why}"
            )),
            TornEnd::Lost(why) => {
                self.tell(area, None, Some(end), Fault::Medium(why));
                return false;
            }
        }
        true
    }

    /// Whether the file system was not cleanly unmounted.
    fn is_dirty(&self) -> bool {
        self.master.flags & MASTER_DIRTY != 0
    }

    fn is_authenticated(&self) -> bool {
        SuperblockFlags(self.superblock.flags).has(SuperblockFlags::AUTHENTICATION)
    }

    /// First LEB of the main area.
    fn main_first(&self) -> u32 {
        let superblock = &self.superblock;
        LOG_LEB + superblock.log_lebs + superblock.lpt_lebs + superblock.orphan_lebs
    }

    /// Checks that a location is in the main area.
    fn main_area(&self, spot: Spot) -> Result<(), Fault> {
        let main = self.main_first()..self.superblock.lebs;
        match main.contains(&spot.leb) && spot.end() <= u64::from(self.superblock.leb_bytes) {
            true => Ok(()),
            false => Err(self.medium.outside(spot)),
        }
    }

    /// Maximum size of a write, bytes.
    fn write_bytes(&self) -> usize {
        let write_bytes = self.medium.geometry.max_write_bytes;
        to_usize(write_bytes.max(self.superblock.min_io_bytes).max(8))
    }

    /// Decompresses a block, unless it is encrypted.
    fn unpack(&self, data: &Data) -> Result<(), Fault> {
        let unknown = DecompressError::Unknown {
            number: data.compression,
        };
        let compression = Compression::from_number(data.compression).ok_or(unknown)?;
        if data.compressed_bytes != 0 {
            return Ok(());
        }
        let mut block = vec![0; to_usize(data.size_bytes)];
        Ok(decompress(compression, &data.stored, &mut block)?)
    }
}
