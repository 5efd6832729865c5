//! The ECC of a dump: the layout of each partition with OOB areas, found by trial on its pages.
//!
//! The EC headers without wrong bits give the beginning of blocks, hence of pages, and their distance. A layout counts only
//! where the trial of `nand::ecc` is certain of it, on the blocks of one group of headers. It is extended over the blocks
//! around the group, whose headers may have wrong bits, up to the next group with other places of pages.

use std::ops::Range;

use nand::ecc::{Choice, Family, FindError, FindOptions, Found, SHAPES, find};
use ubi::format::EcHeader;

use crate::blocks::Claims;
use crate::correct::{Region, Regions};
use crate::dump::Dump;
use crate::finding::{Finding, What};
use crate::group::{Group, groups, sort_by_claim};
use crate::scan::Hit;
use crate::shape::{EccHint, Hints, candidates, usual_page};

/// Groups of headers that are tried. Bounds the time on hostile dumps.
const GROUPS_MAX: usize = 16;
/// Bytes in front of the data of a page in the family `gpmi`.
const GPMI_BYTES: u64 = 10;

/// A group of blocks whose layout was searched.
struct Core {
    /// From the first page of its first block to the end of its last one.
    range: Range<u64>,
    /// Its layout, if it has one.
    found: Option<Found>,
}

/// The corrected parts of a dump.
pub(crate) fn regions(dump: &Dump, hits: &[Hit], hints: &Hints, findings: &mut Vec<Finding>) -> Regions {
    let is_given = match &hints.ecc {
        EccHint::Ignore => return Regions::default(),
        EccHint::Find => false,
        EccHint::Given(_) => true,
    };
    if hints.oob_bytes == Some(0) || dump.corrected().is_some() {
        return Regions::default();
    }
    let has_oob = is_given || hints.oob_bytes.is_some();
    let mut groups = groups(hits, hints, dump.base(), &mut Vec::new());
    sort_by_claim(&mut groups, hints);
    drop_nested(&mut groups);
    let mut cores: Vec<Core> = Vec::new();
    let mut failure = None;
    let tried = groups
        .iter()
        .filter(|group| has_oob || !group.stride.is_power_of_two());
    for group in tried.take(GROUPS_MAX) {
        let (core, error) = core_of(dump, group, hints, &cores);
        add(&mut cores, core);
        match error {
            None => {}
            Some(error) => {
                let is_told = !matches!(error, FindError::NothingWritten { .. }) || is_given;
                let place = group.at.first().map(|at| dump.base() + at);
                failure = failure.or(is_told.then(|| (place, error.to_string())));
            }
        }
    }
    if groups.is_empty() && has_oob {
        match search(dump, 0..dump.bytes(), None, hints, choice_of(hints)) {
            Ok(found) => cores.push(Core {
                range: 0..dump.bytes(),
                found: Some(found),
            }),
            Err(error) => failure = Some((None, error.to_string())),
        }
    }
    let is_found = cores.iter().any(|core| core.found.is_some());
    if let Some((at, reason)) = failure.filter(|_| !is_given || !is_found) {
        findings.push(Finding::new(at, What::NoEcc { reason, is_given }));
    }
    cores.sort_by_key(|core| core.range.start);
    Regions::new(extended(dump, &groups, cores))
}

/// Drops headers inside of blocks of a group with a stronger claim: those of an image in a volume.
fn drop_nested(groups: &mut Vec<Group>) {
    let signed = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let mut claims = Claims::default();
    for group in &mut *groups {
        group.at.retain(|at| !claims.is_inside(signed(*at)));
        let stride = i64::from(group.stride);
        claims.add(
            group
                .at
                .iter()
                .map(|at| (signed(*at), signed(*at).saturating_add(stride))),
        );
    }
    groups.retain(|group| !group.at.is_empty());
}

fn choice_of(hints: &Hints) -> Choice {
    match &hints.ecc {
        EccHint::Given(choice) => choice.clone(),
        EccHint::Find | EccHint::Ignore => Choice::Auto,
    }
}

/// Searches the layout of a group: those found before first, then the others.
fn core_of(dump: &Dump, group: &Group, hints: &Hints, known: &[Core]) -> (Core, Option<FindError>) {
    let (Some(first), Some(last)) = (group.at.first(), group.at.last()) else {
        let range = 0..0;
        return (Core { range, found: None }, None);
    };
    let range = *first..(last + u64::from(group.stride)).min(dump.bytes());
    let earlier = known.iter().filter_map(|core| Some((core, core.found.as_ref()?)));
    for (core, found) in earlier {
        let raw = u64::from(found.layout.raw_bytes());
        let start = range
            .start
            .saturating_sub((range.start + raw - core.range.start % raw) % raw);
        let text = found.layout.to_string();
        let is_near = range.start - start <= GPMI_BYTES;
        let again = || search(dump, start..range.end, None, hints, Choice::Spec(text));
        if is_near && let Ok(mut again) = again() {
            again.family = found.family;
            let range = start..range.end;
            let found = Some(again);
            return (Core { range, found }, None);
        }
    }
    let error = match search(dump, range.clone(), Some(group), hints, choice_of(hints)) {
        Ok(found) => {
            let found = Some(found);
            return (Core { range, found }, None);
        }
        Err(error) => error,
    };
    // The data of a page of this family begins behind other bytes.
    let gpmi = match (&hints.ecc, Family::named("gpmi")) {
        (EccHint::Find, Some(family)) => Some(Choice::Family(family.name)),
        (EccHint::Given(choice), _) => Some(choice.clone()),
        _ => None,
    };
    let start = range.start.checked_sub(GPMI_BYTES);
    if let Some((choice, start)) = gpmi.zip(start)
        && let Ok(found) = search(dump, start..range.end, Some(group), hints, choice)
    {
        let core = Core {
            range: start..range.end,
            found: Some(found),
        };
        return (core, None);
    }
    (Core { range, found: None }, Some(error))
}

