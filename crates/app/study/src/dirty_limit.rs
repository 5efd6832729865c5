//! The dirty limit of a file system that does not count its dirty pages as its device's.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

/// File systems of BTRFS, by their UUIDs.
const BTRFS: &str = "/sys/fs/btrfs";

/// Settings of dirty pages, in the order in which they are set.
const SETTINGS: [&str; 2] = ["max_ratio_fine", "strict_limit"];

/// Gives a mounted file system the dirty limit of its device. BTRFS alone needs that: it may have several devices, so it counts
/// dirty pages by itself, and the limits of its devices hold for none of them.
///
/// # Errors
/// If the kernel has no such settings, or refuses.
pub fn extend_to(file_system: &str, device: &Path) -> Result<()> {
    if file_system != "btrfs" {
        return Ok(());
    }
    let name = device.file_name().unwrap_or_default();
    let of_device = Path::new("/sys/class/block").join(name).join("bdi");
    let found = fs::read_dir(BTRFS)
        .with_context(|| format!("{BTRFS} can't be read"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|folder| folder.join("devices").join(name).exists());
    let own = found.with_context(|| format!("{BTRFS}: no file system there has {}", device.display()))?;
    copy(&of_device, &own.join("bdi"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for setting in SETTINGS {
        let read = |path: PathBuf| {
            fs::read_to_string(&path).with_context(|| {
                format!(
                    "{} can't be read: the limit of dirty pages needs Linux 6.2",
                    path.display()
                )
            })
        };
        let value = read(from.join(setting))?;
        let path = to.join(setting);
        // A file of the kernel: there is no link that another user could have planted.
        let written = OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(value.trim_end().as_bytes()));
        written.map_err(|error| {
            anyhow!(
                "{}: `{}` can't be set ({error})",
                path.display(),
                value.trim_end()
            )
        })?;
    }
    Ok(())
}
