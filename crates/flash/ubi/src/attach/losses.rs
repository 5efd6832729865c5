//! Losses: LEBs that blocks with unreadable headers may have held, and volumes with missing LEBs.
//!
//! An attach decides by the headers, as Linux does; a check also reads the data areas to report possible losses.

use std::fmt;
use std::ops::RangeInclusive;

use media::{Leb, Nand, NandError, Peb};

use super::VolumeId;
use super::anomaly::{Anomaly, AnomalyKind, Behind};
use super::headers::{RawHeaders, Seen};
use super::survey::Survey;
use crate::format::VolumeKind;
use crate::format::volume_table::{VolumeRecord, VolumeTable};

/// LEBs of a volume that no block holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holes {
    /// The volume.
    pub volume: VolumeId,
    /// Name of the volume.
    pub name: String,
    /// A static volume should have all LEBs; the user of a dynamic one may have unmapped some.
    pub kind: VolumeKind,
    /// LEBs with data of a static volume; all LEBs of a dynamic one.
    pub lebs: u32,
    /// Missing ranges, ascending.
    pub missing: Vec<RangeInclusive<u32>>,
}

/// Maximum number of ranges in a message; a volume can have thousands.
const RANGES_SHOWN: usize = 8;

impl fmt::Display for Holes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            VolumeKind::Dynamic => "dynamic",
            VolumeKind::Static => "static",
        };
        write!(out, "{} ({}, {kind}): no block holds ", self.volume, self.name)?;
        for (number, range) in self.missing.iter().take(RANGES_SHOWN).enumerate() {
            out.write_str(if number == 0 { "LEB " } else { ", " })?;
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(out, "{first}")?,
                (first, last) => write!(out, "{first} to {last}")?,
            }
        }
        if let Some(more) = self
            .missing
            .len()
            .checked_sub(RANGES_SHOWN)
            .filter(|more| *more > 0)
        {
            write!(out, " and {more} more ranges")?;
        }
        match self.lebs.checked_sub(1) {
            None => out.write_str("any LEB of it")?,
            Some(last) => write!(out, " of 0 to {last}")?,
        }
        out.write_str(match self.kind {
            VolumeKind::Static => ": its data is incomplete",
            VolumeKind::Dynamic => "; a file system may have unmapped them itself",
        })
    }
}

/// Reads the data areas of blocks that a scan classified by their headers, and adds the possible loss to each
/// finding.
pub(super) fn look_behind(
    survey: &Survey,
    nand: &mut dyn Nand,
    anomalies: &mut [Anomaly],
    progress: &mut dyn FnMut(Peb),
) -> Result<(), NandError> {
    for Anomaly { peb, kind, .. } in anomalies {
        match kind {
            AnomalyKind::Blank => {
                if let Some(found) = behind_blank_header(survey, nand, *peb)? {
                    *kind = found;
                }
            }
            AnomalyKind::EcHeader { behind, .. } => *behind = survey.behind_headers(nand, *peb)?,
            _ => continue,
        }
        progress(*peb);
    }
    Ok(())
}

/// Returns `None` if the whole block is blank.
fn behind_blank_header(
    survey: &Survey,
    nand: &mut dyn Nand,
    peb: Peb,
) -> Result<Option<AnomalyKind>, NandError> {
    let vid = RawHeaders::read(nand, peb, &survey.layout)?.vid(survey.layout.leb_bytes());
    let leb = match vid {
        Seen::Header { header, .. } => Some((VolumeId(header.volume), Leb(header.leb))),
        Seen::Erased { .. } if survey.behind_headers(nand, peb)? == Behind::Blank => return Ok(None),
        Seen::Erased { .. } | Seen::Damaged { .. } | Seen::Refused(_) => None,
    };
    Ok(Some(AnomalyKind::BlankEcHeader { leb }))
}

/// The volumes with missing LEBs. Dynamic volumes are included only if a block `may_be_lost`: otherwise their user
/// unmapped the LEBs.
pub(super) fn holes(survey: &Survey, table: &VolumeTable, may_be_lost: bool) -> Vec<Holes> {
    let records = (0..).zip(table);
    let volumes = records.filter_map(|(number, record)| Some((number, record.as_ref()?)));
    // A volume with an unfinished update cannot be complete.
    let settled = volumes.filter(|(_, record)| !record.update_marker);
    let of_volumes = settled.filter(|(_, record)| may_be_lost || record.kind == VolumeKind::Static);
    let of_each = of_volumes.filter_map(|(number, record)| of_volume(survey, number, record, may_be_lost));
    of_each.collect()
}

fn of_volume(survey: &Survey, number: u32, record: &VolumeRecord, may_be_lost: bool) -> Option<Holes> {
    // Ordered by volume and LEB.
    let found = || {
        let chosen = survey.found.iter().filter(|found| found.chosen);
        chosen
            .map(|found| (found.leb, survey.profiles[usize::from(found.profile)]))
            .filter(|(_, profile)| profile.volume == number)
    };
    let lebs = match record.kind {
        VolumeKind::Static => found().next().map_or(0, |(_, profile)| profile.used_lebs),
        VolumeKind::Dynamic => record.reserved_pebs,
    };
    let mut missing = Vec::new();
    let mut next = 0;
    let held = found().map(|(leb, _)| leb).filter(|leb| *leb < lebs);
    for leb in held.chain([lebs]) {
        if leb > next {
            missing.push(next..=leb - 1);
        }
        next = leb.saturating_add(1);
    }
    // A static volume without any LEB does not reveal how many it had.
    let is_whole = missing.is_empty() && !(lebs == 0 && may_be_lost);
    (!is_whole).then(|| Holes {
        volume: VolumeId(number),
        name: record.name.to_string(),
        kind: record.kind,
        lebs,
        missing,
    })
}
