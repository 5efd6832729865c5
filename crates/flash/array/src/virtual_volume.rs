//! The virtual UBI (seeds/001 section 3.2.1, figures 3 to 5): p UBI volumes behind one Volume.
//!
//! A virtual LEB consists of the LEBs with the same number on every member; its pages go round robin ([`Stripe`]). Its
//! size is p member LEBs, the minimum write unit a page, the optimal write unit a row of p pages. The volume has as
//! many LEBs as the smallest member.
//!
//! # Power cuts, which the paper does not cover (research: traps 19 to 22)
//! - **A row is complete on all members before the next row of the same LEB is begun.** A cut leaves at most one torn
//!   row in each LEB that is being written; rows of different LEBs are written in parallel.
//! - **A LEB is mapped on all members, with one generation, before its first page is written.** Blocks of an earlier
//!   mapping of the LEB that reappear after a cut carry an older generation and are rejected, on whichever member they
//!   are.
//! - **A change is completely written on all members before any of them releases the old content.** After a cut the
//!   newest generation that is complete on all members is the LEB ([`crate::resolve`]); incomplete generations are
//!   dropped.
//! - **A member that stops writing freezes the whole array.** A write is acknowledged only once it is on every member.
//! - **Generations are assigned one at a time**: a map or a change is on all members before the next begins, so a cut
//!   leaves at most one incomplete generation. No generation is ever used twice.
//!
//! # Damage
//! A member may have lost its share of a LEB ([`crate::LostShare`]). The shares on the other members remain readable;
//! reads of the lost share return [`VolumeError::Uncorrectable`] (the buffer is zeroed, so that it cannot be mistaken
//! for erased flash). The LEB cannot be written to until it is changed as a whole or unmapped. In a salvage the shares of
//! absent members are read in the same way.
//!
//! # Parity
//! With parity ([`Rotation`]) the minimum write unit is a row, so that its parity is written with it. An unreadable
//! page, a page of a lost share and a page of an absent member are computed from the other pages of the row
//! ([`with_parity`]).

mod mend;
mod torn_end;
mod with_parity;

pub use mend::Mended;

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use media::{Clock, Leb, index};
use ubi::{
    Appended, MemberVolume, ReadPart, TornEnd, UpdateMarker, Volume, VolumeError, VolumeGeometry, WritePart,
};

use crate::executor::Executor;
use crate::identity::Redundancy;
use crate::log::Log;
use crate::mark::{MarkPage, Unmapped};
use crate::members::Members;
use crate::resolve::{LostShare, Resolution};
use crate::rotation::Rotation;
use crate::stripe::{MemberRange, Stripe};

/// Several UBI volumes as one.
#[derive(Debug)]
pub struct VirtualVolume<M: MemberVolume + 'static> {
    name: Arc<str>,
    members: Members<M>,
    geometry: VolumeGeometry,
    /// Layout of the data pages.
    stripe: Stripe,
    /// Layout of data and parity, in an array with parity.
    rotation: Option<Rotation>,
    /// The last assigned generation. A map or a change holds the lock until it is complete on all members.
    generation: Mutex<u64>,
    /// The last generation that is complete on all members. Written under the lock above.
    complete: AtomicU64,
    /// Builds the pages of the members' dirty marks, while the array is open for writing. While it is held, no other
    /// lock of this volume is taken except that of `lost`.
    log: Mutex<Option<Log>>,
    /// LEBs that were given up, and of which members may still have blocks to erase.
    given_up: Vec<Leb>,
    lost: RwLock<BTreeSet<LostShare>>,
    /// LEBs of which members had lost their share when the array was opened.
    damaged: BTreeSet<Leb>,
    frozen: OnceLock<Arc<str>>,
    /// An update was interrupted, and no other has begun since.
    update_cut: AtomicBool,
    /// A new member whose rebuild has not finished.
    unfinished: Mutex<Option<usize>>,
    /// Writers of a LEB share its lock; [`Self::mend`] holds it exclusively. LEBs with the same remainder share a lock.
    /// Taken before the generation lock and the log lock.
    leb_locks: [RwLock<()>; LEB_LOCKS],
}

/// Number of locks that LEBs share.
const LEB_LOCKS: usize = 16;

