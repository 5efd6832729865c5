//! File systems on loop devices over files in memory, made for one case and removed after it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

use crate::{Outcome, failed};

/// A file system and its mkfs and mount options.
pub struct FileSystem {
    pub name: &'static str,
    mkfs: &'static [&'static str],
    options: &'static str,
    pub has_generations: bool,
    /// The medium is unreadable: its files are read instead.
    pub is_encrypted: bool,
}

const fn with(name: &'static str, mkfs: &'static [&'static str], options: &'static str) -> FileSystem {
    FileSystem {
        name,
        mkfs,
        options,
        has_generations: true,
        is_encrypted: false,
    }
}

pub const FILE_SYSTEMS: &[FileSystem] = &[
    with("ext4", &["mkfs.ext4", "-q"], "rw"),
    with("ext4_data_journal", &["mkfs.ext4", "-q"], "data=journal"),
    with(
        "ext4_fast_commit",
        &["mkfs.ext4", "-q", "-O", "fast_commit"],
        "rw",
    ),
    with(
        "ext4_encrypt_feature",
        &["mkfs.ext4", "-q", "-O", "encrypt"],
        "rw",
    ),
    FileSystem {
        is_encrypted: true,
        ..with(
            "ext4_encrypted",
            &["mkfs.ext4", "-q", "-O", "encrypt"],
            "test_dummy_encryption",
        )
    },
    with("ext4_1k_blocks", &["mkfs.ext4", "-q", "-b", "1024"], "rw"),
    with("xfs", &["mkfs.xfs", "-q"], "rw"),
    with("btrfs", &["mkfs.btrfs", "-q"], "rw"),
];

/// Name of the file that is the medium: the content of the device, bypassing all caches.
pub const IMAGE: &str = "image";
const IMAGE_BYTES: u64 = 512 << 20;

/// A loop device over a file in memory; gone with the value.
pub struct Device {
    pub name: String,
    /// Has the medium, [`IMAGE`].
    pub folder: TempDir,
}

impl Device {
    /// Makes the device, or returns the missing requirement.
    pub fn make() -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let folder = TempDir::with_prefix_in("tidegate-truth-", "/dev/shm")
            .map_err(|error| failed("/dev/shm", error))?;
        let image = folder.path().join(IMAGE);
        let file = std::fs::File::create(&image).map_err(|error| failed("image", error))?;
        file.set_len(IMAGE_BYTES)
            .map_err(|error| failed("image", error))?;
        let name = run(&["losetup", "-f", "--show", &image.to_string_lossy()])?;
        Ok(Self {
            name: name.trim().to_owned(),
            folder,
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = run(&["losetup", "-d", &self.name]);
    }
}

/// A mounted file system on a loop device.
pub struct Disk {
    pub mountpoint: PathBuf,
    mounted: bool,
    // Removed after it is unmounted.
    pub device: Device,
}

impl Disk {
    /// Makes the disk, or returns the missing requirement.
    pub fn make(file_system: &FileSystem) -> Outcome<Self> {
        let device = Device::make()?;
        let mountpoint = device.folder.path().join("mounted");
        std::fs::create_dir(&mountpoint).map_err(|error| failed("mountpoint", error))?;
        let mut disk = Self {
            mountpoint,
            mounted: false,
            device,
        };
        let mut mkfs = file_system.mkfs.to_vec();
        let device = disk.device.name.clone();
        mkfs.push(&device);
        run(&mkfs)?;
        run(&[
            "mount",
            "-o",
            file_system.options,
            &device,
            &disk.mountpoint.to_string_lossy(),
        ])?;
        disk.mounted = true;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: a child that this process spawns holds its files until exec.
            let _ = run(&["umount", "-l", &self.mountpoint.to_string_lossy()]);
        }
    }
}

/// Runs a system program; its output.
pub fn run(words: &[&str]) -> Outcome<String> {
    let (program, arguments) = words.split_first().ok_or("an empty command")?;
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .map_err(|error| failed(program, error))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(
            &words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim(),
        ))
    }
}

/// A file outside the traced device, in which the processes record their actions.
pub fn ledger(name: &str) -> Outcome<NamedTempFile> {
    let folder = if Path::new("/dev/shm").is_dir() {
        "/dev/shm"
    } else {
        "/tmp"
    };
    NamedTempFile::with_prefix_in(format!("tidegate-ledger-{name}-"), folder)
        .map_err(|error| failed("ledger", error))
}
