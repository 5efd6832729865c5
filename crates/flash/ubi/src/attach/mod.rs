//! From a chip to a UBI device, in two steps: [`scan`] looks and decides without writing, [`Scanned::attach`] acts.
//!
//! In between, whoever owns a volume may say which of several blocks is a LEB: an array knows what its other members hold.
//! An image that is refused is as it was.

mod anomaly;
mod check;
mod error;
mod fastmap;
mod headers;
mod losses;
mod mark;
mod select;
mod survey;
mod table;

use media::{Leb, Nand, NandError, Peb};

pub use anomaly::{Anomaly, AnomalyKind, Behind};
pub use check::{CheckReport, check};
pub use error::AttachError;
pub use fastmap::AttachedBy;
pub(crate) use headers::{RawHeaders, Seen};
pub use losses::Holes;
pub(crate) use mark::{MARK_OF_ARRAY, MARK_OF_ONE};
pub use mark::{Mark, MemberState, Seal};
use survey::Found;
pub(crate) use survey::Survey;

use crate::device::{Ubi, Unwritten};
use crate::format::volume_table::VolumeTable;
use crate::layout::Layout;

/// Whether a device is attached for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing is written, ever. Images that were made for a larger chip, and are not complete, can be read.
    ReadOnly,
    /// What an interrupted operation left is put right, and volumes can be written.
    ReadWrite,
}

/// Options of an attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// For writing, or not.
    pub access: Access,
    /// Blocks kept back for those that will wear out, in 1024 of the chip. Linux: 20.
    pub bad_block_reserve_per_1024: u32,
    /// Difference of erase counters from which data is moved to level wear. Linux: 4096.
    pub wear_threshold: u32,
    /// Whether a fastmap may replace the look at every block.
    pub fastmap: FastmapUse,
}

/// Whether a fastmap is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastmapUse {
    /// Where there is one that is right.
    IfValid,
    /// Never: every block is looked at.
    Never,
}

impl AttachOptions {
    /// The defaults of Linux, but every block is looked at.
    #[must_use]
    pub const fn linux(access: Access) -> Self {
        Self {
            access,
            bad_block_reserve_per_1024: 20,
            wear_threshold: 4096,
            fastmap: FastmapUse::Never,
        }
    }
}

/// The number of a volume: 0 to 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

impl std::fmt::Display for VolumeId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "volume {}", self.0)
    }
}

/// One of the blocks that claim to be a LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The block.
    pub peb: Peb,
    /// What the owner of the volume tagged it with.
    pub generation: u64,
    /// Its data was written whole, and a CRC vouches for it.
    pub copied: bool,
    /// It is the LEB; the blocks of the others will be erased.
    pub chosen: bool,
}

/// How many anomalies an attach keeps: enough to show what is wrong; [`check`] lists all.
const ANOMALIES_KEPT: usize = 256;

/// A device whose blocks were looked at, and that can be attached.
#[derive(Debug)]
pub struct Scanned<N> {
    nand: N,
    options: AttachOptions,
    survey: Survey,
    tables: table::Tables,
    attached_by: AttachedBy,
}

/// Looks at a device, and decides which block holds what. Nothing is written.
pub fn scan<N: Nand>(mut nand: N, options: AttachOptions) -> Result<Scanned<N>, AttachError> {
    let (mut survey, tables, attached_by) = examine(&mut nand, &options, ANOMALIES_KEPT)?;
    if let Some(refusal) = survey.refusal.take() {
        return Err(refusal);
    }
    Ok(Scanned {
        nand,
        options,
        survey,
        tables,
        attached_by,
    })
}

/// Everything that a scan finds out; a reason not to attach is left in the survey. What a fastmap gave and what it leads to is
/// thrown away when anything about it is wrong.
fn examine(
    nand: &mut impl Nand,
    options: &AttachOptions,
    anomalies_max: usize,
) -> Result<(Survey, table::Tables, AttachedBy), AttachError> {
    let mut survey = Survey::begin(nand, anomalies_max)?;
    let mut attached_by = AttachedBy::Scan;
    for peb in nand.geometry().pebs() {
        survey.look_at(nand, peb)?;
        let last_anchor = peb == fastmap::LAST_ANCHOR || peb.0 + 1 == nand.geometry().blocks();
        let Some((_, anchor)) = survey.anchor.filter(|_| last_anchor) else {
            continue;
        };
        if options.fastmap == FastmapUse::IfValid && survey.refusal.is_none() {
            match by_fastmap(nand, options, &survey, anchor) {
                Ok((by_map, tables)) => return Ok((by_map, tables, AttachedBy::Fastmap)),
                Err(fastmap::Unusable::Device(error)) => return Err(error.into()),
                Err(fastmap::Unusable::Because(why)) => attached_by = AttachedBy::ScanAfterFastmap { why },
            }
        }
    }
    limit_damage(&mut survey);
    let tables = decide(&mut survey, nand, options)?;
    Ok((survey, tables, attached_by))
}

