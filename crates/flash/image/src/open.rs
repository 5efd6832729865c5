//! Opens the UBIFS of a volume, also one with a damaged superblock or with LEBs of another size.

use std::sync::Arc;

use ubi::Volume;
use ubifs::{OpenError, OpenOptions, RescuedVolume, Ubifs};

use crate::finding::{Finding, What};

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
