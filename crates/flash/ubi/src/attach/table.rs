//! The volume table of a device: two copies, of which the first is authoritative if it can be read.

use std::sync::Arc;

use media::{Nand, NandError, Peb, index};

use super::anomaly::AnomalyKind;
use super::error::AttachError;
use super::survey::Survey;
use super::{Access, AttachOptions};
use crate::format::volume_table::{self, RECORD_BYTES, TableError, TableLimits, VolumeTable};
use crate::format::{LAYOUT_VOLUME, LAYOUT_VOLUME_LEBS};
use crate::retry;

/// The authoritative table, and the LEB of the layout volume that has to be rewritten.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) table: VolumeTable,
    pub(super) stale_copy: Option<u32>,
}

/// More blocks than the largest raw NAND chips have. Bounds the memory that a hostile image can request.
const LARGEST_CHIP_BLOCKS: u32 = 1 << 16;

/// Limits for volume tables of this device. An image opened read-only may be part of a larger chip.
pub(super) fn limits(survey: &Survey, options: &AttachOptions) -> TableLimits {
    TableLimits {
        leb_bytes: survey.layout.leb_bytes(),
        min_io_bytes: survey.layout.min_io_bytes(),
        good_pebs: match options.access {
            Access::ReadWrite => survey.geometry.blocks() - survey.tally.bad,
            Access::ReadOnly => survey.geometry.blocks().max(LARGEST_CHIP_BLOCKS),
        },
    }
}

/// Reads both copies. If both are missing, the survey records a refusal.
pub(super) fn read(
    survey: &mut Survey,
    nand: &mut dyn Nand,
    options: &AttachOptions,
) -> Result<Tables, NandError> {
    let limits = limits(survey, options);
    let bytes = index(limits.slots()) * RECORD_BYTES;
    let mut pebs = [None; 2];
    let mut unknown = None;
    for found in survey.found.iter().filter(|found| found.chosen) {
        let profile = survey.profiles[usize::from(found.profile)];
        if profile.volume != LAYOUT_VOLUME {
            continue;
        }
        match pebs.get_mut(index(found.leb)) {
            Some(place) => *place = Some(found.peb),
            None => unknown = Some((found.peb, found.leb)),
        }
    }
    if let Some((peb, leb)) = unknown {
        let most = u64::from(LAYOUT_VOLUME_LEBS) - 1;
        survey.refuse_contradiction(peb, LAYOUT_VOLUME, "LEB", u64::from(leb), most);
    }
    let mut copies: [Option<TableCopy>; 2] = [None, None];
    for (copy, peb) in copies.iter_mut().zip(pebs) {
        if let Some(peb) = peb {
            let mut raw = vec![0; bytes];
            let _ = retry::read(nand, peb, survey.layout.data_offset(), &mut raw)?;
            let decoded = volume_table::decode(&raw, &limits);
            if let Err(error) = &decoded {
                survey.note(peb, survey.layout.data_offset(), AnomalyKind::VolumeTable(*error));
            }
            *copy = Some((raw, decoded));
        }
    }
    Ok(decide(survey, copies, pebs))
}

/// The bytes of a copy and their decoding.
type TableCopy = (Vec<u8>, Result<VolumeTable, TableError>);

fn decide(survey: &mut Survey, copies: [Option<TableCopy>; 2], pebs: [Option<Peb>; 2]) -> Tables {
    match copies {
        [Some((first, Ok(table))), second] => {
            let same = second.is_some_and(|(second, _)| second == first);
            if let (false, Some(peb)) = (same, pebs[1].or(pebs[0])) {
                survey.note(peb, survey.layout.data_offset(), AnomalyKind::VolumeTableCopies);
            }
            Tables {
                table,
                stale_copy: (!same).then_some(1),
            }
        }
        [_, Some((_, Ok(table)))] => Tables {
            table,
            stale_copy: Some(0),
        },
        [None, None] => {
            survey.refuse(AttachError::NoVolumeTable {
                device: Arc::clone(&survey.device),
            });
            Tables::default()
        }
        [first, second] => {
            let describe = |copy: Option<TableCopy>, peb: Option<Peb>| match (peb, copy) {
                (Some(peb), Some((_, Err(error)))) => format!("the one in {peb}: {error}"),
                _ => "one is missing".to_owned(),
            };
            survey.refuse(AttachError::VolumeTable {
                device: Arc::clone(&survey.device),
                first: describe(first, pebs[0]),
                second: describe(second, pebs[1]),
            });
            Tables::default()
        }
    }
}
