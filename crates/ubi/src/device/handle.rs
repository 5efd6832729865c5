//! Handles: the device, and its volumes, which are shared between threads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::{Leb, Nand, Peb};

use super::change::PreparedChange;
use super::core::{Core, Trouble, VolumeState, layout_volume_record};
use super::static_check::LebDamage;
use super::summary::{DeviceSummary, VolumeSummary};
use super::table::{NewVolume, SizeInLebs, VolumeTableError};
use super::update::Update;
use super::wear::Work;
use crate::attach::{Access, AttachError, AttachOptions, Survey, VolumeId};
use crate::format::VolumeKind;
use crate::format::volume_table::{VolumeName, VolumeTable};
use crate::peb_table::PebState;
use crate::volume::{MemberVolume, ReadPart, Volume, VolumeError, VolumeGeometry};

/// The one lock of a device. Whoever holds it takes no other.
#[derive(Debug)]
pub(super) struct Shared<N> {
    core: Mutex<Core<N>>,
}

impl<N> Shared<N> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Core<N>> {
        // A thread that panicked here broke an invariant and said so; the others get errors of their own.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attached device.
#[derive(Debug)]
pub struct Ubi<N> {
    shared: Arc<Shared<N>>,
}

impl<N: Nand> Ubi<N> {
    pub(crate) fn from_scan(
        nand: N,
        options: AttachOptions,
        survey: Survey,
        table: VolumeTable,
        stale_copy: Option<u32>,
    ) -> Result<Self, AttachError> {
        let erase_first = survey.erase_first.len();
        let mut core = build(nand, options, survey, table)?;
        if options.access == Access::ReadWrite && core.frozen.is_none() {
            prepare_for_writing(&mut core, erase_first, stale_copy)?;
        }
        Ok(Self::from_core(core))
    }

    pub(super) fn from_core(core: Core<N>) -> Self {
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(core),
            }),
        }
    }

    /// Figures of the device.
    #[must_use]
    pub fn summary(&self) -> DeviceSummary {
        self.shared.lock().summary()
    }

    /// Figures of its volumes, by number.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeSummary> {
        self.shared.lock().volume_summaries()
    }

    /// The number of the volume that is called so.
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

    /// A handle of a volume. Its geometry is that of this moment: after a resize, open it again.
    ///
    /// A static volume that is opened for the first time since the attach is read to its end and held against its CRCs,
    /// unless it has the flag skip-check: [`VolumeTableError::Damaged`] names the first LEB that is not what was written.
    pub fn open(&self, volume: VolumeId) -> Result<UbiVolume<N>, VolumeTableError> {
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

    /// Everything that is wrong with a static volume, LEB by LEB: what [`Self::open`] refuses it for.
    pub fn damage(&self, volume: VolumeId) -> Result<Vec<LebDamage>, VolumeTableError> {
        let mut core = self.shared.lock();
        core.existing(volume)?;
        let damage: Result<Vec<LebDamage>, Trouble> = core.static_damage(volume).collect();
        damage.map_err(|trouble| core.error(&trouble))
    }

    /// The same as [`Self::open`] without a look at the content, for who wants what is left of it. Missing LEBs read as 0xFF.
    pub fn open_damaged(&self, volume: VolumeId) -> Result<UbiVolume<N>, VolumeTableError> {
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

    /// Makes a volume.
    pub fn make_volume(&self, new: NewVolume) -> Result<VolumeId, VolumeTableError> {
        self.shared.lock().make_volume(new)
    }

    /// Removes a volume and forgets its content.
    pub fn remove_volume(&self, volume: VolumeId) -> Result<(), VolumeTableError> {
        self.shared.lock().remove_volume(volume)
    }

    /// Renames volumes, all at once or none: two may exchange their names.
    pub fn rename_volumes(&self, names: &[(VolumeId, VolumeName)]) -> Result<(), VolumeTableError> {
        self.shared.lock().rename_volumes(names)
    }

    /// Makes a volume larger, or smaller: LEBs beyond the new end are forgotten. Returns its size.
    pub fn resize_volume(&self, volume: VolumeId, size: SizeInLebs) -> Result<u32, VolumeTableError> {
        self.shared.lock().resize_volume(volume, size)
    }

    /// Begins to replace the whole content of a volume by `bytes` bytes.
    pub fn update(&self, volume: VolumeId, bytes: u64) -> Result<Update<'_, N>, VolumeTableError> {
        Update::begin(&self.shared, volume, bytes)
    }

    /// Does one step of background work.
    pub fn work(&self) -> Result<Work, VolumeTableError> {
        let mut core = self.shared.lock();
        core.work().map_err(|trouble| core.error(&trouble))
    }

    /// Does background work until there is none, and waits until everything survives a crash of the host.
    pub fn settle(&self) -> Result<(), VolumeTableError> {
        let mut core = self.shared.lock();
        // Every step ends an erase, moves a block once, or lets one go: more than twice all blocks is not possible.
        for _ in 0..core.pebs.blocks().saturating_mul(4) {
            match core.work() {
                Ok(Work::Idle) => break,
                Ok(_) => {}
                Err(trouble) => return Err(core.error(&trouble)),
            }
        }
        let synced = core.nand.sync();
        synced.map_err(|error| core.error(&Trouble::Device(error)))
    }

    /// Why nothing is written any more.
    #[must_use]
    pub fn frozen(&self) -> Option<Arc<str>> {
        self.shared.lock().frozen.clone()
    }

    /// The block of each LEB of a volume; `None` where it is not mapped.
    #[must_use]
    pub fn mapping(&self, volume: VolumeId) -> Vec<Option<Peb>> {
        self.shared.lock().mapping(volume)
    }
}

