//! Partitions: groups of EC headers with the blocks that they claim.
//!
//! Headers of an image that lies inside of a volume of another one are told from those of partitions by their places:
//! groups claim their blocks, the one that covers most bytes first, and a header inside of a claimed block is dropped. An
//! inner image may have more blocks than the outer one, but it never covers more.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::sync::Arc;

use media::Leb;
use ubi::format::{LAYOUT_VOLUME, VidHeader};

use crate::blocks::{Block, BlockCounts, Claims, Reader};
use crate::correct::Correction;
use crate::dump::Dump;
use crate::finding::{Finding, What};
use crate::group::{Group, groups, sort_by_claim};
use crate::scan::Hit;
use crate::shape::{Hints, Shape, shape_of};
use crate::table::{self, Tables};
use crate::volume::{self, Volume};

/// A UBI partition.
#[derive(Debug)]
pub struct Partition {
    /// Image sequence of its EC headers; 0 if unknown.
    pub image_sequence: u32,
    /// Offset of its first block in the dump's file, bytes.
    pub offset: u64,
    /// Distance from there to the end of its last block, bytes.
    pub bytes: u64,
    /// Shape of its blocks.
    pub shape: Shape,
    /// Numbers of its blocks.
    pub counts: BlockCounts,
    /// Its volumes, by number. Internal volumes are not listed.
    pub volumes: Vec<Volume>,
    /// Its ECC, and the bits that it corrected; `None` without one.
    pub ecc: Option<Correction>,
    /// Findings that concern no single volume.
    pub findings: Vec<Finding>,
    /// Ranges of the dump's file, as start and end, between blocks with readable headers: bad and erased blocks, and those
    /// of other images.
    pub gaps: Vec<(u64, u64)>,
    /// Offset of its first block in the dump, which may lack its beginning.
    start: i64,
    /// Number of blocks from the first to the last one.
    blocks: u64,
}

impl Partition {
    /// All blocks from the first to the last one as a stream, without OOB.
    pub fn blocks<'a>(&self, dump: &'a Dump) -> Blocks<'a> {
        Blocks {
            dump,
            shape: self.shape,
            next: self.start,
            left: self.blocks,
            block: Vec::new(),
            taken: 0,
        }
    }
}

/// The blocks of a partition as a stream; see [`Partition::blocks`].
#[derive(Debug)]
pub struct Blocks<'a> {
    dump: &'a Dump,
    shape: Shape,
    next: i64,
    left: u64,
    block: Vec<u8>,
    taken: usize,
}