impl<M: MemberVolume + 'static> VirtualVolume<M> {
    /// Combines `members` into one volume according to `resolution`. All have one shape and agree on which LEBs are
    /// mapped. `None` is an absent member: one that parity replaces, or any of an array that is salvaged.
    ///
    /// # Panics
    /// When there are no members, or their LEBs or pages differ in size.
    #[must_use]
    pub(crate) fn new(
        name: Arc<str>,
        members: Vec<Option<(Arc<M>, Clock)>>,
        redundancy: Redundancy,
        executor: Executor,
        resolution: &Resolution,
        log: Option<Log>,
        unfinished: Option<usize>,
    ) -> Self {
        let present = members.iter().flatten();
        let shapes: Vec<VolumeGeometry> = present.map(|(member, _)| member.geometry()).collect();
        let first = *shapes.first().expect("an array has members");
        let same = |shape: &VolumeGeometry| {
            (shape.leb_bytes, shape.min_io_bytes) == (first.leb_bytes, first.min_io_bytes)
        };
        assert!(
            shapes.iter().all(same),
            "members of an array have one shape: {shapes:?}"
        );
        let count = u32::try_from(members.len()).expect("members are few");
        let rotation = match redundancy {
            Redundancy::None => None,
            Redundancy::Parity => Some(Rotation::new(count, first.min_io_bytes)),
        };
        let data_members = count - u32::from(rotation.is_some());
        let stripe = Stripe::new(data_members, first.min_io_bytes);
        let geometry = VolumeGeometry {
            leb_bytes: first
                .leb_bytes
                .checked_mul(data_members)
                .expect("a virtual LEB is below 4 GiB"),
            lebs: shapes.iter().map(|shape| shape.lebs).min().unwrap_or(0),
            min_io_bytes: match rotation {
                // Pages are programmed once, so the parity of a row is written with the row.
                Some(rotation) => rotation.row_bytes(),
                None => first.min_io_bytes,
            },
            max_write_bytes: stripe.row_bytes(),
        };
        let lost = resolution.lost_shares.iter().chain(&resolution.unfinished);
        Self {
            name,
            members: Members::with_absent(members, executor),
            geometry,
            stripe,
            rotation,
            generation: Mutex::new(resolution.last_generation),
            complete: AtomicU64::new(resolution.last_generation),
            log: Mutex::new(log),
            given_up: resolution.given_up.clone(),
            lost: RwLock::new(lost.copied().collect()),
            damaged: resolution.lost_shares.iter().map(|share| share.leb).collect(),
            frozen: OnceLock::new(),
            update_cut: AtomicBool::new(resolution.update_marker),
            unfinished: Mutex::new(unfinished),
            leb_locks: Default::default(),
        }
    }

    /// The place of a new member whose rebuild has not finished.
    pub(crate) fn unfinished(&self) -> Option<usize> {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the rebuild as finished: the new member becomes an ordinary one.
    pub(crate) fn end_rebuild(&self) {
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The lock of a LEB.
    fn leb_lock(&self, leb: Leb) -> &RwLock<()> {
        &self.leb_locks[index(leb.0) % LEB_LOCKS]
    }

    /// Prevents LEBs from being mended while they are written. The locks are taken in order, each once.
    fn keep_from_mending(&self, lebs: impl Iterator<Item = Leb>) -> Vec<RwLockReadGuard<'_, ()>> {
        let locks: BTreeSet<usize> = lebs.map(|leb| index(leb.0) % LEB_LOCKS).collect();
        let locks = locks.into_iter().map(|lock| &self.leb_locks[lock]);
        locks
            .map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    /// The array's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.members.clock()
    }

    /// The members, in their order.
    pub fn members(&self) -> impl Iterator<Item = &Arc<M>> {
        self.members.iter()
    }

    /// Takes the turn for one map or change, held until it is dropped. If a thread panicked while holding it, the array
    /// is frozen: the generation may be on only some members.
    fn turn(&self) -> Result<Turn<'_>, VolumeError> {
        let turn = self.generation.lock();
        if turn.is_err() {
            self.freeze("a thread panicked in the middle of a change; this is a defect of the program");
        }
        let turn = Turn {
            generation: turn.unwrap_or_else(PoisonError::into_inner),
            complete: &self.complete,
        };
        // The array may have been frozen while this thread waited.
        self.check_writable()?;
        Ok(turn)
    }

    /// Writes the first page of every member's dirty mark: it states that all members are marked, and records the LEBs
    /// that were given up.
    pub(crate) fn begin(&self) -> Result<(), VolumeError> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = &*log else { return Ok(()) };
        let generation = self.complete.load(Ordering::Acquire);
        let mut records: Vec<Unmapped> = self
            .given_up
            .iter()
            .map(|leb| Unmapped {
                leb: *leb,
                generation,
            })
            .collect();
        if records.len() > MarkPage::capacity(self.page_bytes()) {
            let flushed = self.members.on_all(|member| member.flush());
            self.all_or_frozen(|| "erasing what was unmapped".to_owned(), flushed)?;
            records.clear();
        }
        self.record(log, &records)?;
        let dropped = self.members.on_all(|member| member.drop_old_marks());
        self.all_or_frozen(|| "letting former marks go".to_owned(), dropped)
    }

    /// Closes the array: finishes all background work, writes the epoch into every member's volume table, then erases
    /// the dirty marks.
    pub(crate) fn close(&self) -> Result<(), VolumeError> {
        let log = || self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(epoch) = log().as_ref().map(Log::epoch) else {
            return Ok(());
        };
        let turn = self.turn()?;
        log().take();
        // The array accepts no more writes; its members still do.
        self.frozen.get_or_init(|| "the array was closed".into());
        drop(turn);
        let sealed = self.members.on_all(move |member| member.seal(epoch));
        let mut closed = most_important(sealed.into_iter().filter_map(Result::err));
        if closed.is_none() {
            // A new member keeps its dirty mark until its rebuild finishes, so that Linux refuses it.
            let unfinished = self.unfinished();
            let members = self.members.places().filter(|place| Some(*place) != unfinished);
            let members = members.map(|place| (place, ())).collect();
            let unmarked = self.members.together(members, |member, ()| member.drop_marks());
            closed = most_important(unmarked.into_iter().filter_map(Result::err));
        }
        self.freeze("the array was closed");
        closed.map_or(Ok(()), Err)
    }

    /// Sets the update marker on all members: the content is neither old nor new.
    pub(crate) fn begin_update(&self) -> Result<(), VolumeError> {
        self.set_update_marker(UpdateMarker::Set)?;
        self.update_cut.store(false, Ordering::Release);
        Ok(())
    }

    /// Clears the update marker on all members: the content is complete.
    pub(crate) fn end_update(&self) -> Result<(), VolumeError> {
        self.check_usable()?;
        self.flush()?;
        self.set_update_marker(UpdateMarker::Cleared)
    }

    fn set_update_marker(&self, marker: UpdateMarker) -> Result<(), VolumeError> {
        let _turn = self.turn()?;
        let marked = self
            .members
            .on_all(move |member| member.set_update_marker(marker));
        self.all_or_frozen(|| "the update marker".to_owned(), marked)
    }

    /// Fails while the content is that of an interrupted update. A single marked member is enough.
    fn check_usable(&self) -> Result<(), VolumeError> {
        match self.update_cut.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(VolumeError::Unusable {
                volume: Arc::clone(&self.name),
                why: "an update of the array did not end; update it again before it is used",
            }),
        }
    }

    /// Appends a page with `unmapped` to every member's dirty mark, and begins a new mark where one is full.
    fn record(&self, log: &Log, unmapped: &[Unmapped]) -> Result<(), VolumeError> {
        let what = || "a record in the members' marks".to_owned();
        let complete = self.complete.load(Ordering::Acquire);
        let mut pages = log.pages(self.page_bytes(), complete, unmapped);
        pages.retain(|(member, _)| !self.members.is_absent(*member));
        let (mut full, mut results) = (Vec::new(), Vec::new());
        let appended = self.members.together(pages.clone(), |member, page: Vec<u8>| {
            member.append_to_mark(&page)
        });
        for (page, appended) in pages.into_iter().zip(appended) {
            match appended {
                Ok(Appended::Written) => {}
                Ok(Appended::Full) => full.push(page),
                Err(error) => results.push(Err(error)),
            }
        }
        self.all_or_frozen(what, results)?;
        if full.is_empty() {
            return Ok(());
        }
        // Once all blocks of unmapped LEBs are erased, the earlier records are obsolete.
        let flushed = self.members.on_all(|member| member.flush());
        self.all_or_frozen(|| "erasing what was unmapped".to_owned(), flushed)?;
        let epoch = log.epoch();
        let begun = self.members.together(full, move |member, page: Vec<u8>| {
            begin_mark_with(member, epoch, &page)
        });
        self.all_or_frozen(what, begun)
    }

    /// Page size of the members, in bytes.
    const fn page_bytes(&self) -> u32 {
        match &self.rotation {
            Some(rotation) => rotation.page_bytes(),
            None => self.geometry.min_io_bytes,
        }
    }

    /// The shares that members have lost and that were not restored. Parity makes up for one per LEB, unless a member
    /// is absent.
    #[must_use]
    pub fn lost_shares(&self) -> Vec<LostShare> {
        let lost = self.lost.read().unwrap_or_else(PoisonError::into_inner);
        lost.iter().copied().collect()
    }

    /// The members that lost their share of a LEB.
    fn lost_of(&self, leb: Leb) -> Vec<usize> {
        let lost = self.lost.read().unwrap_or_else(PoisonError::into_inner);
        let all = LostShare { leb, member: 0 }..=LostShare {
            leb,
            member: usize::MAX,
        };
        lost.range(all).map(|share| share.member).collect()
    }

    /// Clears the lost shares of a LEB that was replaced or unmapped.
    fn forget_lost(&self, leb: Leb) {
        let mut lost = self.lost.write().unwrap_or_else(PoisonError::into_inner);
        lost.retain(|share| share.leb != leb);
    }

    /// The error of a read that needs a lost share.
    fn lost(&self, part: &ReadPart<'_>) -> VolumeError {
        VolumeError::Uncorrectable {
            volume: Arc::clone(&self.name),
            leb: part.leb,
            offset: part.offset,
            len: part.out.len(),
        }
    }

    /// Number of shares of a LEB that are lost or on an absent member.
    fn lacking(&self, leb: Leb) -> usize {
        self.lost_of(leb).len() + self.members.len() - self.members.places().count()
    }

    /// Refuses writes to a LEB that lost more shares than parity can replace.
    fn check_whole(&self, leb: Leb) -> Result<(), VolumeError> {
        match self.lost_of(leb).first() {
            None => Ok(()),
            Some(_) if self.rotation.is_some() && self.lacking(leb) == 1 => Ok(()),
            Some(member) => Err(VolumeError::Damaged {
                volume: Arc::clone(&self.name),
                leb,
                device: self.members.get(*member).name(),
            }),
        }
    }

    /// Fails if the array is frozen. If a member is frozen, freezes the array for the same reason.
    fn check_writable(&self) -> Result<(), VolumeError> {
        if self.frozen.get().is_none()
            && let Some(reason) = self.members.iter().find_map(|member| {
                member
                    .frozen()
                    .map(|reason| format!("{} is read-only: {reason}", member.name()))
            })
        {
            self.freeze(&reason);
        }
        match self.frozen.get() {
            None => Ok(()),
            Some(reason) => Err(VolumeError::ReadOnly {
                volume: Arc::clone(&self.name),
                reason: Arc::clone(reason),
            }),
        }
    }

    /// Returns the most important error of a step that must succeed on all members, and freezes the array: some members
    /// have completed the step.
    fn all_or_frozen(
        &self,
        what: impl FnOnce() -> String,
        results: Vec<Result<(), VolumeError>>,
    ) -> Result<(), VolumeError> {
        let error = most_important(results.into_iter().filter_map(Result::err));
        let Some(error) = error else { return Ok(()) };
        self.freeze(&format!("{} was done on some members only: {error}", what()));
        Err(error)
    }

    fn map_all(&self, leb: Leb, turn: &mut Turn<'_>) -> Result<(), VolumeError> {
        let generation = turn.next_generation();
        let results = self
            .members
            .on_all(move |member| member.map_with_generation(leb, generation));
        self.all_or_frozen(|| format!("mapping {leb}"), results)?;
        turn.is_complete();
        Ok(())
    }

    /// Writes rows of different LEBs in parallel. A member that takes part in several of them writes its pieces in
    /// sequence.
    fn write_rows(&self, rows: &[WritePart<'_>]) -> Result<(), VolumeError> {
        let mut inputs: Vec<(usize, Vec<MemberPiece>)> = (0..self.members.len())
            .map(|member| (member, Vec::new()))
            .collect();
        for row in rows {
            match &self.rotation {
                Some(rotation) => self.add_with_parity(rotation, row, &mut inputs),
                None => {
                    for (piece, bytes) in self.stripe.scatter(row.offset, row.data) {
                        inputs[piece.member].1.push((row.leb, piece.offset, bytes));
                    }
                }
            }
        }
        inputs.retain(|(_, pieces)| !pieces.is_empty());
        let results = self.members.together(inputs, |member, pieces: Vec<MemberPiece>| {
            pieces
                .iter()
                .try_for_each(|(leb, offset, bytes)| member.write_mapped(*leb, *offset, bytes))
        });
        let what = || {
            let places = rows
                .iter()
                .map(|row| format!("{} at offset {}", row.leb, row.offset));
            format!("a write to {}", places.collect::<Vec<_>>().join(" and "))
        };
        self.all_or_frozen(what, results)
    }

    /// Adds the pages of a row to the members' pieces. Skips absent members and those that lost their share of the LEB.
    fn add_with_parity(
        &self,
        rotation: &Rotation,
        row: &WritePart<'_>,
        inputs: &mut [(usize, Vec<MemberPiece>)],
    ) {
        let number = row.offset / rotation.row_bytes();
        let offset = number * rotation.page_bytes();
        let lost = self.lost_of(row.leb);
        let pages = rotation.encode(number, row.data);
        for (member, page) in pages.into_iter().enumerate() {
            if !lost.contains(&member) && !self.members.is_absent(member) {
                inputs[member].1.push((row.leb, offset, page));
            }
        }
    }

    /// Each present member's share of new content, which may be empty.
    fn shares(&self, data: &[u8]) -> Vec<(usize, Vec<u8>)> {
        if let Some(rotation) = &self.rotation {
            let shares = rotation.encode(0, data).into_iter().enumerate();
            return shares
                .filter(|(member, _)| !self.members.is_absent(*member))
                .collect();
        }
        let mut shares: Vec<(usize, Vec<u8>)> = (0..self.members.len())
            .map(|member| (member, Vec::new()))
            .collect();
        for (piece, bytes) in self.stripe.scatter(0, data) {
            shares[piece.member].1 = bytes;
        }
        shares
    }

    fn prepare_all(
        &self,
        leb: Leb,
        data: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<Vec<(usize, <M as MemberVolume>::Prepared)>, VolumeError>
    where
        M::Prepared: 'static,
    {
        let generation = turn.next_generation();
        let shares = self.shares(data);
        let places: Vec<usize> = shares.iter().map(|(member, _)| *member).collect();
        let results = self.members.together(shares, move |member, share: Vec<u8>| {
            member.prepare_change(leb, &share, generation)
        });
        let (mut prepared, mut errors) = (Vec::new(), Vec::new());
        for (member, result) in places.into_iter().zip(results) {
            match result {
                Ok(change) => prepared.push((member, change)),
                Err(error) => errors.push(error),
            }
        }
        let Some(error) = most_important(errors.into_iter()) else {
            turn.is_complete();
            return Ok(prepared);
        };
        let given_up = self.members.together(prepared, |member, change: M::Prepared| {
            member.abandon_change(change)
        });
        // The old content is in force on all members. A new block that could not be erased is rejected at the next
        // attach.
        if let Some(second) = most_important(given_up.into_iter().filter_map(Result::err)) {
            self.freeze(&format!("a change of {leb} could not be taken back: {second}"));
        }
        Err(error)
    }
}

/// The exclusive right to assign generations.
struct Turn<'a> {
    generation: MutexGuard<'a, u64>,
    complete: &'a AtomicU64,
}

