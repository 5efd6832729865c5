//! Resolves a device or mountpoint named by the user to whole disks, and collects the system's information about them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use results::block_trace::{DeviceNumber, TracedDevice};

use super::error::CaptureError;

/// A device or mountpoint named by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A block device (a partition stands for its disk).
    Device(PathBuf),
    /// A folder, which stands for the device of its file system.
    Mountpoint(PathBuf),
}

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub device: DeviceNumber,
    /// Path of the mounted folder in its file system: `/` unless it is a bind mount or a subvolume.
    pub root: String,
    pub mountpoint: PathBuf,
    pub file_system: String,
    pub source: String,
}

/// The whole disk below a folder's file system; `None` if there is no block device, or it cannot be determined.
#[must_use]
pub fn disk_under(folder: &Path) -> Option<DeviceNumber> {
    let target = Target::Mountpoint(folder.to_owned());
    resolve(&target).ok().map(|disk| disk.device)
}

/// The whole disk behind a target.
pub(crate) fn resolve(target: &Target) -> Result<TracedDevice, CaptureError> {
    match target {
        Target::Device(path) => {
            let metadata = fs::metadata(path).map_err(|error| wrong(path, &error.to_string()))?;
            if !metadata.file_type().is_block_device() {
                let hint = "no block device; name one as in /dev/sda, or a folder with -m";
                return Err(wrong(path, hint));
            }
            whole_disk(path, number(metadata.rdev()))
        }
        Target::Mountpoint(path) => {
            let metadata = fs::metadata(path).map_err(|error| wrong(path, &error.to_string()))?;
            let device = number(metadata.dev());
            if device.major != 0 {
                return whole_disk(path, device);
            }
            // btrfs and similar file systems have device numbers of no block device: use the mount's source.
            let mounts = mounts();
            let mount = mount_of(path, &mounts);
            let source = mount.map(|mount| PathBuf::from(&mount.source));
            match source.filter(|source| fs::metadata(source).is_ok_and(|m| m.file_type().is_block_device()))
            {
                Some(source) => resolve(&Target::Device(source)),
                None => {
                    let kind = mount.map_or("an unknown file system", |mount| mount.file_system.as_str());
                    Err(wrong(
                        path,
                        &format!("{kind} is on no block device; name a device with -d"),
                    ))
                }
            }
        }
    }
}

fn wrong(what: &Path, reason: &str) -> CaptureError {
    CaptureError::Target {
        what: what.to_owned(),
        reason: reason.to_owned(),
    }
}

pub(crate) fn number(device: u64) -> DeviceNumber {
    DeviceNumber {
        major: rustix::fs::major(device),
        minor: rustix::fs::minor(device),
    }
}

fn whole_disk(what: &Path, device: DeviceNumber) -> Result<TracedDevice, CaptureError> {
    let link = PathBuf::from(format!("/sys/dev/block/{device}"));
    let mut folder = fs::canonicalize(&link)
        .map_err(|error| wrong(what, &format!("the system has no device {device}: {error}")))?;
    if folder.join("partition").exists() {
        folder.pop();
    }
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let disk = read("dev")
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(device);
    let name = folder
        .file_name()
        .map_or_else(|| device.to_string(), |name| name.to_string_lossy().into_owned());
    let scheduler = read("queue/scheduler").and_then(|text| {
        let chosen = text.split(['[', ']']).nth(1);
        chosen.map(str::to_owned)
    });
    let mut traced = TracedDevice {
        device: disk,
        name,
        sectors: read("size").and_then(|text| text.trim().parse().ok()),
        file_system: None,
        scheduler,
    };
    traced.file_system = file_system_on(&traced);
    Ok(traced)
}

/// The driver below a disk, as far as its commands can be traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// Number of the mmc host of a card's disk: `.../mmc_host/mmc0/mmc0:0001/block/mmcblk0`.
    pub mmc_host: Option<u32>,
    /// Whether its commands go through the SCSI layer, as those of UFS do.
    pub is_scsi: bool,
    /// Number of the host's interrupt.
    pub interrupt: Option<u32>,
}

/// The driver of this disk; only drivers of cards and SCSI disks are known.
pub(crate) fn driver_of(disk: DeviceNumber) -> Driver {
    let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{disk}")) else {
        return Driver::default();
    };
    let (mmc_host, is_scsi) = (mmc_host_in(&folder), folder.join("device/scsi_level").exists());
    if mmc_host.is_none() && !is_scsi {
        return Driver::default();
    }
    let mut names = names_above(&folder);
    // A SCSI host's interrupt has the name of its driver: `ufshcd`.
    let hosts = names.iter().filter(|name| name.starts_with("host"));
    let drivers =
        hosts.filter_map(|host| fs::read_to_string(format!("/sys/class/scsi_host/{host}/proc_name")).ok());
    let drivers: Vec<String> = drivers.map(|name| name.trim().to_owned()).collect();
    names.extend(drivers);
    let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    Driver {
        mmc_host,
        is_scsi,
        interrupt: interrupt_of(&names, &table),
    }
}

