//! The state of a device, and the operations on LEBs: read, write, map, unmap.
//!
//! Invariant: a block in state `Used`, `Scrub` or `Stuck` is in exactly one EBA table, all others are in none. Order
//! of a write to an unmapped LEB: VID header, data. Order of a change: VID header with copy flag and CRC, data, then
//! the EBA table in memory; the old block is erased later. So after a power cut a scan finds the old block, the new
//! one, or both, and can tell which one is valid.

use std::sync::Arc;

use media::{Leb, Nand, NandError, NandGeometry, Peb, index};

use super::mark::OpenMark;
use super::order::{EraseQueue, SyncOrder, UnmappedLebs};
use crate::attach::{AttachOptions, MemberState, RawHeaders, Seen};
use crate::format::volume_table::VolumeRecord;
use crate::format::{Compatibility, LAYOUT_VOLUME, LAYOUT_VOLUME_LEBS, VidHeader, VolumeKind, crc32};
use crate::layout::Layout;
use crate::peb_table::{PebState, PebTable};
use crate::retry;

/// Error of an operation on a device.
#[derive(Debug)]
pub(crate) enum Trouble {
    Device(NandError),
    NoFreeBlock,
    Frozen(Arc<str>),
    /// An uncorrectable error.
    Uncorrectable,
}

impl From<NandError> for Trouble {
    fn from(error: NandError) -> Self {
        Self::Device(error)
    }
}

const NOT_MAPPED: u32 = u32::MAX;

/// A volume in memory.
#[derive(Debug)]
pub(crate) struct VolumeState {
    pub(crate) record: VolumeRecord,
    /// EBA table: the block of each LEB.
    pebs: Vec<u32>,
    /// Static volumes: LEBs with data, and bytes in the last of them.
    pub(crate) used_lebs: u32,
    pub(crate) last_leb_bytes: u32,
    /// Static volumes: the CRCs were verified, or written, since the attach.
    pub(crate) checked: bool,
    /// An update by an array is in progress; the update marker in the table is set meanwhile.
    pub(crate) updating: bool,
}

impl VolumeState {
    pub(crate) fn new(record: VolumeRecord) -> Self {
        Self {
            pebs: vec![NOT_MAPPED; index(record.reserved_pebs)],
            record,
            used_lebs: 0,
            last_leb_bytes: 0,
            checked: false,
            updating: false,
        }
    }

    pub(crate) fn peb(&self, leb: Leb) -> Option<Peb> {
        let peb = self.pebs[index(leb.0)];
        (peb != NOT_MAPPED).then_some(Peb(peb))
    }

    pub(crate) fn set_peb(&mut self, leb: Leb, peb: Option<Peb>) {
        self.pebs[index(leb.0)] = peb.map_or(NOT_MAPPED, |peb| peb.0);
    }

    pub(crate) fn resize(&mut self, lebs: u32) {
        self.record.reserved_pebs = lebs;
        self.pebs.resize(index(lebs), NOT_MAPPED);
        self.pebs.shrink_to_fit();
    }

    pub(crate) fn lebs(&self) -> u32 {
        u32::try_from(self.pebs.len()).expect("it was made from 32 bits")
    }

    pub(crate) fn mapped(&self) -> u32 {
        let mapped = self.pebs.iter().filter(|peb| **peb != NOT_MAPPED).count();
        u32::try_from(mapped).expect("at most all")
    }

    pub(crate) fn leb_of(&self, peb: Peb) -> Option<Leb> {
        let place = self.pebs.iter().position(|mapped| *mapped == peb.0)?;
        Some(Leb(u32::try_from(place).expect("LEBs have 32 bits")))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.pebs.capacity() * size_of::<u32>() + self.record.name.as_bytes().len()
    }
}