impl Turn<'_> {
    fn next_generation(&mut self) -> NonZeroU64 {
        *self.generation += 1;
        NonZeroU64::new(*self.generation)
            .expect("it counts up from at least 1, and attaching refuses numbers near the end")
    }

    /// Records that the last assigned generation is complete on all members.
    fn is_complete(&self) {
        self.complete.store(*self.generation, Ordering::Release);
    }
}

/// After this many failed marks in a row, the blocks are not to blame.
const MARK_ATTEMPTS: u32 = 4;

/// Begins a dirty mark with its first page, and drops earlier ones.
fn begin_mark_with<M: MemberVolume + ?Sized>(
    member: &M,
    epoch: NonZeroU64,
    page: &[u8],
) -> Result<(), VolumeError> {
    for _ in 0..MARK_ATTEMPTS {
        member.begin_mark(epoch)?;
        if member.append_to_mark(page)? == Appended::Written {
            return member.drop_old_marks();
        }
    }
    Err(VolumeError::NoSpace {
        volume: member.name(),
        leb: Leb(0),
    })
}

/// The error to report: a power cut, if there is one, as it caused the others.
fn most_important(errors: impl Iterator<Item = VolumeError>) -> Option<VolumeError> {
    let mut errors: Vec<VolumeError> = errors.collect();
    errors.sort_by_key(|error| !error.is_power_cut());
    errors.into_iter().next()
}

