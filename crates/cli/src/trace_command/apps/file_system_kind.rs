//! A file system of its own for each run: a sparse image behind a loop device, made, mounted and taken away again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::mount::UnmountFlags;

/// File systems that the study can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FileSystemKind {
    /// ext4
    Ext4,
    /// XFS
    Xfs,
    /// btrfs
    Btrfs,
}

impl FileSystemKind {
    /// Name for mount(8) and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn make(self, device: &Path) -> Result<()> {
        let (program, options): (&str, &[&str]) = match self {
            // Without lazy initialisation no kernel thread writes while is traced.
            Self::Ext4 => (
                "mkfs.ext4",
                &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            ),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        };
        run(Command::new(program).args(options).arg(device)).map(drop)
    }
}

/// A mounted file system; its drop takes everything away.
pub struct Bed {
    image: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Its loop device.
    pub device: PathBuf,
}

impl Bed {
    /// Makes a file system of this kind and size in `folder`, and mounts it there.
    pub fn make(kind: FileSystemKind, folder: &Path, size_bytes: u64) -> Result<Self> {
        let image = folder.join(format!("{}.img", kind.name()));
        let mountpoint = folder.join(kind.name());
        fs::create_dir(&mountpoint).with_context(|| format!("{} can't be made", mountpoint.display()))?;
        let mut bed = Self {
            image,
            mountpoint,
            device: PathBuf::new(),
        };
        File::create_new(&bed.image)
            .and_then(|file| file.set_len(size_bytes))
            .with_context(|| format!("{} can't be made", bed.image.display()))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&bed.image))?;
        bed.device = PathBuf::from(device.trim());
        kind.make(&bed.device)?;
        run(Command::new("mount")
            .args(["-t", kind.name()])
            .arg(&bed.device)
            .arg(&bed.mountpoint))?;
        Ok(bed)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // What was not mounted or not attached yet says so, and that is all there is to it.
        let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::NOFOLLOW);
        if !self.device.as_os_str().is_empty() {
            let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        }
        let _ = fs::remove_dir(&self.mountpoint);
        let _ = fs::remove_file(&self.image);
    }
}

/// Runs a program of the system and returns what it prints.
fn run(command: &mut Command) -> Result<String> {
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
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
