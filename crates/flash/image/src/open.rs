//! Opens the UBIFS of a volume, also one with a damaged superblock or with LEBs of another size, or salvages it.

use std::sync::Arc;

use media::Leb;
use ubi::Volume;
use ubifs::format::Superblock;
use ubifs::salvage::{Salvage, SalvageOptions};
use ubifs::{OpenError, OpenOptions, RescuedVolume, Ubifs};

use crate::finding::{Finding, What};
use crate::scan::superblock;

/// An open file system.
pub struct Opened {
    /// The file system.
    pub ubifs: Ubifs,
    /// Decisions that it took to open it.
    pub findings: Vec<Finding>,
}

/// Opens a file system. A superblock that names another LEB size is believed, because the content is one stream of bytes
/// then; a damaged one is rebuilt from the other areas. The error is that of the volume as it is.
pub fn open_ubifs(volume: Arc<dyn Volume>, options: OpenOptions) -> Result<Opened, OpenError> {
    let error = match Ubifs::open(Arc::clone(&volume), options) {
        Ok(ubifs) => {
            return Ok(Opened {
                ubifs,
                findings: Vec::new(),
            });
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
