//! A volume of a partition: the block of each LEB, and readers of its content.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::Arc;

use media::Leb;
use ubi::format::volume_table::VolumeRecord;
use ubi::format::{VidHeader, VolumeKind, crc32};
use ubi::{VolumeError, VolumeGeometry};
use ubifs::format::Superblock;

use crate::blocks::Block;
use crate::content::Content;
use crate::dump::Dump;
use crate::finding::{Finding, What};
use crate::scan::superblock;
use crate::shape::Shape;

/// A block that claims to hold a LEB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub at: i64,
    pub vid: VidHeader,
}

/// A dump may be a small part of a chip. LEBs with numbers above this many times its blocks and above the
/// least number are damaged or forged: a volume is written up to its last LEB, and one such number would fill the disk.
const CHIP_TIMES_DUMP: u32 = 8;
const LEBS_LEAST: u32 = 1024;
/// The same for numbers below those that the volume table reserves. It may be forged too.
const CHIP_TIMES_DUMP_BY_TABLE: u32 = 64;

/// LEBs of a volume with numbers from this one on are left out.
fn leb_limit(blocks: usize, reserved: u32) -> u32 {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    let by_table = reserved.min(blocks.saturating_mul(CHIP_TIMES_DUMP_BY_TABLE));
    blocks
        .saturating_mul(CHIP_TIMES_DUMP)
        .max(LEBS_LEAST)
        .max(by_table)
}

/// The claims of a volume, by LEB.
pub(crate) type Claims = BTreeMap<u32, Vec<Claim>>;

/// All claims, by volume and LEB.
pub(crate) fn claims(blocks: &[Block]) -> BTreeMap<u32, Claims> {
    let mut all: BTreeMap<u32, Claims> = BTreeMap::new();
    for block in blocks {
        let Some(vid) = block.vid else { continue };
        let lebs = all.entry(vid.volume).or_default();
        lebs.entry(vid.leb).or_default().push(Claim { at: block.at, vid });
    }
    all
}

/// A volume of a partition.
#[derive(Debug)]
pub struct Volume {
    /// Its number.
    pub number: u32,
    /// Its record in the volume table, if that can be read.
    pub record: Option<VolumeRecord>,
    /// Static or dynamic.
    pub kind: VolumeKind,
    /// LEB size, bytes.
    pub leb_bytes: u32,
    /// Number of LEBs: as reserved by the table, otherwise up to the last one that was found.
    pub lebs: u32,
    /// Its content.
    pub content: Content,
    /// Findings that concern this volume.
    pub findings: Vec<Finding>,
    dump: Arc<Dump>,
    shape: Shape,
    /// The chosen block of each LEB.
    blocks: BTreeMap<u32, Claim>,
    /// All LEBs have numbers below this one.
    limit: u32,
    /// Each block of the partition has readable headers, so that no LEB can be in another one.
    is_whole: bool,
}

impl Volume {
    pub(crate) fn new(
        dump: &Arc<Dump>,
        shape: &Shape,
        number: u32,
        record: Option<VolumeRecord>,
        mut claims: Claims,
        dump_blocks: usize,
    ) -> Self {
        let mut findings = Vec::new();
        let reserved = record.as_ref().map_or(0, |record| record.reserved_pebs);
        let limit = leb_limit(dump_blocks, reserved);
        let is_far = |claim: &Claim| claim.vid.leb >= limit || claim.vid.used_lebs > limit;
        let far = claims.values().flatten().filter(|claim| is_far(claim));
        let far: BTreeSet<u32> = far.map(|claim| claim.vid.leb).collect();
        if let Some(first) = far.first() {
            let what = What::FarLebs {
                first: Leb(*first),
                lebs: far.len(),
                limit,
            };
            findings.push(Finding::new(None, what));
            claims
                .values_mut()
                .for_each(|claims| claims.retain(|claim| !is_far(claim)));
        }
        let mut blocks = BTreeMap::new();
        for (leb, mut claims) in claims {
            if let Some(chosen) = choose(dump, shape, Leb(leb), &mut claims, &mut findings) {
                blocks.insert(leb, chosen);
            }
        }
        let first = blocks.values().next().map(|claim: &Claim| claim.vid);
        let kind = record
            .as_ref()
            .map(|record| record.kind)
            .or_else(|| first.map(|vid| vid.kind));
        let padding = record
            .as_ref()
            .map(|record| record.data_padding)
            .or_else(|| first.map(|vid| vid.data_padding));
        let found = blocks.keys().next_back().map_or(0, |last| last.saturating_add(1));
        let mut volume = Self {
            number,
            kind: kind.unwrap_or(VolumeKind::Dynamic),
            leb_bytes: shape.leb_bytes().saturating_sub(padding.unwrap_or(0)),
            lebs: record.as_ref().map_or(found, |record| record.reserved_pebs),
            content: Content::Empty,
            record,
            findings,
            dump: Arc::clone(dump),
            shape: *shape,
            blocks,
            limit,
            is_whole: true,
        };
        if volume.record.as_ref().is_some_and(|record| record.update_marker) {
            volume.findings.push(Finding::new(None, What::UpdateMarker));
        }
        volume.content = Content::of(&volume.open());
        let name = volume.shown_name();
        for finding in &mut volume.findings {
            finding.volume = Some(name.clone());
        }
        volume
    }

