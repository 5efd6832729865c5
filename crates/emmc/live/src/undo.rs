//! The undo log of a power cut: the old content of every unit whose newest data is not programmed yet.
//!
//! A write is announced when the model gets it, and filled in with the old content when its data reaches the store,
//! which may be after its completion in the model. Each of its units leaves the log when that write, or a later one
//! of the same unit, has been answered and programmed. A power cut restores every unit to its content before the
//! oldest write still in the log, but not older than the last one programmed: exactly the content of the flash.
//!
//! Bounded: the log holds only data in the driver and in the card's RAM.
//!
//! A completed discard is final: the log's old content of its range becomes zeros.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque};
use std::io;

use emmc::simulation::{Happening, Ticket};
use media::Nanos;
use serde::{Deserialize, Serialize};

use crate::Store;

/// Treatment of unanswered writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutKind {
    /// They are lost completely.
    Clean,
    /// Their pages programmed by then stay.
    Torn,
}

/// Losses of a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct CutReport {
    /// Unanswered writes.
    pub unanswered_writes: u64,
    /// Unanswered writes of which some units were programmed and others were not.
    pub torn_writes: u64,
    /// Bytes of answered writes that were only in the card's RAM.
    pub answered_bytes_lost: u64,
    /// Bytes restored to their old content, including those of unanswered writes.
    pub reverted_bytes: u64,
}

/// Content that a write replaced.
#[derive(Debug)]
pub enum Former {
    /// A hole of the store.
    Zeros,
    /// All bytes.
    Content(Vec<u8>),
}

impl Former {
    /// Puts a unit back, the one with this number within the write.
    fn restore(&self, number: usize, unit_bytes: usize, offset: u64, store: &Store) -> io::Result<()> {
        match self {
            Self::Zeros => store.zero(offset, u64::try_from(unit_bytes).expect("a unit fits 64 bits")),
            Self::Content(bytes) => store.write(offset, &bytes[number * unit_bytes..][..unit_bytes]),
        }
    }
}

/// One write.
#[derive(Debug)]
struct Entry {
    first: u32,
    /// Old content of its units; `None` while it is still in the store.
    old: Option<Former>,
    /// End of the program of each unit.
    ends: Vec<Option<Nanos>>,
    sent: bool,
    answered: Option<Nanos>,
    /// Number of its units still in `versions`.
    open: usize,
}

/// The undo log; see the module.
#[derive(Debug)]
pub struct UndoLog {
    unit_bytes: usize,
    /// Tickets increase in order of submission.
    entries: BTreeMap<Ticket, Entry>,
    /// For each unit its unsettled writes, oldest first.
    versions: HashMap<u32, VecDeque<Ticket>>,
    /// Times at which units of answered writes can be settled.
    ending: BinaryHeap<Reverse<(Nanos, u32, Ticket)>>,
}

impl UndoLog {
    /// An empty log of a card with units of `unit_bytes` bytes.
    #[must_use]
    pub fn new(unit_bytes: usize) -> Self {
        Self {
            unit_bytes,
            entries: BTreeMap::new(),
            versions: HashMap::new(),
            ending: BinaryHeap::new(),
        }
    }

    /// Announces a write of `count` units from `first` on, whose data is not in the store yet. Tickets have to
    /// increase.
    pub fn announce(&mut self, ticket: Ticket, first: u32, count: usize) {
        for unit in (first..).take(count) {
            self.versions.entry(unit).or_default().push_back(ticket);
        }
        let entry = Entry {
            first,
            old: None,
            ends: vec![None; count],
            sent: false,
            answered: None,
            open: count,
        };
        self.entries.insert(ticket, entry);
    }

    /// Whether the data of an announced write may go to the store: no older write of the same units is still missing.
    #[must_use]
    pub fn is_next(&self, ticket: Ticket) -> bool {
        let Some(entry) = self.entries.get(&ticket) else {
            return true;
        };
        let comes_before = |older: &Ticket| {
            *older < ticket && self.entries.get(older).is_some_and(|older| older.old.is_none())
        };
        let mut units = (entry.first..).take(entry.ends.len());
        !units.any(|unit| {
            self.versions
                .get(&unit)
                .is_some_and(|all| all.iter().any(comes_before))
        })
    }

