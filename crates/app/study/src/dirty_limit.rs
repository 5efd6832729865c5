//! The dirty limit of a file system that does not count its dirty pages as its device's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::sysfs;

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
        let source = from.join(setting);
        let value = fs::read_to_string(&source).with_context(|| {
            format!(
                "{} can't be read: the limit of dirty pages needs Linux 6.2",
                source.display()
            )
        })?;
        let value = value.trim_end();
        let path = to.join(setting);
        sysfs::set(&path, value)
            .map_err(|error| anyhow!("{}: `{value}` can't be set ({error})", path.display()))?;
    }
    Ok(())
}
