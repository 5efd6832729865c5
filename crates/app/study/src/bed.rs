//! The ground of a cell: a device, a file system on it, and mounts over that. Each value removes what it made on drop.
//!
//! Everything lies below the study's folder, so that [`crate::folder::clean`] finds what a killed study left behind.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rustix::mount::UnmountFlags;

use crate::cell::{Cell, MOUNT, NATIVE, PEERS};
use crate::child::{Children, STEP_TIME};
use crate::clean::{backing_of, remove_image, remove_work};
use crate::dirty_limit;
use crate::plan::{Device, Environment};
use crate::sysfs;

/// Size of an image, and of a card without a given size, in bytes.
pub const DEVICE_BYTES: u64 = 2 << 30;

/// Name of the folder of mount points, below the study's folder.
pub const MOUNTS: &str = "mounts";

/// Name of the folder of attached cards, below the study's folder.
pub const CARDS: &str = "cards";

/// Name of the link to the folder that cells without a device use, below the study's folder.
pub const WORK: &str = "work";

/// Beginning of the name of that folder.
pub const WORK_PREFIX: &str = ".tidegate-study-";

/// Name of the image, below the study's folder.
pub const IMAGE: &str = "device.img";

/// A device, or a folder in its place.
pub struct Bed<'run> {
    children: Children<'run>,
    folder: PathBuf,
    kind: Kind,
    /// The device has a limit of dirty pages.
    is_limited: bool,
}

enum Kind {
    Card(PathBuf),
    Loop(PathBuf),
    Block(PathBuf),
    Directory(PathBuf),
}

impl<'run> Bed<'run> {
    /// Makes the device of an environment; `scale` is the speed of a card.
    ///
    /// # Errors
    /// If it can't be made; nothing is left then.
    pub fn make(
        children: Children<'run>,
        folder: &Path,
        environment: &Environment,
        scale: f64,
    ) -> Result<Self> {
        let bed = |kind| Self {
            children,
            folder: folder.to_owned(),
            is_limited: matches!(kind, Kind::Card(_) | Kind::Loop(_)) && environment.dirty_limit.is_some(),
            kind,
        };
        let bytes = environment.size.unwrap_or(DEVICE_BYTES);
        Ok(match &environment.device {
            Device::Card(name) => {
                let cards = text(&folder.join(CARDS))?;
                let mut words = [
                    "emmc",
                    "attach",
                    "--json",
                    "--card",
                    name,
                    "--run-folder",
                    &cards,
                    "--size",
                ]
                .map(str::to_owned)
                .to_vec();
                words.push(bytes.to_string());
                if scale.to_bits() != 1.0_f64.to_bits() {
                    words.extend(["--time-scale".to_owned(), scale.to_string()]);
                }
                if let Some(limit) = environment.dirty_limit {
                    words.extend(["--dirty-limit".to_owned(), limit.to_string()]);
                }
                let report = children.tidegate(&words, STEP_TIME)?;
                let report: serde_json::Value =
                    serde_json::from_str(&report).context("the report of emmc attach")?;
                let device = report["device"].as_str().context("emmc attach named no device")?;
                bed(Kind::Card(device.into()))
            }
            Device::Image => {
                let image = folder.join(IMAGE);
                let attached = File::create_new(&image)
                    .and_then(|file| file.set_len(bytes))
                    .with_context(|| format!("{} can't be made", image.display()))
                    .and_then(|()| {
                        let words = ["--find", "--show", "--direct-io=on", &text(&image)?];
                        children.run(Path::new("losetup"), &words, STEP_TIME)
                    })
                    .and_then(|device| {
                        let device = PathBuf::from(device.trim());
                        // That of an image that was detached by others.
                        dirty_limit::lift(&device);
                        if let Some(limit) = environment.dirty_limit {
                            dirty_limit::set(&device, limit)?;
                        }
                        Ok(device)
                    });
                match attached {
                    Ok(device) => bed(Kind::Loop(device)),
                    Err(error) => {
                        // The next block makes a new one.
                        let _ = remove_image(&children, folder);
                        return Err(error);
                    }
                }
            }
            Device::Block(path) => {
                let real = path.canonicalize();
                let real = real.with_context(|| format!("{} can't be used", path.display()))?;
                bed(Kind::Block(real))
            }
            Device::Directory(path) => {
                let path = path
                    .canonicalize()
                    .with_context(|| format!("{} can't be used", path.display()))?;
                let work = path.join(format!("{WORK_PREFIX}{}", std::process::id()));
                // First the link: whatever ends the study, `clean` finds the folder.
                let link = folder.join(WORK);
                symlink(&work, &link).with_context(|| format!("{} can't be made", link.display()))?;
                fs::create_dir(&work)
                    .inspect_err(|_| {
                        // The study removes nothing that it has not made.
                        let _ = fs::remove_file(&link);
                    })
                    .with_context(|| format!("{} can't be made", work.display()))?;
                bed(Kind::Directory(work))
            }
        })
    }