    /// Its name, or `volume_N` if the table can't be read. Any bytes.
    #[must_use]
    pub fn name(&self) -> Vec<u8> {
        match &self.record {
            Some(record) => record.name.as_bytes().to_vec(),
            None => format!("volume_{}", self.number).into_bytes(),
        }
    }

    fn shown_name(&self) -> String {
        self.name().escape_ascii().to_string()
    }

    /// Numbers of the LEBs that were found, ascending, and the offsets of their blocks in the dump's file.
    pub fn mapped(&self) -> impl Iterator<Item = (Leb, u64)> {
        self.blocks.iter().map(|(leb, claim)| {
            let at = u64::try_from(claim.at.max(0)).unwrap_or(0);
            (Leb(*leb), self.dump.base() + at)
        })
    }

    /// The volume for readers such as UBIFS. Missing LEBs are unmapped.
    #[must_use]
    pub fn open(&self) -> DumpVolume {
        // A forged table may reserve any number of LEBs: memory use is bounded by the blocks that exist. Those that do are
        // never cut off, also if the table reserves fewer.
        let blocks =
            u32::try_from(self.dump.bytes() / u64::from(self.shape.stride().max(1))).unwrap_or(u32::MAX);
        let lebs_max = blocks.saturating_mul(16).saturating_add(1024);
        let lebs = self.blocks.iter().map(|(leb, claim)| (*leb, claim.at)).collect();
        DumpVolume {
            name: format!("{}: volume {}", self.dump.name(), self.shown_name()).into(),
            dump: Arc::clone(&self.dump),
            geometry: VolumeGeometry {
                leb_bytes: self.leb_bytes,
                lebs: self.lebs.min(lebs_max).max(self.mapped_end()),
                min_io_bytes: self.shape.page_bytes,
                max_write_bytes: self.shape.page_bytes,
            },
            place: Place::Blocks {
                shape: self.shape,
                lebs,
            },
            is_whole: self.is_whole,
        }
    }