fn by_fastmap(
    nand: &mut impl Nand,
    options: &AttachOptions,
    looked: &Survey,
    anchor: Peb,
) -> Result<(Survey, table::Tables), fastmap::Unusable> {
    let mut survey = fastmap::survey_by(nand, looked, anchor)?;
    let tables = decide(&mut survey, nand, options)?;
    match survey.refusal.take() {
        None => Ok((survey, tables)),
        Some(refusal) => Err(fastmap::Unusable::Because(refusal.to_string())),
    }
}

/// Which block is which LEB, and whether that agrees with the volume table.
fn decide(
    survey: &mut Survey,
    nand: &mut impl Nand,
    options: &AttachOptions,
) -> Result<table::Tables, NandError> {
    survey.pebs.assume_mean_where_unknown();
    select::choose_latest(survey, nand)?;
    let tables = table::read(survey, nand, options)?;
    if !tables.table.is_empty() {
        select::hold_against(survey, &tables.table);
    }
    if survey.last_sequence_number >= SEQUENCE_NUMBERS_MAX {
        let why = format!(
            "the last sequence number is {:#x}, which no device reaches: there would be none left",
            survey.last_sequence_number
        );
        survey.writing_forbidden.get_or_insert(why.into());
    }
    survey
        .erase_first
        .sort_by_key(|(sequence_number, _)| *sequence_number);
    Ok(tables)
}

fn candidate(found: &Found) -> Candidate {
    Candidate {
        peb: found.peb,
        generation: found.generation,
        copied: found.copied,
        chosen: found.chosen,
    }
}

/// In place of a sequence number of what is to be erased first: the owner of the volume dropped it.
pub(crate) const DROPPED: u64 = u64::MAX;

/// Limit from which on sequence numbers are not believed: at a million writes a second it takes 290,000 years. Counting on from there could
/// pass the end of 64 bits, so nothing is written.
const SEQUENCE_NUMBERS_MAX: u64 = 1 << 63;

/// Few damaged blocks are the work of time; many mean that the chip, or what it is taken for, is wrong.
fn limit_damage(survey: &mut Survey) {
    let blocks = survey.geometry.blocks() - survey.tally.bad - survey.tally.alien;
    let limit = match blocks / 20 {
        0 => 8,
        twentieth => twentieth,
    };
    if let (true, Some(first)) = (survey.tally.corrupted >= limit, survey.first_corrupted) {
        survey.refuse(AttachError::TooManyCorrupted {
            device: survey.device.clone(),
            corrupted: survey.tally.corrupted,
            blocks,
            first,
            limit,
        });
    }
}

