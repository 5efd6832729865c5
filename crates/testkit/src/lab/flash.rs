//! A file of the host that is a NAND chip in the guest, by way of our kernel module (`lab/module`): QEMU maps the file
//! as the memory of a PCI device, so each store of the guest is in the host's page cache at once and stays when QEMU is
//! killed. That is a power cut for the kernel's UBI and UBIFS.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
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
        let fill = || -> io::Result<()> {
            let mut file = File::create(path)?;
            let chunk = vec![0xFF; 1 << 20];
            let mut left = bytes;
            while left > 0 {
                let part = usize::try_from(left).map_or(chunk.len(), |left| left.min(chunk.len()));
                file.write_all(&chunk[..part])?;
                left -= u64::try_from(part).expect("a usize fits u64");
            }
            Ok(())
        };
        fill().map_err(file_error(path))?;
        Self::existing(path)
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
