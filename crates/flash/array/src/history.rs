//! Determines the epoch of each member, and whether the members belong together.
//!
//! Each opening for writing begins an epoch. Opening: every member gets a dirty mark with the new epoch, in order; then
//! each gets the first page of its mark; only then is anything else written. Closing: the new epoch is written to the
//! headers of each member's volume table; once it is on all, the marks are erased. So a member with a lower epoch than
//! another is stale, unless the marking was interrupted: then no mark has a page, nothing else was written, and the
//! array is still in the previous epoch. An interrupted opening is repeated with the same epoch.
//!
//! An array whose members have neither marks nor sealed volume tables was made by a version that wrote none.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use media::{Leb, Peb, index};
use ubi::format::crc32;
use ubi::{AttachError, Mark, Scanned, Seal, VolumeId};

use crate::error::ArrayError;
use crate::identity::MemberIdentity;
use crate::mark::{MarkPage, UnknownMark};
use crate::open::first_generation;

/// Whether an array was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArrayState {
    /// It was never opened for writing by a version that writes dirty marks.
    #[default]
    Unmarked,
    /// It was closed: no operation was in progress.
    Closed,
    /// It is open, or was open when power was cut.
    Open,
}

/// State, epoch and records of an array, read from the dirty marks and volume tables of its members.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) state: ArrayState,
    /// The last epoch; 0 in arrays without dirty marks.
    pub(crate) epoch: u64,
    /// The epoch of the next opening for writing.
    pub(crate) next_epoch: NonZeroU64,
    /// Generations up to this one are complete on all members, or were dropped.
    pub(crate) complete: u64,
    /// The last generation recorded in the marks. Its blocks may all be erased, and it must not be reused while a mark
    /// gives it up.
    pub(crate) last_generation: u64,
    /// For each LEB given up, the last generation that no longer counts.
    pub(crate) unmapped: BTreeMap<Leb, u64>,
    /// A new member was not closed with the others: what it wrote last may be torn.
    pub(crate) rebuild_is_open: bool,
    /// The sequence number of each member's last close, by its place: everything before that was complete.
    pub(crate) closed_at: BTreeMap<usize, u64>,
    /// Members on which other software moved blocks since the array was closed.
    pub(crate) moved: Vec<usize>,
    /// Members whose dirty marks are unreadable.
    pub(crate) lost_marks: Vec<usize>,
    /// Marks to erase before a new one is written, by the place of their member: otherwise repeatedly interrupted
    /// openings would accumulate them.
    pub(crate) redundant_marks: BTreeMap<usize, Vec<Peb>>,
    /// Differs between any two openings that wrote something.
    fingerprint: u32,
}

impl History {
    /// Whether a new member with an interrupted rebuild has everything that the array wrote since: it took part in the
    /// array's epoch, and was not written to outside it. If so, its marks are added to the history.
    pub(crate) fn takes_up(
        &mut self,
        member: &mut Scanned,
        device: &Arc<str>,
        identity: &MemberIdentity,
    ) -> Result<bool, ArrayError> {
        let evidence = Evidence::of(member, device, identity)?;
        let closed = evidence.seal.filter(|seal| seal.epoch == self.epoch);
        let is_alone = evidence.marks.iter().any(|mark| mark.alone)
            || closed.is_some_and(|seal| evidence.last_untagged > seal.sequence_number);
        if self.epoch == 0 || evidence.epoch(self.epoch) != self.epoch || is_alone {
            return Ok(false);
        }
        self.rebuild_is_open = closed.is_none();
        let place = index(identity.index);
        self.redundant_marks
            .insert(place, evidence.redundant_marks(self.epoch));
        let mut numbers = self.fingerprint.to_be_bytes().to_vec();
        numbers.extend(evidence.last_numbers());
        self.fingerprint = crc32(&numbers);
        Ok(true)
    }

    /// The epoch of an opening without a member. The absent member may know epochs that the others don't, and may later
    /// be opened without them, unaware of this one. Hence the number must be one that no other opening takes: it lies
    /// in the next step of 2^32 and includes the fingerprint.
    pub(crate) fn epoch_without_a_member(&self) -> NonZeroU64 {
        let step = (self.next_epoch.get() >> 32).saturating_add(1);
        let epoch = step.saturating_mul(1 << 32) | u64::from(self.fingerprint);
        NonZeroU64::new(epoch).expect("a step is above 0")
    }