    /// The data of an announced write is in the store; `old` is the former content of its units.
    pub fn fill(&mut self, ticket: Ticket, old: Former) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.old = Some(old);
            if let Some(answered) = entry.answered {
                self.note_answer(ticket, answered);
            }
        }
    }

    /// Removes an announced write whose data will not arrive.
    pub fn withdraw(&mut self, ticket: Ticket) {
        let Some(entry) = self.entries.remove(&ticket) else {
            return;
        };
        for unit in (entry.first..).take(entry.ends.len()) {
            if let Some(tickets) = self.versions.get_mut(&unit) {
                tickets.retain(|other| *other != ticket);
                if tickets.is_empty() {
                    self.versions.remove(&unit);
                }
            }
        }
    }

    /// Records an event of the driver and the card.
    pub fn note(&mut self, happening: &Happening) {
        match happening {
            Happening::Sent { tickets, programmed } => {
                for ticket in tickets {
                    if let Some(entry) = self.entries.get_mut(ticket) {
                        entry.sent = true;
                    }
                }
                for (unit, end) in programmed {
                    self.note_program(*unit, *end);
                }
            }
            Happening::Done { ticket, at } => self.note_answer(*ticket, *at),
        }
    }

    /// The program contains the newest data of the unit sent so far.
    fn note_program(&mut self, unit: u32, end: Nanos) {
        let sent = |ticket: &&Ticket| self.entries.get(ticket).is_some_and(|entry| entry.sent);
        let version = self
            .versions
            .get(&unit)
            .and_then(|tickets| tickets.iter().rev().find(sent));
        let Some(ticket) = version.copied() else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.ends[place(entry.first, unit)] = Some(end);
            if let (Some(answered), Some(_)) = (entry.answered, &entry.old) {
                self.ending.push(Reverse((end.max(answered), unit, ticket)));
            }
        }
    }

    fn note_answer(&mut self, ticket: Ticket, at: Nanos) {
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.answered = Some(at);
            if entry.old.is_none() {
                return;
            }
            for (unit, end) in (entry.first..).zip(&entry.ends) {
                if let Some(end) = end {
                    self.ending.push(Reverse((at.max(*end), unit, ticket)));
                }
            }
        }
    }

    /// Removes units that are programmed and answered by `now`.
    pub fn settle(&mut self, now: Nanos) {
        while let Some(Reverse((moment, unit, ticket))) = self.ending.peek().copied()
            && moment <= now
        {
            self.ending.pop();
            self.settle_unit(unit, ticket);
        }
    }

    /// This write of a unit is final, so its older content is no longer needed.
    fn settle_unit(&mut self, unit: u32, ticket: Ticket) {
        let Some(tickets) = self.versions.get_mut(&unit) else {
            return;
        };
        while let Some(oldest) = tickets.front().copied()
            && oldest <= ticket
        {
            tickets.pop_front();
            if let Some(entry) = self.entries.get_mut(&oldest) {
                entry.open -= 1;
                if entry.open == 0 {
                    self.entries.remove(&oldest);
                }
            }
        }
        if tickets.is_empty() {
            self.versions.remove(&unit);
        }
    }

    /// Makes a range read as zeros, even after a power cut.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let unit_bytes = u64::try_from(self.unit_bytes).expect("a unit fits 64 bits");
        for entry in self.entries.values_mut() {
            let start = u64::from(entry.first) * unit_bytes;
            let Some(Former::Content(old)) = &mut entry.old else {
                continue;
            };
            let within = |at: u64| {
                usize::try_from(at.saturating_sub(start))
                    .unwrap_or(usize::MAX)
                    .min(old.len())
            };
            let (from, to) = (within(offset), within(offset + length));
            old[from..to].fill(0);
        }
        let covered = offset.div_ceil(unit_bytes)..(offset + length) / unit_bytes;
        let units = self
            .versions
            .keys()
            .filter(|unit| covered.contains(&u64::from(**unit)));
        for unit in units.copied().collect::<Vec<_>>() {
            self.settle_unit(unit, Ticket(u64::MAX));
        }
    }

    /// Restores everything that is not in flash at `now`, and clears the log.
    ///
    /// # Errors
    /// If the store can't be written; the rest is restored nevertheless.
    pub fn cut(&mut self, now: Nanos, kind: CutKind, store: &Store) -> io::Result<CutReport> {
        self.settle(now);
        let (mut report, mut kept, mut result) = (CutReport::default(), HashSet::new(), Ok(()));
        let unit_bytes = u64::try_from(self.unit_bytes).expect("a unit fits 64 bits");
        for (ticket, entry) in self.entries.iter().rev() {
            let Some(old) = &entry.old else {
                // Its data never arrived, so it was not answered.
                report.unanswered_writes += 1;
                continue;
            };
            // A write that the driver has seen complete counts as answered, even if the answer is still on its way.
            let answered = entry.answered.is_some();
            report.unanswered_writes += u64::from(!answered);
            let (mut stayed, mut lost) = (false, false);
            for ((unit, end), number) in (entry.first..).zip(&entry.ends).zip(0..) {
                let open = self
                    .versions
                    .get(&unit)
                    .is_some_and(|tickets| tickets.contains(ticket));
                if !open || kept.contains(&unit) {
                    continue;
                }
                let programmed = end.is_some_and(|end| end <= now);
                if programmed && (answered || kind == CutKind::Torn) {
                    kept.insert(unit);
                    stayed = true;
                    continue;
                }
                lost = true;
                report.reverted_bytes += unit_bytes;
                report.answered_bytes_lost += if answered { unit_bytes } else { 0 };
                let offset = u64::from(unit) * unit_bytes;
                if let Err(error) = old.restore(number, self.unit_bytes, offset, store) {
                    result = Err(error);
                }
            }
            report.torn_writes += u64::from(stayed && lost);
        }
        self.entries.clear();
        self.versions.clear();
        self.ending.clear();
        result.map(|()| report)
    }

    /// Number of writes that could be undone, at least in part.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the log is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn place(first: u32, unit: u32) -> usize {
    usize::try_from(unit - first).expect("memory has room for the units of a write")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 4096;

    /// A store and its log; each write fills its units with one byte.
    struct Card {
        store: Store,
        log: UndoLog,
        tickets: u64,
    }

    impl Card {
        fn new() -> Self {
            Self {
                store: Store::memory(1 << 20).unwrap(),
                log: UndoLog::new(UNIT),
                tickets: 0,
            }
        }

        fn write(&mut self, first: u32, units: usize, byte: u8) -> Ticket {
            let ticket = self.announce(first, units);
            self.fill(ticket, first, units, byte);
            ticket
        }

        fn announce(&mut self, first: u32, units: usize) -> Ticket {
            self.tickets += 1;
            self.log.announce(Ticket(self.tickets), first, units);
            Ticket(self.tickets)
        }

        fn fill(&mut self, ticket: Ticket, first: u32, units: usize, byte: u8) {
            let offset = u64::from(first) * 4096;
            let old = self.store.former(offset, units * UNIT).unwrap();
            self.store.write(offset, &vec![byte; units * UNIT]).unwrap();
            self.log.fill(ticket, old);
        }

        fn sent(&mut self, ticket: Ticket, programmed: &[(u32, u64)]) {
            let programmed = programmed
                .iter()
                .map(|(unit, end)| (*unit, Nanos(*end)))
                .collect();
            self.log.note(&Happening::Sent {
                tickets: vec![ticket],
                programmed,
            });
        }

        fn done(&mut self, ticket: Ticket, at: u64) {
            self.log.note(&Happening::Done {
                ticket,
                at: Nanos(at),
            });
        }

        fn units(&self, count: usize) -> Vec<u8> {
            let mut out = vec![0; count * UNIT];
            self.store.read(0, &mut out).unwrap();
            for unit in out.chunks(UNIT) {
                assert!(unit.iter().all(|byte| *byte == unit[0]), "units are whole");
            }
            out.chunks(UNIT).map(|unit| unit[0]).collect()
        }
    }

    #[test]
    fn what_was_programmed_and_answered_stays_and_leaves_the_log() {
        let mut card = Card::new();
        let ticket = card.write(0, 2, 1);
        card.sent(ticket, &[(0, 100), (1, 110)]);
        card.done(ticket, 120);
        card.log.settle(Nanos(120));
        assert!(card.log.is_empty());
        card.log.cut(Nanos(120), CutKind::Clean, &card.store).unwrap();
        assert_eq!(card.units(2), [1, 1]);
    }

    #[test]
    fn a_write_under_way_is_lost_whole_or_torn_at_what_was_programmed() {
        for (kind, expected, torn) in [(CutKind::Clean, [0, 0, 0], 0), (CutKind::Torn, [1, 1, 0], 1)] {
            let mut card = Card::new();
            let ticket = card.write(0, 3, 1);
            card.sent(ticket, &[(0, 100), (1, 100), (2, 200)]);
            let report = card.log.cut(Nanos(150), kind, &card.store).unwrap();
            assert_eq!(card.units(3), expected, "{kind:?}");
            assert_eq!((report.unanswered_writes, report.torn_writes), (1, torn));
        }
    }

    /// A cache answers at once. Unit 0 is programmed at 100; unit 1 waits in RAM and is lost.
    #[test]
    fn what_a_cache_answered_but_did_not_program_is_lost() {
        let mut card = Card::new();
        let ticket = card.write(0, 2, 1);
        card.sent(ticket, &[(0, 100)]);
        card.done(ticket, 10);
        let report = card.log.cut(Nanos(150), CutKind::Clean, &card.store).unwrap();
        assert_eq!(card.units(2), [1, 0]);
        assert_eq!((report.answered_bytes_lost, report.reverted_bytes), (4096, 4096));
    }

    /// Written three times: programmed, in RAM, in RAM. The flash holds the first.
    #[test]
    fn the_newest_programmed_version_comes_back() {
        let mut card = Card::new();
        for (byte, programmed) in [(1, &[(0, 50)][..]), (2, &[]), (3, &[])] {
            let ticket = card.write(0, 1, byte);
            card.sent(ticket, programmed);
            card.done(ticket, 60 + u64::from(byte));
        }
        card.log.cut(Nanos(100), CutKind::Clean, &card.store).unwrap();
        assert_eq!(card.units(1), [1]);
    }

    /// Unit 0 was rewritten while its page was in RAM; the program has the newer data, and settles both writes.
    #[test]
    fn a_program_of_newer_data_settles_the_older_write_too() {
        let mut card = Card::new();
        let first = card.write(0, 1, 1);
        card.sent(first, &[]);
        card.done(first, 10);
        let second = card.write(0, 1, 2);
        card.sent(second, &[(0, 90)]);
        card.done(second, 20);
        card.log.settle(Nanos(90));
        assert!(card.log.is_empty());
    }

    /// Unit 0 is submitted again while its first data is being programmed: that program belongs to the first write.
    #[test]
    fn a_program_is_of_what_was_sent_not_of_what_waits() {
        let mut card = Card::new();
        let (first, second) = (card.write(0, 1, 1), card.write(0, 1, 2));
        card.sent(first, &[(0, 100)]);
        card.done(first, 110);
        card.log.settle(Nanos(120));
        assert_eq!(card.log.len(), 1);
        card.log.cut(Nanos(120), CutKind::Torn, &card.store).unwrap();
        assert_eq!(card.units(1), [1]);
        let _ = second;
    }

    /// The model completed the second write of unit 0 before its data arrived. A cut before the arrival leaves the
    /// first write, which was programmed; a cut after it the second.
    #[test]
    fn data_that_comes_after_the_model_was_done_is_there_from_then_on() {
        for (comes, expected) in [(false, 1), (true, 2)] {
            let mut card = Card::new();
            let first = card.write(0, 1, 1);
            card.sent(first, &[(0, 10)]);
            card.done(first, 11);
            let second = card.announce(0, 1);
            card.sent(second, &[(0, 20)]);
            card.done(second, 21);
            card.log.settle(Nanos(30));
            if comes {
                card.fill(second, 0, 1, 2);
            }
            let report = card.log.cut(Nanos(30), CutKind::Clean, &card.store).unwrap();
            assert_eq!(card.units(1), [expected]);
            assert_eq!(report.unanswered_writes, u64::from(!comes));
        }
    }

    #[test]
    fn writes_of_one_unit_go_to_the_store_in_the_order_of_the_model() {
        let mut card = Card::new();
        let (first, second, elsewhere) = (card.announce(0, 2), card.announce(1, 1), card.announce(7, 1));
        assert!(card.log.is_next(first) && card.log.is_next(elsewhere));
        assert!(!card.log.is_next(second));
        card.fill(first, 0, 2, 1);
        let third = card.announce(1, 1);
        assert!(card.log.is_next(second) && !card.log.is_next(third));
        card.log.withdraw(second);
        assert!(card.log.is_next(third));
    }

    #[test]
    fn a_discard_that_was_answered_stays_after_a_cut() {
        let mut card = Card::new();
        card.store.write(0, &[9; 2 * UNIT]).unwrap();
        let ticket = card.write(0, 2, 1);
        card.sent(ticket, &[]);
        card.done(ticket, 10);
        card.store.zero(0, 4096).unwrap();
        card.log.zero(0, 4096);
        card.log.cut(Nanos(20), CutKind::Clean, &card.store).unwrap();
        assert_eq!(card.units(2), [0, 9]);
    }
}
