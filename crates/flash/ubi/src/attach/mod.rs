//! Attaches a chip as a UBI device in two steps: [`scan`] reads and decides without writing, [`Scanned::attach`]
//! acts.
//!
//! In between, the owner of a volume may choose which of several blocks holds a LEB: an array knows the content of
//! its other members. A refused image is not modified.

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

/// Access mode of an attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Never writes. Images made for a larger chip, and incomplete images, can be read.
    ReadOnly,
    /// Repairs the traces of interrupted operations; volumes can be written.
    ReadWrite,
}

/// Options of an attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Read-only or read-write.
    pub access: Access,
    /// Blocks reserved for bad block handling, per 1024 blocks of the chip. Linux: 20.
    pub bad_block_reserve_per_1024: u32,
    /// Difference of erase counters that triggers wear levelling. Linux: 4096.
    pub wear_threshold: u32,
    /// Whether a fastmap may replace the full scan.
    pub fastmap: FastmapUse,
}

/// Whether a fastmap is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastmapUse {
    /// Use a valid fastmap.
    IfValid,
    /// Always scan all blocks.
    Never,
}

impl AttachOptions {
    /// The defaults of Linux, but with a full scan.
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

/// Volume number: 0 to 127.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

impl std::fmt::Display for VolumeId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "volume {}", self.0)
    }
}

/// One of the blocks that claim to hold a LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The block.
    pub peb: Peb,
    /// Tag set by the owner of the volume.
    pub generation: u64,
    /// Its data was written as a whole and has a CRC.
    pub copied: bool,
    /// This block holds the LEB; the blocks of the other candidates will be erased.
    pub chosen: bool,
}

/// Maximum number of anomalies that an attach keeps for diagnosis; [`check`] lists all.
const ANOMALIES_KEPT: usize = 256;

/// A device that was scanned and can be attached.
#[derive(Debug)]
pub struct Scanned {
    nand: Box<dyn Nand>,
    options: AttachOptions,
    survey: Survey,
    tables: table::Tables,
    attached_by: AttachedBy,
}

/// Scans a device and decides which block holds which LEB. Writes nothing.
pub fn scan(nand: impl Nand + 'static, options: AttachOptions) -> Result<Scanned, AttachError> {
    let mut nand: Box<dyn Nand> = Box::new(nand);
    let (survey, tables, attached_by) = examine_sound(&mut nand, &options)?;
    Ok(Scanned {
        nand,
        options,
        survey,
        tables,
        attached_by,
    })
}

/// The volumes of a device that is scanned for nothing else. Writes nothing.
pub fn volume_table(nand: &mut dyn Nand) -> Result<VolumeTable, AttachError> {
    let options = AttachOptions::linux(Access::ReadOnly);
    Ok(examine_sound(nand, &options)?.1.table)
}

/// The result of a scan, unless it has a reason not to attach.
fn examine_sound(
    nand: &mut dyn Nand,
    options: &AttachOptions,
) -> Result<(Survey, table::Tables, AttachedBy), AttachError> {
    let (mut survey, tables, attached_by) = examine(nand, options, ANOMALIES_KEPT)?;
    match survey.refusal.take() {
        Some(refusal) => Err(refusal),
        None => Ok((survey, tables, attached_by)),
    }
}