    /// The block device; `None` for a folder.
    pub fn device(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Card(device) | Kind::Loop(device) | Kind::Block(device) => Some(device),
            Kind::Directory(_) => None,
        }
    }

    /// Makes and mounts the file system of a block of cells.
    pub fn file_system(&self, values: &Cell) -> Result<FileSystem> {
        let Some(device) = self.device() else {
            let Kind::Directory(directory) = &self.kind else {
                bail!("a folder has no file system to make");
            };
            return Ok(FileSystem {
                data: directory.clone(),
                mountpoint: None,
            });
        };
        let name = values.value("fs");
        let device = text(device)?;
        let maker = PathBuf::from(format!("mkfs.{name}"));
        let mut words: Vec<String> = usual_options(name)
            .iter()
            .map(|word| (*word).to_owned())
            .collect();
        words.extend(values.value("mkfs").split_whitespace().map(str::to_owned));
        words.push(device.clone());
        self.children.run(&maker, &words, STEP_TIME)?;
        let mountpoint = self.folder.join(MOUNTS).join("native");
        fs::create_dir_all(&mountpoint)?;
        let options = match values.value("mount-options") {
            "" => "defaults",
            options => options,
        };
        // Without helpers (-i): that of nilfs2 would start a cleaner, which works in the background.
        let words = ["-i", "-t", name, "-o", options, &device, &text(&mountpoint)?].map(str::to_owned);
        // Unmounts also if the study is stopped just after the mount.
        let made = FileSystem {
            data: mountpoint.join("data"),
            mountpoint: Some(mountpoint),
        };
        self.children.run(Path::new("mount"), &words, STEP_TIME)?;
        if self.is_limited {
            dirty_limit::extend_to(name, Path::new(&device))?;
        }
        fs::create_dir(&made.data)?;
        Ok(made)
    }

    /// Number of write requests that the device has completed, as the kernel counts them.
    pub fn device_writes(&self) -> Option<u64> {
        let name = self.device()?.file_name()?.to_string_lossy();
        let stat = fs::read_to_string(format!("/sys/class/block/{name}/stat")).ok()?;
        stat.split_whitespace().nth(4)?.parse().ok()
    }

    /// Sets the I/O scheduler of the device.
    pub fn set_scheduler(&self, name: &str) -> Result<()> {
        let Some(device) = self.device() else {
            return Ok(());
        };
        let path = scheduler_of(device)?.display().to_string();
        let names = fs::read_to_string(&path).with_context(|| format!("{path} can't be read"))?;
        if names.contains(&format!("[{name}]")) {
            return Ok(());
        }
        let written = sysfs::set(Path::new(&path), name);
        written.map_err(|error| {
            anyhow!(
                "{path}: `{name}` can't be set ({error}); there are {}",
                names.trim()
            )
        })?;
        // The kernel takes an empty name and some old ones, and then has another.
        let names = fs::read_to_string(&path).with_context(|| format!("{path} can't be read"))?;
        if !names.contains(&format!("[{name}]")) {
            bail!("{path}: expected [{name}], found {}", names.trim());
        }
        Ok(())
    }

    /// Fails if the device that this study attached is gone: another program could have its name now.
    pub fn check(&self) -> Result<()> {
        match &self.kind {
            Kind::Card(device) | Kind::Loop(device) => {
                let backing = backing_of(device);
                if !backing
                    .as_ref()
                    .is_some_and(|file| file.starts_with(&self.folder))
                {
                    bail!("{}: the device of this study is gone", device.display());
                }
                Ok(())
            }
            Kind::Block(_) | Kind::Directory(_) => Ok(()),
        }
    }

    /// The folder that a cell measures, mounted as the cell has it; `tidegate` serves it if the cell asks for our mount.
    pub fn mount(
        &self,
        cell: &Cell,
        file_system: &FileSystem,
        tidegate: &'run Path,
    ) -> Result<Mounted<'run>> {
        let data = text(&file_system.data)?;
        let path = cell.value("path");
        let mut mounted = Mounted {
            children: Children {
                tidegate,
                ..self.children
            },
            directory: file_system.data.clone(),
            fuse: Fuse::None,
        };
        if path == NATIVE {
            return Ok(mounted);
        }
        let mountpoint = self.folder.join(MOUNTS).join("fuse");
        fs::create_dir_all(&mountpoint)?;
        let target = text(&mountpoint)?;
        if path == MOUNT {
            let mut words = vec!["mount".to_owned(), data, target];
            words.extend(cell.flags("mount."));
            (mounted.directory, mounted.fuse) = (mountpoint, Fuse::Own);
            mounted.children.tidegate(&words, STEP_TIME)?;
        } else if PEERS.contains(&path) {
            (mounted.directory, mounted.fuse) = (mountpoint, Fuse::Peer);
            self.children.run(Path::new(path), &[data, target], STEP_TIME)?;
        }
        Ok(mounted)
    }
}

