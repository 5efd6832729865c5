//! Registry of attached cards: a folder with one description per card (`loop64.json`) and, beside it, the mount point of
//! its file.
//!
//! The process that serves a card creates both and removes both; if it was killed, `tidegate emmc detach` removes them.

use std::io;
use std::path::{Path, PathBuf};

use mounted::MountedError;
use mounted::document::{self, Document};
use mounted::table::{self, Mount};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{CARD_FILE, DirtyRules, LiveError, LoopDevice, POWER_ATTRIBUTE, PowerOrder, PowerReport};

/// Default folder of the descriptions.
pub const RUN_FOLDER: &str = "/run/tidegate/emmc";

/// Reasons why an attached card can't be found or asked.
#[derive(Debug, Error)]
pub enum AttachedError {
    /// The loop device refuses.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A description or its folder can't be read or written.
    #[error("{} can't be {verb}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The failed action.
        verb: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A file in the run folder has another form.
    #[error("{} describes no card; remove it", path.display())]
    NoDescription {
        /// The file.
        path: PathBuf,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// The run folder has no such card.
    #[error("{}: no such card in the run folder {}{there}; {next}", device.display(), folder.display())]
    Unknown {
        /// The device.
        device: PathBuf,
        /// The run folder.
        folder: PathBuf,
        /// The devices in it, in parentheses.
        there: String,
        /// The next step for the user.
        next: String,
    },
    /// The process that serves the card does not answer.
    #[error("{}: the process that serves it does not answer; `{command}` clears it away", device.display())]
    Silent {
        /// The device.
        device: PathBuf,
        /// The command that detaches it.
        command: String,
        /// Error of the kernel.
        source: Errno,
    },
    /// The process that serves the card answers in another form.
    #[error(transparent)]
    Answer(#[from] serde_json::Error),
    /// The mounts can't be listed.
    #[error(transparent)]
    Mounts(#[from] MountedError),
}

/// Adapter for `map_err` about a file.
fn failed(path: &Path, verb: &'static str) -> impl FnOnce(io::Error) -> AttachedError {
    let path = path.to_owned();
    move |source| AttachedError::File { path, verb, source }
}

/// An attached card.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Attached {
    /// Minor of its loop device.
    pub minor: u32,
    /// Mount point of its file.
    pub mountpoint: PathBuf,
    /// Its description.
    #[serde(flatten)]
    pub card: Card,
    /// Limit of its dirty pages, if it has one of its own.
    #[serde(default)]
    pub dirty_limit: Option<DirtyLimit>,
}

/// Limit of a device's dirty pages.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct DirtyLimit {
    /// The limit.
    pub bytes: u64,
    /// Settings of the loop device before.
    pub former: DirtyRules,
}

/// Description of a card.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Card {
    /// Name.
    pub card: String,
    /// Size of its data.
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
    ///
    /// # Errors
    /// [`AttachedError`] when one of them is refused.
    pub fn prepare(
        folder: &Path,
        device: &LoopDevice,
        card: Card,
        dirty_limit: Option<u64>,
    ) -> Result<Self, AttachedError> {
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
        std::fs::create_dir_all(&mountpoint).map_err(failed(&mountpoint, "made"))?;
        let mountpoint = mountpoint.canonicalize().map_err(failed(&mountpoint, "found"))?;
        Ok(Self {
            minor: device.minor(),
            mountpoint,
            card,
            dirty_limit,
        })
    }

    /// All cards described in `folder`, by minor.
    ///
    /// # Errors
    /// [`AttachedError`] when a description can't be read.
    pub fn all(folder: &Path) -> Result<Vec<Self>, AttachedError> {
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed(folder, "listed"))?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed(folder, "listed"))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let raw = std::fs::read(&path).map_err(failed(&path, "read"))?;
                let attached: Self = serde_json::from_slice(&raw)
                    .map_err(|source| AttachedError::NoDescription { path, source })?;
                all.push(attached);
            }
        }
        all.sort_by_key(|attached| attached.minor);
        Ok(all)
    }

    /// Finds the card of a device, given by its path or its name alone (`loop64`).
    ///
    /// # Errors
    /// [`AttachedError::Unknown`] when the run folder has no such card.
    pub fn find(folder: &Path, device: &Path) -> Result<Self, AttachedError> {
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
                Err(AttachedError::Unknown {
                    device: device.clone(),
                    folder: folder.to_owned(),
                    there,
                    next,
                })
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
    ///
    /// # Errors
    /// [`LiveError`] when the kernel refuses.
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
    #[must_use]
    pub const fn device(&self) -> LoopDevice {
        LoopDevice::of_minor(self.minor)
    }

    /// The file behind the loop device.
    #[must_use]
    pub fn card_path(&self) -> PathBuf {
        self.mountpoint.join(CARD_FILE)
    }

    fn description(&self) -> PathBuf {
        self.mountpoint.with_extension("json")
    }

    /// Writes the description.
    ///
    /// # Errors
    /// [`AttachedError::File`].
    pub fn write(&self) -> Result<(), AttachedError> {
        let path = self.description();
        outfile::write(&path, &serde_json::to_vec(self)?).map_err(failed(&path, "written"))
    }

    /// Removes the description and the mount point; ignores missing ones.
    pub fn forget(&self) {
        let _ = std::fs::remove_dir(&self.mountpoint);
        let _ = std::fs::remove_file(self.description());
    }

    /// Mounted file systems of the device.
    ///
    /// # Errors
    /// [`AttachedError::Mounts`].
    pub fn mounts(&self) -> Result<Vec<Mount>, AttachedError> {
        Ok(table::of_device(&self.device().number())?)
    }

    /// The statistics document of the serving process.
    ///
    /// # Errors
    /// [`document::ReadError`].
    pub fn document(&self) -> Result<Document, document::ReadError> {
        document::read(&self.mountpoint)
    }

    /// The command that detaches it.
    #[must_use]
    pub fn detach_command(&self) -> String {
        let command = format!("tidegate emmc detach {}", self.device().path().display());
        match self.mountpoint.parent() {
            Some(folder) if folder != Path::new(RUN_FOLDER) => {
                format!("{command} --run-folder {}", folder.display())
            }
            _ => command,
        }
    }

    /// Ends the connection of a process that does not answer: all requests to the card fail from now on.
    pub fn abort(&self) {
        // Busy, as the loop device has the card open; the connection is ended before the kernel finds that out.
        let _ = unmount(&self.mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE);
    }

    /// The power state.
    ///
    /// # Errors
    /// [`AttachedError::Silent`].
    pub fn power(&self) -> Result<PowerReport, AttachedError> {
        let mut value = vec![0; 4096];
        let length = getxattr(&self.mountpoint, POWER_ATTRIBUTE, value.as_mut_slice())
            .map_err(|source| self.silent(source))?;
        Ok(serde_json::from_slice(&value[..length])?)
    }

    /// Switches the power.
    ///
    /// # Errors
    /// [`AttachedError::Silent`].
    pub fn order_power(&self, order: PowerOrder) -> Result<(), AttachedError> {
        setxattr(
            &self.mountpoint,
            POWER_ATTRIBUTE,
            order.word().as_bytes(),
            XattrFlags::empty(),
        )
        .map_err(|source| self.silent(source))
    }

    fn silent(&self, source: Errno) -> AttachedError {
        AttachedError::Silent {
            device: self.device().path(),
            command: self.detach_command(),
            source,
        }
    }
}
