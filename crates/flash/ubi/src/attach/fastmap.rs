//! Attach by fastmap: reconstructs the result of a full scan from a few blocks that Linux wrote.
//!
//! Any inconsistency falls back to the full scan: a fastmap can save time, but never changes the result. Headers of
//! blocks that it lists as free are not read. Our first write makes the fastmap stale, so its anchors are erased
//! before ([`Survey::erase_first`]).

use std::sync::Arc;

use media::{Nand, NandError, Peb, index};

use super::anomaly::{Anomaly, AnomalyKind};
use super::headers::{RawHeaders, Seen};
use super::select::{read_data, vid_header};
use super::survey::{Found, Profile, Survey};
use crate::format::fastmap::{
    ANCHOR_PEBS, Collector, Fastmap, FastmapVolume, SUPERBLOCK_BYTES, Superblock, Wear,
};
use crate::format::{FASTMAP_DATA_VOLUME, FASTMAP_SUPERBLOCK_VOLUME, VidHeader};
use crate::peb_table::{PebState, PebTable};
use crate::retry;

/// How a device was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachedBy {
    /// By a full scan.
    Scan,
    /// By a fastmap.
    Fastmap,
    /// By a full scan, because its fastmap is unusable.
    ScanAfterFastmap {
        /// Fault of the fastmap.
        why: String,
    },
}

/// Last block that can hold the anchor.
pub(super) const LAST_ANCHOR: Peb = Peb(ANCHOR_PEBS - 1);

/// Placeholder state of a block in use that no volume has claimed yet; a block that none claims is erased in the end.
const NAMED_BY_NONE: PebState = PebState::Held;

/// As [`NAMED_BY_NONE`], for a block with bit-flips.
const NAMED_BY_NONE_TO_SCRUB: PebState = PebState::Stuck;

/// The fastmap is unusable.
#[derive(Debug)]
pub(super) enum Unusable {
    Device(NandError),
    Because(String),
}

impl From<NandError> for Unusable {
    fn from(error: NandError) -> Self {
        Self::Device(error)
    }
}

fn because(why: impl Into<String>) -> Unusable {
    Unusable::Because(why.into())
}

/// Builds a survey from the fastmap of `anchor`. `looked` is the survey of the first blocks.
pub(super) fn survey_by(nand: &mut dyn Nand, looked: &Survey, anchor: Peb) -> Result<Survey, Unusable> {
    if !looked.marks.is_empty() {
        return Err(because(
            "the device is a member of an array, which erases fastmaps",
        ));
    }
    let (mut map, last_sequence_number) = read(nand, looked, anchor)?;
    let mut survey = Survey {
        device: Arc::clone(&looked.device),
        pebs: PebTable::new(looked.geometry.blocks()),
        found: Vec::new(),
        profiles: Vec::new(),
        last_sequence_number,
        tally: super::survey::Tally::default(),
        first_corrupted: None,
        anchor: looked.anchor,
        erase_first: looked.erase_first.clone(),
        writing_forbidden: None,
        marks: Vec::new(),
        anomalies: Vec::new(),
        refusal: None,
        ..*looked
    };
    let mut known = vec![false; index(survey.geometry.blocks())];
    let mut take = |survey: &mut Survey, wear: &Wear, state| {
        let place = known.get_mut(index(wear.peb)).filter(|known| !**known);
        let place =
            place.ok_or_else(|| because(format!("it lists PEB {} twice, or there is none", wear.peb)))?;
        *place = true;
        survey.pebs.set_erases(Peb(wear.peb), wear.erase_counter);
        survey.pebs.set_state(Peb(wear.peb), state);
        Ok::<(), Unusable>(())
    };
    // Each part of the fastmap is dropped after use to free memory for the next.
    for (wears, state) in [
        (&mut map.free, PebState::Free),
        (&mut map.used, NAMED_BY_NONE),
        (&mut map.scrub, NAMED_BY_NONE_TO_SCRUB),
        (&mut map.erase, PebState::Erase),
        (&mut map.blocks, PebState::Erase),
    ] {
        for wear in std::mem::take(wears) {
            take(&mut survey, &wear, state)?;
        }
    }
    take_volumes(&mut survey, nand, std::mem::take(&mut map.volumes))?;
    for peb in survey.geometry.pebs() {
        if [NAMED_BY_NONE, NAMED_BY_NONE_TO_SCRUB].contains(&survey.pebs.state(peb)) {
            survey.pebs.set_state(peb, PebState::Erase);
        }
    }
    for peb in map.pool.pebs.iter().chain(&map.wear_levelling_pool.pebs) {
        let place = known
            .get_mut(index(*peb))
            .ok_or_else(|| because(format!("its pool has PEB {peb}, which is not there")))?;
        *place = true;
        look_at_pool_block(&mut survey, nand, Peb(*peb))?;
    }
    let mut bad = 0;
    for (peb, _) in survey.geometry.pebs().zip(&known).filter(|(_, known)| !**known) {
        if !nand.is_bad(peb)? {
            return Err(because(format!("it does not mention {peb}")));
        }
        survey.pebs.set_state(peb, PebState::Bad);
        bad += 1;
    }
    if bad != map.bad_pebs {
        return Err(because(format!("{bad} blocks are bad, it says {}", map.bad_pebs)));
    }
    survey.tally.bad = bad;
    Ok(survey)
}

