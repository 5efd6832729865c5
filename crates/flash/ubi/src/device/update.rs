//! The update of a volume: replaces its whole content, with a marker in the volume table while it is neither old nor
//! new.
//!
//! Order: set the marker; unmap and erase the old LEBs, so that none can reappear; write the new LEBs; clear the
//! marker. An interrupted update has to be started again by the owner of the data.

use media::{Leb, index};

use super::core::{Core, Trouble};
use super::handle::Shared;
use super::table::VolumeTableError;
use crate::attach::VolumeId;
use crate::format::{VidHeader, VolumeKind, crc32};

/// An update in progress. If it is dropped, the volume stays marked and unreadable until another update completes.
#[derive(Debug)]
#[must_use = "an update that is not finished leaves the volume unusable"]
pub struct Update<'a> {
    device: &'a Shared,
    volume: VolumeId,
    bytes: u64,
    written: u64,
    pending: Vec<u8>,
    leb_bytes: usize,
    next_leb: Leb,
}

impl<'a> Update<'a> {
    pub(super) fn begin(device: &'a Shared, volume: VolumeId, bytes: u64) -> Result<Self, VolumeTableError> {
        let mut core = device.lock();
        let leb_bytes = core.begin_update(volume, bytes)?;
        drop(core);
        Ok(Self {
            device,
            volume,
            bytes,
            written: 0,
            pending: Vec::with_capacity(index(leb_bytes)),
            leb_bytes: index(leb_bytes),
            next_leb: Leb(0),
        })
    }

    /// Writes the next bytes.
    ///
    /// # Panics
    /// If more bytes are written than were announced.
    pub fn write(&mut self, mut data: &[u8]) -> Result<(), VolumeTableError> {
        let length = u64::try_from(data.len()).expect("sizes fit 64 bits");
        self.written += length;
        assert!(
            self.written <= self.bytes,
            "{} of {} bytes",
            self.written,
            self.bytes
        );
        while !data.is_empty() {
            let room = self.leb_bytes - self.pending.len();
            let (now, later) = data.split_at(room.min(data.len()));
            self.pending.extend_from_slice(now);
            data = later;
            let last = self.written == self.bytes && data.is_empty();
            if self.pending.len() == self.leb_bytes || last {
                self.write_leb()?;
            }
        }
        Ok(())
    }

    fn write_leb(&mut self) -> Result<(), VolumeTableError> {
        let leb_bytes = u64::try_from(self.leb_bytes).expect("sizes fit 64 bits");
        let used = u32::try_from(self.bytes.div_ceil(leb_bytes)).expect("the size was checked");
        let leb = self.next_leb;
        self.next_leb = Leb(leb.0 + 1);
        let mut core = self.device.lock();
        core.write_update_leb(self.volume.0, leb, used, &self.pending)
            .map_err(|trouble| core.error(&trouble))?;
        self.pending.clear();
        Ok(())
    }

    /// Completes the update. Fails if fewer bytes were written than announced: the volume stays marked.
    pub fn finish(self) -> Result<(), VolumeTableError> {
        let mut core = self.device.lock();
        if self.written != self.bytes {
            return Err(VolumeTableError::Device {
                device: core.device.clone(),
                why: format!(
                    "the update of {} got {} of {} bytes; it stays marked, update it again",
                    self.volume, self.written, self.bytes
                ),
                power_cut: false,
            });
        }
        core.end_update(self.volume)
            .map_err(|trouble| core.error(&trouble))
    }
}

impl Core {
    /// Returns the LEB size of the volume in bytes.
    fn begin_update(&mut self, volume: VolumeId, bytes: u64) -> Result<u32, VolumeTableError> {
        let state = self.existing(volume)?;
        let leb_bytes = self.layout.leb_bytes() - state.record.data_padding;
        let needed = bytes.div_ceil(u64::from(leb_bytes));
        if needed > u64::from(state.record.reserved_pebs) {
            return Err(VolumeTableError::Size {
                device: self.device.clone(),
                volume,
                lebs: state.record.reserved_pebs,
                why: "the new content does not fit; resize the volume first",
            });
        }
        if self.pending_changes.iter().any(|(of, _)| *of == volume.0) {
            return Err(VolumeTableError::ChangePending {
                device: self.device.clone(),
                volume,
            });
        }
        let mut begin = || {
            self.set_update_marker(volume, true)?;
            self.unmap_from(volume.0, 0)?;
            self.flush()
        };
        begin().map_err(|trouble| self.error(&trouble))?;
        if let Some(state) = self.volume_mut(volume.0) {
            state.used_lebs = 0;
            state.last_leb_bytes = 0;
            state.checked = true;
        }
        Ok(leb_bytes)
    }

    /// Sets or clears the marker of a volume for an array that writes to all its members itself.
    pub(crate) fn set_update_of_array(&mut self, volume: VolumeId, marker: bool) -> Result<(), Trouble> {
        self.check_writable()?;
        self.set_update_marker(volume, marker)?;
        if let Some(state) = self.volume_mut(volume.0) {
            state.updating = marker;
        }
        Ok(())
    }

    fn set_update_marker(&mut self, volume: VolumeId, marker: bool) -> Result<(), Trouble> {
        let mut table = self.table();
        if let Some(record) = &mut table[index(volume.0)] {
            record.update_marker = marker;
        }
        self.write_table(&table)?;
        if let Some(state) = &mut self.volumes[index(volume.0)] {
            state.record.update_marker = marker;
        }
        Ok(())
    }

    fn write_update_leb(&mut self, volume: u32, leb: Leb, used: u32, data: &[u8]) -> Result<(), Trouble> {
        self.check_writable()?;
        let plain = self.plain_header(volume, leb, 0);
        let size = u32::try_from(data.len()).expect("at most a LEB");
        let (header, data) = match self.state(volume).record.kind {
            VolumeKind::Static => (
                VidHeader {
                    kind: VolumeKind::Static,
                    data_size: size,
                    used_lebs: used,
                    data_crc: crc32(data),
                    ..plain
                },
                data,
            ),
            // Trailing erased pages are not written, so that they stay writable; a fully erased LEB is not even
            // mapped.
            VolumeKind::Dynamic => (plain, &data[..self.written_bytes(data)]),
        };
        if data.is_empty() {
            return Ok(());
        }
        let peb = self.write_fresh(header, 0, data)?;
        self.assign(volume, leb, peb);
        if let Some(state) = self.volume_mut(volume)
            && header.kind == VolumeKind::Static
        {
            state.used_lebs = used;
            state.last_leb_bytes = size;
        }
        Ok(())
    }

    fn end_update(&mut self, volume: VolumeId) -> Result<(), Trouble> {
        self.set_update_marker(volume, false)
    }
}