fn build<N: Nand>(
    nand: N,
    options: AttachOptions,
    survey: Survey,
    table: VolumeTable,
) -> Result<Core<N>, AttachError> {
    let reserve = u64::from(survey.geometry.blocks()) * u64::from(options.bad_block_reserve_per_1024);
    let reserve = u32::try_from(reserve.div_ceil(1024)).unwrap_or(u32::MAX);
    let frozen = match options.access {
        Access::ReadOnly => Some("attached for reading".into()),
        Access::ReadWrite => survey.writing_forbidden.clone(),
    };
    let waiting = |peb: &Peb| survey.pebs.state(*peb) == PebState::Erase;
    let first = || survey.erase_first.iter().map(|(_, peb)| *peb);
    let later = |peb: &Peb| waiting(peb) && !first().any(|first| first == *peb);
    let rest = survey.geometry.pebs().filter(later);
    let erase_queue = first().chain(rest).collect();
    let mut core = Core {
        nand,
        device: survey.device,
        geometry: survey.geometry,
        layout: survey.layout,
        options,
        image_sequence: survey.image_sequence,
        pebs: survey.pebs,
        volumes: table
            .into_iter()
            .map(|record| record.map(VolumeState::new))
            .collect(),
        layout_volume: VolumeState::new(layout_volume_record()),
        last_sequence_number: survey.last_sequence_number,
        bad_block_reserve: reserve.saturating_sub(survey.tally.bad),
        frozen,
        erase_queue,
        pending_changes: Vec::new(),
    };
    for found in survey.found.iter().filter(|found| found.chosen) {
        let profile = survey.profiles[usize::from(found.profile)];
        if let Some(volume) = core.volume_mut(profile.volume) {
            volume.set_peb(Leb(found.leb), Some(found.peb));
            volume.used_lebs = profile.used_lebs;
        }
    }
    read_sizes_of_static_volumes(&mut core)?;
    Ok(core)
}

/// The last LEB of a static volume says how many bytes it has; the table does not.
fn read_sizes_of_static_volumes<N: Nand>(core: &mut Core<N>) -> Result<(), AttachError> {
    for number in 0..core.volumes.len() {
        let Some(volume) = &core.volumes[number] else {
            continue;
        };
        let last = volume.used_lebs.checked_sub(1).map(Leb);
        let Some(peb) = last
            .filter(|leb| leb.0 < volume.lebs())
            .and_then(|leb| volume.peb(leb))
        else {
            continue;
        };
        let size = match core.vid_header(peb) {
            Ok(header) => header.data_size,
            Err(Trouble::Device(error)) => return Err(error.into()),
            Err(_) => 0,
        };
        if let Some(volume) = &mut core.volumes[number] {
            volume.last_leb_bytes = size;
        }
    }
    Ok(())
}

