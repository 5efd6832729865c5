//! Lists all anomalies of a device, whether or not it can be attached.

use media::{Nand, NandError, index};

use super::anomaly::{Anomaly, AnomalyKind};
use super::error::AttachError;
use super::losses::{self, Holes};
use super::select::vid_header;
use super::survey::Survey;
use super::{Access, AttachOptions, MemberState, VolumeId, examine};
use crate::format::volume_table::VolumeTable;
use crate::format::{LAYOUT_VOLUME, VolumeKind, crc32};
use crate::retry;

/// Report of a check.
#[derive(Debug)]
pub struct CheckReport {
    /// All anomalies, ordered by block.
    pub anomalies: Vec<Anomaly>,
    /// Reason why the device can't be attached, if it can't.
    pub refusal: Option<AttachError>,
    /// Blocks of the device.
    pub blocks: u32,
    /// Blocks marked bad. They are no anomaly.
    pub bad_blocks: u32,
    /// Blocks that hold LEBs of volumes.
    pub used_blocks: u32,
    /// Blocks that may have held a LEB that no other block accounts for.
    pub may_be_lost: u32,
    /// State of the array that the device is a member of.
    pub member_state: MemberState,
    /// Volumes with missing LEBs: incomplete static volumes, and dynamic volumes if a block may have lost one of
    /// their LEBs.
    pub holes: Vec<Holes>,
    /// Numbers and names of dynamic volumes: UBI has no checksums of their data, so it can't be verified.
    pub unverified: Vec<(VolumeId, String)>,
}

/// Reads all headers, all data with a CRC, and the data areas of blocks with unreadable headers. Calls `progress` for
/// each block whose data was read.
pub fn check(
    nand: &mut dyn Nand,
    access: Access,
    progress: &mut dyn FnMut(media::Peb),
) -> Result<CheckReport, AttachError> {
    let options = AttachOptions::linux(access);
    let (mut survey, tables, _) = match examine(nand, &options, usize::MAX) {
        Ok(examined) => examined,
        Err(AttachError::Device(error)) => return Err(error.into()),
        Err(refusal) => {
            return Ok(CheckReport {
                anomalies: Vec::new(),
                refusal: Some(refusal),
                blocks: nand.geometry().blocks(),
                bad_blocks: 0,
                used_blocks: 0,
                may_be_lost: 0,
                member_state: MemberState::Unmarked,
                holes: Vec::new(),
                unverified: Vec::new(),
            });
        }
    };
    check_data(&mut survey, nand, &tables.table, progress)?;
    for (volume, record) in (0..).zip(&tables.table) {
        if record.as_ref().is_some_and(|record| record.update_marker) {
            let table = survey.found.iter().find(|found| {
                found.chosen && survey.profiles[usize::from(found.profile)].volume == LAYOUT_VOLUME
            });
            if let Some(peb) = table.map(|found| found.peb) {
                survey.note(
                    peb,
                    survey.layout.data_offset(),
                    AnomalyKind::UpdateMarker { volume },
                );
            }
        }
    }
    let mut anomalies = std::mem::take(&mut survey.anomalies);
    losses::look_behind(&survey, nand, &mut anomalies, progress)?;
    anomalies.sort_by_key(|anomaly| (anomaly.peb, anomaly.offset));
    let lost = anomalies.iter().filter(|anomaly| anomaly.kind.may_lose_a_leb());
    let may_be_lost = u32::try_from(lost.count()).expect("at most one a block");
    let records = (0..).zip(&tables.table);
    let dynamic = records.filter_map(|(number, record)| {
        let record = record
            .as_ref()
            .filter(|record| record.kind == VolumeKind::Dynamic)?;
        Some((VolumeId(number), record.name.to_string()))
    });
    Ok(CheckReport {
        may_be_lost,
        member_state: survey.member_state(),
        holes: losses::holes(&survey, &tables.table, may_be_lost > 0),
        unverified: dynamic.collect(),
        anomalies,
        refusal: survey.refusal.take(),
        blocks: survey.geometry.blocks(),
        bad_blocks: survey.tally.bad,
        used_blocks: u32::try_from(survey.found.iter().filter(|found| found.chosen).count())
            .expect("at most one a block"),
    })
}

fn check_data(
    survey: &mut Survey,
    nand: &mut dyn Nand,
    table: &VolumeTable,
    progress: &mut dyn FnMut(media::Peb),
) -> Result<(), NandError> {
    let offset = survey.layout.data_offset();
    for place in 0..survey.found.len() {
        let found = survey.found[place];
        if !found.chosen {
            continue;
        }
        progress(found.peb);
        let Some(header) = vid_header(survey, nand, found.peb)? else {
            continue;
        };
        let mut data = vec![0; index(survey.layout.leb_bytes())];
        let report = retry::read(nand, found.peb, offset, &mut data)?;
        if report.needs_scrub(&survey.geometry) {
            let uncorrectable = !report.is_correct();
            survey.note(found.peb, offset, AnomalyKind::Bits { uncorrectable });
        }
        // Data of a dynamic volume may have been appended after the copied part, but never overwrites it.
        let vouched = header.copied || header.kind == VolumeKind::Static;
        let stored = header.data_crc;
        let crc = crc32(&data[..index(header.data_size)]);
        let in_update = index(header.volume) < table.len()
            && table[index(header.volume)]
                .as_ref()
                .is_some_and(|record| record.update_marker);
        if vouched && crc != stored && !in_update {
            let kind = AnomalyKind::Data {
                volume: header.volume,
                leb: header.leb,
                found: crc,
                stored,
            };
            survey.note(found.peb, offset, kind);
        }
    }
    Ok(())
}