/// An attached device; see the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) nand: Box<dyn Nand>,
    pub(crate) device: Arc<str>,
    pub(crate) geometry: NandGeometry,
    pub(crate) layout: Layout,
    pub(crate) options: AttachOptions,
    pub(crate) image_sequence: u32,
    pub(crate) pebs: PebTable,
    /// Indexed by volume number.
    pub(crate) volumes: Vec<Option<VolumeState>>,
    pub(crate) layout_volume: VolumeState,
    pub(crate) last_sequence_number: u64,
    /// Blocks left in the bad block reserve.
    pub(crate) bad_block_reserve: u32,
    pub(crate) frozen: Option<Arc<str>>,
    pub(crate) sync_order: SyncOrder,
    pub(crate) erase_queue: EraseQueue,
    pub(crate) unmapped: UnmappedLebs,
    /// LEBs with a prepared change, which must not be moved or changed until it is committed or abandoned.
    pub(crate) pending_changes: Vec<(u32, Leb)>,
    /// State of its array at the attach.
    pub(crate) member_state: MemberState,
    /// The mark of an array that is open for writing.
    pub(crate) mark: Option<OpenMark>,
    /// Former marks, obsolete as soon as the current mark contains all their information.
    pub(crate) old_marks: Vec<Peb>,
}

/// Attempts to write data; if it fails on this many blocks in a row, the blocks are not the cause.
const ATTEMPTS: u32 = 4;

impl Core {
    pub(crate) fn volume(&self, volume: u32) -> Option<&VolumeState> {
        match volume {
            LAYOUT_VOLUME => Some(&self.layout_volume),
            _ => self.volumes.get(index(volume))?.as_ref(),
        }
    }

    pub(crate) fn volume_mut(&mut self, volume: u32) -> Option<&mut VolumeState> {
        match volume {
            LAYOUT_VOLUME => Some(&mut self.layout_volume),
            _ => self.volumes.get_mut(index(volume))?.as_mut(),
        }
    }

    /// The volume, which the caller has looked up before.
    pub(crate) fn state(&self, volume: u32) -> &VolumeState {
        self.volume(volume)
            .expect("the caller knows that the volume is there")
    }

    fn state_mut(&mut self, volume: u32) -> &mut VolumeState {
        self.volume_mut(volume)
            .expect("the caller knows that the volume is there")
    }

    pub(crate) fn check_writable(&self) -> Result<(), Trouble> {
        match &self.frozen {
            None => Ok(()),
            Some(reason) => Err(Trouble::Frozen(Arc::clone(reason))),
        }
    }

    pub(crate) fn freeze(&mut self, reason: impl Into<Arc<str>>) {
        self.frozen.get_or_insert(reason.into());
    }

    /// Handles an error that no other block would avoid: freezes the device.
    pub(crate) fn fatal(&mut self, error: NandError) -> Trouble {
        self.freeze(format!("{error}"));
        Trouble::Device(error)
    }

    /// Waits until all writes survive a crash of the host.
    pub(crate) fn sync(&mut self) -> Result<(), Trouble> {
        let erased = self.erase_queue.popped();
        let Self { nand, sync_order, .. } = self;
        sync_order.sync(|| nand.sync())?;
        self.unmapped.forget(erased);
        Ok(())
    }

    pub(crate) fn next_sequence_number(&mut self) -> u64 {
        self.last_sequence_number += 1;
        self.last_sequence_number
    }

    /// VID header of a LEB with arbitrary content, without copy flag.
    pub(crate) fn plain_header(&self, volume: u32, leb: Leb, generation: u64) -> VidHeader {
        let record = &self.state(volume).record;
        VidHeader {
            kind: VolumeKind::Dynamic,
            copied: false,
            compatibility: match volume {
                LAYOUT_VOLUME => Compatibility::Reject,
                _ => Compatibility::None,
            },
            volume,
            leb: leb.0,
            data_size: 0,
            used_lebs: 0,
            data_padding: record.data_padding,
            data_crc: 0,
            sequence_number: 0,
            generation,
        }
    }

    /// VID header, with copy flag and CRC, of a LEB that holds exactly `data`; without data, a plain header.
    pub(crate) fn copied_header(&self, volume: u32, leb: Leb, generation: u64, data: &[u8]) -> VidHeader {
        let plain = self.plain_header(volume, leb, generation);
        if data.is_empty() {
            return plain;
        }
        VidHeader {
            copied: true,
            data_size: u32::try_from(data.len()).expect("at most a LEB"),
            data_crc: crc32(data),
            ..plain
        }
    }

    pub(crate) fn read(&mut self, volume: u32, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), Trouble> {
        let Some(peb) = self.state(volume).peb(leb) else {
            out.fill(0xFF);
            return Ok(());
        };
        let report = retry::read(&mut self.nand, peb, self.layout.data_offset() + offset, out)?;
        if !report.is_correct() {
            return Err(Trouble::Uncorrectable);
        }
        if report.needs_scrub(&self.geometry) && self.pebs.state(peb) == PebState::Used {
            self.pebs.set_state(peb, PebState::Scrub);
        }
        Ok(())
    }

