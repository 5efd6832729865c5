//! Opens the UBIFS of a volume, also one with a damaged superblock or with LEBs of another size, or salvages it.
//!
//! A mount takes a part of the journal that is not there for one that was never written. In a dump it may be lost: where
//! blocks lack their headers, it is a finding.

use std::sync::Arc;

use media::Leb;
use ubi::Volume;
use ubifs::format::{LOG_LEB, Superblock, check};
use ubifs::salvage::{Salvage, SalvageOptions};
use ubifs::{LogVerdict, OpenError, OpenOptions, RescuedVolume, Ubifs};

use crate::finding::{Finding, What};
use crate::scan::superblock;
use crate::volume::DumpVolume;

/// An open file system.
pub struct Opened {
    /// The file system.
    pub ubifs: Ubifs,
    /// Decisions that it took to open it, and parts of the journal that may be lost.
    pub findings: Vec<Finding>,
}

/// Opens a file system. A superblock that names another LEB size is believed, because the content is one stream of bytes
/// then; a damaged one is rebuilt from the other areas. The error is that of the volume as it is.
pub fn open_ubifs(volume: Arc<DumpVolume>, options: OpenOptions) -> Result<Opened, OpenError> {
    let shared: Arc<dyn Volume> = Arc::<DumpVolume>::clone(&volume);
    let error = match Ubifs::open(shared, options) {
        Ok(ubifs) => {
            let findings = lost_journal(&volume, &ubifs);
            return Ok(Opened { ubifs, findings });
        }
        Err(error) => error,
    };
    let leb_bytes = match &error {
        OpenError::Superblock {
            what: "LEB size",
            found,
            ..
        } => u32::try_from(*found).ok(),
        OpenError::NotUbifs { .. } => Some(volume.geometry().leb_bytes),
        _ => None,
    };
    let Some(leb_bytes) = leb_bytes else {
        return Err(error);
    };
    let Some((rescued, rebuilt)) = RescuedVolume::new(volume, leb_bytes) else {
        return Err(error);
    };
    let what = match rebuilt {
        Some(rebuilt) => What::RebuiltSuperblock { lebs: rebuilt.lebs },
        None => What::OtherLebSize { leb_bytes },
    };
    match Ubifs::open(Arc::new(rescued), options) {
        Ok(ubifs) => Ok(Opened {
            ubifs,
            findings: vec![Finding::new(None, what)],
        }),
        Err(_) => Err(error),
    }
}

/// Parts of the journal that the log leads to and that are not in the dump, if the dump may have lost blocks.
///
/// A writer maps the LEB of a bud before the log refers to it. Without a lost block an unmapped one is what the recovery
/// after a power cut leaves, which a second power cut interrupted: nothing was in it.
fn lost_journal(volume: &DumpVolume, ubifs: &Ubifs) -> Vec<Finding> {
    let report = ubifs.replay_report();
    if volume.is_whole() || report.was_clean {
        return Vec::new();
    }
    let buds = report.buds.iter().map(|bud| Leb(bud.leb));
    let buds = buds
        .filter(|leb| !volume.has(*leb))
        .map(|leb| What::LostBud { leb });
    // Log LEBs are written one after the other.
    let end = report.log.last().filter(|last| last.verdict == LogVerdict::Empty);
    let log = end.map(|end| Leb(end.leb)).filter(|leb| !volume.has(*leb));
    let log = log.filter(|_| has_newer_log(volume, ubifs));
    let all = buds.chain(log.map(|leb| What::LostLog { leb }));
    all.map(|what| Finding::new(None, what)).collect()
}

/// Whether a LEB behind the end of the log has nodes that are newer than its beginning.
fn has_newer_log(volume: &DumpVolume, ubifs: &Ubifs) -> bool {
    let report = ubifs.replay_report();
    let nodes = report.log.first().and_then(|log| log.nodes.first());
    let Some(started) = nodes.map(|node| node.sequence) else {
        return false;
    };
    let read = |leb: &u32| report.log.iter().any(|log| log.leb == *leb);
    let log_lebs = ubifs.superblock().log_lebs.min(volume.geometry().lebs);
    (LOG_LEB..LOG_LEB + log_lebs).filter(|leb| !read(leb)).any(|leb| {
        let mut raw = [0xFF; 64];
        volume.read(Leb(leb), 0, &mut raw).is_ok()
            && check(&raw).is_ok_and(|header| header.sequence > started)
    })
}

/// A file system read by all nodes that a scan finds.
pub struct Salvaged {
    /// Its files, guesses and losses.
    pub salvage: Salvage,
    /// Decisions that it took to scan it.
    pub findings: Vec<Finding>,
}

/// Salvages a file system. Only the size of its LEBs must be right: a superblock that names another one is believed.
#[must_use]
pub fn salvage_ubifs(volume: Arc<dyn Volume>, lists_deleted: bool) -> Salvaged {
    let mut raw = vec![0xFF; Superblock::BYTES];
    let read = volume.read(Leb(0), 0, &mut raw);
    let stored = read
        .ok()
        .and_then(|()| superblock(&raw))
        .map(|superblock| superblock.leb_bytes);
    let other = stored.filter(|stored| *stored != volume.geometry().leb_bytes);
    let rescued = other.and_then(|leb_bytes| {
        let (rescued, _) = RescuedVolume::new(Arc::clone(&volume), leb_bytes)?;
        Some((rescued, What::OtherLebSize { leb_bytes }))
    });
    let (volume, findings): (Arc<dyn Volume>, _) = match rescued {
        Some((rescued, what)) => (Arc::new(rescued), vec![Finding::new(None, what)]),
        None => (volume, Vec::new()),
    };
    let options = SalvageOptions {
        lists_deleted,
        ..SalvageOptions::standard(&*volume)
    };
    Salvaged {
        salvage: Salvage::scan(volume, options),
        findings,
    }
}