/// Reads the fastmap and the last sequence number it covers.
fn read(nand: &mut dyn Nand, looked: &Survey, anchor: Peb) -> Result<(Fastmap, u64), Unusable> {
    let mut first = vec![0; SUPERBLOCK_BYTES];
    let _ = retry::read(nand, anchor, looked.layout.data_offset(), &mut first)?;
    let superblock = Superblock::decode(&first).map_err(|error| because(error.to_string()))?;
    let mut collector = Collector::of_chip(looked.geometry.blocks());
    let mut last_sequence_number = 0;
    for (number, wear) in superblock.blocks.iter().enumerate() {
        let peb = Peb(wear.peb);
        let there = wear.peb < looked.geometry.blocks() && !nand.is_bad(peb)?;
        let expected = match number {
            0 => FASTMAP_SUPERBLOCK_VOLUME,
            _ => FASTMAP_DATA_VOLUME,
        };
        let header = match there {
            true => block_header(nand, looked, peb)?,
            false => None,
        };
        let header = header
            .filter(|header| header.volume == expected && (number > 0 || peb == anchor))
            .ok_or_else(|| because(format!("{peb} is not block {number} of it")))?;
        last_sequence_number = last_sequence_number.max(header.sequence_number);
        read_data(looked, nand, peb, looked.layout.leb_bytes(), &mut |part| {
            collector.take(part)
        })?;
    }
    let map = collector.finish().map_err(|error| because(error.to_string()))?;
    Ok((map, last_sequence_number))
}

/// The VID header of a block, if it belongs to this image.
fn block_header(nand: &mut dyn Nand, looked: &Survey, peb: Peb) -> Result<Option<VidHeader>, NandError> {
    let raw = RawHeaders::read(nand, peb, &looked.layout)?;
    let Seen::Header { header, .. } = raw.ec() else {
        return Ok(None);
    };
    let same_image = [0, looked.image_sequence].contains(&header.image_sequence);
    match same_image {
        true => vid_header(looked, nand, peb),
        false => Ok(None),
    }
}

/// Linux does not update a fastmap when a LEB is unmapped: its block may be erased meanwhile, and a write to it would
/// lack a VID header. So this reads the header of each listed block. (Linux does so on first use of the LEB.)
fn take_volumes(
    survey: &mut Survey,
    nand: &mut dyn Nand,
    volumes: Vec<FastmapVolume>,
) -> Result<(), Unusable> {
    for volume in volumes {
        let profile = survey
            .profile(Profile {
                volume: volume.volume,
                kind: volume.kind,
                used_lebs: match volume.kind {
                    crate::format::VolumeKind::Static => volume.used_lebs,
                    crate::format::VolumeKind::Dynamic => 0,
                },
                data_padding: volume.data_padding,
            })
            .ok_or_else(|| because("it has too many volumes"))?;
        for (leb, peb) in (0..).zip(&volume.pebs) {
            let Some(peb) = peb.map(Peb) else { continue };
            let is_there = peb.0 < survey.geometry.blocks();
            let state = match is_there.then(|| survey.pebs.state(peb)) {
                Some(NAMED_BY_NONE) => PebState::Used,
                Some(NAMED_BY_NONE_TO_SCRUB) => PebState::Scrub,
                _ => {
                    return Err(because(format!(
                        "{peb} is LEB {leb} of volume {} and not in use",
                        volume.volume
                    )));
                }
            };
            let raw = RawHeaders::read(nand, peb, &survey.layout)?;
            let header = match raw.vid(survey.layout.leb_bytes()) {
                Seen::Header { header, .. } if (header.volume, header.leb) == (volume.volume, leb) => header,
                Seen::Erased { .. } => {
                    survey.pebs.set_state(peb, PebState::Erase);
                    continue;
                }
                _ => {
                    let of = volume.volume;
                    return Err(because(format!("{peb} is not LEB {leb} of volume {of} any more")));
                }
            };
            survey.pebs.set_state(peb, state);
            survey.push_found(Found {
                generation: header.generation,
                leb,
                peb,
                profile,
                copied: header.copied,
                chosen: false,
            });
        }
    }
    Ok(())
}

/// Surveys a block that was free when the fastmap was written: its headers decide.
fn look_at_pool_block(survey: &mut Survey, nand: &mut dyn Nand, peb: Peb) -> Result<(), Unusable> {
    // The fastmap may list the block as a LEB as well, if a volume was changed after the pool was filled.
    survey.found.retain(|found| found.peb != peb);
    // Set aside, so that the anomalies of this block are noted even if the list is full.
    let before = std::mem::take(&mut survey.anomalies);
    survey.look_at(nand, peb)?;
    let noted = std::mem::replace(&mut survey.anomalies, before);
    let harmless = |anomaly: &Anomaly| matches!(anomaly.kind, AnomalyKind::Bits { .. });
    let damaged = noted.iter().any(|anomaly| !harmless(anomaly));
    for Anomaly { peb, offset, kind } in noted {
        survey.note(peb, offset, kind);
    }
    if damaged
        || !survey.marks.is_empty()
        || survey.refusal.is_some()
        || survey.pebs.state(peb) == PebState::Bad
    {
        return Err(because(format!("{peb} of its pool is damaged")));
    }
    Ok(())
}