/// Names between a disk and the processor: its host (`mmc0`), the host's controller.
fn names_above(folder: &Path) -> Vec<String> {
    folder
        .components()
        .map(|name| name.as_os_str().to_string_lossy().into_owned())
        .filter(|name| name.bytes().any(|byte| byte.is_ascii_alphabetic()))
        .collect()
}

/// The first interrupt with one of these names.
fn interrupt_of(names: &[String], table: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let mut words = rest.split([' ', '\t', ',']);
        let is_ours = words.any(|word| names.iter().any(|name| name == word));
        number.trim().parse().ok().filter(|_| is_ours)
    })
}

fn mmc_host_in(folder: &Path) -> Option<u32> {
    let mut names = folder.components().map(|name| name.as_os_str().to_string_lossy());
    names.find(|name| name == "mmc_host")?;
    names.next()?.strip_prefix("mmc")?.parse().ok()
}

/// Type and mountpoint of the first file system on the disk or one of its partitions.
pub(crate) fn file_system_on(disk: &TracedDevice) -> Option<(String, String)> {
    mounts_on(disk)
        .into_iter()
        .next()
        .map(|mount| (mount.file_system, mount.mountpoint.to_string_lossy().into_owned()))
}

/// Mounts of file systems on the disk or its partitions.
pub(crate) fn mounts_on(disk: &TracedDevice) -> Vec<Mount> {
    let is_on = |mount: &Mount| {
        let device = if mount.device.major == 0 {
            match fs::metadata(&mount.source) {
                Ok(metadata) if metadata.file_type().is_block_device() => number(metadata.rdev()),
                _ => return false,
            }
        } else {
            mount.device
        };
        disk_of(device) == Some(disk.device)
    };
    mounts().into_iter().filter(is_on).collect()
}

fn disk_of(device: DeviceNumber) -> Option<DeviceNumber> {
    let mut folder = fs::canonicalize(format!("/sys/dev/block/{device}")).ok()?;
    if folder.join("partition").exists() {
        folder.pop();
    }
    fs::read_to_string(folder.join("dev")).ok()?.trim().parse().ok()
}

fn mount_of<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    let path = fs::canonicalize(path).ok()?;
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mountpoint))
        .max_by_key(|mount| mount.mountpoint.as_os_str().len())
}

/// The mount table of this process.
pub(crate) fn mounts() -> Vec<Mount> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(parse_mount).collect()
}

/// Parses `36 35 8:1 / /mnt rw shared:1 - ext4 /dev/sda1 rw`: the number of fields before ` - ` varies.
fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let device = before.nth(2)?.parse().ok()?;
    let root = unescape(before.next()?);
    let mountpoint = PathBuf::from(unescape(before.next()?));
    let mut after = after.split(' ');
    Some(Mount {
        device,
        root,
        mountpoint,
        file_system: after.next()?.to_owned(),
        source: unescape(after.next()?),
    })
}

/// Decodes space, tab, line feed and backslash, which the kernel writes as three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                whole.push(char::from(code));
                whole.push_str(&part[3..]);
            }
            None => {
                whole.push('\\');
                whole.push_str(part);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_with_a_space_in_its_name_is_read() {
        let mount = parse_mount("36 35 8:1 / /mnt/a\\040b rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw");
        let mount = mount.unwrap();
        assert_eq!(mount.mountpoint, PathBuf::from("/mnt/a b"));
        assert_eq!(mount.device, DeviceNumber { major: 8, minor: 1 });
        assert_eq!(mount.file_system, "ext4");
        assert_eq!(mount.source, "/dev/sda1");
    }

    #[test]
    fn a_cards_host_is_told_by_its_place() {
        let card = "/sys/devices/pci0000:00/0000:00:04.0/mmc_host/mmc1/mmc1:4567/block/mmcblk0";
        assert_eq!(mmc_host_in(Path::new(card)), Some(1));
        assert_eq!(mmc_host_in(Path::new("/sys/devices/virtual/block/loop0")), None);
    }

    #[test]
    fn the_interrupt_of_a_cards_host_is_found_by_its_name() {
        let table = "           CPU0       CPU1\n\
                     \x20 4:          0          7  IO-APIC   4-edge      ttyS0\n\
                     \x2024:         10          0  PCI-MSI 65536-edge      mmc10\n\
                     \x2025:         10          0  PCI-MSI 65537-edge      mmc1, ehci\n\
                     \x20NMI:          0          0  Non-maskable interrupts\n";
        let card = Path::new("/sys/devices/pci0000:00/0000:00:04.0/mmc_host/mmc1/mmc1:4567/block/mmcblk0");
        assert_eq!(interrupt_of(&names_above(card), table), Some(25));
        let other = names_above(Path::new("/sys/devices/virtual/block/loop0"));
        assert_eq!(interrupt_of(&other, table), None);
    }

    #[test]
    fn what_is_no_device_is_refused_with_what_to_name() {
        let error = resolve(&Target::Device("/dev/null".into()))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("/dev/null") && error.contains("no block device"),
            "{error}"
        );
        let error = resolve(&Target::Mountpoint("/proc".into()))
            .unwrap_err()
            .to_string();
        assert!(error.contains("on no block device"), "{error}");
    }
}
