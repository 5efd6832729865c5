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

const IMAGE_BYTES: u64 = 512 << 20;

/// A mounted file system on a loop device.
pub struct Disk {
    device: String,
    mounted: bool,
    pub mountpoint: PathBuf,
    /// The medium: the content of the device, bypassing all caches.
    pub image: PathBuf,
    _folder: TempDir,
}

impl Disk {
    /// Makes the disk, or returns the missing requirement.
    pub fn make(file_system: &FileSystem) -> Outcome<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let folder = TempDir::with_prefix_in("tidegate-truth-", "/dev/shm")
            .map_err(|error| failed("/dev/shm", error))?;
        let image = folder.path().join("image");
        let mountpoint = folder.path().join("mounted");
        std::fs::create_dir(&mountpoint).map_err(|error| failed("mountpoint", error))?;
        let file = std::fs::File::create(&image).map_err(|error| failed("image", error))?;
        file.set_len(IMAGE_BYTES)
            .map_err(|error| failed("image", error))?;
        let device = run(&["losetup", "-f", "--show", &image.to_string_lossy()])?;
        let mut disk = Self {
            device: device.trim().to_owned(),
            mounted: false,
            mountpoint,
            image,
            _folder: folder,
        };
        let mut mkfs = file_system.mkfs.to_vec();
        let device = disk.device.clone();
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
            let _ = run(&["umount", &self.mountpoint.to_string_lossy()]);
        }
        let _ = run(&["losetup", "-d", &self.device]);
    }
}

fn run(words: &[&str]) -> Outcome<String> {
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

/// Extents of a file, in sectors: offset in the file, position on the device, length.
pub fn extents(path: &Path) -> Outcome<Vec<(usize, u64, usize)>> {
    let text = run(&["filefrag", "-b512", "-v", &path.to_string_lossy()])?;
    let extent = |line: &str| {
        let fields: Vec<&str> = line
            .split([':', '.'])
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        let [_number, offset, _, place, _, length, ..] = fields.as_slice() else {
            return None;
        };
        Some((offset.parse().ok()?, place.parse().ok()?, length.parse().ok()?))
    };
    Ok(text.lines().filter_map(extent).collect())
}