impl<M: MemberVolume<Prepared: 'static> + 'static> Volume for VirtualVolume<M> {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        self.read_many(&mut [ReadPart { leb, offset, out }])
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        self.check_usable()?;
        if let Some(rotation) = &self.rotation {
            return self.read_with_parity(rotation, parts);
        }
        let mut inputs: Vec<(usize, Vec<(Leb, MemberRange)>)> = (0..self.members.len())
            .map(|member| (member, Vec::new()))
            .collect();
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); self.members.len()];
        let mut uncorrectable = None;
        for (place, part) in parts.iter_mut().enumerate() {
            self.geometry
                .check_range(&self.name, part.leb, part.offset, part.out.len())?;
            let lost = self.missing_of(part.leb);
            if !lost.is_empty() && !self.is_mapped(part.leb)? {
                part.out.fill(0xFF);
                continue;
            }
            for piece in self.stripe.pieces(part.offset, part.out.len()) {
                if lost.contains(&piece.member) {
                    self.stripe
                        .gather(part.offset, part.out, piece, &vec![0; piece.len]);
                    uncorrectable.get_or_insert_with(|| self.lost(part));
                    continue;
                }
                inputs[piece.member].1.push((part.leb, piece));
                places[piece.member].push(place);
            }
        }
        inputs.retain(|(_, pieces)| !pieces.is_empty());
        let order: Vec<usize> = inputs.iter().map(|(member, _)| *member).collect();
        let results = self
            .members
            .together(inputs, |member, pieces| read_pieces(member, &pieces));
        for (member, result) in order.into_iter().zip(results) {
            let (read, damaged) = result?;
            uncorrectable = uncorrectable.or(damaged);
            for ((piece, bytes), place) in read.into_iter().zip(&places[member]) {
                let part = &mut parts[*place];
                self.stripe.gather(part.offset, part.out, piece, &bytes);
            }
        }
        uncorrectable.map_or(Ok(()), Err)
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.write_many(&[WritePart { leb, offset, data }])
    }

    fn write_many(&self, parts: &[WritePart<'_>]) -> Result<(), VolumeError> {
        self.check_usable()?;
        for part in parts {
            self.geometry
                .check_write(&self.name, part.leb, part.offset, part.data.len())?;
        }
        self.check_writable()?;
        let _guards = self.keep_from_mending(parts.iter().map(|part| part.leb));
        for part in parts {
            self.check_whole(part.leb)?;
        }
        for part in parts {
            if !self.is_mapped(part.leb)? {
                self.map_all(part.leb, &mut self.turn()?)?;
            }
        }
        let mut rows: Vec<_> = parts
            .iter()
            .map(|part| self.stripe.rows(part.offset, part.data.len()))
            .collect();
        loop {
            let now: Vec<WritePart<'_>> = parts
                .iter()
                .zip(&mut rows)
                .filter_map(|(part, rows)| {
                    let (offset, len) = rows.next()?;
                    let at = index(offset - part.offset);
                    Some(WritePart {
                        leb: part.leb,
                        offset,
                        data: &part.data[at..at + len],
                    })
                })
                .collect();
            match now.is_empty() {
                true => return Ok(()),
                false => self.write_rows(&now)?,
            }
        }
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        self.check_usable()?;
        self.geometry.check_write(&self.name, leb, 0, data.len())?;
        let _guards = self.keep_from_mending(std::iter::once(leb));
        let mut turn = self.turn()?;
        // Map first: without an earlier generation, a torn change would be a member's only block, and no header would
        // vouch for it.
        if !self.is_mapped(leb)? {
            self.map_all(leb, &mut turn)?;
        }
        let prepared = self.prepare_all(leb, data, &mut turn)?;
        self.members.together(prepared, |member, change: M::Prepared| {
            member.commit_change(change);
        });
        self.forget_lost(leb);
        Ok(())
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        self.check_usable()?;
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        let _guards = self.keep_from_mending(std::iter::once(leb));
        let mut turn = self.turn()?;
        if self.is_mapped(leb)? {
            return Err(VolumeError::AlreadyMapped {
                volume: Arc::clone(&self.name),
                leb,
            });
        }
        self.map_all(leb, &mut turn)
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        self.check_usable()?;
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        self.check_writable()?;
        let _guards = self.keep_from_mending(std::iter::once(leb));
        if !self.is_mapped(leb)? {
            return Ok(());
        }
        // Held until all members have queued the LEB for erasure: before the next dirty mark is written, that queue is
        // flushed.
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = &*log {
            let generation = self.complete.load(Ordering::Acquire);
            self.record(log, &[Unmapped { leb, generation }])?;
        }
        let results = self.members.on_all(move |member| member.unmap(leb));
        self.all_or_frozen(|| format!("unmapping {leb}"), results)?;
        self.forget_lost(leb);
        Ok(())
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        self.check_usable()?;
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        let first = self.members.iter().next().expect("one is present");
        Ok(!self.lost_of(leb).is_empty() || first.is_mapped(leb)?)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.check_writable()?;
        let results = self.members.on_all(|member| member.flush());
        self.all_or_frozen(|| "erasing what was unmapped".to_owned(), results)
    }

    fn sync(&self) -> Result<(), VolumeError> {
        most_important(
            self.members
                .on_all(|member| member.sync())
                .into_iter()
                .filter_map(Result::err),
        )
        .map_or(Ok(()), Err)
    }

    fn freeze(&self, reason: &str) {
        let reason = self.frozen.get_or_init(|| reason.into());
        for member in self.members.iter() {
            member.freeze(reason);
        }
    }

    fn frozen(&self) -> Option<Arc<str>> {
        // Includes members that froze independently.
        let _ = self.check_writable();
        self.frozen.get().map(Arc::clone)
    }

    fn torn_end(&self, leb: Leb, offset: u32) -> TornEnd {
        self.judge_torn_end(leb, offset)
    }
}

/// A LEB, a byte offset in the member's share of it, and the data to write there.
type MemberPiece = (Leb, u32, Vec<u8>);

type PiecesRead = (Vec<(MemberRange, Vec<u8>)>, Option<VolumeError>);

/// Reads a member's pieces. Uncorrectable bit-flips are returned with the data; any other error aborts the read.
fn read_pieces<M: MemberVolume + ?Sized>(
    member: &M,
    pieces: &[(Leb, MemberRange)],
) -> Result<PiecesRead, VolumeError> {
    let mut buffers: Vec<Vec<u8>> = pieces.iter().map(|(_, piece)| vec![0; piece.len]).collect();
    let mut parts: Vec<ReadPart<'_>> = pieces
        .iter()
        .zip(&mut buffers)
        .map(|((leb, piece), out)| ReadPart {
            leb: *leb,
            offset: piece.offset,
            out,
        })
        .collect();
    let damaged = match member.read_many(&mut parts) {
        Ok(()) => None,
        Err(error @ VolumeError::Uncorrectable { .. }) => Some(error),
        Err(error) => return Err(error),
    };
    Ok((
        pieces.iter().map(|(_, piece)| *piece).zip(buffers).collect(),
        damaged,
    ))
}