/// The layout of the pages in a range. For a group of headers, pages of the size that the headers name come first.
fn search(
    dump: &Dump,
    range: Range<u64>,
    group: Option<&Group>,
    hints: &Hints,
    choice: Choice,
) -> Result<Found, FindError> {
    let options = FindOptions {
        range,
        page_bytes: hints.page_bytes,
        oob_bytes: hints.oob_bytes,
        block_bytes: group.map(|group| group.stride.into()),
        choice,
    };
    let is_given = matches!(hints.ecc, EccHint::Given(_));
    let tried = |page: Option<u32>, oob: Option<u32>| {
        let options = FindOptions {
            page_bytes: page,
            oob_bytes: oob,
            ..options.clone()
        };
        let found = find(dump, &options)?;
        match is_given || is_convincing(&found) {
            true => Ok(found),
            false => Err(FindError::NotFound {
                tried: found.tried,
                pages: found.pages,
                best: Some(Box::new(found)),
            }),
        }
    };
    let Some(group) = group.filter(|_| hints.page_bytes.is_none()) else {
        return tried(hints.page_bytes, hints.oob_bytes);
    };
    let mut failure = None;
    for page in pages_of(&group.header) {
        match tried(Some(page), hints.oob_bytes) {
            Ok(found) => return Ok(found),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // Pages of other sizes than the usual ones.
    let is_usual = |page: u32, oob: u32| {
        SHAPES
            .iter()
            .any(|(size, oobs)| *size == page && oobs.contains(&oob))
    };
    for shape in candidates(group.stride, &group.header, hints) {
        let (page, oob) = (shape.page_bytes, shape.oob_bytes);
        if oob > 0
            && page >= 512
            && !is_usual(page, oob)
            && let Ok(found) = tried(Some(page), Some(oob))
        {
            return Ok(found);
        }
    }
    match failure {
        Some(error) => Err(error),
        None => tried(None, hints.oob_bytes),
    }
}

/// The usual sizes of pages at which the data of a block may begin, that of the headers first.
fn pages_of(header: &EcHeader) -> Vec<u32> {
    let sizes = SHAPES.iter().map(|(page, _)| *page);
    let mut pages: Vec<u32> = sizes
        .filter(|page| header.data_offset.is_multiple_of(*page))
        .collect();
    pages.sort_unstable_by_key(|page| (*page != usual_page(header), *page));
    pages
}

/// Whether a layout that nobody named fits nearly all steps. Data is not random: repeated content has the parity of
/// erased bytes by one of the short codes, so that a wrong layout fits some steps.
fn is_convincing(found: &Found) -> bool {
    let matched = found.clean + found.corrected;
    match found.layout.code.strength() {
        1 => matched * 10 >= found.steps * 9,
        _ => matched * 4 >= found.steps * 3,
    }
}

/// Adds a core: to one with the same layout and places of pages, or outside of the others.
fn add(cores: &mut Vec<Core>, new: Core) {
    let is_same = |core: &Core| match (&core.found, &new.found) {
        (Some(one), Some(other)) => {
            let raw = u64::from(one.layout.raw_bytes());
            one.layout == other.layout && core.range.start % raw == new.range.start % raw
        }
        _ => false,
    };
    if let Some(core) = cores.iter_mut().find(|core| is_same(core) && touches(core, &new)) {
        core.range = core.range.start.min(new.range.start)..core.range.end.max(new.range.end);
        return;
    }
    let is_free = |core: &Core| core.range.end <= new.range.start || new.range.end <= core.range.start;
    if cores.iter().all(is_free) {
        cores.push(new);
    }
}

fn touches(one: &Core, other: &Core) -> bool {
    one.range.start <= other.range.end && other.range.start <= one.range.end
}

/// The cores with the pages around them, up to the next core, and to the next header with another place in its page.
fn extended(dump: &Dump, groups: &[Group], cores: Vec<Core>) -> Vec<Region> {
    let ranges: Vec<Range<u64>> = cores.iter().map(|core| core.range.clone()).collect();
    let mut regions = Vec::new();
    let mut free = 0;
    for (number, core) in cores.into_iter().enumerate() {
        let Some(found) = core.found else {
            free = free.max(core.range.end);
            continue;
        };
        let raw = u64::from(found.layout.raw_bytes());
        let place = core.range.start % raw;
        let foreign = |at: &u64| at % raw != place && (at % raw).checked_sub(GPMI_BYTES) != Some(place);
        let headers = || groups.iter().flat_map(|group| &group.at).copied().filter(foreign);
        let before = headers()
            .filter(|at| *at < core.range.start)
            .map(|at| at + 1)
            .max();
        let after = headers().filter(|at| *at >= core.range.end).min();
        let next = ranges.get(number + 1).map_or(dump.bytes(), |next| next.start);
        let limit = after
            .unwrap_or(u64::MAX)
            .min(next)
            .max(core.range.end)
            .min(dump.bytes());
        let from = before.unwrap_or(0).max(free).min(core.range.start);
        let start = core.range.start - (core.range.start - from) / raw * raw;
        regions.extend(Region::new(start..limit, core.range, found));
        free = limit;
    }
    regions
}
