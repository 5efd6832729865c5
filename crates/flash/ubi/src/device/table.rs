//! Changes of the volume table: create, remove, rename and resize volumes.
//!
//! Each change writes one new table, by an atomic change of both LEBs of the layout volume, LEB 0 first. A power cut
//! in between leaves two different tables, of which the first is authoritative; the next attach rewrites the second.

use std::sync::Arc;

use media::{Leb, index};
use thiserror::Error;

use super::core::{Core, Trouble, VolumeState};
use super::static_check::LebDamage;
use crate::attach::VolumeId;
use crate::format::volume_table::{self, TableLimits, VolumeName, VolumeRecord, VolumeTable};
use crate::format::{LAYOUT_VOLUME, LAYOUT_VOLUME_LEBS, VolumeKind};
use crate::peb_table::PebState;

/// Blocks reserved for UBI besides the layout volume: one for wear levelling, one for atomic changes.
pub(crate) const OWN_BLOCKS: u32 = 2;

/// Requested size of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeInLebs {
    /// This number of LEBs.
    Exactly(u32),
    /// All free LEBs.
    AllFree,
}

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Volume number; `None` takes the first free one.
    pub id: Option<VolumeId>,
    /// Volume name.
    pub name: VolumeName,
    /// Static or dynamic.
    pub kind: VolumeKind,
    /// Size of the volume.
    pub size: SizeInLebs,
    /// The LEB size is rounded down to a multiple of this; 1 for no alignment.
    pub alignment: u32,
    /// The volume grows into all free blocks at the next attach.
    pub autoresize: bool,
    /// Skip the CRC check when this static volume is opened.
    pub skip_check: bool,
}

/// Error of a change of the volume table. Nothing was changed, unless the device failed.
#[derive(Debug, Error)]
pub enum VolumeTableError {
    /// The volume does not exist.
    #[error("{device}: there is no {volume}")]
    NoSuchVolume {
        /// Name of the device.
        device: Arc<str>,
        /// Volume number.
        volume: VolumeId,
    },
    /// The volume number is taken, or exceeds the table.
    #[error("{device}: {volume} {why}")]
    Number {
        /// Name of the device.
        device: Arc<str>,
        /// Volume number.
        volume: VolumeId,
        /// Description of the conflict.
        why: String,
    },
    /// Another volume has that name.
    #[error("{device}: {volume} is called \"{name}\" already; names are unique")]
    NameTaken {
        /// Name of the device.
        device: Arc<str>,
        /// The volume with that name.
        volume: VolumeId,
        /// The name.
        name: VolumeName,
    },
    /// The table is full.
    #[error("{device}: all {slots} places of the volume table are taken; remove a volume first")]
    TableFull {
        /// Name of the device.
        device: Arc<str>,
        /// Number of records of the table.
        slots: u32,
    },
    /// Not enough free LEBs.
    #[error("{device}: {wanted} more LEBs are wanted, and {available} are available")]
    NoSpace {
        /// Name of the device.
        device: Arc<str>,
        /// LEBs requested.
        wanted: u32,
        /// LEBs available.
        available: u32,
    },
    /// The alignment does not suit the device.
    #[error(
        "{device}: an alignment of {alignment} bytes is neither 1 nor a multiple of {min_io_bytes} up to the LEB's {leb_bytes}"
    )]
    Alignment {
        /// Name of the device.
        device: Arc<str>,
        /// Requested alignment in bytes.
        alignment: u32,
        /// Write unit in bytes.
        min_io_bytes: u32,
        /// LEB size in bytes.
        leb_bytes: u32,
    },
    /// The size is 0, or less than the content of the static volume.
    #[error("{device}: {volume} can't have {lebs} LEBs: {why}")]
    Size {
        /// Name of the device.
        device: Arc<str>,
        /// The volume.
        volume: VolumeId,
        /// LEBs requested.
        lebs: u32,
        /// Reason.
        why: &'static str,
    },
    /// A LEB of the volume has a prepared change.
    #[error("{device}: {volume} has a prepared change; commit or abandon it first")]
    ChangePending {
        /// Name of the device.
        device: Arc<str>,
        /// The volume.
        volume: VolumeId,
    },
    /// The content of a static volume is damaged.
    #[error("{device}: {volume} \"{name}\": {damage}")]
    Damaged {
        /// Name of the device.
        device: Arc<str>,
        /// The volume.
        volume: VolumeId,
        /// Volume name.
        name: VolumeName,
        /// The first damaged LEB.
        #[source]
        damage: LebDamage,
    },
    /// The device failed.
    #[error("{device}: {why}")]
    Device {
        /// Name of the device.
        device: Arc<str>,
        /// Description of the failure.
        why: String,
        /// Whether a power cut is the cause.
        power_cut: bool,
    },
}

