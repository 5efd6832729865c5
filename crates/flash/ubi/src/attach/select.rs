//! Chooses the block of each LEB, and checks the result against the volume table.

use std::cmp::Reverse;
use std::sync::Arc;

use media::{Nand, NandError, Peb, index};

use super::anomaly::AnomalyKind;
use super::error::AttachError;
use super::headers::{RawHeaders, Seen};
use super::survey::{Found, Survey};
use crate::format::volume_table::{VolumeRecord, VolumeTable};
use crate::format::{LAYOUT_VOLUME, VidHeader, VolumeKind};
use crate::peb_table::PebState;
use crate::retry;

/// Chooses the latest block of every LEB, unless that is an incomplete copy and there is an older one. The other
/// blocks are erased later.
pub(super) fn choose_latest(survey: &mut Survey, nand: &mut dyn Nand) -> Result<(), NandError> {
    let profiles = std::mem::take(&mut survey.profiles);
    let volume = |found: &Found| profiles[usize::from(found.profile)].volume;
    // In place: a stable sort would need as much memory again.
    survey
        .found
        .sort_unstable_by_key(|found| (volume(found), found.leb, found.peb));
    let mut start = 0;
    while start < survey.found.len() {
        let first = survey.found[start];
        let same = |found: &Found| volume(found) == volume(&first) && found.leb == first.leb;
        let end = start
            + survey.found[start..]
                .iter()
                .take_while(|found| same(found))
                .count();
        if end > start + 1 {
            put_latest_first(survey, nand, start..end, volume(&first))?;
        }
        let winner = choose_one(survey, nand, start..end)?;
        choose(survey, start..end, winner);
        start = end;
    }
    survey.profiles = profiles;
    Ok(())
}

/// Orders blocks that claim the same LEB by sequence number. A block known only from a fastmap whose header is
/// unreadable counts as the oldest.
fn put_latest_first(
    survey: &mut Survey,
    nand: &mut dyn Nand,
    group: std::ops::Range<usize>,
    volume: u32,
) -> Result<(), NandError> {
    let mut aged = Vec::with_capacity(group.len());
    for found in &survey.found[group.clone()] {
        let header = vid_header(survey, nand, found.peb)?;
        aged.push((header.map_or(0, |header| header.sequence_number), *found));
    }
    aged.sort_unstable_by_key(|(sequence_number, found)| (Reverse(*sequence_number), found.peb));
    for pair in aged.windows(2) {
        let ((sequence_number, first), (other, second)) = (pair[0], pair[1]);
        if sequence_number == other {
            survey.refuse(AttachError::SameSequence {
                device: Arc::clone(&survey.device),
                first: first.peb,
                second: second.peb,
                volume,
                leb: first.leb,
                sequence_number,
            });
        }
    }
    for (place, (_, found)) in survey.found[group].iter_mut().zip(aged) {
        *place = found;
    }
    Ok(())
}

/// Marks at most one block of a group as the LEB; the blocks of the others are erased later.
pub(super) fn choose(survey: &mut Survey, group: std::ops::Range<usize>, winner: usize) {
    for place in group {
        let found = &mut survey.found[place];
        found.chosen = place == winner;
        if !found.chosen {
            survey.pebs.set_state(found.peb, PebState::Erase);
        } else if survey.pebs.state(found.peb) == PebState::Erase {
            survey.pebs.set_state(found.peb, PebState::Used);
        }
    }
}

/// A block without rivals is the LEB even if its CRC is wrong, as in Linux. A change of an unmapped LEB maps it first
/// (`Core::change`), so a power cut never leaves an incomplete copy without a rival: the CRC is wrong because some
/// pages are damaged, and the other pages are still good.
fn choose_one(
    survey: &mut Survey,
    nand: &mut dyn Nand,
    group: std::ops::Range<usize>,
) -> Result<usize, NandError> {
    let mut winner = group.start;
    loop {
        let found = survey.found[winner];
        let alone = winner + 1 == group.end;
        if alone || !found.copied || is_whole(survey, nand, found.peb)? {
            break;
        }
        let place = survey.layout.data_offset();
        survey.note(found.peb, place, AnomalyKind::TornCopy);
        winner += 1;
    }
    let by = survey.found[winner].peb;
    for place in winner + 1..group.end {
        let (peb, offset) = (survey.found[place].peb, survey.layout.vid_header_offset());
        survey.note(peb, offset, AnomalyKind::Superseded { by });
    }
    Ok(winner)
}

/// Whether the data covered by the CRC in the VID header of `peb` was written completely. A wrong CRC is damage, not an
/// interrupted copy, if the page behind that data is written: a copy is complete before anything is appended to it.
pub(super) fn is_whole(survey: &Survey, nand: &mut dyn Nand, peb: Peb) -> Result<bool, NandError> {
    let Some(header) = vid_header(survey, nand, peb)? else {
        return Ok(false);
    };
    if data_crc(survey, nand, peb, header.data_size)? == header.data_crc {
        return Ok(true);
    }
    let mut page = vec![0; index(survey.layout.min_io_bytes())];
    let end = header.data_size.next_multiple_of(survey.layout.min_io_bytes());
    if end >= survey.layout.leb_bytes() {
        return Ok(false);
    }
    let report = retry::read(nand, peb, survey.layout.data_offset() + end, &mut page)?;
    Ok(!report.is_correct() || page.iter().any(|byte| *byte != 0xFF))
}

