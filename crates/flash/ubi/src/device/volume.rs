//! Volume handles, shared between threads: the implementation of [`Volume`] and [`MemberVolume`].

use std::num::NonZeroU64;
use std::sync::{Arc, MutexGuard};

use media::Leb;

use super::change::PreparedChange;
use super::core::{Core, Trouble};
use super::handle::Shared;
use crate::attach::{MARK_OF_ARRAY, VolumeId};
use crate::format::VolumeKind;
use crate::volume::{Appended, MemberVolume, ReadPart, UpdateMarker, Volume, VolumeError, VolumeGeometry};

/// A volume of an attached device.
#[derive(Clone, Debug)]
pub struct UbiVolume {
    pub(super) shared: Arc<Shared>,
    pub(super) id: VolumeId,
    pub(super) name: Arc<str>,
    pub(super) geometry: VolumeGeometry,
}

impl UbiVolume {
    /// Volume number.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.id
    }

    fn error(&self, trouble: Trouble, leb: Leb, offset: u32, len: usize) -> VolumeError {
        let volume = Arc::clone(&self.name);
        match trouble {
            Trouble::Device(source) => VolumeError::Device {
                volume,
                leb,
                offset,
                source,
            },
            Trouble::NoFreeBlock => VolumeError::NoSpace { volume, leb },
            Trouble::Frozen(reason) => VolumeError::ReadOnly { volume, reason },
            Trouble::Uncorrectable => VolumeError::Uncorrectable {
                volume,
                leb,
                offset,
                len,
            },
        }
    }

    /// Locks the device after checking that the volume still exists, has not shrunk, and can be used.
    fn usable(&self) -> Result<MutexGuard<'_, Core>, VolumeError> {
        let core = self.shared.lock();
        let wrong = match core.volume(self.id.0) {
            None => Some("the volume was removed"),
            Some(state) if state.record.reserved_pebs < self.geometry.lebs => {
                Some("the volume was made smaller; open it again")
            }
            Some(state) if state.record.update_marker && !state.updating => {
                Some("an update of the volume did not end; update it again before it is used")
            }
            Some(_) => None,
        };
        match wrong {
            None => Ok(core),
            Some(why) => Err(VolumeError::Unusable {
                volume: Arc::clone(&self.name),
                why,
            }),
        }
    }

    /// As [`Self::usable`], for an operation that writes to `leb`.
    fn writable(&self, leb: Leb) -> Result<MutexGuard<'_, Core>, VolumeError> {
        let core = self.usable()?;
        let volume = || Arc::clone(&self.name);
        if core.state(self.id.0).record.kind == VolumeKind::Static {
            return Err(VolumeError::Unusable {
                volume: volume(),
                why: "the volume is static: it is written by an update alone",
            });
        }
        if core.is_change_pending(self.id.0, leb) {
            return Err(VolumeError::ChangePending {
                volume: volume(),
                leb,
            });
        }
        Ok(core)
    }

    /// Runs an operation on the device, regardless of the state of the volume.
    fn on_device<T>(&self, action: impl FnOnce(&mut Core) -> Result<T, Trouble>) -> Result<T, VolumeError> {
        action(&mut self.shared.lock()).map_err(|trouble| self.error(trouble, Leb(0), 0, 0))
    }

    fn map_tagged(&self, leb: Leb, generation: u64) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        let mut core = self.writable(leb)?;
        if core.state(self.id.0).peb(leb).is_some() {
            return Err(VolumeError::AlreadyMapped {
                volume: Arc::clone(&self.name),
                leb,
            });
        }
        core.map(self.id.0, leb, generation)
            .map_err(|trouble| self.error(trouble, leb, 0, 0))
    }
}

