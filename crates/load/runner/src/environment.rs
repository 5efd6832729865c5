//! Machine and file system information for run records.
//!
//! Everything is read from the kernel and nothing is guessed: unavailable values are `None`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use results::{HostInfo, TargetInfo};

/// Describes the machine.
#[must_use]
pub fn host() -> HostInfo {
    let system = rustix::system::uname();
    let memory = rustix::system::sysinfo();
    let name = system.sysname().to_string_lossy().into_owned();
    HostInfo {
        kernel: format!("{name} {}", system.release().to_string_lossy()),
        machine: system.machine().to_string_lossy().into_owned(),
        processor: processor_model(),
        cpus: thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory.totalram.saturating_mul(u64::from(memory.mem_unit)),
        governor: read_line(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        load_average: load_average(),
    }
}

/// Describes the file system that contains `directory`.
///
/// # Errors
/// When the directory does not exist or cannot be examined.
pub fn target(directory: &Path) -> io::Result<TargetInfo> {
    let path = directory.canonicalize()?;
    let space = rustix::fs::statvfs(&path)?;
    let mount = fs::read("/proc/self/mountinfo")
        .ok()
        .and_then(|table| mount_of(&String::from_utf8_lossy(&table), &path));
    let device = mount
        .as_ref()
        .and_then(|mount| BlockDevice::of(&mount.device_number));
    Ok(TargetInfo {
        path: path.to_string_lossy().into_owned(),
        file_system_type: mount.as_ref().map(|mount| mount.file_system_type.clone()),
        mount_source: mount.as_ref().map(|mount| mount.source.clone()),
        mount_options: mount.map(|mount| mount.options),
        scheduler: device.as_ref().and_then(BlockDevice::scheduler),
        device_model: device.as_ref().and_then(BlockDevice::model),
        rotational: device
            .as_ref()
            .and_then(|device| device.queue("rotational"))
            .map(|digit| digit != "0"),
        read_ahead_bytes: device
            .as_ref()
            .and_then(|device| device.queue("read_ahead_kb")?.parse().ok())
            .map(|kibibytes: u64| kibibytes.saturating_mul(1024)),
        write_cache: device.as_ref().and_then(|device| device.queue("write_cache")),
        block_device: device.map(|device| device.name),
        free_bytes: Some(space.f_bavail.saturating_mul(space.f_frsize)),
    })
}

fn processor_model() -> Option<String> {
    let table = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = table.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn load_average() -> Option<f64> {
    let line = read_line(Path::new("/proc/loadavg"))?;
    line.split(' ').next()?.parse().ok()
}

/// The content of a one-line file; `None` when it does not exist or is empty.
fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device_number: String,
    file_system_type: String,
    source: String,
    options: String,
}

/// The mount that contains `path`: the one with the longest mount point, and the topmost of those.
fn mount_of(table: &str, path: &Path) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in table.lines() {
        // ID, parent, major:minor, root, mount point, options, optional fields, "-", type, source, super options.
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (&[_, _, device, _, point, options, ..], &[kind, source, super_options]) =
            (&left[..], &right[..])
        else {
            continue;
        };
        let point = unescaped(point);
        let length = point.as_os_str().as_bytes().len();
        if path.starts_with(&point) && best.as_ref().is_none_or(|(longest, _)| length >= *longest) {
            let mount = Mount {
                device_number: device.to_owned(),
                file_system_type: kind.to_owned(),
                source: unescaped(source).to_string_lossy().into_owned(),
                options: merged_options(options, super_options),
            };
            best = Some((length, mount));
        }
    }
    best.map(|(_, mount)| mount)
}