    /// The whole content as a stream: of a static volume the bytes that were written to it, of a dynamic one all LEBs up to
    /// the last one that is mapped. An image of a UBIFS has all LEBs of the file system, because readers of such images
    /// take a shorter one for damaged.
    #[must_use]
    pub fn stream(&self) -> ContentStream<'_> {
        let leb_bytes = u64::from(self.leb_bytes);
        let (lebs, bytes) = match self.kind {
            VolumeKind::Dynamic => {
                let lebs = self.file_system_lebs().max(self.squashfs_lebs().unwrap_or(0));
                let lebs = lebs.min(self.lebs).min(self.limit).max(self.mapped_end());
                (lebs, u64::from(lebs) * leb_bytes)
            }
            VolumeKind::Static => {
                let used = self
                    .blocks
                    .values()
                    .map(|claim| claim.vid.used_lebs)
                    .max()
                    .unwrap_or(0);
                let last = used.checked_sub(1).and_then(|last| self.blocks.get(&last));
                // A last LEB that is missing counts as full.
                let end = last.map_or(leb_bytes, |claim| claim.vid.data_size.into());
                (
                    used,
                    u64::from(used.saturating_sub(1)) * leb_bytes + if used == 0 { 0 } else { end },
                )
            }
        };
        ContentStream {
            volume: self,
            lebs,
            bytes,
            next: 0,
            left: bytes,
            data: Vec::new(),
            taken: 0,
            missing: None,
            findings: Vec::new(),
        }
    }

    /// Number of the last LEB that was found, plus 1.
    fn mapped_end(&self) -> u32 {
        let last = self.blocks.keys().next_back();
        last.map_or(0, |last| last.saturating_add(1))
    }

    /// Number of LEBs of the squashfs in this volume, as its superblock says it: forged or damaged, it may be any.
    fn squashfs_lebs(&self) -> Option<u32> {
        if self.content != Content::Squashfs {
            return None;
        }
        let bytes = Content::squashfs_bytes(&self.open())?;
        let lebs = bytes.div_ceil(u64::from(self.leb_bytes.max(1)));
        Some(u32::try_from(lebs).unwrap_or(u32::MAX))
    }

    /// Notes a squashfs that is longer than its volume, or than what was written to a static one.
    fn note_cut_squashfs(&mut self) {
        let Some(lebs) = self.squashfs_lebs() else {
            return;
        };
        let there = match self.kind {
            VolumeKind::Static => self.stream().lebs,
            VolumeKind::Dynamic => self.lebs.max(self.mapped_end()).min(self.limit),
        };
        if lebs > there {
            let what = What::CutSquashfs { lebs, there };
            self.findings.push(self.finding(None, what));
        }
    }

    /// Number of LEBs of the UBIFS in this volume; 0 without its superblock.
    fn file_system_lebs(&self) -> u32 {
        let Some(claim) = self.blocks.get(&0).filter(|_| self.content == Content::Ubifs) else {
            return 0;
        };
        let mut raw = vec![0; Superblock::BYTES];
        self.read_leb(claim, &mut raw);
        let superblock = superblock(&raw).filter(|superblock| superblock.leb_bytes == self.leb_bytes);
        superblock.map_or(0, |superblock| superblock.lebs)
    }

    /// Whether this block is the one that is read for a LEB.
    pub(crate) fn is_used(&self, leb: u32, at: i64) -> bool {
        self.blocks.get(&leb).is_some_and(|claim| claim.at == at)
    }

    /// Notes steps of the block of a LEB that the ECC could not correct. Static volumes and UBIFS have CRCs of their own,
    /// which tell whether content is lost.
    pub(crate) fn note_uncorrectable(&mut self, at: i64, leb: Leb, steps: usize) {
        let has_crc =
            self.kind == VolumeKind::Static || matches!(self.content, Content::Ubifs | Content::Empty);
        let what = What::Uncorrectable {
            steps,
            leb: Some(leb),
            loses_data: !has_crc,
        };
        let finding = self.finding(Some(at), what);
        self.findings.push(finding);
    }

    /// Notes LEBs that the content of a dynamic volume lacks, and a volume without any. `is_whole`: each block of the
    /// partition has readable headers, so that no LEB can be in another one.
    ///
    /// The reader of UBIFS finds what is missing there, and a stream of a static volume what is missing in that.
    pub(crate) fn note_missing(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
        let mapped = u64::try_from(self.blocks.len()).unwrap_or(u64::MAX);
        if mapped == 0 {
            let loses_data = self.kind == VolumeKind::Static && !is_whole;
            if self.kind == VolumeKind::Static || !is_whole {
                self.findings
                    .push(self.finding(None, What::NoLebs { loses_data }));
            }
            return;
        }
        self.note_cut_squashfs();
        if self.kind == VolumeKind::Static || matches!(self.content, Content::Ubifs | Content::Empty) {
            return;
        }
        let end = self.mapped_end();
        let squashfs = self.squashfs_lebs().unwrap_or(0).min(self.lebs).min(self.limit);
        let lebs = u64::from(end.max(squashfs));
        let Some(missing) = u32::try_from(lebs - mapped).ok().filter(|missing| *missing > 0) else {
            return;
        };
        let gap = (0..).zip(self.blocks.keys()).find(|(number, leb)| number != *leb);
        let first = gap.map_or(end, |(number, _)| number);
        let what = What::MissingLebs {
            first: Leb(first),
            lebs: missing,
            // A squashfs is written as a whole, and compressed: none of its LEBs is blank.
            loses_data: self.content == Content::Squashfs || !is_whole,
        };
        self.findings.push(self.finding(None, what));
    }

    /// The bytes of a mapped LEB.
    fn read_leb(&self, claim: &Claim, out: &mut [u8]) {
        self.shape.read(&self.dump, claim.at, self.shape.data_offset, out);
    }

    fn finding(&self, at: Option<i64>, what: What) -> Finding {
        let at = at.map(|at| self.dump.base() + u64::try_from(at.max(0)).unwrap_or(0));
        Finding {
            volume: Some(self.shown_name()),
            ..Finding::new(at, what)
        }
    }
}

