//! The handle of a device, and the lock it shares with the handles of its volumes.

use std::sync::{Arc, Mutex, MutexGuard};

use media::{Nand, Peb};

use super::core::{Core, Trouble};
use super::order::SyncOrder;
use super::static_check::LebDamage;
use super::summary::{DeviceSummary, VolumeSummary};
use super::table::{NewVolume, SizeInLebs, VolumeTableError};
use super::update::Update;
use super::volume::UbiVolume;
use super::wear::Work;
use crate::attach::VolumeId;
use crate::format::volume_table::VolumeName;
use crate::volume::VolumeGeometry;

/// The only lock of a device. Its holder takes no other lock.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
}

impl Shared {
    /// After a panic under the lock the device is frozen: an invariant may be broken, and writes could rely on it.
    /// Reads continue.
    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            core.freeze("a thread panicked in the middle of an operation; this is a defect of the program");
            self.core.clear_poison();
            core
        })
    }
}

/// Handle of an attached device.
#[derive(Debug)]
pub struct Ubi {
    shared: Arc<Shared>,
}

impl Ubi {
    pub(super) fn from_core(core: Core) -> Self {
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(core),
            }),
        }
    }

    /// Statistics of the device.
    #[must_use]
    pub fn summary(&self) -> DeviceSummary {
        self.shared.lock().summary()
    }

    /// Statistics of the volumes, ordered by number.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeSummary> {
        self.shared.lock().volume_summaries()
    }

    /// The number of the volume with this name.
    #[must_use]
    pub fn volume_named(&self, name: &str) -> Option<VolumeId> {
        let core = self.shared.lock();
        let found = (0..).zip(&core.volumes).find(|(_, volume)| {
            volume
                .as_ref()
                .is_some_and(|volume| volume.record.name.as_bytes() == name.as_bytes())
        });
        found.map(|(number, _)| VolumeId(number))
    }

    /// Opens a volume. The geometry is a snapshot: after a resize, open the volume again.
    ///
    /// The first open of a static volume after the attach reads the whole volume and verifies its CRCs, unless it has
    /// the flag skip-check: [`VolumeTableError::Damaged`] names the first damaged LEB.
    pub fn open(&self, volume: VolumeId) -> Result<UbiVolume, VolumeTableError> {
        let mut core = self.shared.lock();
        let name = core.existing(volume)?.record.name.clone();
        let first = core.static_damage(volume).next().transpose();
        match first {
            Err(trouble) => return Err(core.error(&trouble)),
            Ok(Some(damage)) => {
                return Err(VolumeTableError::Damaged {
                    device: Arc::clone(&core.device),
                    volume,
                    name,
                    damage,
                });
            }
            Ok(None) => {}
        }
        if let Some(state) = core.volume_mut(volume.0) {
            state.checked = true;
        }
        drop(core);
        self.open_damaged(volume)
    }

    /// All damaged LEBs of a static volume, the reason why [`Self::open`] refuses it.
    pub fn damage(&self, volume: VolumeId) -> Result<Vec<LebDamage>, VolumeTableError> {
        let mut core = self.shared.lock();
        core.existing(volume)?;
        let damage: Result<Vec<LebDamage>, Trouble> = core.static_damage(volume).collect();
        damage.map_err(|trouble| core.error(&trouble))
    }

    /// As [`Self::open`], but without verification, to recover a damaged volume. Missing LEBs read as 0xFF.
    pub fn open_damaged(&self, volume: VolumeId) -> Result<UbiVolume, VolumeTableError> {
        let core = self.shared.lock();
        let state = core.existing(volume)?;
        Ok(UbiVolume {
            name: format!("{}:{}", core.device, state.record.name).into(),
            geometry: VolumeGeometry {
                leb_bytes: core.layout.leb_bytes() - state.record.data_padding,
                lebs: state.record.reserved_pebs,
                min_io_bytes: core.layout.min_io_bytes(),
                max_write_bytes: core.geometry.write_unit_bytes(),
            },
            shared: Arc::clone(&self.shared),
            id: volume,
        })
    }

    /// Creates a volume.
    pub fn make_volume(&self, new: NewVolume) -> Result<VolumeId, VolumeTableError> {
        self.shared.lock().make_volume(new)
    }

    /// Removes a volume and discards its content.
    pub fn remove_volume(&self, volume: VolumeId) -> Result<(), VolumeTableError> {
        self.shared.lock().remove_volume(volume)
    }

    /// Renames several volumes atomically; two volumes may swap names.
    pub fn rename_volumes(&self, names: &[(VolumeId, VolumeName)]) -> Result<(), VolumeTableError> {
        self.shared.lock().rename_volumes(names)
    }

    /// Resizes a volume. Shrinking discards the LEBs beyond the new end. Returns the new size in LEBs.
    pub fn resize_volume(&self, volume: VolumeId, size: SizeInLebs) -> Result<u32, VolumeTableError> {
        self.shared.lock().resize_volume(volume, size)
    }

    /// Begins an update that replaces the whole content of a volume with `bytes` bytes.
    pub fn update(&self, volume: VolumeId, bytes: u64) -> Result<Update<'_>, VolumeTableError> {
        Update::begin(&self.shared, volume, bytes)
    }

    /// Does one step of background work.
    pub fn work(&self) -> Result<Work, VolumeTableError> {
        let mut core = self.shared.lock();
        core.work().map_err(|trouble| core.error(&trouble))
    }

    /// Does all pending background work, and waits until everything survives a crash of the host.
    pub fn settle(&self) -> Result<(), VolumeTableError> {
        let mut core = self.shared.lock();
        core.settle().map_err(|trouble| core.error(&trouble))
    }

    /// Links devices whose data depend on each other, such as the members of an array: none erases a block before
    /// earlier writes to all of them survive a crash of the host.
    pub fn sync_together(devices: &[Self]) {
        let hosts = devices.iter().map(|device| {
            let core = device.shared.lock();
            (Arc::clone(&core.device), core.nand.host())
        });
        let orders = SyncOrder::of(hosts);
        for (device, order) in devices.iter().zip(orders) {
            device.shared.lock().sync_order = order;
        }
    }

    /// Reason why the device is read-only, if it is.
    #[must_use]
    pub fn frozen(&self) -> Option<Arc<str>> {
        self.shared.lock().frozen.clone()
    }

    /// The block of each LEB of a volume; `None` if it is not mapped.
    #[must_use]
    pub fn mapping(&self, volume: VolumeId) -> Vec<Option<Peb>> {
        self.shared.lock().mapping(volume)
    }
}
