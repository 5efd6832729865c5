//! Registry of attached cards: a folder with one description per card (`loop64.json`) and, beside it, the mount point of
//! its file.
//!
//! The process that serves a card creates both and removes both; if it was killed, `tidegate emmc detach` removes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use live::{CARD_FILE, LoopDevice, POWER_ATTRIBUTE, PowerOrder, PowerReport};
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
    pub card: String,
    pub capacity_bytes: u64,
    /// Name of its data store.
    pub store: String,
}

impl Attached {
    /// Creates the mount point for a device.
    pub fn prepare(
        folder: &Path,
        device: &LoopDevice,
        card: &str,
        capacity_bytes: u64,
        store: String,
    ) -> Result<Self> {
        let mountpoint = folder.join(device.name());
        std::fs::create_dir_all(&mountpoint)
            .with_context(|| format!("{} can't be made", mountpoint.display()))?;
        let mountpoint = mountpoint
            .canonicalize()
            .with_context(|| format!("{} can't be found", mountpoint.display()))?;
        Ok(Self {
            minor: device.minor(),
            mountpoint,
            card: card.to_owned(),
            capacity_bytes,
            store,
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

    /// Finds the card of a device.
    pub fn find(folder: &Path, device: &Path) -> Result<Self> {
        let all = Self::all(folder)?;
        let names: Vec<String> = all
            .iter()
            .map(|attached| attached.device().path().display().to_string())
            .collect();
        let found = all
            .into_iter()
            .find(|attached| attached.device().path() == device);
        match found {
            Some(attached) => Ok(attached),
            None if names.is_empty() => bail!("{}: no card is attached", device.display()),
            None => bail!(
                "{}: no card is attached here; attached are {}",
                device.display(),
                names.join(", ")
            ),
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