/// Chooses among the blocks of a LEB as Linux does: the one with the highest sequence number, unless it is an incomplete
/// copy and there is another one.
fn choose(
    dump: &Dump,
    shape: &Shape,
    leb: Leb,
    claims: &mut [Claim],
    findings: &mut Vec<Finding>,
) -> Option<Claim> {
    claims.sort_by_key(|claim| (std::cmp::Reverse(claim.vid.sequence_number), claim.at));
    let at = |claim: &Claim| Some(dump.base() + u64::try_from(claim.at.max(0)).unwrap_or(0));
    let mut rest = &*claims;
    while let [first, others @ ..] = rest {
        let Some(second) = others.first() else {
            return Some(*first);
        };
        let is_tie = first.vid.sequence_number == second.vid.sequence_number;
        if is_tie {
            findings.push(Finding::new(at(first), What::SameSequence { leb }));
        }
        let has_crc = first.vid.copied || first.vid.kind == VolumeKind::Static && is_tie;
        if !has_crc || is_whole(dump, shape, first) {
            return Some(*first);
        }
        findings.push(Finding::new(at(first), What::TornCopy { leb }));
        rest = others;
    }
    None
}

/// Whether the data that the CRC in a VID header covers is right.
fn is_whole(dump: &Dump, shape: &Shape, claim: &Claim) -> bool {
    let bytes = claim.vid.data_size.min(shape.leb_bytes());
    let mut data = vec![0; usize::try_from(bytes).unwrap_or(0)];
    shape.read(dump, claim.at, shape.data_offset, &mut data);
    crc32(&data) == claim.vid.data_crc
}

/// The content of a volume as a stream, in memory of one LEB. Missing LEBs are 0xFF.
#[derive(Debug)]
pub struct ContentStream<'a> {
    volume: &'a Volume,
    lebs: u32,
    bytes: u64,
    next: u32,
    left: u64,
    data: Vec<u8>,
    taken: usize,
    /// Missing LEBs that are not yet a finding: the first one and their number.
    missing: Option<(u32, u32)>,
    findings: Vec<Finding>,
}

impl ContentStream<'_> {
    /// Length of the whole content, bytes.
    #[must_use]
    pub const fn length_bytes(&self) -> u64 {
        self.bytes
    }

    /// The losses found so far.
    pub fn findings(&mut self) -> Vec<Finding> {
        self.end_of_missing();
        std::mem::take(&mut self.findings)
    }

    fn end_of_missing(&mut self) {
        if let Some((first, lebs)) = self.missing.take() {
            let what = What::MissingLebs {
                first: Leb(first),
                lebs,
                loses_data: true,
            };
            self.findings.push(self.volume.finding(None, what));
        }
    }

    fn load(&mut self) {
        let leb = self.next;
        self.next += 1;
        self.taken = 0;
        let full = u64::from(self.volume.leb_bytes);
        let bytes = usize::try_from(self.left.min(full)).unwrap_or(0);
        self.left -= self.left.min(full);
        self.data.clear();
        self.data.resize(bytes, 0xFF);
        let is_static = self.volume.kind == VolumeKind::Static;
        let Some(claim) = self.volume.blocks.get(&leb) else {
            // The user of a dynamic volume may have unmapped it.
            if is_static {
                self.missing = Some(self.missing.map_or((leb, 1), |(first, lebs)| (first, lebs + 1)));
            }
            return;
        };
        self.end_of_missing();
        self.volume.read_leb(claim, &mut self.data);
        let covered = usize::try_from(claim.vid.data_size).unwrap_or(usize::MAX);
        let is_right = match self.data.get(..covered) {
            Some(data) => crc32(data) == claim.vid.data_crc,
            None => false,
        };
        if is_static && !is_right {
            let finding = self
                .volume
                .finding(Some(claim.at), What::StaticCrc { leb: Leb(leb) });
            self.findings.push(finding);
        }
    }
}

