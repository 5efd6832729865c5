//! Builds the state of a device from the result of a scan, and makes the repairs that must precede other writes.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;

use media::{Leb, Nand, Peb, index};

use super::core::{Core, Trouble, VolumeState, layout_volume_record};
use super::handle::Ubi;
use super::order::{EraseQueue, SyncOrder, UnmappedLebs};
use crate::attach::{Access, AttachError, AttachOptions, DROPPED, MARK_OF_ARRAY, MARK_OF_ONE, Survey};
use crate::format::volume_table::VolumeTable;
use crate::peb_table::PebState;

/// The state of a device before the first write.
pub(super) fn build(
    nand: Box<dyn Nand>,
    options: AttachOptions,
    survey: Survey,
    table: VolumeTable,
) -> Result<Core, AttachError> {
    let reserve = u64::from(survey.geometry.blocks()) * u64::from(options.bad_block_reserve_per_1024);
    let reserve = u32::try_from(reserve.div_ceil(1024)).unwrap_or(u32::MAX);
    let frozen = match options.access {
        Access::ReadOnly => Some("attached for reading".into()),
        Access::ReadWrite => survey.writing_forbidden.clone(),
    };
    let member_state = survey.member_state();
    let waiting = |peb: &Peb| survey.pebs.state(*peb) == PebState::Erase;
    let first = || survey.erase_first.iter().map(|(_, peb)| *peb).filter(&waiting);
    let later = |peb: &Peb| waiting(peb) && !first().any(|first| first == *peb);
    let mut erase_queue = VecDeque::with_capacity(index(survey.pebs.counts().of(PebState::Erase)));
    erase_queue.extend(first());
    erase_queue.extend(survey.geometry.pebs().filter(later));
    let sync_order = SyncOrder::alone(&nand);
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
        sync_order,
        erase_queue: EraseQueue::of(erase_queue),
        unmapped: UnmappedLebs::default(),
        pending_changes: Vec::new(),
        member_state,
        mark: None,
        old_marks: survey.marks.iter().map(|mark| mark.peb).collect(),
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

/// The last LEB of a static volume determines its size in bytes; the volume table does not record it.
fn read_sizes_of_static_volumes(core: &mut Core) -> Result<(), AttachError> {
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

/// An attached device whose pending repairs have not been written yet.
#[derive(Debug)]
pub struct Unwritten {
    core: Core,
    /// Number of fastmap anchors, which the first write makes stale; they are at the front of the erase queue.
    anchors: usize,
    /// Number of dropped blocks that must not reappear; they follow the anchors in the erase queue.
    dropped: usize,
    stale_copy: Option<u32>,
}

impl Unwritten {
    /// Fails for every condition that forbids an attach for writing.
    pub(crate) fn from_scan(
        nand: Box<dyn Nand>,
        options: AttachOptions,
        survey: Survey,
        table: VolumeTable,
        stale_copy: Option<u32>,
    ) -> Result<Self, AttachError> {
        let waiting = |(_, peb): &&(u64, Peb)| survey.pebs.state(*peb) == PebState::Erase;
        let first: Vec<u64> = survey
            .erase_first
            .iter()
            .filter(waiting)
            .map(|(age, _)| *age)
            .collect();
        let anchors = first.iter().filter(|age| **age != DROPPED).count();
        let mut core = build(nand, options, survey, table)?;
        if core.frozen.is_none() {
            check_writable(&mut core)?;
        }
        Ok(Self {
            core,
            anchors,
            dropped: first.len() - anchors,
            stale_copy,
        })
    }

    /// Reason why the device is read-only, if it is.
    #[must_use]
    pub const fn frozen(&self) -> Option<&Arc<str>> {
        self.core.frozen.as_ref()
    }

    /// Erases the blocks that the owner of the volume dropped ([`crate::Scanned::erase_first`]), before any other
    /// write.
    pub fn erase_dropped(&mut self) -> Result<(), AttachError> {
        if self.core.frozen.is_some() {
            return Ok(());
        }
        let erased = self.erase_anchors().and_then(|()| self.erase_all_dropped());
        erased.map_err(|trouble| self.error(&trouble))
    }

    /// Erases redundant former marks.
    pub fn erase_marks(&mut self, marks: &[Peb]) -> Result<(), AttachError> {
        if self.core.frozen.is_some() {
            return Ok(());
        }
        let erased = self.erase_anchors().and_then(|()| self.core.erase_marks(marks));
        erased.map_err(|trouble| self.error(&trouble))
    }

    /// Marks a member of an array that is being opened for writing. No member is written to before all are marked.
    pub fn mark(&mut self, epoch: NonZeroU64) -> Result<(), AttachError> {
        self.put_mark(epoch.get(), MARK_OF_ARRAY)
    }

    /// Waits until everything written survives a crash of the host, if there is one.
    pub fn sync_host(&mut self) -> Result<(), AttachError> {
        if self.core.frozen.is_some() || self.core.nand.host().is_none() {
            return Ok(());
        }
        let synced = self.core.sync();
        synced.map_err(|trouble| self.error(&trouble))
    }

    /// Marks a member that is attached without its array.
    pub(crate) fn mark_alone(&mut self, epoch: u64) -> Result<(), AttachError> {
        self.put_mark(epoch, MARK_OF_ONE)
    }

    fn put_mark(&mut self, epoch: u64, kind: u32) -> Result<(), AttachError> {
        if self.core.frozen.is_some() {
            return Ok(());
        }
        let marked = self
            .erase_anchors()
            .and_then(|()| self.core.begin_mark(epoch, kind));
        marked.map_err(|trouble| self.error(&trouble))
    }

    /// Repairs the traces of interrupted operations, and carries out a pending autoresize.
    pub fn finish(mut self) -> Result<Ubi, AttachError> {
        if self.core.frozen.is_none() {
            self.repair().map_err(|trouble| self.error(&trouble))?;
        }
        Ok(Ubi::from_core(self.core))
    }

    /// As [`Self::finish`], but makes the device read-only, because another member of the array is not writable.
    pub fn finish_unwritten(mut self) -> Result<Ubi, AttachError> {
        self.core
            .freeze("another member of the array can't be written to");
        Ok(Ubi::from_core(self.core))
    }

    fn repair(&mut self) -> Result<(), Trouble> {
        self.erase_anchors()?;
        self.erase_all_dropped()?;
        if let Some(copy) = self.stale_copy {
            let table = self.core.table();
            self.core.write_table_copy(&table, copy, 0)?;
        }
        self.core.autoresize()
    }

    fn erase_anchors(&mut self) -> Result<(), Trouble> {
        for _ in 0..std::mem::take(&mut self.anchors) {
            self.core.erase_one()?;
        }
        Ok(())
    }

    fn erase_all_dropped(&mut self) -> Result<(), Trouble> {
        for _ in 0..std::mem::take(&mut self.dropped) {
            self.core.erase_one()?;
        }
        Ok(())
    }

    fn error(&self, trouble: &Trouble) -> AttachError {
        AttachError::Repair {
            device: Arc::clone(&self.core.device),
            why: self.core.error(trouble).to_string(),
        }
    }
}

fn check_writable(core: &mut Core) -> Result<(), AttachError> {
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
    // Volumes have priority; the bad block reserve gets the remaining blocks.
    core.bad_block_reserve = core.bad_block_reserve.min(available - needed);
    Ok(())
}
