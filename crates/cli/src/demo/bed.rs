//! Where the demo measures: an ext4 made for it on a loop device, or the folder given as it is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;

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
        let folder = WorkFolder::make(&directory)?;
        let mut notes = Vec::new();
        let disk = if rustix::process::geteuid().is_root() {
            LoopDisk::make(&folder.path, size_bytes)
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

/// A folder of the demo's own, named after the process.
struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    fn make(directory: &Path) -> Result<Self> {
        let path = directory.join(format!("demo-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("{} can't be made", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Never across a mount that could not be taken away: that would remove what is not the demo's.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if !table.contains(&format!(" {}/", self.path.display())) {
            // What can't be removed here is the user's to see; there is nothing else to do about it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A sparse image with an ext4, mounted through a loop device.
struct LoopDisk {
    image: PathBuf,
    mountpoint: PathBuf,
}

impl LoopDisk {
    fn make(folder: &Path, size_bytes: u64) -> Result<Self> {
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
        let image = folder.join("ext4.img");
        File::create_new(&image)
            .and_then(|file| file.set_len(image_bytes))
            .with_context(|| format!("{} can't be made", image.display()))?;
        let mountpoint = folder.join("ext4");
        fs::create_dir(&mountpoint).with_context(|| format!("{} can't be made", mountpoint.display()))?;
        // From here on a failure must take the image along.
        let disk = Self { image, mountpoint };
        // Without lazy initialisation no kernel thread writes while is measured.
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            .arg(&disk.image))?;
        // Discards give the space of removed files back to the sparse image.
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", "loop,discard"])
            .arg(&disk.image)
            .arg(&disk.mountpoint))?;
        Ok(disk)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // The loop device was made by mount(8) and goes with the mount. Busy by an accident: it goes when free.
        if rustix::mount::unmount(&self.mountpoint, UnmountFlags::NOFOLLOW).is_err() {
            let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        }
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Debian keeps it out of the path of ordinary shells.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{name} can't be run"))?;
    if !output.status.success() {
        bail!(
            "{name} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(())
}
