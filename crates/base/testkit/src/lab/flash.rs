//! A file of the host that is a NAND chip in the guest, by way of our kernel module (`lab/module`): QEMU maps the file
//! as the memory of a PCI device, so each store of the guest is in the host's page cache at once and stays when QEMU is
//! killed. That is a power cut for the kernel's UBI and UBIFS.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{LabError, file_error};

/// A chip's bytes, page after page, without OOB.
///
/// The memory of a PCI device is a power of two: the file is longer while a guest has it, and cut to its size again
/// when the guest has ended.
#[derive(Clone, Debug)]
pub struct FlashFile {
    path: PathBuf,
    bytes: u64,
}

impl FlashFile {
    /// An erased chip of `bytes` at `path`; a file that is there is replaced.
    pub fn erased(path: &Path, bytes: u64) -> Result<Self, LabError> {
        File::create(path)
            .and_then(|file| erase(file, bytes))
            .map_err(file_error(path))?;
        Self::existing(path)
    }

    /// Puts another image onto the chip, and erases what is behind it. A running guest has it at once, so this is for
    /// between two jobs, when the module is not loaded.
    ///
    /// # Panics
    ///
    /// When the image is larger than the chip.
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

    /// Where it is.
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
    pub(super) fn window_bytes(&self) -> u64 {
        self.bytes.next_power_of_two().max(4096)
    }

    /// For a list in a text file.
    pub(super) fn to_line(&self) -> String {
        format!("{} {}\n", self.bytes, self.path.display())
    }

    pub(super) fn from_line(line: &str) -> Option<Self> {
        let (bytes, path) = line.split_once(' ')?;
        Some(Self {
            path: PathBuf::from(path),
            bytes: bytes.parse().ok()?,
        })
    }

    pub(super) fn resize(&self, bytes: u64) -> Result<(), LabError> {
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