    /// Reads the VID header of a mapped block.
    pub(crate) fn vid_header(&mut self, peb: Peb) -> Result<VidHeader, Trouble> {
        let raw = RawHeaders::read(&mut self.nand, peb, &self.layout)?;
        match raw.vid(self.layout.leb_bytes()) {
            Seen::Header { header, .. } => Ok(header),
            Seen::Erased { .. } | Seen::Damaged { .. } | Seen::Refused(_) => Err(Trouble::Uncorrectable),
        }
    }

    pub(crate) fn write(&mut self, volume: u32, leb: Leb, offset: u32, data: &[u8]) -> Result<(), Trouble> {
        self.check_writable()?;
        let Some(peb) = self.state(volume).peb(leb) else {
            self.settle_unmapped(volume, leb)?;
            let header = self.plain_header(volume, leb, 0);
            let peb = self.write_fresh(header, offset, data)?;
            self.assign(volume, leb, peb);
            return Ok(());
        };
        if data.is_empty() {
            return Ok(());
        }
        match self.nand.program(peb, self.layout.data_offset() + offset, data) {
            Ok(()) => Ok(()),
            Err(error) if error.is_block_failure() => {
                self.rescue(volume, leb, peb, offset, data)?;
                // Already queued for its erase; torture it, too.
                self.pebs.set_state(peb, PebState::Torture);
                Ok(())
            }
            // Power went, or the process ended, as the program of this page began: it reads as blank.
            Err(NandError::NotErased { .. }) if self.is_blank_from(peb, offset)? => {
                self.rescue(volume, leb, peb, offset, data)
            }
            Err(error) => Err(self.fatal(error)),
        }
    }