impl Read for ContentStream<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.data.len() && self.next < self.lebs {
            self.load();
        }
        let rest = &self.data[self.taken..];
        let bytes = rest.len().min(out.len());
        out[..bytes].copy_from_slice(&rest[..bytes]);
        self.taken += bytes;
        Ok(bytes)
    }
}

/// A volume in a dump. Read-only.
#[derive(Debug)]
pub struct DumpVolume {
    name: Arc<str>,
    dump: Arc<Dump>,
    geometry: VolumeGeometry,
    place: Place,
    is_whole: bool,
}

/// The location of LEBs in a dump.
#[derive(Debug)]
enum Place {
    /// In blocks of a partition.
    Blocks { shape: Shape, lebs: BTreeMap<u32, i64> },
    /// One behind the other from this offset to that one.
    Plain { start: u64, end: u64 },
}

const READ_ONLY: &str = "a volume in a dump is read-only";

impl DumpVolume {
    /// A volume without UBI, whose LEBs lie one behind the other.
    pub(crate) fn plain(dump: &Arc<Dump>, start: u64, end: u64, geometry: VolumeGeometry) -> Self {
        let bytes = u64::from(geometry.lebs) * u64::from(geometry.leb_bytes);
        Self {
            name: format!("{}: volume at byte {:#x}", dump.name(), dump.base() + start).into(),
            dump: Arc::clone(dump),
            geometry,
            place: Place::Plain { start, end },
            is_whole: end.saturating_sub(start) >= bytes,
        }
    }

    /// Whether no LEB can be in a part of the dump that can't be read, or that the dump lacks.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether a LEB exists in the dump.
    #[must_use]
    pub fn has(&self, leb: Leb) -> bool {
        match &self.place {
            Place::Blocks { lebs, .. } => lebs.contains_key(&leb.0),
            Place::Plain { start, end } => {
                start + u64::from(leb.0) * u64::from(self.geometry.leb_bytes) < *end
            }
        }
    }

    /// The LEBs that exist in the dump, ascending, at most `count`.
    pub(crate) fn first_mapped(&self, count: usize) -> Vec<Leb> {
        match &self.place {
            Place::Blocks { lebs, .. } => lebs.keys().take(count).map(|leb| Leb(*leb)).collect(),
            Place::Plain { .. } => (0..self.geometry.lebs)
                .map(Leb)
                .take_while(|leb| self.has(*leb))
                .take(count)
                .collect(),
        }
    }

    fn unusable(&self) -> VolumeError {
        VolumeError::Unusable {
            volume: Arc::clone(&self.name),
            why: READ_ONLY,
        }
    }
}

impl ubi::Volume for DumpVolume {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.geometry.check_range(&self.name, leb, offset, out.len())?;
        match &self.place {
            Place::Blocks { shape, lebs } => match lebs.get(&leb.0) {
                Some(at) => shape.read(&self.dump, *at, shape.data_offset + offset, out),
                None => out.fill(0xFF),
            },
            Place::Plain { start, end } => {
                let at = start + u64::from(leb.0) * u64::from(self.geometry.leb_bytes) + u64::from(offset);
                let inside =
                    usize::try_from(end.saturating_sub(at)).map_or(out.len(), |left| left.min(out.len()));
                let (inside, behind) = out.split_at_mut(inside);
                self.dump.read(i64::try_from(at).unwrap_or(i64::MAX), inside);
                behind.fill(0xFF);
            }
        }
        Ok(())
    }

    fn write(&self, _: Leb, _: u32, _: &[u8]) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn leb_change(&self, _: Leb, _: &[u8]) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn map(&self, _: Leb) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn unmap(&self, _: Leb) -> Result<(), VolumeError> {
        Err(self.unusable())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        Ok(self.has(leb))
    }

    fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    fn freeze(&self, _: &str) {}

    fn frozen(&self) -> Option<Arc<str>> {
        Some(READ_ONLY.into())
    }
}
