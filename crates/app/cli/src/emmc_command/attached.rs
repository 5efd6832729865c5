//! Registry of attached cards: a folder with one description per card (`loop64.json`) and, beside it, the mount point of
//! its file.
//!
//! The process that serves a card creates both and removes both; if it was killed, `tidegate emmc detach` removes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use live::{CARD_FILE, DirtyRules, LiveError, LoopDevice, POWER_ATTRIBUTE, PowerOrder, PowerReport};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde::{Deserialize, Serialize};

use crate::mount_table::{self, Mount};
use crate::stats_document::{self, Document};

/// Default folder of the descriptions.
pub const RUN_FOLDER: &str = "/run/tidegate/emmc";

/// An attached card.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Attached {
    /// Minor of its loop device.
    pub minor: u32,
    /// Mount point of its file.
    pub mountpoint: PathBuf,
    #[serde(flatten)]
    pub card: Card,
    /// Limit of its dirty pages, if it has one of its own.
    #[serde(default)]
    pub dirty_limit: Option<DirtyLimit>,
}

/// Limit of a device's dirty pages.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct DirtyLimit {
    pub bytes: u64,
    /// Settings of the loop device before.
    pub former: DirtyRules,
}

/// Description of a card.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Card {
    /// Name.
    pub card: String,
    pub capacity_bytes: u64,
    /// Name of its data store.
    pub store: String,
    /// Virtual time per real time; earlier versions did not store it.
    #[serde(default = "real_time")]
    pub time_scale: f64,
}

const fn real_time() -> f64 {
    1.0
}

impl Attached {
    /// Creates the mount point for a device, and limits its dirty pages to `dirty_limit` bytes.
    pub fn prepare(folder: &Path, device: &LoopDevice, card: Card, dirty_limit: Option<u64>) -> Result<Self> {
        let dirty_limit = match dirty_limit {
            Some(bytes) => Some(DirtyLimit {
                bytes,
                former: device.dirty_rules()?,
            }),
            None => None,
        };
        if let Some(limit) = &dirty_limit {
            device.limit_dirty(limit.bytes)?;
        }
        let mountpoint = folder.join(device.name());
        std::fs::create_dir_all(&mountpoint)
            .with_context(|| format!("{} can't be made", mountpoint.display()))?;
        let mountpoint = mountpoint
            .canonicalize()
            .with_context(|| format!("{} can't be found", mountpoint.display()))?;
        Ok(Self {
            minor: device.minor(),
            mountpoint,
            card,
            dirty_limit,
        })
    }

    /// All cards described in `folder`, by minor.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("{} can't be listed", folder.display())),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry
                .with_context(|| format!("{} can't be listed", folder.display()))?
                .path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let raw =
                    std::fs::read(&path).with_context(|| format!("{} can't be read", path.display()))?;
                let attached: Self = serde_json::from_slice(&raw)
                    .with_context(|| format!("{} describes no card; remove it", path.display()))?;
                all.push(attached);
            }
        }
        all.sort_by_key(|attached| attached.minor);
        Ok(all)
    }

    /// Finds the card of a device, given by its path or its name alone (`loop64`).
    pub fn find(folder: &Path, device: &Path) -> Result<Self> {
        let is_name = device.components().count() == 1 && !device.exists();
        let device = &if is_name {
            Path::new("/dev").join(device)
        } else {
            device.to_owned()
        };
        let all = Self::all(folder)?;
        let names: Vec<String> = all
            .iter()
            .map(|attached| attached.device().path().display().to_string())
            .collect();
        let found = all
            .into_iter()
            .find(|attached| attached.device().path() == *device);
        match found {
            Some(attached) => Ok(attached),
            None => {
                let there = match names.is_empty() {
                    true => String::new(),
                    false => format!(" (attached there: {})", names.join(", ")),
                };
                let next = match Self::folder_of(device) {
                    Some(other) => format!("it belongs to {0}; add --run-folder {0}", other.display()),
                    None => "name the folder given to `attach` with --run-folder".to_owned(),
                };
                bail!(
                    "{}: no such card in the run folder {}{there}; {next}",
                    device.display(),
                    folder.display()
                )
            }
        }
    }

    /// The run folder with the card of a loop device, by the path of its backing file.
    fn folder_of(device: &Path) -> Option<PathBuf> {
        let minor = device.to_str()?.strip_prefix("/dev/loop")?.parse().ok()?;
        let file = LoopDevice::of_minor(minor).backing_file()?;
        let folder = file.parent()?.parent()?;
        let all = Self::all(folder).ok()?;
        let found = all
            .iter()
            .any(|attached| attached.minor == minor && attached.card_path() == file);
        found.then(|| folder.to_owned())
    }

    /// Restores the settings of the loop device, and unbinds it from the card. A device that is bound to another file keeps
    /// its settings.
    pub fn release(&self) -> Result<(), LiveError> {
        let (device, file) = (self.device(), self.card_path());
        let limit = self.dirty_limit.filter(|_| device.is_bound_to(&file));
        let restored = limit.map_or(Ok(()), |limit| device.set_dirty_rules(&limit.former));
        match (device.unbind(&file), limit) {
            (Ok(()), _) => restored,
            (Err(error), Some(limit)) => {
                // It stays attached, with its limit.
                device.limit_dirty(limit.bytes)?;
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Its loop device.
    pub const fn device(&self) -> LoopDevice {
        LoopDevice::of_minor(self.minor)
    }

    /// The file behind the loop device.
    pub fn card_path(&self) -> PathBuf {
        self.mountpoint.join(CARD_FILE)
    }

    fn description(&self) -> PathBuf {
        self.mountpoint.with_extension("json")
    }

    /// Writes the description.
    pub fn write(&self) -> Result<()> {
        let path = self.description();
        outfile::write(&path, &serde_json::to_vec(self)?)
            .with_context(|| format!("{} can't be written", path.display()))
    }

    /// Removes the description and the mount point; ignores missing ones.
    pub fn forget(&self) {
        let _ = std::fs::remove_dir(&self.mountpoint);
        let _ = std::fs::remove_file(self.description());
    }

    /// Mounted file systems of the device.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        mount_table::of_device(&self.device().number())
    }

    /// The statistics document of the serving process.
    pub fn document(&self) -> Result<Document, stats_document::ReadError> {
        stats_document::read(&self.mountpoint)
    }

    /// The power state.
    pub fn power(&self) -> Result<PowerReport> {
        let mut value = vec![0; 4096];
        let length = getxattr(&self.mountpoint, POWER_ATTRIBUTE, value.as_mut_slice())
            .with_context(|| self.silent())?;
        Ok(serde_json::from_slice(&value[..length])?)
    }

    /// Switches the power.
    pub fn order_power(&self, order: PowerOrder) -> Result<()> {
        setxattr(
            &self.mountpoint,
            POWER_ATTRIBUTE,
            order.word().as_bytes(),
            XattrFlags::empty(),
        )
        .with_context(|| self.silent())
    }

    fn silent(&self) -> String {
        let device = self.device().path();
        format!(
            "{0}: the process that serves it does not answer; `tidegate emmc detach {0}` clears it away",
            device.display()
        )
    }
}
