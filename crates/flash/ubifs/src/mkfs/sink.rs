//! Destinations for the LEBs of a new file system.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

use media::Leb;
use ubi::Volume;

use crate::scan::to_usize;

/// Receives LEBs.
pub trait LebSink {
    /// Writes a LEB from its start; the rest of it stays erased. Each LEB is written at most once.
    fn put(&mut self, leb: u32, bytes: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// An image file, LEB after LEB. [`FileSink::finish`] fills the LEBs that were not written.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    leb_bytes: u32,
    written: Vec<bool>,
}

impl FileSink {
    /// Writes to an empty file.
    #[must_use]
    pub const fn new(file: File, leb_bytes: u32) -> Self {
        Self {
            file,
            leb_bytes,
            written: Vec::new(),
        }
    }

    /// Fills unwritten LEBs among the first `lebs` with 0xFF, and returns the file.
    pub fn finish(mut self, lebs: u32) -> Result<File, Box<dyn Error + Send + Sync>> {
        for leb in 0..lebs {
            if !self.written.get(to_usize(leb)).is_some_and(|written| *written) {
                self.put(leb, &[])?;
            }
        }
        Ok(self.file)
    }
}

impl LebSink for FileSink {
    fn put(&mut self, leb: u32, bytes: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut whole = bytes.to_vec();
        whole.resize(to_usize(self.leb_bytes), 0xFF);
        let at = u64::from(leb) * u64::from(self.leb_bytes);
        self.file.write_all_at(&whole, at)?;
        let index = to_usize(leb);
        if self.written.len() <= index {
            self.written.resize(index + 1, false);
        }
        self.written[index] = true;
        Ok(())
    }
}

/// A volume, whose former content is dropped.
pub struct VolumeSink<'a> {
    volume: &'a dyn Volume,
}

impl<'a> VolumeSink<'a> {
    /// Unmaps the whole volume, and flushes so that no old content reappears.
    pub fn new(volume: &'a dyn Volume) -> Result<Self, ubi::VolumeError> {
        for leb in 0..volume.geometry().lebs {
            volume.unmap(Leb(leb))?;
        }
        volume.flush()?;
        Ok(Self { volume })
    }

    /// Syncs the volume.
    pub fn finish(self) -> Result<(), ubi::VolumeError> {
        self.volume.sync()
    }
}

impl LebSink for VolumeSink<'_> {
    fn put(&mut self, leb: u32, bytes: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.volume.write(Leb(leb), 0, bytes)?)
    }
}