    /// Whether a block reads as erased from an offset in its data area on.
    fn is_blank_from(&mut self, peb: Peb, offset: u32) -> Result<bool, Trouble> {
        let mut page = vec![0; index(self.layout.min_io_bytes())];
        for at in (offset..self.layout.leb_bytes()).step_by(page.len()) {
            let report = retry::read(&mut self.nand, peb, self.layout.data_offset() + at, &mut page)?;
            if !report.is_correct() || page.iter().any(|byte| *byte != 0xFF) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A block with data takes no more: writes the existing data and the new data to another block.
    fn rescue(
        &mut self,
        volume: u32,
        leb: Leb,
        failed: Peb,
        offset: u32,
        data: &[u8],
    ) -> Result<(), Trouble> {
        let mut whole = vec![0; index(offset) + data.len()];
        let (before, rest) = whole.split_at_mut(index(offset));
        rest.copy_from_slice(data);
        let report = retry::read(&mut self.nand, failed, self.layout.data_offset(), before)?;
        let old = match report.is_correct() {
            true => self.vid_header(failed),
            false => Err(Trouble::Uncorrectable),
        };
        let Ok(old) = old else {
            self.freeze(format!(
                "{failed} failed while it was written, and its data can't be read any more"
            ));
            return Err(Trouble::Uncorrectable);
        };
        let header = self.copied_header(volume, leb, old.generation, &whole);
        let fresh = self.write_fresh(header, 0, &whole)?;
        self.assign(volume, leb, fresh);
        Ok(())
    }

    pub(crate) fn map(&mut self, volume: u32, leb: Leb, generation: u64) -> Result<(), Trouble> {
        self.check_writable()?;
        self.settle_unmapped(volume, leb)?;
        let header = self.plain_header(volume, leb, generation);
        let peb = self.write_fresh(header, 0, &[])?;
        self.assign(volume, leb, peb);
        Ok(())
    }

    pub(crate) fn unmap(&mut self, volume: u32, leb: Leb) -> Result<(), Trouble> {
        self.check_writable()?;
        if let Some(peb) = self.state(volume).peb(leb) {
            self.state_mut(volume).set_peb(leb, None);
            self.erase_later(peb, PebState::Erase);
            self.unmapped
                .note(volume, leb, &self.sync_order, &self.erase_queue);
        }
        Ok(())
    }

    /// Called before an unmapped LEB is mapped, so that after a crash of the host it has either its new block or
    /// none.
    fn settle_unmapped(&mut self, volume: u32, leb: Leb) -> Result<(), Trouble> {
        if !self.unmapped.has(volume, leb) {
            return Ok(());
        }
        self.flush()?;
        self.sync()
    }

    /// Appends a block to the erase queue, for an erase or a torture test.
    pub(crate) fn erase_later(&mut self, peb: Peb, how: PebState) {
        self.pebs.set_state(peb, how);
        self.erase_queue.push(peb, &self.sync_order);
    }

    /// Maps a LEB to a `Held` block. The LEB's former block is erased later.
    pub(crate) fn assign(&mut self, volume: u32, leb: Leb, peb: Peb) {
        assert_eq!(self.pebs.state(peb), PebState::Held, "{peb} is given to {leb}");
        if let Some(old) = self.state(volume).peb(leb) {
            self.erase_later(old, PebState::Erase);
        }
        self.state_mut(volume).set_peb(leb, Some(peb));
        self.pebs.set_state(peb, PebState::Used);
    }

    /// Writes a VID header and data to a free block, which becomes `Held`. Blocks that fail are queued for torture.
    pub(crate) fn write_fresh(
        &mut self,
        header: VidHeader,
        offset: u32,
        data: &[u8],
    ) -> Result<Peb, Trouble> {
        let mut attempt = 1;
        // Each block has such a page at most once: it is erased before its next turn.
        let mut not_erased = 0;
        loop {
            let peb = self.take_free()?;
            match self.write_into(peb, header, offset, data) {
                Ok(()) => return Ok(peb),
                // Left by a power cut during an erase, by a crash of the host that lost the header of a block and kept
                // its data, or by a program that left no trace except in the chip's own bookkeeping.
                Err(NandError::NotErased { .. }) if not_erased < self.geometry.blocks() => {
                    self.erase_later(peb, PebState::Erase);
                    not_erased += 1;
                }
                Err(error) if attempt == ATTEMPTS => return Err(self.fatal(error)),
                Err(error) if error.is_block_failure() => {
                    self.erase_later(peb, PebState::Torture);
                    attempt += 1;
                }
                Err(error) => return Err(self.fatal(error)),
            }
        }
    }

    pub(crate) fn write_into(
        &mut self,
        peb: Peb,
        header: VidHeader,
        offset: u32,
        data: &[u8],
    ) -> Result<(), NandError> {
        let sequence_number = self.next_sequence_number();
        let header = VidHeader {
            sequence_number,
            ..header
        };
        let (start, bytes) = self.layout.vid_program_of(&header.encode());
        self.nand.program(peb, start, &bytes)?;
        if data.is_empty() {
            return Ok(());
        }
        let data_offset = self.layout.data_offset() + offset;
        let unit = index(self.layout.min_io_bytes());
        let whole = data.len() - data.len() % unit;
        if whole > 0 {
            self.nand.program(peb, data_offset, &data[..whole])?;
        }
        if whole < data.len() {
            let mut last = data[whole..].to_vec();
            last.resize(unit, 0xFF);
            let at = data_offset + u32::try_from(whole).expect("less than a LEB");
            self.nand.program(peb, at, &last)?;
        }
        Ok(())
    }

    /// All volumes with their numbers, including the layout volume.
    pub(crate) fn all_volumes(&self) -> impl Iterator<Item = (u32, &VolumeState)> {
        (0..)
            .zip(&self.volumes)
            .filter_map(|(number, volume)| Some((number, volume.as_ref()?)))
            .chain([(LAYOUT_VOLUME, &self.layout_volume)])
    }

    /// Volume and LEB mapped to a block.
    pub(crate) fn owner_of(&self, peb: Peb) -> Option<(u32, Leb)> {
        self.all_volumes()
            .find_map(|(number, volume)| Some((number, volume.leb_of(peb)?)))
    }
}

/// Record of the layout volume, which is not in the volume table.
pub(crate) fn layout_volume_record() -> VolumeRecord {
    VolumeRecord {
        reserved_pebs: LAYOUT_VOLUME_LEBS,
        alignment: 1,
        data_padding: 0,
        kind: VolumeKind::Dynamic,
        update_marker: false,
        name: crate::format::volume_table::VolumeName::new(b"layout volume").expect("a name"),
        autoresize: false,
        skip_check: false,
    }
}
