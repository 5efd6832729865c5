//! The survey of a dump: its partitions, bare volumes, and the areas between them.

use std::sync::Arc;

use ubi::VolumeGeometry;
use ubifs::format::Superblock;

use crate::dump::Dump;
use crate::ecc;
use crate::finding::{Finding, What};
use crate::partition::{Partition, partitions};
use crate::scan::{Found, is_content, scan};
use crate::shape::Hints;
use crate::volume::DumpVolume;

/// A part of a dump that is understood.
#[derive(Debug)]
pub enum Part {
    /// A UBI partition.
    Ubi(Partition),
    /// A UBIFS volume without UBI.
    Ubifs(BareVolume),
}

/// A UBIFS volume without UBI, as `mkfs.ubifs` makes it.
#[derive(Debug)]
pub struct BareVolume {
    /// Offset in the dump's file, bytes.
    pub offset: u64,
    /// Size in the dump, bytes.
    pub bytes: u64,
    /// Its superblock.
    pub superblock: Superblock,
    /// Bytes of the volume that the dump lacks. A file system that was never mounted may end before its last LEB.
    pub missing_bytes: u64,
    dump: Arc<Dump>,
}

impl BareVolume {
    /// The volume for readers such as UBIFS.
    #[must_use]
    pub fn open(&self) -> DumpVolume {
        let superblock = &self.superblock;
        let start = self.offset - self.dump.base();
        let there = self.bytes.div_ceil(superblock.leb_bytes.into());
        // A forged superblock may claim any size: memory use is bounded by the size of the dump.
        let lebs_max = u32::try_from(there.saturating_mul(16).saturating_add(1024)).unwrap_or(u32::MAX);
        let geometry = VolumeGeometry {
            leb_bytes: superblock.leb_bytes,
            lebs: superblock.lebs.min(lebs_max),
            min_io_bytes: superblock.min_io_bytes,
            max_write_bytes: superblock.min_io_bytes,
        };
        DumpVolume::plain(&self.dump, start, start + self.bytes, geometry)
    }
}

/// A part of a dump that belongs to no partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Offset in the dump's file, bytes.
    pub offset: u64,
    /// Size, bytes.
    pub bytes: u64,
    /// Whether all bytes are 0xFF.
    pub is_erased: bool,
}

/// Everything that was found in a dump.
#[derive(Debug)]
pub struct Survey {
    /// Partitions and bare volumes, by offset.
    pub parts: Vec<Part>,
    /// The areas between them.
    pub areas: Vec<Area>,
    /// Findings that concern no partition.
    pub findings: Vec<Finding>,
}

/// Losses by ranges that could be read by the survey, and can't be read since: a file that was cut, or a device that fails.
#[must_use]
pub fn unreadable_since(dump: &Dump) -> Vec<Finding> {
    let ranges = dump.unreadable_since().into_iter();
    ranges.map(|(start, end)| unreadable(start, end)).collect()
}

fn unreadable(start: u64, end: u64) -> Finding {
    Finding::new(Some(start), What::Unreadable { bytes: end - start })
}

/// Surveys a dump: reads it once, or twice if it has an ECC, then the headers of its blocks. `progress` gets the number of bytes read.
#[must_use]
pub fn survey(dump: &Arc<Dump>, hints: &Hints, progress: &mut dyn FnMut(u64)) -> Survey {
    let mut found = scan(dump, progress);
    let mut in_files = take_content(dump, &mut found);
    let mut findings = Vec::new();
    let regions = ecc::regions(dump, &found.hits, hints, &mut findings);
    if !regions.is_empty() {
        dump.correct_by(regions);
        // Headers with wrong bits are found, and each page is counted.
        found = scan(dump, progress);
        in_files = take_content(dump, &mut found);
    }
    if let Some(at) = found.dropped_from {
        findings.push(Finding::new(Some(dump.base() + at), What::TooManyHeaders));
    }
    let partitions = partitions(dump, &found.hits, in_files, hints, &mut findings);
    let mut spans: Vec<(u64, u64)> = partitions
        .iter()
        .map(|partition| {
            let start = partition.offset - dump.base();
            (start, start + partition.bytes)
        })
        .collect();
    let mut parts: Vec<Part> = partitions.into_iter().map(Part::Ubi).collect();
    found
        .superblocks
        .retain(|(start, _)| !spans.iter().any(|(from, to)| (*from..*to).contains(start)));
    // A volume ends where the next one begins, whatever its superblock says.
    let starts: Vec<u64> = found.superblocks.iter().map(|(start, _)| *start).collect();
    let begins = |after: u64| {
        let parts = spans.iter().map(|(from, _)| *from).chain(starts.iter().copied());
        parts.filter(|from| *from > after).min()
    };
    let bare: Vec<BareVolume> = found
        .superblocks
        .into_iter()
        .filter_map(|(start, superblock)| {
            bare_volume(dump, start, begins(start).unwrap_or(dump.bytes()), superblock)
        })
        .collect();
    for bare in bare {
        let start = bare.offset - dump.base();
        spans.push((start, start + bare.bytes));
        parts.push(Part::Ubifs(bare));
    }
    parts.sort_by_key(|part| match part {
        Part::Ubi(partition) => partition.offset,
        Part::Ubifs(bare) => bare.offset,
    });
    let areas = areas(dump, spans);
    dump.end_survey();
    let unread = dump.unreadable().into_iter();
    findings.extend(unread.map(|(start, end)| unreadable(start, end)));
    Survey {
        parts,
        areas,
        findings,
    }
}

/// Takes headers and superblocks out that are content of files of a UBIFS. Returns the places of the headers.
fn take_content(dump: &Dump, found: &mut Found) -> Vec<u64> {
    let mut in_files = Vec::new();
    found.hits.retain(|hit| {
        let is_content = is_content(dump, hit.at);
        in_files.extend(is_content.then_some(hit.at));
        !is_content
    });
    found.superblocks.retain(|(at, _)| !is_content(dump, *at));
    in_files
}

/// The volume behind a superblock, up to the next partition or the end.
fn bare_volume(dump: &Arc<Dump>, start: u64, limit: u64, superblock: Superblock) -> Option<BareVolume> {
    let leb_bytes = u64::from(superblock.leb_bytes);
    let whole = leb_bytes
        .checked_mul(superblock.lebs.into())
        .filter(|whole| *whole > 0)?;
    let there = whole.min(limit - start);
    (there >= leb_bytes).then(|| BareVolume {
        offset: dump.base() + start,
        bytes: there,
        superblock,
        missing_bytes: whole - there,
        dump: Arc::clone(dump),
    })
}

/// The gaps between spans.
fn areas(dump: &Dump, mut spans: Vec<(u64, u64)>) -> Vec<Area> {
    spans.sort_unstable();
    spans.push((dump.bytes(), dump.bytes()));
    let mut areas = Vec::new();
    let mut at = 0;
    for (start, end) in spans {
        if start > at {
            areas.push(Area {
                offset: dump.base() + at,
                bytes: start - at,
                is_erased: dump.is_erased(at, start),
            });
        }
        at = at.max(end);
    }
    areas
}
