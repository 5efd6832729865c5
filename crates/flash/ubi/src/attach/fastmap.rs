//! Attach by fastmap: what a look at every block would have found, from a few blocks that Linux wrote.
//!
//! Whatever is not exactly right leads back to the look at every block; a fastmap can save time, never change the outcome. Headers of
//! blocks that it calls free are not read. From our first write on it is wrong, so its anchors are erased before that ([`Survey::erase_first`]).

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
    /// By a look at every block.
    Scan,
    /// By a fastmap.
    Fastmap,
    /// By a look at every block, as its fastmap can't be used.
    ScanAfterFastmap {
        /// What is wrong with the fastmap.
        why: String,
    },
}

/// Blocks among which the anchor is.
pub(super) const LAST_ANCHOR: Peb = Peb(ANCHOR_PEBS - 1);

/// A block in use that no volume has named yet; in the end it is not needed any more. The state is a place-holder.
const NAMED_BY_NONE: PebState = PebState::Held;

/// The same of a block whose bits flip.
const NAMED_BY_NONE_TO_SCRUB: PebState = PebState::Stuck;

/// Why a fastmap can't be used.
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

/// Makes a survey from the fastmap of `anchor`. `looked` is the survey of the first blocks.
pub(super) fn survey_by(nand: &mut impl Nand, looked: &Survey, anchor: Peb) -> Result<Survey, Unusable> {
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
    // Each part of the fastmap is dropped once it is taken: the next one needs the memory.
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

/// The fastmap, and the last sequence number that it knows of.
fn read(nand: &mut impl Nand, looked: &Survey, anchor: Peb) -> Result<(Fastmap, u64), Unusable> {
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

/// The VID header of a block of this image.
fn block_header(nand: &mut impl Nand, looked: &Survey, peb: Peb) -> Result<Option<VidHeader>, NandError> {
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

/// Linux does not write a fastmap for a LEB that is unmapped: its block may be erased by now, and a write into it would be without a
/// VID header. So the header of each listed block is looked at. (Linux does so when the LEB is first used.)
fn take_volumes(
    survey: &mut Survey,
    nand: &mut impl Nand,
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

/// A block that was free when the fastmap was written: what its headers say counts.
fn look_at_pool_block(survey: &mut Survey, nand: &mut impl Nand, peb: Peb) -> Result<(), Unusable> {
    // The fastmap may list it as a LEB as well, when a volume was changed after the pool was filled.
    survey.found.retain(|found| found.peb != peb);
    // Set aside, so that what is noted of this block is seen however many there are.
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