    /// Whether a LEB was unmapped after it had this generation.
    pub(crate) fn is_given_up(&self, leb: Leb, generation: u64) -> bool {
        self.unmapped.get(&leb).is_some_and(|up_to| generation <= *up_to)
    }
}

/// Epochs from here on are considered forged.
pub(crate) const EPOCHS_MAX: u64 = 1 << 63;

/// The dirty marks and the seal of one member.
struct Evidence {
    device: Arc<str>,
    identity: MemberIdentity,
    marks: Vec<Mark>,
    seal: Option<Seal>,
    pages: Vec<MarkPage>,
    /// The highest epoch with a page in a mark.
    last_paged: Option<u64>,
    last_data: u64,
    last_untagged: u64,
    /// The highest generation of its blocks.
    last_generation: u64,
    is_damaged: bool,
}

impl Evidence {
    fn of(member: &mut Scanned, device: &Arc<str>, identity: &MemberIdentity) -> Result<Self, ArrayError> {
        let marks = member.marks().to_vec();
        let mut pages = Vec::new();
        for mark in &marks {
            let mut unknown = None;
            let mut take = |raw: &[u8]| match MarkPage::decode(raw) {
                Ok(page) => pages.extend(page.filter(|page| page.is_of(identity))),
                Err(page) => unknown = Some(page),
            };
            member.read_mark(mark, &mut take).map_err(AttachError::from)?;
            if let Some(UnknownMark { version, role }) = unknown {
                return Err(ArrayError::UnknownMark {
                    device: Arc::clone(device),
                    label: identity.label.clone(),
                    version,
                    role,
                });
            }
        }
        Ok(Self {
            device: Arc::clone(device),
            identity: identity.clone(),
            marks,
            last_paged: pages.iter().map(|page| page.epoch).max(),
            seal: member.seal().map_err(AttachError::from)?,
            pages,
            last_data: member.last_data_sequence_number(),
            last_untagged: member.last_untagged_sequence_number(),
            last_generation: member
                .lebs(VolumeId(0))
                .flat_map(|(_, group)| group)
                .map(|candidate| candidate.generation)
                .max()
                .unwrap_or(0),
            is_damaged: member.unreadable_headers() > 0,
        })
    }

    /// The latest epoch not above `limit`.
    fn epoch(&self, limit: u64) -> u64 {
        let marks = self.marks.iter().map(|mark| mark.epoch);
        let all = marks.chain(self.seal.iter().map(|seal| seal.epoch));
        all.filter(|epoch| *epoch <= limit).max().unwrap_or(0)
    }

    fn sealed(&self) -> Option<u64> {
        self.seal.map(|seal| seal.epoch)
    }

    /// Whether this member proves that all members had the mark of an epoch: the mark has a page, the table is sealed,
    /// or a LEB was written after the mark.
    fn shows_opened(&self, epoch: u64) -> bool {
        let of_epoch = self.marks.iter().filter(|mark| mark.epoch == epoch);
        let marked = of_epoch.map(|mark| mark.sequence_number).min();
        self.sealed() == Some(epoch)
            || self.pages.iter().any(|page| page.epoch == epoch)
            || marked.is_some_and(|marked| self.last_data > marked)
    }

    /// Marks made redundant by others of this member. Kept are the last mark of the array's epoch (or, without one, of
    /// an interrupted opening, so that Linux keeps refusing the member), the marks of the last epoch with pages, which
    /// hold all that is known, and marks written when the member was attached without its array.
    fn redundant_marks(&self, epoch: u64) -> Vec<Peb> {
        let last = |is_of: &dyn Fn(&Mark) -> bool| {
            let of = self.marks.iter().filter(|mark| is_of(mark));
            of.max_by_key(|mark| mark.sequence_number).map(|mark| mark.peb)
        };
        let of_cut = || last(&|mark| mark.epoch > epoch);
        let kept = last(&|mark| mark.epoch == epoch).or_else(of_cut);
        let is_kept =
            |mark: &Mark| mark.alone || kept == Some(mark.peb) || Some(mark.epoch) == self.last_paged;
        let redundant = self.marks.iter().filter(|mark| !is_kept(mark));
        redundant.map(|mark| mark.peb).collect()
    }

    /// Place and sequence numbers of the last writes, as bytes.
    fn last_numbers(&self) -> Vec<u8> {
        let marks = self.marks.iter().map(|mark| mark.sequence_number);
        let seal = self.seal.map(|seal| seal.sequence_number);
        let place = u64::from(self.identity.index);
        let all = [place, self.last_data].into_iter().chain(marks).chain(seal);
        all.flat_map(u64::to_be_bytes).collect()
    }