impl<N: Nand> Scanned<N> {
    /// Where headers and data are.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.survey.layout
    }

    /// The volumes; number `n` at place `n`.
    #[must_use]
    pub const fn volumes(&self) -> &VolumeTable {
        &self.tables.table
    }

    /// How it was found out what is where.
    #[must_use]
    pub const fn attached_by(&self) -> &AttachedBy {
        &self.attached_by
    }

    /// What should not be, the first 256 of it.
    #[must_use]
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.survey.anomalies
    }

    /// The blocks that claim to be this LEB, the latest first.
    #[must_use]
    pub fn candidates(&self, volume: VolumeId, leb: Leb) -> Vec<Candidate> {
        self.survey.found[self.group(volume, leb)]
            .iter()
            .map(candidate)
            .collect()
    }

    /// The mapped LEBs of a volume, ascending, each with all blocks that claim to be it, the latest first.
    pub fn lebs(&self, volume: VolumeId) -> impl Iterator<Item = (Leb, Vec<Candidate>)> {
        self.of_volume(volume)
            .chunk_by(|a, b| a.leb == b.leb)
            .map(|group| (Leb(group[0].leb), group.iter().map(candidate).collect()))
    }

    fn of_volume(&self, volume: VolumeId) -> &[Found] {
        let number = |found: &Found| self.survey.profiles[usize::from(found.profile)].volume;
        let found = &self.survey.found;
        let start = found.partition_point(|found| number(found) < volume.0);
        let end = found.partition_point(|found| number(found) <= volume.0);
        &found[start..end]
    }

    /// Whether the data of a candidate that was copied is all there; `true` where no CRC vouches for it.
    pub fn is_whole(&mut self, candidate: &Candidate) -> Result<bool, NandError> {
        Ok(!candidate.copied || select::is_whole(&self.survey, &mut self.nand, candidate.peb)?)
    }

    /// Whether a candidate whose CRC is wrong was written to its end, so that the CRC is wrong because some of its pages can't be read. A copy that
    /// was cut ends in a page that is erased or cut.
    pub fn was_written_whole(&mut self, candidate: &Candidate) -> Result<bool, NandError> {
        select::was_written_whole(&self.survey, &mut self.nand, candidate.peb)
    }

    /// Whether nothing was written behind the headers of a candidate.
    pub fn is_blank(&mut self, candidate: &Candidate) -> Result<bool, NandError> {
        let behind = self.survey.behind_headers(&mut self.nand, candidate.peb)?;
        Ok(behind == Behind::Blank)
    }

    /// Blocks whose VID headers can't be read though data is behind them. No power cut leaves that: each held a LEB, which can't be told.
    #[must_use]
    pub const fn damaged_blocks(&self) -> u32 {
        self.survey.tally.corrupted
    }

    /// Blocks whose VID headers can't be read, whatever is behind them; power cuts leave such blocks, too.
    #[must_use]
    pub const fn unreadable_headers(&self) -> u32 {
        self.survey.unreadable_headers
    }

    /// Has a candidate that is not the LEB be erased before anything else is written.
    pub fn erase_first(&mut self, candidate: &Candidate) {
        self.survey.erase_first.push((DROPPED, candidate.peb));
    }

    /// Has another block be the LEB than the one that UBI would take.
    pub fn choose(&mut self, volume: VolumeId, leb: Leb, peb: Peb) -> Result<(), AttachError> {
        let group = self.group(volume, leb);
        let winner = self.survey.found[group.clone()]
            .iter()
            .position(|found| found.peb == peb)
            .ok_or_else(|| AttachError::NoSuchCandidate {
                device: self.survey.device.clone(),
                peb,
                volume: volume.0,
                leb: leb.0,
            })?;
        let winner = group.start + winner;
        select::choose(&mut self.survey, group, winner);
        Ok(())
    }

    /// Has no block be the LEB: it will not be mapped, and the blocks that claim to be it will be erased.
    pub fn forget(&mut self, volume: VolumeId, leb: Leb) {
        let group = self.group(volume, leb);
        select::choose(&mut self.survey, group, usize::MAX);
    }

    fn group(&self, volume: VolumeId, leb: Leb) -> std::ops::Range<usize> {
        let number = |found: &Found| self.survey.profiles[usize::from(found.profile)].volume;
        let key = |found: &Found| (number(found), found.leb);
        let found = &self.survey.found;
        let start = found.partition_point(|found| key(found) < (volume.0, leb.0));
        let end = found.partition_point(|found| key(found) <= (volume.0, leb.0));
        start..end
    }

    /// Attaches it. For writing, the copy of the volume table that an interrupted change left behind is written again, and a volume
    /// that is to take all free blocks does.
    ///
    /// A member of an array that was not closed is refused for writing, as by Linux: what it holds can be told from the other members alone.
    pub fn attach(self) -> Result<Ubi<N>, AttachError> {
        if let (Access::ReadWrite, MemberState::Open { epoch } | MemberState::WrittenAlone { epoch }) =
            (self.options.access, self.member_state())
        {
            return Err(AttachError::OpenMember {
                device: self.survey.device,
                epoch,
            });
        }
        self.build()?.finish()
    }

    /// Attaches a member of an array by itself. One that was not closed gets a mark for this, so that its array does not
    /// take it for what it was.
    pub fn attach_alone(self) -> Result<Ubi<N>, AttachError> {
        let state = self.member_state();
        let mut unwritten = self.build()?;
        if let MemberState::Open { epoch } = state {
            unwritten.mark_alone(epoch)?;
        }
        unwritten.finish()
    }

    /// Makes everything that an attach needs, and writes nothing yet: an array marks all its members first.
    pub fn build(self) -> Result<Unwritten<N>, AttachError> {
        Unwritten::from_scan(
            self.nand,
            self.options,
            self.survey,
            self.tables.table,
            self.tables.stale_copy,
        )
    }
}
