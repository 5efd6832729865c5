//! From what a scan found to the state of a device, and what is put right before it is written to.

use std::collections::VecDeque;
use std::sync::Arc;

use media::{Leb, Nand, Peb, index};

use super::core::{Core, Trouble, VolumeState, layout_volume_record};
use crate::attach::{Access, AttachError, AttachOptions, Survey};
use crate::format::volume_table::VolumeTable;
use crate::peb_table::PebState;

/// The state of a device of which nothing was written yet.
pub(super) fn build<N: Nand>(
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
    let first = || survey.erase_first.iter().map(|(_, peb)| *peb).filter(&waiting);
    let later = |peb: &Peb| waiting(peb) && !first().any(|first| first == *peb);
    let mut erase_queue = VecDeque::with_capacity(index(survey.pebs.counts().of(PebState::Erase)));
    erase_queue.extend(first());
    erase_queue.extend(survey.geometry.pebs().filter(later));
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

/// Repairs what an interrupted operation left, and has a volume take all free blocks that is to.
pub(super) fn prepare_for_writing<N: Nand>(
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
