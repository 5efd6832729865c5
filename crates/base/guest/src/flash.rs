//! A file of the host that is a NAND chip in the guest, by way of our kernel module (`lab/module`): QEMU maps the file
//! as the memory of a PCI device, so each store of the guest is in the host's page cache at once and stays when QEMU is
//! killed. To the kernel's UBI and UBIFS that is a power cut.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::{LabError, file_error, fresh};

/// A chip's bytes, page after page, without OOB.
///
/// The memory of a PCI device is a power of two: the file is longer while a guest uses it, and truncated to its size
/// again when the guest has ended.
#[derive(Clone, Debug)]
pub struct FlashFile {
    path: PathBuf,
    bytes: u64,
}

impl FlashFile {
    /// An erased chip of `bytes` at `path`; an existing file is replaced.
    pub fn erased(path: &Path, bytes: u64) -> Result<Self, LabError> {
        fresh(path)
            .and_then(|file| erase(file, bytes))
            .map_err(file_error(path))?;
        Self::existing(path)
    }

    /// Copies another image onto the chip, and erases the rest. A running guest sees it at once, so call this between
    /// two jobs, when the module is not loaded.
    ///
    /// # Panics
    ///
    /// If the image is larger than the chip.
    pub fn load(&self, image: &[u8]) -> Result<(), LabError> {
        let rest = u64::try_from(image.len())
            .ok()
            .and_then(|length| self.bytes.checked_sub(length));
        let rest = rest.expect("the image is larger than the chip");
        OpenOptions::new()
            .write(true)
            .open(&self.path)
            .and_then(|mut file| {
                file.write_all(image)?;
                erase(file, rest)
            })
            .map_err(file_error(&self.path))
    }

    /// A raw image at `path`, which the guest changes in place.
    pub fn existing(path: &Path) -> Result<Self, LabError> {
        let path = fs::canonicalize(path).map_err(file_error(path))?;
        let bytes = fs::metadata(&path).map_err(file_error(&path))?.len();
        Ok(Self { path, bytes })
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The chip's size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of the PCI device's memory.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.bytes.next_power_of_two().max(4096)
    }

    /// Formats it for a list in a text file.
    pub(crate) fn to_line(&self) -> String {
        format!("{} {}\n", self.bytes, self.path.display())
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (bytes, path) = line.split_once(' ')?;
        Some(Self {
            path: PathBuf::from(path),
            bytes: bytes.parse().ok()?,
        })
    }

    pub(crate) fn resize(&self, bytes: u64) -> Result<(), LabError> {
        OpenOptions::new()
            .write(true)
            .open(&self.path)
            .and_then(|file| file.set_len(bytes))
            .map_err(file_error(&self.path))
    }
}

/// Writes `bytes` of 0xFF.
fn erase(mut file: File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0xFF).take(bytes), &mut file).map(drop)
}