/// The complete result of a scan; a reason not to attach is left in the survey. On any inconsistency the fastmap and
/// everything derived from it are discarded.
fn examine(
    nand: &mut dyn Nand,
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
    nand: &mut dyn Nand,
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

/// Assigns blocks to LEBs and checks the result against the volume table.
fn decide(
    survey: &mut Survey,
    nand: &mut dyn Nand,
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

/// Marks an entry of [`Survey::erase_first`] that the owner of the volume dropped; takes the place of a sequence
/// number.
pub(crate) const DROPPED: u64 = u64::MAX;

/// Limit from which on sequence numbers are implausible: at a million writes per second it is reached after 290,000
/// years. Counting on from there could overflow 64 bits, so the device becomes read-only.
const SEQUENCE_NUMBERS_MAX: u64 = 1 << 63;

/// Few damaged blocks are due to age; many mean a broken chip or a wrong geometry.
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

impl Scanned {
    /// Offsets of headers and data.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.survey.layout
    }

    /// The volumes, indexed by number.
    #[must_use]
    pub const fn volumes(&self) -> &VolumeTable {
        &self.tables.table
    }

    /// How the mapping was determined: scan or fastmap.
    #[must_use]
    pub const fn attached_by(&self) -> &AttachedBy {
        &self.attached_by
    }

    /// The first 256 anomalies.
    #[must_use]
    pub fn anomalies(&self) -> &[Anomaly] {
        &self.survey.anomalies
    }

    /// The blocks that claim this LEB, latest first.
    #[must_use]
    pub fn candidates(&self, volume: VolumeId, leb: Leb) -> Vec<Candidate> {
        self.survey.found[self.group(volume, leb)]
            .iter()
            .map(candidate)
            .collect()
    }

    /// The mapped LEBs of a volume, ascending, each with all blocks that claim it, latest first.
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

    /// The device, for another use.
    pub fn into_device(self) -> Box<dyn Nand> {
        self.nand
    }

    /// Whether the data of a copied candidate was written completely; `true` if it has no CRC.
    pub fn is_whole(&mut self, candidate: &Candidate) -> Result<bool, NandError> {
        Ok(!candidate.copied || select::is_whole(&self.survey, &mut self.nand, candidate.peb)?)
    }

    /// Whether a candidate with a wrong CRC was written to its end, so that unreadable pages are the cause. An
    /// interrupted copy ends with an erased or partly written page.
    pub fn was_written_whole(&mut self, candidate: &Candidate) -> Result<bool, NandError> {
        select::was_written_whole(&self.survey, &mut self.nand, candidate.peb)
    }

    /// The sequence number of a candidate; `None` if its header can't be read any more.
    pub fn sequence_number(&mut self, candidate: &Candidate) -> Result<Option<u64>, NandError> {
        let header = select::vid_header(&self.survey, &mut self.nand, candidate.peb)?;
        Ok(header.map(|header| header.sequence_number))
    }

    /// Whether the data area of a candidate is blank.
    pub fn is_blank(&mut self, candidate: &Candidate) -> Result<bool, NandError> {
        let behind = self.survey.behind_headers(&mut self.nand, candidate.peb)?;
        Ok(behind == Behind::Blank)
    }

    /// Blocks with an unreadable VID header but with data. Power cuts do not leave such blocks: each held a LEB that
    /// cannot be identified.
    #[must_use]
    pub const fn damaged_blocks(&self) -> u32 {
        self.survey.tally.corrupted
    }

    /// Blocks with an unreadable VID header, whatever their data area holds; power cuts leave such blocks, too.
    #[must_use]
    pub const fn unreadable_headers(&self) -> u32 {
        self.survey.unreadable_headers
    }

    /// Schedules the erase of a candidate that is not the LEB before any other write.
    pub fn erase_first(&mut self, candidate: &Candidate) {
        self.survey.erase_first.push((DROPPED, candidate.peb));
    }

    /// Chooses another block for the LEB than UBI would.
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

    /// Unmaps a LEB: the blocks that claim it will be erased.
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

    /// Attaches the device. With read-write access, this rewrites a volume table copy left stale by an interrupted
    /// change, and carries out a pending autoresize.
    ///
    /// A member of an array that was not closed is refused for writing, as in Linux: only the other members can tell
    /// which of its data is valid.
    pub fn attach(self) -> Result<Ubi, AttachError> {
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

    /// Attaches a member of an array without the other members. If the array was not closed, this writes a mark, so
    /// that the array notices the change.
    pub fn attach_alone(self) -> Result<Ubi, AttachError> {
        let state = self.member_state();
        let mut unwritten = self.build()?;
        if let MemberState::Open { epoch } = state {
            unwritten.mark_alone(epoch)?;
        }
        unwritten.finish()
    }

    /// Prepares an attach without writing: an array marks all its members first.
    pub fn build(self) -> Result<Unwritten, AttachError> {
        Unwritten::from_scan(
            self.nand,
            self.options,
            self.survey,
            self.tables.table,
            self.tables.stale_copy,
        )
    }
}