impl Volume for UbiVolume {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name, leb, offset, out.len())?;
        let len = out.len();
        self.usable()?
            .read(self.id.0, leb, offset, out)
            .map_err(|trouble| self.error(trouble, leb, offset, len))
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        for part in &*parts {
            self.geometry
                .check_range(&self.name, part.leb, part.offset, part.out.len())?;
        }
        let mut core = self.usable()?;
        let mut uncorrectable = Ok(());
        for part in parts {
            let len = part.out.len();
            match core.read(self.id.0, part.leb, part.offset, part.out) {
                Ok(()) => {}
                Err(trouble) => {
                    let stays_readable = matches!(trouble, Trouble::Uncorrectable);
                    let error = Err(self.error(trouble, part.leb, part.offset, len));
                    if !stays_readable {
                        return error;
                    }
                    uncorrectable = uncorrectable.and(error);
                }
            }
        }
        uncorrectable
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.geometry.check_write(&self.name, leb, offset, data.len())?;
        self.writable(leb)?
            .write(self.id.0, leb, offset, data)
            .map_err(|trouble| self.error(trouble, leb, offset, data.len()))
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        self.geometry.check_write(&self.name, leb, 0, data.len())?;
        self.writable(leb)?
            .change(self.id.0, leb, data, 0)
            .map_err(|trouble| self.error(trouble, leb, 0, data.len()))
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        self.map_tagged(leb, 0)
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        self.writable(leb)?
            .unmap(self.id.0, leb)
            .map_err(|trouble| self.error(trouble, leb, 0, 0))
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        Ok(self.usable()?.state(self.id.0).peb(leb).is_some())
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.on_device(Core::flush)
    }

    fn sync(&self) -> Result<(), VolumeError> {
        self.on_device(Core::sync)
    }

    fn freeze(&self, reason: &str) {
        self.shared.lock().freeze(reason);
    }

    fn frozen(&self) -> Option<Arc<str>> {
        self.shared.lock().frozen.clone()
    }
}

impl MemberVolume for UbiVolume {
    type Prepared = PreparedChange;

    fn generation(&self, leb: Leb) -> Result<Option<u64>, VolumeError> {
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        let mut core = self.usable()?;
        let Some(peb) = core.state(self.id.0).peb(leb) else {
            return Ok(None);
        };
        core.vid_header(peb)
            .map(|header| Some(header.generation))
            .map_err(|trouble| self.error(trouble, leb, 0, 0))
    }

    fn map_with_generation(&self, leb: Leb, generation: NonZeroU64) -> Result<(), VolumeError> {
        self.map_tagged(leb, generation.get())
    }

    fn write_mapped(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.geometry.check_write(&self.name, leb, offset, data.len())?;
        let mut core = self.writable(leb)?;
        if core.state(self.id.0).peb(leb).is_none() {
            return Err(VolumeError::NotMapped {
                volume: Arc::clone(&self.name),
                leb,
            });
        }
        core.write(self.id.0, leb, offset, data)
            .map_err(|trouble| self.error(trouble, leb, offset, data.len()))
    }

    fn prepare_change(
        &self,
        leb: Leb,
        data: &[u8],
        generation: NonZeroU64,
    ) -> Result<PreparedChange, VolumeError> {
        self.geometry.check_write(&self.name, leb, 0, data.len())?;
        self.writable(leb)?
            .prepare_change(self.id.0, leb, data, generation.get())
            .map_err(|trouble| self.error(trouble, leb, 0, data.len()))
    }

    fn commit_change(&self, prepared: PreparedChange) {
        self.shared.lock().commit_change(&prepared);
    }

    fn begin_mark(&self, epoch: NonZeroU64) -> Result<(), VolumeError> {
        self.on_device(|core| core.begin_mark(epoch.get(), MARK_OF_ARRAY))
    }

    fn append_to_mark(&self, page: &[u8]) -> Result<Appended, VolumeError> {
        self.on_device(|core| core.append_to_mark(page))
    }

    fn drop_old_marks(&self) -> Result<(), VolumeError> {
        self.on_device(Core::drop_old_marks)
    }

    fn seal(&self, epoch: NonZeroU64) -> Result<(), VolumeError> {
        self.on_device(|core| core.seal(epoch.get()))
    }

    fn set_update_marker(&self, marker: UpdateMarker) -> Result<(), VolumeError> {
        self.on_device(|core| core.set_update_of_array(self.id, marker == UpdateMarker::Set))
    }

    fn drop_marks(&self) -> Result<(), VolumeError> {
        self.on_device(Core::drop_marks)
    }

    fn abandon_change(&self, prepared: PreparedChange) -> Result<(), VolumeError> {
        self.shared
            .lock()
            .abandon_change(&prepared)
            .map_err(|trouble| self.error(trouble, prepared.leb, 0, 0))
    }
}