/// Whether a page of the data covered by the CRC in the VID header of `peb` is unreadable, and the last page is not
/// erased.
pub(super) fn was_written_whole(survey: &Survey, nand: &mut dyn Nand, peb: Peb) -> Result<bool, NandError> {
    let Some(header) = vid_header(survey, nand, peb)? else {
        return Ok(false);
    };
    let mut page = vec![0; index(survey.layout.min_io_bytes())];
    let (mut is_damaged, mut is_last_written) = (false, false);
    for offset in (0..header.data_size).step_by(page.len()) {
        let report = retry::read(nand, peb, survey.layout.data_offset() + offset, &mut page)?;
        is_damaged |= !report.is_correct();
        is_last_written = !report.is_correct() || page.iter().any(|byte| *byte != 0xFF);
    }
    Ok(is_damaged && is_last_written)
}

pub(super) fn vid_header(
    survey: &Survey,
    nand: &mut dyn Nand,
    peb: Peb,
) -> Result<Option<VidHeader>, NandError> {
    let raw = RawHeaders::read(nand, peb, &survey.layout)?;
    Ok(match raw.vid(survey.layout.leb_bytes()) {
        Seen::Header { header, .. } => Some(header),
        Seen::Erased { .. } | Seen::Damaged { .. } | Seen::Refused(_) => None,
    })
}

/// CRC of the first `bytes` of data. Uncorrectable bits make it wrong anyway.
pub(super) fn data_crc(survey: &Survey, nand: &mut dyn Nand, peb: Peb, bytes: u32) -> Result<u32, NandError> {
    let mut crc = crc32fast::Hasher::new();
    read_data(survey, nand, peb, bytes, &mut |part| crc.update(part))?;
    Ok(!crc.finalize())
}

/// Reads the first `bytes` of a block's data in chunks: LEBs may exceed the memory budget of an attach.
pub(super) fn read_data(
    survey: &Survey,
    nand: &mut dyn Nand,
    peb: Peb,
    bytes: u32,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), NandError> {
    let unit = survey.geometry.write_unit_bytes();
    let mut buffer = vec![0; index(unit.min(bytes))];
    for start in (0..bytes).step_by(index(unit)) {
        let part = &mut buffer[..index(unit.min(bytes - start))];
        let _ = retry::read(nand, peb, survey.layout.data_offset() + start, part)?;
        take(part);
    }
    Ok(())
}

/// Checks the chosen blocks against the volume table. Blocks of volumes missing from the table are erased, which
/// completes a removal.
pub(super) fn hold_against(survey: &mut Survey, table: &VolumeTable) {
    let mut place = 0;
    while place < survey.found.len() {
        let volume = survey.profiles[usize::from(survey.found[place].profile)].volume;
        let same = |found: &Found| survey.profiles[usize::from(found.profile)].volume == volume;
        let end = place
            + survey.found[place..]
                .iter()
                .take_while(|found| same(found))
                .count();
        let record = usize::try_from(volume)
            .ok()
            .and_then(|number| table.get(number)?.as_ref());
        match record {
            _ if volume == LAYOUT_VOLUME => {}
            None => drop_volume(survey, place..end, volume),
            Some(record) => hold_volume_against(survey, place..end, volume, record),
        }
        place = end;
    }
}

fn drop_volume(survey: &mut Survey, group: std::ops::Range<usize>, volume: u32) {
    let offset = survey.layout.vid_header_offset();
    for place in group {
        survey.found[place].chosen = false;
        let peb = survey.found[place].peb;
        survey.pebs.set_state(peb, PebState::Erase);
        survey.note(peb, offset, AnomalyKind::NoSuchVolume { volume });
    }
}

fn hold_volume_against(
    survey: &mut Survey,
    group: std::ops::Range<usize>,
    volume: u32,
    record: &VolumeRecord,
) {
    let mut used_lebs = None;
    let mut lebs = 0;
    let mut last = None;
    for place in group {
        let found = survey.found[place];
        if !found.chosen {
            continue;
        }
        let profile = survey.profiles[usize::from(found.profile)];
        let expected_used = *used_lebs.get_or_insert(profile.used_lebs);
        let kind = |kind| match kind {
            VolumeKind::Dynamic => 1,
            VolumeKind::Static => 2,
        };
        for (field, found_value, expected) in [
            ("volume kind", kind(profile.kind), kind(record.kind)),
            ("data padding", profile.data_padding, record.data_padding),
            ("used LEBs", profile.used_lebs, expected_used),
        ] {
            if found_value != expected {
                let (found_value, expected) = (u64::from(found_value), u64::from(expected));
                survey.refuse_contradiction(found.peb, volume, field, found_value, expected);
            }
        }
        if found.leb >= record.reserved_pebs {
            let (leb, largest) = (u64::from(found.leb), u64::from(record.reserved_pebs) - 1);
            survey.refuse_contradiction(found.peb, volume, "LEB", leb, largest);
        }
        lebs += 1;
        last = Some(found.peb);
    }
    if let (Some(used), Some(peb), VolumeKind::Static) = (used_lebs, last, record.kind)
        && used > lebs
    {
        let missing = used - lebs;
        survey.note(
            peb,
            survey.layout.vid_header_offset(),
            AnomalyKind::MissingLebs { volume, missing },
        );
    }
}