    /// Whether the mark of an epoch was lost to damage: one block is unreadable, and another shows that the member took
    /// part in this epoch. A stale member whose formatting was interrupted also has unreadable blocks and no mark.
    fn lost_its_mark(&self, epoch: u64) -> bool {
        let sealed = self.seal.map_or(0, |seal| seal.sequence_number);
        let first =
            NonZeroU64::new(epoch).map_or(0, |epoch| first_generation(self.identity.redundancy, epoch));
        let took_part = first > 0 && self.last_generation >= first && self.last_data > sealed;
        self.marks.is_empty() && self.is_damaged && took_part
    }
}

/// Compares the members, of which there is at least one. Writes nothing.
pub(crate) fn judge<'a>(
    members: impl Iterator<Item = (&'a mut Scanned, &'a Arc<str>, &'a MemberIdentity)>,
) -> Result<History, ArrayError> {
    let evidence = members
        .map(|(member, device, identity)| Evidence::of(member, device, identity))
        .collect::<Result<Vec<_>, _>>()?;
    let first = &evidence[0].identity;
    let latest = evidence.iter().map(|one| one.epoch(u64::MAX)).max().unwrap_or(0);
    if latest >= EPOCHS_MAX {
        return Err(ArrayError::Epoch {
            label: first.label.clone(),
            last: latest,
        });
    }
    if let Some(one) = evidence
        .iter()
        .find(|one| one.marks.iter().any(|mark| mark.alone))
    {
        return Err(one.written_alone());
    }
    let opened = latest > 0 && evidence.iter().any(|one| one.shows_opened(latest));
    let before = || evidence.iter().map(|one| one.epoch(latest.saturating_sub(1)));
    let epoch = match opened {
        true => latest,
        false => before().max().unwrap_or(0),
    };
    let next_epoch = if opened { latest + 1 } else { latest.max(1) };
    let mut lost_marks = Vec::new();
    for one in &evidence {
        match one.epoch(epoch) {
            own if own == epoch => {}
            _ if one.lost_its_mark(epoch) => lost_marks.push(index(one.identity.index)),
            own => {
                return Err(ArrayError::Stale {
                    device: Arc::clone(&one.device),
                    index: one.identity.index,
                    label: one.identity.label.clone(),
                    found: own,
                    expected: epoch,
                });
            }
        }
    }
    let sealed = |one: &Evidence| epoch > 0 && one.sealed() == Some(epoch);
    let state = match epoch {
        0 => ArrayState::Unmarked,
        _ if evidence.iter().all(sealed) => ArrayState::Closed,
        _ => ArrayState::Open,
    };
    let mut moved = Vec::new();
    if state == ArrayState::Closed {
        for one in &evidence {
            let closed = one.seal.map_or(0, |seal| seal.sequence_number);
            if one.last_untagged > closed {
                return Err(one.written_alone());
            }
            if one.last_data > closed {
                moved.push(index(one.identity.index));
            }
        }
    }
    let mut unmapped = BTreeMap::new();
    let pages = || evidence.iter().flat_map(|one| &one.pages);
    for record in pages().flat_map(|page| &page.unmapped) {
        let last = unmapped.entry(record.leb).or_insert(0);
        *last = record.generation.max(*last);
    }
    let last_generation = pages().map(|page| page.complete).max().unwrap_or(0);
    let complete = match evidence.iter().any(sealed) {
        // Closing begins when no operation is in progress.
        true => u64::MAX,
        false => last_generation,
    };
    Ok(History {
        state,
        epoch,
        next_epoch: NonZeroU64::new(next_epoch).expect("it is at least 1"),
        complete,
        last_generation: last_generation.max(unmapped.values().copied().max().unwrap_or(0)),
        unmapped,
        rebuild_is_open: false,
        closed_at: evidence
            .iter()
            .filter_map(|one| Some((index(one.identity.index), one.seal?.sequence_number)))
            .collect(),
        moved,
        lost_marks,
        redundant_marks: evidence
            .iter()
            .map(|one| (index(one.identity.index), one.redundant_marks(epoch)))
            .collect(),
        fingerprint: crc32(
            &evidence
                .iter()
                .flat_map(Evidence::last_numbers)
                .collect::<Vec<_>>(),
        ),
    })
}

impl Evidence {
    fn written_alone(&self) -> ArrayError {
        ArrayError::WrittenAlone {
            device: Arc::clone(&self.device),
            index: self.identity.index,
            label: self.identity.label.clone(),
        }
    }
}
