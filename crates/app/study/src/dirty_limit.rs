//! Limits of dirty pages in the page cache, Linux 6.2 and later: of the device of an image (that of a card is `emmc attach`'s), and of a file system
//! that does not count its dirty pages as its device's.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};

use crate::sysfs;

/// File systems of BTRFS, by their UUIDs.
const BTRFS: &str = "/sys/fs/btrfs";

/// Share of the machine's limit, millionths.
const RATIO: &str = "max_ratio_fine";
/// 1 if the limit holds even while the machine has few dirty pages, or 0.
const STRICT: &str = "strict_limit";

/// Least limit, as of `emmc attach`: below it writers wait for each page.
const BYTES_MIN: u64 = 1 << 20;

/// Why this machine's kernel can't limit the dirty pages of a device to `bytes`.
pub fn missing(bytes: u64) -> Option<String> {
    if bytes < BYTES_MIN {
        return Some(format!(
            "environment.dirty-limit: {bytes} bytes, expected at least 1 MiB"
        ));
    }
    let mut devices = fs::read_dir("/sys/class/bdi").into_iter().flatten().flatten();
    let is_known = devices.any(|device| device.path().join(STRICT).exists());
    (!is_known).then(|| "environment.dirty-limit: it needs Linux 6.2; leave it out".to_owned())
}

/// Limits the dirty pages of a device to `bytes`, strictly.
///
/// # Errors
/// If the kernel has no such limit, or `bytes` is above that of the machine.
pub fn set(device: &Path, bytes: u64) -> Result<()> {
    let settings = settings_of(device);
    let path = settings.join("max_bytes");
    let most = fs::read_to_string(&path).unwrap_or_default();
    put(&path, &bytes.to_string()).with_context(|| format!("expected at most {}", most.trim()))?;
    put(&settings.join(STRICT), "1")
}

/// Gives a loop device with a limit that which a new one has: its number is another image's next.
pub fn lift(device: &Path) {
    let settings = settings_of(device);
    let is_strict = fs::read_to_string(settings.join(STRICT)).is_ok_and(|value| value.trim() == "1");
    if !is_strict {
        return;
    }
    for (setting, value) in [(STRICT, "0"), (RATIO, "1000000")] {
        // The next study looks again.
        let _ = sysfs::set(&settings.join(setting), value);
    }
}

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
    let found = fs::read_dir(BTRFS)
        .with_context(|| format!("{BTRFS} can't be read"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|folder| folder.join("devices").join(name).exists());
    let own = found.with_context(|| format!("{BTRFS}: no file system there has {}", device.display()))?;
    for setting in [RATIO, STRICT] {
        let path = settings_of(device).join(setting);
        let value = fs::read_to_string(&path).map_err(|error| problem(&path, "can't be read", &error))?;
        put(&own.join("bdi").join(setting), value.trim_end())?;
    }
    Ok(())
}

/// The kernel's settings of the dirty pages of a device.
fn settings_of(device: &Path) -> PathBuf {
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/class/block").join(name).join("bdi")
}

fn put(path: &Path, value: &str) -> Result<()> {
    sysfs::set(path, value).map_err(|error| problem(path, &format!("`{value}` can't be set"), &error))
}

fn problem(path: &Path, what: &str, error: &std::io::Error) -> Error {
    let reason = match error.kind() {
        ErrorKind::NotFound => "it needs Linux 6.2; leave out dirty-limit".to_owned(),
        _ => error.to_string(),
    };
    anyhow!("the limit of dirty pages: {}: {what} ({reason})", path.display())
}
