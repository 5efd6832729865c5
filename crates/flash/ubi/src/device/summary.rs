//! Statistics of a device and of its volumes.

use media::{Nand, Peb};

use super::core::Core;
use crate::attach::{MemberState, VolumeId};
use crate::format::volume_table::VolumeRecord;
use crate::layout::Layout;
use crate::peb_table::{PebState, WearSummary};

/// Statistics of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Offsets of headers and data.
    pub layout: Layout,
    /// Image sequence number of all blocks.
    pub image_sequence: u32,
    /// The last sequence number assigned.
    pub last_sequence_number: u64,
    /// Blocks of the chip.
    pub blocks: u32,
    /// Blocks marked bad.
    pub bad_blocks: u32,
    /// Blocks left untouched: damaged with data in them, or of an unknown internal volume.
    pub preserved_blocks: u32,
    /// Erased blocks.
    pub free_blocks: u32,
    /// Blocks mapped to a LEB.
    pub used_blocks: u32,
    /// Used blocks with bit-flips that wait for scrubbing.
    pub blocks_to_scrub: u32,
    /// Blocks queued for an erase or a torture test.
    pub blocks_to_erase: u32,
    /// Blocks in the bad block reserve.
    pub bad_block_reserve: u32,
    /// LEBs available for a new volume.
    pub available_lebs: u32,
    /// Erase counters.
    pub wear: WearSummary,
    /// Memory of the attached device in bytes, without the chip's own storage.
    pub memory_bytes: u64,
    /// State of its array at the attach.
    pub member_state: MemberState,
    /// Reason why the device is read-only, if it is.
    pub frozen: Option<String>,
}

/// Statistics of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSummary {
    /// Volume number.
    pub id: VolumeId,
    /// Its record in the volume table.
    pub record: VolumeRecord,
    /// LEB size in bytes.
    pub leb_bytes: u32,
    /// Mapped LEBs.
    pub mapped_lebs: u32,
    /// Bytes of data of a static volume; capacity of a dynamic one.
    pub data_bytes: u64,
}

impl Core {
    pub(super) fn summary(&self) -> DeviceSummary {
        let counts = self.pebs.counts();
        let sum = |states: &[PebState]| states.iter().map(|state| counts.of(*state)).sum();
        DeviceSummary {
            layout: self.layout,
            image_sequence: self.image_sequence,
            last_sequence_number: self.last_sequence_number,
            blocks: self.pebs.blocks(),
            bad_blocks: counts.of(PebState::Bad),
            preserved_blocks: counts.of(PebState::Preserved),
            free_blocks: counts.of(PebState::Free),
            used_blocks: sum(&[PebState::Used, PebState::Scrub, PebState::Stuck]),
            blocks_to_scrub: counts.of(PebState::Scrub),
            blocks_to_erase: sum(&[PebState::Erase, PebState::Torture]),
            bad_block_reserve: self.bad_block_reserve,
            available_lebs: self.available_blocks(),
            wear: self.pebs.wear(),
            memory_bytes: u64::try_from(self.memory_bytes()).expect("sizes fit 64 bits"),
            member_state: self.member_state,
            frozen: self.frozen.as_deref().map(str::to_owned),
        }
    }

    pub(super) fn volume_summaries(&self) -> Vec<VolumeSummary> {
        let of_user = (0..).zip(&self.volumes);
        of_user
            .filter_map(|(number, volume)| {
                let volume = volume.as_ref()?;
                let leb_bytes = self.layout.leb_bytes() - volume.record.data_padding;
                let data_bytes = match volume.used_lebs {
                    0 => match volume.record.kind {
                        crate::format::VolumeKind::Dynamic => {
                            u64::from(leb_bytes) * u64::from(volume.record.reserved_pebs)
                        }
                        crate::format::VolumeKind::Static => 0,
                    },
                    used => u64::from(leb_bytes) * u64::from(used - 1) + u64::from(volume.last_leb_bytes),
                };
                Some(VolumeSummary {
                    id: VolumeId(number),
                    record: volume.record.clone(),
                    leb_bytes,
                    mapped_lebs: volume.mapped(),
                    data_bytes,
                })
            })
            .collect()
    }

    /// Bytes on the heap, and of the struct itself.
    fn memory_bytes(&self) -> usize {
        let volumes = self.all_volumes().map(|(_, volume)| volume.memory_bytes());
        let places = self.volumes.capacity() * size_of::<Option<super::core::VolumeState>>();
        size_of::<Self>() - size_of::<Box<dyn Nand>>()
            + self.pebs.memory_bytes()
            + self.erase_queue.memory_bytes()
            + self.unmapped.memory_bytes()
            + places
            + volumes.sum::<usize>()
    }

    /// The block of each mapped LEB of a volume.
    pub(super) fn mapping(&self, volume: VolumeId) -> Vec<Option<Peb>> {
        let Some(state) = self.volume(volume.0) else {
            return Vec::new();
        };
        (0..state.lebs()).map(|leb| state.peb(media::Leb(leb))).collect()
    }
}
