//! File system for the demo: a new ext4 on a loop device, or the given directory as it is.

use std::fs;
use std::path::{Path, PathBuf};

use programs::loop_disk::{EXT4, FileSystem, LoopDisk, WorkFolder};
use programs::output::with_causes;
use results::shown;

use crate::DemoError;

/// Preferred size of the file system.
const IMAGE_BYTES: u64 = 3 << 30;

/// Space to keep free in the directory in addition to the image.
const HEADROOM_BYTES: u64 = 256 << 20;

/// A file system to measure on. Everything created for it is removed on drop.
pub struct TestFileSystem {
    // Drop order: the file system is unmounted before its directory is removed.
    disk: Option<LoopDisk>,
    folder: WorkFolder,
    notes: Vec<String>,
}

impl TestFileSystem {
    /// Makes the test file system in `directory`, for files of `size_bytes`.
    pub fn make(directory: &Path, size_bytes: u64) -> Result<Self, DemoError> {
        fs::create_dir_all(directory).map_err(failed(directory, "made"))?;
        let directory = directory.canonicalize().map_err(failed(directory, "used"))?;
        let folder =
            WorkFolder::make(&directory, "demo").map_err(|error| DemoError::Disk(with_causes(&error)))?;
        let mut notes = Vec::new();
        let disk = if rustix::process::geteuid().is_root() {
            ext4(&folder.path, size_bytes)
                .map_err(|error| {
                    notes.push(format!(
                        "measuring in the folder itself, without a separate ext4: {}",
                        shown::with_causes(&error)
                    ))
                })
                .ok()
        } else {
            notes.push("measuring in the folder itself: a separate ext4 needs root".to_owned());
            None
        };
        let test = Self { disk, folder, notes };
        fs::create_dir(test.data()).map_err(failed(&test.data(), "made"))?;
        Ok(test)
    }

    /// Notes for the user about the measured file system.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The directory to measure in.
    pub fn data(&self) -> PathBuf {
        self.disk
            .as_ref()
            .map_or(&self.folder.path, |disk| &disk.mountpoint)
            .join("data")
    }

    /// Creates a mount point outside the measured file system.
    pub fn mountpoint(&self, label: &str) -> Result<PathBuf, DemoError> {
        let path = self.folder.path.join(label);
        fs::create_dir(&path).map_err(failed(&path, "made"))?;
        Ok(path)
    }
}

/// An ext4 file system with spare room for files of this size.
fn ext4(folder: &Path, size_bytes: u64) -> Result<LoopDisk, DemoError> {
    let space = rustix::fs::statvfs(folder).map_err(|error| DemoError::Space(error.into()))?;
    let free = space
        .f_bavail
        .saturating_mul(space.f_frsize)
        .saturating_sub(HEADROOM_BYTES);
    let image_bytes = IMAGE_BYTES.max(size_bytes.saturating_mul(2)).min(free) / 4096 * 4096;
    // Reserve an eighth for the journal, inode tables and reserved blocks.
    if image_bytes
        < size_bytes
            .saturating_add(size_bytes / 8)
            .saturating_add(128 << 20)
    {
        return Err(DemoError::TooSmall {
            free_bytes: free,
            size_bytes,
        });
    }
    // Discards return the space of removed files to the sparse image.
    let discarding = FileSystem {
        mount_options: "discard",
        ..EXT4
    };
    LoopDisk::make(discarding, folder, image_bytes).map_err(|error| DemoError::Disk(with_causes(&error)))
}

/// Adapter for `map_err` about a folder.
pub fn failed(path: &Path, verb: &'static str) -> impl FnOnce(std::io::Error) -> DemoError {
    let path = path.to_owned();
    move |source| DemoError::Folder { path, verb, source }
}