fn prepare_for_writing<N: Nand>(
    core: &mut Core<N>,
    erase_first: usize,
    stale_copy: Option<u32>,
) -> Result<(), AttachError> {
    core.layout
        .check_writable()
        .map_err(|source| AttachError::Layout {
            device: Arc::clone(&core.device),
            peb: Peb(0),
            source,
        })?;
    let (needed, available) = (core.needed_blocks(), core.usable_blocks());
    if needed > available {
        return Err(AttachError::TooFewBlocks {
            device: Arc::clone(&core.device),
            needed,
            available,
        });
    }
    // What is promised to volumes goes first; what is kept back for bad blocks is what can be had.
    core.bad_block_reserve = core.bad_block_reserve.min(available - needed);
    let mut repair = || {
        for _ in 0..erase_first {
            core.erase_one()?;
        }
        if let Some(copy) = stale_copy {
            let table = core.table();
            core.write_table_copy(&table, copy)?;
        }
        core.autoresize()
    };
    repair().map_err(|trouble: Trouble| AttachError::Repair {
        device: Arc::clone(&core.device),
        why: core.error(&trouble).to_string(),
    })
}

/// A volume of an attached device.
#[derive(Debug)]
pub struct UbiVolume<N> {
    shared: Arc<Shared<N>>,
    id: VolumeId,
    name: Arc<str>,
    geometry: VolumeGeometry,
}

impl<N> Clone for UbiVolume<N> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            id: self.id,
            name: Arc::clone(&self.name),
            geometry: self.geometry,
        }
    }
}

impl<N: Nand> UbiVolume<N> {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> VolumeId {
        self.id
    }

    fn error(&self, trouble: Trouble, leb: Leb, offset: u32, len: usize) -> VolumeError {
        let volume = Arc::clone(&self.name);
        match trouble {
            Trouble::Device(source) => VolumeError::Device { volume, leb, source },
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

    /// The device, once it is sure that the volume is still there with at least the LEBs it had, and can be used.
    fn usable(&self) -> Result<MutexGuard<'_, Core<N>>, VolumeError> {
        let core = self.shared.lock();
        let wrong = match core.volume(self.id.0) {
            None => Some("the volume was removed"),
            Some(state) if state.record.reserved_pebs < self.geometry.lebs => {
                Some("the volume was made smaller; open it again")
            }
            Some(state) if state.record.update_marker => {
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

    /// The same for an operation that writes to `leb`.
    fn writable(&self, leb: Leb) -> Result<MutexGuard<'_, Core<N>>, VolumeError> {
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

impl<N: Nand> Volume for UbiVolume<N> {
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
            .change(self.id.0, leb, data)
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
        self.usable()?
            .flush()
            .map_err(|trouble| self.error(trouble, Leb(0), 0, 0))
    }

    fn sync(&self) -> Result<(), VolumeError> {
        let synced = self.usable()?.nand.sync();
        synced.map_err(|error| self.error(Trouble::Device(error), Leb(0), 0, 0))
    }

    fn freeze(&self, reason: &str) {
        self.shared.lock().freeze(reason);
    }

    fn frozen(&self) -> Option<Arc<str>> {
        self.shared.lock().frozen.clone()
    }
}

impl<N: Nand> MemberVolume for UbiVolume<N> {
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

    fn map_with_generation(&self, leb: Leb, generation: u64) -> Result<(), VolumeError> {
        self.map_tagged(leb, generation)
    }

    fn prepare_change(&self, leb: Leb, data: &[u8], generation: u64) -> Result<PreparedChange, VolumeError> {
        self.geometry.check_write(&self.name, leb, 0, data.len())?;
        self.writable(leb)?
            .prepare_change(self.id.0, leb, data, generation)
            .map_err(|trouble| self.error(trouble, leb, 0, data.len()))
    }

    fn commit_change(&self, prepared: PreparedChange) -> Result<(), VolumeError> {
        self.shared
            .lock()
            .commit_change(&prepared)
            .map_err(|trouble| self.error(trouble, prepared.leb, 0, 0))
    }

    fn abandon_change(&self, prepared: PreparedChange) -> Result<(), VolumeError> {
        self.shared
            .lock()
            .abandon_change(&prepared)
            .map_err(|trouble| self.error(trouble, prepared.leb, 0, 0))
    }
}