impl Core {
    pub(crate) fn limits(&self) -> TableLimits {
        TableLimits {
            leb_bytes: self.layout.leb_bytes(),
            min_io_bytes: self.layout.min_io_bytes(),
            good_pebs: self.pebs.blocks() - self.pebs.counts().of(PebState::Bad),
        }
    }

    /// Blocks that are neither reserved for a volume nor otherwise needed.
    pub(crate) fn available_blocks(&self) -> u32 {
        self.usable_blocks().saturating_sub(self.promised_blocks())
    }

    pub(crate) fn usable_blocks(&self) -> u32 {
        let counts = self.pebs.counts();
        self.pebs.blocks() - counts.of(PebState::Bad) - counts.of(PebState::Preserved)
    }

    fn promised_blocks(&self) -> u32 {
        self.needed_blocks().saturating_add(self.bad_block_reserve)
    }

    /// Blocks that the volumes and UBI itself require.
    pub(crate) fn needed_blocks(&self) -> u32 {
        let volumes = self.volumes.iter().flatten();
        volumes
            .map(|volume| volume.record.reserved_pebs)
            .fold(LAYOUT_VOLUME_LEBS + OWN_BLOCKS, u32::saturating_add)
    }

    pub(crate) fn table(&self) -> VolumeTable {
        let record = |volume: &Option<VolumeState>| volume.as_ref().map(|volume| volume.record.clone());
        self.volumes.iter().map(record).collect()
    }

    pub(crate) fn write_table_copy(
        &mut self,
        table: &VolumeTable,
        copy: u32,
        generation: u64,
    ) -> Result<(), Trouble> {
        let mut raw = volume_table::encode(table);
        raw.resize(raw.len().next_multiple_of(index(self.layout.min_io_bytes())), 0);
        self.change(LAYOUT_VOLUME, Leb(copy), &raw, generation)
    }

    pub(crate) fn write_table(&mut self, table: &VolumeTable) -> Result<(), Trouble> {
        (0..LAYOUT_VOLUME_LEBS).try_for_each(|copy| self.write_table_copy(table, copy, 0))
    }

    pub(super) fn error(&self, trouble: &Trouble) -> VolumeTableError {
        let (why, power_cut) = match trouble {
            Trouble::Device(error) => (error.to_string(), error.is_power_cut()),
            Trouble::NoFreeBlock => ("no erased block is left and none can be made".to_owned(), false),
            Trouble::Frozen(reason) => (format!("read-only: {reason}"), false),
            Trouble::Uncorrectable => ("bits are wrong beyond correction".to_owned(), false),
        };
        VolumeTableError::Device {
            device: Arc::clone(&self.device),
            why,
            power_cut,
        }
    }

    pub(super) fn existing(&self, volume: VolumeId) -> Result<&VolumeState, VolumeTableError> {
        let found = self.volumes.get(index(volume.0)).and_then(Option::as_ref);
        found.ok_or_else(|| VolumeTableError::NoSuchVolume {
            device: Arc::clone(&self.device),
            volume,
        })
    }