/// The options of the mount, followed by those of the file system that are not among them.
fn merged_options(mount: &str, file_system: &str) -> String {
    let mut options: Vec<&str> = mount.split(',').collect();
    for option in file_system.split(',') {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    options.join(",")
}

/// Decodes a path of the mount table, which writes blanks and backslashes as three octal digits (`\040`).
fn unescaped(text: &str) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let (b'\\', Some(byte)) = (first, escaped) {
            plain.push(byte);
            rest = &tail[3..];
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    PathBuf::from(std::ffi::OsString::from(
        String::from_utf8_lossy(&plain).into_owned(),
    ))
}

struct BlockDevice {
    name: String,
    directory: PathBuf,
}

impl BlockDevice {
    /// `None` for file systems whose device number is not that of a block device (FUSE, tmpfs, btrfs).
    fn of(device_number: &str) -> Option<Self> {
        let directory = Path::new("/sys/dev/block")
            .join(device_number)
            .canonicalize()
            .ok()?;
        let name = directory.file_name()?.to_string_lossy().into_owned();
        Some(Self { name, directory })
    }

    /// The active scheduler, which sysfs puts in brackets.
    fn scheduler(&self) -> Option<String> {
        let text = self.queue("scheduler")?;
        let active = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Some(active.map_or(text.as_str(), |(name, _)| name).to_owned())
    }

    /// SCSI and NVMe devices have a model, MMC devices a name, loop devices a backing file.
    fn model(&self) -> Option<String> {
        ["device/model", "device/name", "loop/backing_file"]
            .into_iter()
            .find_map(|name| self.of_disk(name))
    }

    /// A property of the device's queue.
    fn queue(&self, name: &str) -> Option<String> {
        self.of_disk(&format!("queue/{name}"))
    }

    /// A property of the disk; for a partition, that of the disk containing it.
    fn of_disk(&self, name: &str) -> Option<String> {
        let places = [Some(self.directory.as_path()), self.directory.parent()];
        places
            .into_iter()
            .flatten()
            .find_map(|place| read_line(&place.join(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:25 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1024k
31 30 0:40 / /tmp/with\\040blank rw,nosuid - fuse.tidegate /srv/data rw,user_id=0
32 22 7:0 / /tmp rw - xfs /dev/loop0 rw,noquota
garbage
";

    #[test]
    fn the_longest_and_topmost_mount_wins() {
        let found = mount_of(TABLE, Path::new("/tmp/x")).unwrap();
        assert_eq!(
            (found.file_system_type.as_str(), found.source.as_str()),
            ("xfs", "/dev/loop0")
        );
        assert_eq!(found.options, "rw,noquota");
        let found = mount_of(TABLE, Path::new("/tmpfile")).unwrap();
        assert_eq!(found.file_system_type, "ext4");
        assert_eq!(found.options, "rw,relatime,errors=remount-ro");
    }

    #[test]
    fn escaped_blanks_in_mount_points_are_understood() {
        let found = mount_of(TABLE, Path::new("/tmp/with blank/deep")).unwrap();
        assert_eq!(found.file_system_type, "fuse.tidegate");
    }

    #[test]
    fn this_machine_describes_itself() {
        let host = host();
        assert!(host.kernel.starts_with("Linux "), "{}", host.kernel);
        assert!(host.cpus > 0 && host.memory_bytes > 0);
        let target = target(&std::env::temp_dir()).unwrap();
        assert!(target.file_system_type.is_some());
        assert!(target.free_bytes.is_some());
        assert!(host.load_average.is_some_and(|load| load >= 0.0));
        // Either there is a block device with all of these, or none of them.
        assert_eq!(target.block_device.is_some(), target.rotational.is_some());
        assert_eq!(target.block_device.is_some(), target.read_ahead_bytes.is_some());
        assert_eq!(target.block_device.is_some(), target.write_cache.is_some());
    }

    #[test]
    fn a_partition_has_the_properties_of_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sdz");
        fs::create_dir_all(disk.join("sdz1")).unwrap();
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("queue/scheduler"), "none [bfq] kyber\n").unwrap();
        fs::write(disk.join("device/model"), "Example SSD    \n").unwrap();
        let partition = BlockDevice {
            name: "sdz1".to_owned(),
            directory: disk.join("sdz1"),
        };
        assert_eq!(partition.scheduler().as_deref(), Some("bfq"));
        assert_eq!(partition.model().as_deref(), Some("Example SSD"));
        assert_eq!(partition.queue("write_cache"), None);
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert_eq!(
            target(Path::new("/nowhere")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
