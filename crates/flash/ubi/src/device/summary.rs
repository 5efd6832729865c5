//! Figures of a device and of its volumes.

use media::{Nand, Peb};

use super::core::Core;
use crate::attach::{MemberState, VolumeId};
use crate::format::volume_table::VolumeRecord;
use crate::layout::Layout;
use crate::peb_table::{PebState, WearSummary};

/// Figures of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Where headers and data are.
    pub layout: Layout,
    /// The number that all blocks of the image have.
    pub image_sequence: u32,
    /// The last sequence number that was given out.
    pub last_sequence_number: u64,
    /// Blocks of the chip.
    pub blocks: u32,
    /// Blocks that are marked bad.
    pub bad_blocks: u32,
    /// Blocks that are kept as they are: damaged with data in them, or of an unknown internal volume.
    pub preserved_blocks: u32,
    /// Erased blocks.
    pub free_blocks: u32,
    /// Blocks that a LEB is mapped to.
    pub used_blocks: u32,
    /// Blocks of those whose bits flip, and that are to be moved.
    pub blocks_to_scrub: u32,
    /// Blocks that wait to be erased or tested.
    pub blocks_to_erase: u32,
    /// Blocks kept back for those that go bad.
    pub bad_block_reserve: u32,
    /// LEBs that a new volume could have.
    pub available_lebs: u32,
    /// Erase counters.
    pub wear: WearSummary,
    /// Bytes of memory that the attached device takes, the chip's own storage apart.
    pub memory_bytes: u64,
    /// What the attach found it to say about its array.
    pub member_state: MemberState,
    /// Why nothing is written, when that is so.
    pub frozen: Option<String>,
}

/// Figures of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSummary {
    /// Its number.
    pub id: VolumeId,
    /// What the volume table says.
    pub record: VolumeRecord,
    /// Bytes of each of its LEBs.
    pub leb_bytes: u32,
    /// LEBs that are mapped.
    pub mapped_lebs: u32,
    /// Bytes that it holds: of a static volume what was written, of a dynamic one all that it can.
    pub data_bytes: u64,
}

impl<N: Nand> Core<N> {
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

    /// What is on the heap, and the struct itself.
    fn memory_bytes(&self) -> usize {
        let volumes = self.all_volumes().map(|(_, volume)| volume.memory_bytes());
        let places = self.volumes.capacity() * size_of::<Option<super::core::VolumeState>>();
        size_of::<Self>() - size_of::<N>()
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