    fn check_no_change_pending(&self, volume: VolumeId) -> Result<(), VolumeTableError> {
        let pending = self.pending_changes.iter().any(|(of, _)| *of == volume.0);
        match pending {
            false => Ok(()),
            true => Err(VolumeTableError::ChangePending {
                device: Arc::clone(&self.device),
                volume,
            }),
        }
    }

    pub(crate) fn make_volume(&mut self, new: NewVolume) -> Result<VolumeId, VolumeTableError> {
        let id = self.free_number(new.id)?;
        self.check_name(&new.name, None)?;
        let available = self.available_blocks();
        let lebs = match new.size {
            SizeInLebs::Exactly(lebs) => lebs,
            SizeInLebs::AllFree => available,
        };
        let leb_bytes = self.layout.leb_bytes();
        let min_io_bytes = self.layout.min_io_bytes();
        let aligned = new.alignment == 1
            || (new.alignment > 0
                && new.alignment <= leb_bytes
                && new.alignment.is_multiple_of(min_io_bytes));
        // Linux refuses VID headers of volumes that leave half of each LEB unused.
        if !aligned || leb_bytes % new.alignment >= leb_bytes / 2 {
            return Err(VolumeTableError::Alignment {
                device: Arc::clone(&self.device),
                alignment: new.alignment,
                min_io_bytes,
                leb_bytes,
            });
        }
        if lebs == 0 || lebs > available {
            return Err(VolumeTableError::NoSpace {
                device: Arc::clone(&self.device),
                wanted: lebs.max(1),
                available,
            });
        }
        let record = VolumeRecord {
            reserved_pebs: lebs,
            alignment: new.alignment,
            data_padding: leb_bytes % new.alignment,
            kind: new.kind,
            update_marker: false,
            name: new.name,
            autoresize: new.autoresize,
            skip_check: new.skip_check,
        };
        // LEBs of a removed volume with this number must not reappear in the new one.
        self.flush().map_err(|trouble| self.error(&trouble))?;
        let mut table = self.table();
        table[index(id.0)] = Some(record.clone());
        self.write_table(&table).map_err(|trouble| self.error(&trouble))?;
        self.volumes[index(id.0)] = Some(VolumeState::new(record));
        Ok(id)
    }

    fn free_number(&self, wanted: Option<VolumeId>) -> Result<VolumeId, VolumeTableError> {
        let slots = self.limits().slots();
        let Some(volume) = wanted else {
            let free = (0..slots).find(|number| self.volumes[index(*number)].is_none());
            return free.map(VolumeId).ok_or_else(|| VolumeTableError::TableFull {
                device: Arc::clone(&self.device),
                slots,
            });
        };
        let why = match self.volumes.get(index(volume.0)) {
            Some(None) => return Ok(volume),
            Some(Some(taken)) => format!("is there already; it is called \"{}\"", taken.record.name),
            None => format!("can't be: the volume table of this device has {slots} places, from 0"),
        };
        Err(VolumeTableError::Number {
            device: Arc::clone(&self.device),
            volume,
            why,
        })
    }