impl Read for Blocks<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.block.len() && self.left > 0 {
            self.block
                .resize(usize::try_from(self.shape.block_bytes).unwrap_or(0), 0);
            self.shape.read(self.dump, self.next, 0, &mut self.block);
            self.next = self.next.saturating_add(self.shape.stride().into());
            self.left -= 1;
            self.taken = 0;
        }
        let rest = &self.block[self.taken..];
        let bytes = rest.len().min(out.len());
        out[..bytes].copy_from_slice(&rest[..bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

/// All partitions with these EC headers, by offset. `in_files`: the headers that were dropped before, because they are
/// content of files.
pub(crate) fn partitions(
    dump: &Arc<Dump>,
    hits: &[Hit],
    in_files: Vec<u64>,
    hints: &Hints,
    findings: &mut Vec<Finding>,
) -> Vec<Partition> {
    let mut groups = groups(hits, hints, dump.base(), findings);
    sort_by_claim(&mut groups, hints);
    let (mut claims, mut nested) = (Claims::default(), Vec::new());
    for group in &mut groups {
        let is_inside = |at: &u64| claims.is_inside(i64::try_from(*at).unwrap_or(i64::MAX));
        let (inside, kept): (Vec<u64>, Vec<u64>) = group.at.iter().partition(|at| is_inside(at));
        nested.extend(inside);
        claims.add(kept.iter().map(|at| span(*at, group.stride)));
        group.at = kept;
    }
    nested.extend(in_files);
    if let Some(first) = nested.iter().min() {
        let headers = nested.len();
        findings.push(Finding::new(Some(dump.base() + first), What::Nested { headers }));
    }
    groups.retain(|group| !group.at.is_empty());
    let mut drafts: Vec<Draft> = Vec::new();
    let given = hints;
    for group in groups {
        let layout = group.at.first().and_then(|at| dump.corrected()?.layout_at(*at));
        let hints = match layout {
            Some(layout) => &Hints {
                page_bytes: Some(layout.page_bytes),
                oob_bytes: Some(layout.oob_bytes),
                ..hints.clone()
            },
            None => hints,
        };
        match shape_of(dump, &group.at, group.stride, &group.header, hints) {
            Some(shape) => {
                let place = group.at.first().map(|at| dump.base() + at);
                findings.extend(other_sizes(given, &shape).map(|what| Finding::new(place, what)));
                drafts.extend(Draft::read(dump, &group, shape, &claims, COPIES_MAX));
            }
            None => findings.push(Finding::new(
                group.at.first().map(|at| dump.base() + at),
                What::NoShape { stride: group.stride },
            )),
        }
    }
    join_unknown_sequences(&mut drafts);
    drafts.sort_by_key(|draft| draft.blocks.first().map(|block| block.at));
    drafts
        .into_iter()
        .filter_map(|draft| draft.finish(dump))
        .collect()
}

/// The given sizes that blocks of this shape don't have.
fn other_sizes(given: &Hints, shape: &Shape) -> impl Iterator<Item = What> {
    let page = match shape
        .data_offset
        .is_multiple_of(given.page_bytes.unwrap_or(1).max(1))
    {
        true => shape.page_bytes,
        // Without OOB, the page of a shape is the given one.
        false => shape.data_offset,
    };
    let sizes = [
        ("--page", given.page_bytes, page),
        ("--block", given.block_bytes, shape.block_bytes),
    ];
    sizes.into_iter().filter_map(|(option, given, found)| {
        let given = given.filter(|given| *given != found)?;
        Some(What::OtherSize { option, given, found })
    })
}

fn span(at: u64, stride: u32) -> (i64, i64) {
    let start = i64::try_from(at).unwrap_or(i64::MAX);
    (start, start.saturating_add(stride.into()))
}

/// Maximum number of copies of one image that are told apart. Bounds the time on hostile dumps.
const COPIES_MAX: usize = 16;

/// A partition whose blocks are known.
struct Draft {
    sequence: u32,
    shape: Shape,
    blocks: Vec<Block>,
    counts: BlockCounts,
    findings: Vec<Finding>,
}

/// The beginning of a second copy of an image.
struct SecondCopy {
    at: i64,
    /// Whether no block can belong to the other one of the two.
    is_certain: bool,
}

/// The first two blocks with one LEB and one sequence number.
struct Pair {
    vid: VidHeader,
    first: i64,
    second: i64,
}

/// The LEBs of a group of blocks that are repeated.
struct Repeated {
    pairs: Vec<Pair>,
}

impl Repeated {
    fn of(blocks: &[Block]) -> Self {
        let mut seen = HashMap::new();
        let mut pairs = Vec::new();
        for block in blocks {
            let Some(vid) = block.vid else { continue };
            let key = (vid.volume, vid.leb, vid.sequence_number);
            let (first, number) = seen.entry(key).or_insert((block.at, 0_usize));
            *number += 1;
            if *number == 2 {
                pairs.push(Pair {
                    vid,
                    first: *first,
                    second: block.at,
                });
            }
        }
        Self { pairs }
    }

    /// Whether an image maker wrote the volume table at this place. It writes the table first, and all blocks with
    /// sequence number 0: other ones in front of the table are not of its image.
    fn is_made_from(&self, at: i64) -> bool {
        let mut tables = self.pairs.iter().filter(|pair| pair.second == at);
        tables.any(|pair| pair.vid.volume == LAYOUT_VOLUME && pair.vid.sequence_number == 0)
    }
}

/// The distance of the blocks of the volume table, if all of them have it.
fn distance_of_tables(pairs: &[&Pair]) -> Option<i64> {
    let mut distances = pairs
        .iter()
        .filter(|pair| pair.vid.volume == LAYOUT_VOLUME)
        .map(|pair| pair.second - pair.first);
    let first = distances.next()?;
    distances.all(|other| other == first).then_some(first)
}

/// The distance of more than half of the pairs.
fn distance_of_most(pairs: &[&Pair]) -> Option<i64> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    for pair in pairs {
        *counts.entry(pair.second - pair.first).or_default() += 1;
    }
    let (distance, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (count * 2 > pairs.len()).then_some(distance)
}

impl Draft {
    /// Reads the blocks of a group; several partitions if copies of one image lie behind each other.
    fn read(dump: &Dump, group: &Group, shape: Shape, claims: &Claims, copies: usize) -> Vec<Self> {
        let reader = Reader::read(dump, shape, claims, &group.at);
        let (counts, findings) = (reader.counts, reader.findings);
        let mut whole = Self {
            sequence: group.sequence,
            shape,
            blocks: reader.blocks,
            counts,
            findings,
        };
        let Some(copy) = whole.second_copy() else {
            return vec![whole];
        };
        let place = |at: i64| u64::try_from(at.max(0)).unwrap_or(0);
        if copies <= 1 {
            let what = What::TooManyCopies {
                sequence: group.sequence,
                copies: COPIES_MAX,
            };
            let finding = Finding::new(Some(dump.base() + place(copy.at)), what);
            whole.findings.push(finding);
            return vec![whole];
        }
        let border = copy.at;
        let (front, behind) = group
            .at
            .iter()
            .partition(|header| i64::try_from(**header).is_ok_and(|at| at < border));
        let part = |at| Group { at, ..group.clone() };
        let mut others = Self::read(dump, &part(behind), shape, claims, copies - 1);
        let what = What::SecondCopy {
            sequence: group.sequence,
            is_certain: copy.is_certain,
        };
        if let Some(other) = others.first_mut() {
            let finding = Finding::new(Some(dump.base() + place(border)), what);
            other.findings.insert(0, finding);
        }
        let mut all = Self::read(dump, &part(front), shape, claims, 1);
        all.append(&mut others);
        all
    }

    /// The beginning of a second copy of the image: LEBs are repeated with the same sequence numbers, which no device has,
    /// and both parts have a volume table.
    ///
    /// All first blocks of such LEBs lie in front of it, and all second ones behind it. Between them each of the two
    /// images may have blocks that it wrote later, or that the other one lacks. The distance of the two images is that of
    /// their volume tables, which image makers write first; the distance of most LEBs is not, if a volume in front of the
    /// largest one differs in length. Blocks about which the distances of other LEBs disagree are in doubt.
    fn second_copy(&self) -> Option<SecondCopy> {
        let repeated = Repeated::of(&self.blocks);
        let start = self.blocks.first()?.at;
        let first_second = repeated.pairs.iter().map(|pair| pair.second).min()?;
        // LEBs that the first image lacks are repeated behind it.
        let pairs: Vec<&Pair> = repeated
            .pairs
            .iter()
            .filter(|pair| pair.first < first_second)
            .collect();
        let last_first = pairs.iter().map(|pair| pair.first).max()?;
        let is_border = |at: i64| last_first < at && at <= first_second;
        let border = |distance: i64| Some(start.saturating_add(distance)).filter(|at| is_border(*at));
        let distance = distance_of_tables(&pairs).or_else(|| distance_of_most(&pairs));
        let at = distance.and_then(border).unwrap_or(first_second);
        let doubted = match at < first_second {
            true => {
                let others = pairs.iter().filter_map(|pair| border(pair.second - pair.first));
                let (low, high) = others.fold((at, at), |(low, high), at| (low.min(at), high.max(at)));
                low..high
            }
            false => last_first + 1..first_second,
        };
        let is_doubtful = |block: &Block| {
            let is_of_maker = block.vid.is_some_and(|vid| vid.sequence_number == 0);
            block.vid.is_some()
                && doubted.contains(&block.at)
                && !(is_of_maker && at == first_second && repeated.is_made_from(first_second))
        };
        let found = SecondCopy {
            at,
            is_certain: !self.blocks.iter().any(is_doubtful),
        };
        let has_table = |blocks: &[Block]| {
            let mut vids = blocks.iter().filter_map(|block| block.vid);
            vids.any(|vid| vid.volume == LAYOUT_VOLUME)
        };
        let border = self.blocks.partition_point(|block| block.at < found.at);
        let (front, behind) = self.blocks.split_at(border);
        (has_table(front) && has_table(behind)).then_some(found)
    }

    fn has_table(&self) -> bool {
        let mut vids = self.blocks.iter().filter_map(|block| block.vid);
        vids.any(|vid| vid.volume == LAYOUT_VOLUME)
    }

    /// The work of the ECC, and a finding for each block with steps that it could not correct.
    fn account(&mut self, dump: &Dump, volumes: &mut [Volume]) -> Option<Correction> {
        let regions = dump.corrected()?;
        let (first, last) = (self.blocks.first()?.at, self.blocks.last()?.at);
        let correction = regions.account(first, self.shape.span(last).1)?;
        if correction.unprotected_pages > 0 {
            let pages = correction.unprotected_pages;
            self.findings
                .push(Finding::new(None, What::Unprotected { pages }));
        }
        for block in &self.blocks {
            let (start, end) = self.shape.span(block.at);
            let steps = regions.failed(start, end);
            let Some(vid) = block.vid.filter(|_| steps > 0) else {
                continue;
            };
            let data = start.saturating_add(self.shape.place(self.shape.data_offset));
            let is_in_data = regions.failed(data, end) > 0;
            let mut users = volumes.iter_mut().filter(|volume| volume.number == vid.volume);
            match users.find(|volume| is_in_data && volume.is_used(vid.leb, block.at)) {
                Some(volume) => volume.note_uncorrectable(block.at, Leb(vid.leb), steps),
                None => {
                    let place = u64::try_from(block.at.max(0)).unwrap_or(0);
                    let what = What::Uncorrectable {
                        steps,
                        leb: None,
                        loses_data: false,
                    };
                    self.findings.push(Finding::new(Some(dump.base() + place), what));
                }
            }
        }
        Some(correction)
    }

    /// Whether each block from the first to the last one is in the dump and has readable headers.
    fn is_whole(&self, dump: &Dump, (start, end): (i64, i64)) -> bool {
        let counts = &self.counts;
        let bytes = i64::try_from(dump.bytes()).unwrap_or(i64::MAX);
        counts.damaged + counts.erased + counts.other == 0 && start >= 0 && end <= bytes
    }

    fn finish(mut self, dump: &Arc<Dump>) -> Option<Partition> {
        self.blocks.sort_unstable_by_key(|block| block.at);
        let (first, last) = (self.blocks.first()?.at, self.blocks.last()?.at);
        let span = (first, self.shape.span(last).1);
        let tables = table::read(dump, &self.shape, &self.blocks, &mut self.findings);
        let mut volumes = volumes(dump, &self.shape, &self.blocks, &tables, &mut self.findings);
        let is_whole = self.is_whole(dump, span);
        for volume in &mut volumes {
            volume.note_missing(is_whole);
        }
        let ecc = self.account(dump, &mut volumes);
        let end = u64::try_from(span.1).unwrap_or(0).min(dump.bytes());
        let start = u64::try_from(span.0.max(0)).unwrap_or(0);
        let stride = u64::from(self.shape.stride().max(1));
        let blocks = u64::try_from(span.1 - first).unwrap_or(0) / stride;
        let gaps = gaps(&self.blocks, &self.shape, dump.base());
        Some(Partition {
            image_sequence: self.sequence,
            offset: dump.base() + start,
            bytes: end.saturating_sub(start),
            shape: self.shape,
            counts: self.counts,
            volumes,
            ecc,
            findings: self.findings,
            gaps,
            start: first,
            blocks,
        })
    }
}

/// The ranges between blocks, which are sorted.
fn gaps(blocks: &[Block], shape: &Shape, base: u64) -> Vec<(u64, u64)> {
    let place = |at: i64| base + u64::try_from(at.max(0)).unwrap_or(0);
    blocks
        .windows(2)
        .map(|pair| (place(shape.span(pair[0].at).1), place(pair[1].at)))
        .filter(|(start, end)| start < end)
        .collect()
}

/// Blocks with image sequence 0, which old boot loaders write, belong to the nearest partition that they fit, unless they
/// have a volume table of their own.
fn join_unknown_sequences(drafts: &mut Vec<Draft>) {
    let (unknown, known): (Vec<Draft>, Vec<Draft>) = std::mem::take(drafts)
        .into_iter()
        .partition(|draft| draft.sequence == 0 && !draft.has_table());
    *drafts = known;
    for draft in unknown {
        let Some(at) = draft.blocks.first().map(|block| block.at) else {
            continue;
        };
        let stride = i64::from(draft.shape.stride());
        let distance = |other: &Draft| {
            let fits = other.shape == draft.shape;
            let places = other.blocks.first().zip(other.blocks.last())?;
            let is_aligned = (places.0.at - at) % stride == 0;
            let outside = (places.0.at - at).max(at - places.1.at).max(0);
            (fits && is_aligned).then_some(outside)
        };
        let nearest = drafts
            .iter_mut()
            .filter_map(|other| Some((distance(other)?, other)))
            .min_by_key(|(distance, _)| *distance);
        match nearest {
            Some((_, other)) => {
                other.blocks.extend(draft.blocks);
                other.findings.extend(draft.findings);
                other.counts.used += draft.counts.used;
                other.counts.free += draft.counts.free;
                other.counts.damaged += draft.counts.damaged;
            }
            None => drafts.push(draft),
        }
    }
}

fn volumes(
    dump: &Arc<Dump>,
    shape: &Shape,
    blocks: &[Block],
    tables: &Tables,
    findings: &mut Vec<Finding>,
) -> Vec<Volume> {
    let mut by_volume = volume::claims(blocks);
    let mut volumes = Vec::new();
    for (number, record) in (0..).zip(&tables.records) {
        let lebs = by_volume.remove(&number).unwrap_or_default();
        match record {
            Some(record) => volumes.push(Volume::new(
                dump,
                shape,
                number,
                Some(record.clone()),
                lebs,
                blocks.len(),
            )),
            None if lebs.is_empty() => {}
            None if tables.is_unlisted(number) => {
                let blocks = lebs.values().map(Vec::len).sum();
                let first = lebs.values().flatten().map(|claim| claim.at).min();
                let at = first
                    .and_then(|at| u64::try_from(at).ok())
                    .map(|at| dump.base() + at);
                findings.push(Finding::new(
                    at,
                    What::Removed {
                        volume: number,
                        blocks,
                    },
                ));
            }
            None => volumes.push(Volume::new(dump, shape, number, None, lebs, blocks.len())),
        }
    }
    volumes
}
