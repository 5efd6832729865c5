//! Which cards are attached: a folder with one description for each (`loop64.json`), and beside it the mountpoint of its file.
//!
//! The process that serves a card makes both and takes both away; where it was killed, `tidegate emmc detach` does.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use live::{CARD_FILE, LoopDevice, POWER_ATTRIBUTE, PowerOrder, PowerReport};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde::{Deserialize, Serialize};

use crate::mount_table::{self, Mount};
use crate::stats_document::{self, Document};

/// Where descriptions are, unless a flag says otherwise.
pub const RUN_FOLDER: &str = "/run/tidegate/emmc";

/// A card that is attached.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Attached {
    /// Minor of its loop device.
    pub minor: u32,
    /// Where its file is mounted.
    pub mountpoint: PathBuf,
    /// The card's name.
    pub card: String,
    /// Its size.
    pub capacity_bytes: u64,
    /// Where its data is.
    pub store: String,
}

impl Attached {
    /// Makes the mountpoint for a device.
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

    /// All that are described in `folder`, by minor.
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

    /// The one with this device.
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

    /// The file that the loop device is bound to.
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

    /// Removes description and mountpoint; what is not there is fine.
    pub fn forget(&self) {
        let _ = std::fs::remove_dir(&self.mountpoint);
        let _ = std::fs::remove_file(self.description());
    }

    /// File systems of the device that are mounted.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        mount_table::of_device(&self.device().number())
    }

    /// The document of the process that serves it.
    pub fn document(&self) -> Result<Document, stats_document::ReadError> {
        stats_document::read(&self.mountpoint)
    }

    /// How its power is.
    pub fn power(&self) -> Result<PowerReport> {
        let mut value = vec![0; 4096];
        let length = getxattr(&self.mountpoint, POWER_ATTRIBUTE, value.as_mut_slice())
            .with_context(|| self.silent())?;
        Ok(serde_json::from_slice(&value[..length])?)
    }

    /// Does something with its power.
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
