//! Where the demo measures: an ext4 made for it on a loop device, or the folder given as it is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::loop_disk::{EXT4, FileSystem, LoopDisk, WorkFolder};
use crate::quantity::show_bytes;

/// Wanted size of the file system.
const IMAGE_BYTES: u64 = 3 << 30;

/// What the folder must keep free beside the image.
const HEADROOM_BYTES: u64 = 256 << 20;

/// A file system to measure on. Its drop removes everything that was made.
pub struct Bed {
    // Order of drop: the file system goes before the folder that it is mounted in.
    disk: Option<LoopDisk>,
    folder: WorkFolder,
    notes: Vec<String>,
}

impl Bed {
    /// Makes the bed in `directory`, for files of `size_bytes`.
    pub fn make(directory: &Path, size_bytes: u64) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("{} can't be made", directory.display()))?;
        let directory = directory
            .canonicalize()
            .with_context(|| format!("{} can't be used", directory.display()))?;
        let folder = WorkFolder::make(&directory, "demo")?;
        let mut notes = Vec::new();
        let disk = if rustix::process::geteuid().is_root() {
            ext4(&folder.path, size_bytes)
                .map_err(|error| {
                    notes.push(format!(
                        "measuring in the folder itself, no ext4 of its own: {}",
                        crate::output::with_causes(&error)
                    ))
                })
                .ok()
        } else {
            notes.push("measuring in the folder itself: an ext4 of its own needs root".to_owned());
            None
        };
        let bed = Self { disk, folder, notes };
        fs::create_dir(bed.data()).with_context(|| format!("{} can't be made", bed.data().display()))?;
        Ok(bed)
    }

    /// What the user should know about where is measured.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The folder on the file system that is measured.
    pub fn data(&self) -> PathBuf {
        self.disk
            .as_ref()
            .map_or(&self.folder.path, |disk| &disk.mountpoint)
            .join("data")
    }

    /// A folder for a mount, outside the file system that is measured.
    pub fn mountpoint(&self, label: &str) -> Result<PathBuf> {
        let path = self.folder.path.join(label);
        fs::create_dir(&path).with_context(|| format!("{} can't be made", path.display()))?;
        Ok(path)
    }
}

/// An ext4 for files of this size, with room to spare.
fn ext4(folder: &Path, size_bytes: u64) -> Result<LoopDisk> {
    let space = rustix::fs::statvfs(folder).context("free space can't be found")?;
    let free = space
        .f_bavail
        .saturating_mul(space.f_frsize)
        .saturating_sub(HEADROOM_BYTES);
    let image_bytes = IMAGE_BYTES.max(size_bytes.saturating_mul(2)).min(free) / 4096 * 4096;
    // An eighth for the journal, inode tables and reserved blocks.
    if image_bytes
        < size_bytes
            .saturating_add(size_bytes / 8)
            .saturating_add(128 << 20)
    {
        bail!(
            "{} free are too few for files of {}",
            show_bytes(free),
            show_bytes(size_bytes)
        );
    }
    // Discards give the space of removed files back to the sparse image.
    let discarding = FileSystem {
        mount_options: "discard",
        ..EXT4
    };
    LoopDisk::make(discarding, folder, image_bytes)
}
