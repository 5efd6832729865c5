//! File systems that commands make for measurements: a sparse image in the command's own folder, behind a loop device,
//! mounted. Dropping them removes everything. All of it needs root.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;

/// Parameters to make and mount a file system.
#[derive(Clone, Copy, Debug)]
pub struct FileSystem {
    /// Its name for mount(8), for tables, and for its image.
    pub name: &'static str,
    /// The mkfs program.
    pub maker: &'static str,
    /// Options before the device.
    pub options: &'static [&'static str],
    /// Mount options.
    pub mount_options: &'static str,
}

/// ext4. Without lazy initialisation no kernel thread writes during the measurement.
pub const EXT4: FileSystem = FileSystem {
    name: "ext4",
    maker: "mkfs.ext4",
    options: &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    mount_options: "defaults",
};

/// A newly made, mounted file system on a loop device.
pub struct LoopDisk {
    image: PathBuf,
    /// The mountpoint.
    pub mountpoint: PathBuf,
    /// The loop device.
    pub device: PathBuf,
}

impl LoopDisk {
    /// Makes a file system of this size in `folder`, and mounts it there.
    pub fn make(file_system: FileSystem, folder: &Path, size_bytes: u64) -> Result<Self> {
        let image = folder.join(format!("{}.img", file_system.name));
        let mountpoint = folder.join(file_system.name);
        fs::create_dir(&mountpoint).with_context(|| format!("{} can't be made", mountpoint.display()))?;
        // From here on, a failure removes everything made so far.
        let mut disk = Self {
            image,
            mountpoint,
            device: PathBuf::new(),
        };
        File::create_new(&disk.image)
            .and_then(|file| file.set_len(size_bytes))
            .with_context(|| format!("{} can't be made", disk.image.display()))?;
        let device = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&disk.image))?;
        disk.device = PathBuf::from(device.trim());
        run(Command::new(file_system.maker)
            .args(file_system.options)
            .arg(&disk.device))?;
        run(Command::new("mount")
            .args(["-t", file_system.name, "-o", file_system.mount_options])
            .arg(&disk.device)
            .arg(&disk.mountpoint))?;
        Ok(disk)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // A failure because the image was not yet attached or mounted can be ignored. A mount that is unexpectedly busy
        // is detached: it disappears when it is free, and the device with it.
        if rustix::mount::unmount(&self.mountpoint, UnmountFlags::NOFOLLOW).is_err() {
            let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        }
        if !self.device.as_os_str().is_empty() {
            let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        }
        let _ = fs::remove_dir(&self.mountpoint);
        let _ = fs::remove_file(&self.image);
    }
}

/// A command's private folder, named after it and the process; removed with its content on drop.
pub struct WorkFolder {
    /// The folder.
    pub path: PathBuf,
}

impl WorkFolder {
    /// Makes it in `directory`, which is created if missing.
    pub fn make(directory: &Path, command: &str) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("{} can't be made", directory.display()))?;
        let path = directory.join(format!("{command}-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("{} can't be made", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Never across a mount that could not be unmounted: that would remove files that are not the command's.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if !table.contains(&format!(" {}/", self.path.display())) {
            // Remaining files are visible to the user; nothing else can be done about them.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Runs a system program and returns its output. Ctrl-C does not reach it: losetup(8), ended after it attached a device and
/// before it printed the name, would leave a device that nobody knows.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // On Debian these directories are not in the PATH of ordinary users.
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .with_context(|| format!("{name} can't be run"))?;
    if !output.status.success() {
        bail!(
            "{name} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