    fn check_name(&self, name: &VolumeName, except: Option<VolumeId>) -> Result<(), VolumeTableError> {
        let taken = self
            .all_volumes()
            .find(|(number, volume)| volume.record.name == *name && Some(VolumeId(*number)) != except);
        match taken {
            Some((number, _)) if number != LAYOUT_VOLUME => Err(VolumeTableError::NameTaken {
                device: Arc::clone(&self.device),
                volume: VolumeId(number),
                name: name.clone(),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn remove_volume(&mut self, volume: VolumeId) -> Result<(), VolumeTableError> {
        self.existing(volume)?;
        self.check_no_change_pending(volume)?;
        let mut table = self.table();
        table[index(volume.0)] = None;
        self.write_table(&table).map_err(|trouble| self.error(&trouble))?;
        self.unmap_from(volume.0, 0)
            .map_err(|trouble| self.error(&trouble))?;
        self.volumes[index(volume.0)] = None;
        Ok(())
    }

    /// Unmaps all LEBs from `first` on.
    pub(super) fn unmap_from(&mut self, volume: u32, first: u32) -> Result<(), Trouble> {
        (first..self.state(volume).lebs()).try_for_each(|leb| self.unmap(volume, Leb(leb)))
    }

    /// Renames volumes atomically; volumes may swap names. Fails if a volume outside `names` already has one of the
    /// new names.
    pub(crate) fn rename_volumes(
        &mut self,
        names: &[(VolumeId, VolumeName)],
    ) -> Result<(), VolumeTableError> {
        let mut table = self.table();
        for (volume, name) in names {
            self.existing(*volume)?;
            if let Some(record) = &mut table[index(volume.0)] {
                record.name = name.clone();
            }
        }
        for (number, record) in (0..).zip(&table) {
            let Some(record) = record else { continue };
            let twin = (0..number)
                .zip(&table)
                .find(|(_, other)| other.as_ref().is_some_and(|other| other.name == record.name));
            if let Some((other, _)) = twin {
                let renamed = |number| names.iter().any(|(volume, _)| *volume == VolumeId(number));
                let keeper = if renamed(number) { other } else { number };
                return Err(VolumeTableError::NameTaken {
                    device: Arc::clone(&self.device),
                    volume: VolumeId(keeper),
                    name: record.name.clone(),
                });
            }
        }
        self.write_table(&table).map_err(|trouble| self.error(&trouble))?;
        for (state, record) in self.volumes.iter_mut().zip(table) {
            if let (Some(state), Some(record)) = (state, record) {
                state.record = record;
            }
        }
        Ok(())
    }

    pub(crate) fn resize_volume(
        &mut self,
        volume: VolumeId,
        size: SizeInLebs,
    ) -> Result<u32, VolumeTableError> {
        let state = self.existing(volume)?;
        let (old, used) = (state.record.reserved_pebs, state.used_lebs);
        let is_static = state.record.kind == VolumeKind::Static;
        let available = self.available_blocks();
        let lebs = match size {
            SizeInLebs::Exactly(lebs) => lebs,
            SizeInLebs::AllFree => old + available,
        };
        let wrong = |why| VolumeTableError::Size {
            device: Arc::clone(&self.device),
            volume,
            lebs,
            why,
        };
        if lebs == 0 {
            return Err(wrong("a volume has at least one"));
        }
        if is_static && lebs < used {
            return Err(wrong("it is static and holds more"));
        }
        if lebs > old && lebs - old > available {
            return Err(VolumeTableError::NoSpace {
                device: Arc::clone(&self.device),
                wanted: lebs - old,
                available,
            });
        }
        self.check_no_change_pending(volume)?;
        self.write_size(volume, old, lebs)
            .map_err(|trouble| self.error(&trouble))?;
        Ok(lebs)
    }

    fn write_size(&mut self, volume: VolumeId, old: u32, lebs: u32) -> Result<(), Trouble> {
        if lebs < old {
            // A LEB beyond the new end that reappears after a power cut would make the next attach fail.
            self.unmap_from(volume.0, lebs)?;
            self.flush()?;
        }
        let mut table = self.table();
        if let Some(record) = &mut table[index(volume.0)] {
            record.reserved_pebs = lebs;
            record.autoresize = false;
        }
        self.write_table(&table)?;
        if let Some(state) = &mut self.volumes[index(volume.0)] {
            state.resize(lebs);
            state.record.autoresize = false;
        }
        Ok(())
    }

    /// Grows the volume with the autoresize flag into all free blocks.
    pub(crate) fn autoresize(&mut self) -> Result<(), Trouble> {
        let asks = |volume: &VolumeState| volume.record.autoresize;
        let found = (0..).zip(&self.volumes).find_map(|(number, volume)| {
            volume
                .as_ref()
                .filter(|volume| asks(volume))
                .map(|volume| (number, volume))
        });
        let Some((number, volume)) = found else {
            return Ok(());
        };
        let old = volume.record.reserved_pebs;
        self.write_size(VolumeId(number), old, old + self.available_blocks())
    }
}