/// The kernel's file of a device's I/O scheduler; a partition has that of its disk.
pub fn scheduler_of(device: &Path) -> Result<PathBuf> {
    let real = device.canonicalize();
    let real = real.with_context(|| format!("{} can't be used", device.display()))?;
    let name = real.file_name().unwrap_or_default();
    let entry = Path::new("/sys/class/block").join(name);
    let folder = entry.canonicalize();
    let folder = folder.with_context(|| format!("{} can't be used", entry.display()))?;
    let disk = match folder.join("partition").exists() {
        true => folder.parent().unwrap_or(&folder),
        false => &folder,
    };
    Ok(disk.join("queue/scheduler"))
}

/// Options of mkfs without which background work would run while a cell is measured.
fn usual_options(name: &str) -> &'static [&'static str] {
    match name {
        "ext4" => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
        "xfs" | "btrfs" | "f2fs" => &["-q", "-f"],
        "nilfs2" => &["-q", "-f"],
        "vfat" => &["-F", "32", "-I"],
        _ => &[],
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        let never = std::sync::atomic::AtomicBool::new(false);
        // A stopped study still has to remove what it made.
        let children = Children {
            stop: &never,
            ..self.children
        };
        // A failure leaves what `study clean` finds; nothing more can be done here.
        let _ = match &self.kind {
            Kind::Card(device) => text(device).and_then(|device| {
                let cards = text(&self.folder.join(CARDS))?;
                let words = ["emmc", "detach", &device, "--force", "--run-folder", &cards].map(str::to_owned);
                children.tidegate(&words, STEP_TIME)
            }),
            Kind::Loop(_) => remove_image(&children, &self.folder).map(|_| String::new()),
            Kind::Block(_) => Ok(String::new()),
            Kind::Directory(_) => remove_work(&self.folder).map(|_| String::new()),
        };
    }
}

/// A mounted file system, or a folder.
pub struct FileSystem {
    /// The folder that cells measure or mount.
    pub data: PathBuf,
    mountpoint: Option<PathBuf>,
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if let Some(mountpoint) = &self.mountpoint {
            unmount(mountpoint);
        }
    }
}

/// A folder as a cell has it.
pub struct Mounted<'run> {
    children: Children<'run>,
    /// The folder to measure.
    pub directory: PathBuf,
    fuse: Fuse,
}

#[derive(PartialEq)]
enum Fuse {
    None,
    Own,
    Peer,
}

impl Mounted<'_> {
    /// The counters of the daemon, if it is ours.
    pub fn statistics(&self) -> Result<Option<serde_json::Value>> {
        if self.fuse != Fuse::Own {
            return Ok(None);
        }
        let words = ["stats", "--json", &text(&self.directory)?].map(str::to_owned);
        let document = self.children.tidegate(&words, STEP_TIME)?;
        serde_json::from_str(&document)
            .map(Some)
            .context("the counters of the mount")
    }

    /// Unmounts, and waits until the daemon has written everything.
    pub fn unmount(mut self) -> Result<()> {
        if self.fuse == Fuse::Own {
            let words = ["unmount", &text(&self.directory)?].map(str::to_owned);
            self.children.tidegate(&words, STEP_TIME)?;
            self.fuse = Fuse::None;
        }
        Ok(())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.fuse != Fuse::None {
            unmount(&self.directory);
        }
    }
}

/// Unmounts; what is busy is detached, and goes when it is free. The requests of a FUSE mount then fail: its daemon may
/// have stopped to answer.
pub fn unmount(mountpoint: &Path) {
    if rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW).is_err() {
        let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE;
        let _ = rustix::mount::unmount(mountpoint, flags);
    }
}

/// A path as a word of a command line.
pub fn text(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .with_context(|| format!("{}: a path that is not UTF-8", path.display()))?;
    Ok(text.to_owned())
}
