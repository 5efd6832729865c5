//! A bare image of a UBIFS volume in a file, LEB after LEB, as made by `mkfs.ubifs` or `tidegate ubi dump`.
//! Read-only.
//!
//! It can also be one of the kernel's volumes, `/dev/ubiX_Y`.
//!
//! The geometry comes from the superblock. The file may be shorter than the volume; missing LEBs read as erased. The
//! number of LEBs is limited to about 16 times those in the file.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use media::Leb;
use ubi::{Volume, VolumeError, VolumeGeometry};

use crate::format::{NodeKind, Superblock, check_expected};

/// A readable volume in a file.
#[derive(Debug)]
pub struct ImageVolume {
    name: Arc<str>,
    file: File,
    geometry: VolumeGeometry,
}

impl ImageVolume {
    /// Opens an image. Returns `None` if it does not start with a UBIFS superblock.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let mut raw = vec![0; Superblock::BYTES];
        match file.read_exact_at(&mut raw, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        if check_expected(&raw, NodeKind::Superblock, 4096).is_err() {
            return Ok(None);
        }
        let Ok(superblock) = Superblock::decode(&raw) else {
            return Ok(None);
        };
        // A forged superblock may claim any size: memory use is bounded by the size of the file.
        let (file_bytes, leb_bytes) = ((&file).seek(SeekFrom::End(0))?, u64::from(superblock.leb_bytes));
        if leb_bytes > file_bytes || leb_bytes == 0 {
            return Ok(None);
        }
        let lebs_max = u32::try_from(file_bytes / leb_bytes * 16 + 1024).unwrap_or(u32::MAX);
        let geometry = VolumeGeometry {
            leb_bytes: superblock.leb_bytes,
            lebs: superblock.lebs.min(lebs_max),
            min_io_bytes: superblock.min_io_bytes,
            max_write_bytes: superblock.min_io_bytes,
        };
        Ok(Some(Self {
            name: path.display().to_string().into(),
            file,
            geometry,
        }))
    }

    /// Opens an image of LEBs of this size, whatever it starts with.
    pub fn open_as(path: &Path, leb_bytes: u32) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let lebs = file.seek(SeekFrom::End(0))?.div_ceil(u64::from(leb_bytes.max(1)));
        Ok(Self {
            name: path.display().to_string().into(),
            file,
            geometry: VolumeGeometry {
                leb_bytes,
                lebs: u32::try_from(lebs).unwrap_or(u32::MAX),
                min_io_bytes: 8,
                max_write_bytes: 8,
            },
        })
    }

    fn unusable(&self) -> VolumeError {
        VolumeError::Unusable {
            volume: Arc::clone(&self.name),
            why: "an image file is read-only",
        }
    }
}

impl Volume for ImageVolume {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name, leb, offset, out.len())?;
        let mut at = u64::from(leb.0) * u64::from(self.geometry.leb_bytes) + u64::from(offset);
        let mut rest = out;
        while !rest.is_empty() {
            match self.file.read_at(rest, at) {
                Ok(0) => {
                    rest.fill(0xFF);
                    return Ok(());
                }
                Ok(bytes) => {
                    rest = &mut rest[bytes..];
                    at = at.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    return Err(VolumeError::Unusable {
                        volume: Arc::clone(&self.name),
                        why: "the file can't be read",
                    });
                }
            }
        }
        Ok(())
    }

    fn write(&self, _: Leb, _: u32, _: &[u8]) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn leb_change(&self, _: Leb, _: &[u8]) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn map(&self, _: Leb) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn unmap(&self, _: Leb) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        let mut raw = vec![0; crate::scan::to_usize(self.geometry.leb_bytes)];
        self.read(leb, 0, &mut raw)?;
        Ok(!crate::scan::is_erased(&raw))
    }

    fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn freeze(&self, _: &str) {}

    fn frozen(&self) -> Option<Arc<str>> {
        Some("an image file is read-only".into())
    }
}
