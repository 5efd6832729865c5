//! The last writer of each byte range of each file.
//!
//! Ranges come from write calls and from folios that became dirty. A write call replaces all ranges that it covers. A
//! folio that becomes dirty only shows that it was clean before, so it replaces ranges that have been written out
//! since; other processes may meanwhile have written to parts of a large folio. For a process that writes by calls it
//! is no new information: its call or its fsync made the folio dirty. With data=journal, ranges that are in the journal
//! and not yet written home are kept. A kernel thread that dirties a folio again (journal, write-back) replaces
//! nothing that waits; of what was written out it is no sure writer, as it may do both, and of nothing once records were
//! lost or ranges forgotten, as the missing one may have been the writer's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use results::block_trace::{CauseQuality, FileIdentity, Process};

/// Maximum number of ranges over all files: about 100 MB. Beyond it, only the last writer of a file is kept.
const MAX_RANGES: usize = 1 << 20;
/// Adjacent ranges of one thread this close in time are merged.
const MERGE_NS: u64 = 100_000_000;

/// A folio that becomes dirty within this time after a call of the same process was dirtied by that call, or its fsync.
/// The programs do not report a call again that repeats one of the last second.
const CALL_NS: u64 = 2_000_000_000;
/// Maximum number of known callers of a file.
const MAX_CALLERS: usize = 8;

/// A process and the time of its write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub process: Arc<Process>,
    pub quality: CauseQuality,
    pub time: u64,
    /// Directory entry that was written through; 0 if unknown.
    pub through: u64,
    /// Others may have written to the page too: the file was mapped for stores more than once, or their data waited there.
    pub is_shared: bool,
}

impl Writer {
    /// Whether it is another process, or another program in the same one.
    fn is_other(&self, other: &Self) -> bool {
        (self.process.pid, &self.process.name) != (other.process.pid, &other.process.name)
    }
}

#[derive(Debug)]
struct Range {
    end: u64,
    writer: Writer,
    place: Place,
}

/// State of the bytes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Journal,
    Home,
}

#[derive(Debug)]
struct File {
    ranges: BTreeMap<u64, Range>,
    last: Writer,
    /// Whether several processes wrote to it.
    several: bool,
    /// Processes that wrote by calls, with the time of the last call.
    callers: Vec<(Arc<Process>, u64)>,
}

/// The ranges that a new range replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A write call that copied to the range: all.
    Call,
    /// A write call that is about to copy to the range, and may fail before its end: all, but where data of others waits
    /// to be written it is not sure.
    CallToCome,
    /// A folio that became dirty in some call: those that were written out.
    Folio,
    /// A folio that became dirty by a store: all. It was clean just before, so data of others that seems to wait there
    /// was truncated, or is on its way: there it is not sure.
    Store,
    /// A kernel thread: those that were written out, of which it is not sure.
    Kernel,
}

impl Range {
    /// Whether the data is not at home yet.
    fn waits(&self) -> bool {
        self.place != Place::Home
    }
}

/// The last writers of all files.
#[derive(Debug)]
pub(crate) struct Writers {
    files: HashMap<FileIdentity, File>,
    ranges: usize,
    limit: usize,
    /// Whether records were lost, or ranges forgotten.
    has_lost: bool,
    /// Number of files that were forgotten for lack of space.
    pub forgotten: u64,
}

impl Default for Writers {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            ranges: 0,
            limit: MAX_RANGES,
            has_lost: false,
            forgotten: 0,
        }
    }
}

impl Writers {
    /// Records that `writer` dirtied `start..end` of the file.
    pub(crate) fn wrote(&mut self, file: FileIdentity, start: u64, end: u64, writer: Writer, claim: Claim) {
        if start >= end {
            return;
        }
        if self.ranges >= self.limit {
            self.make_room();
        }
        let entry = self.files.entry(file).or_insert_with(|| File {
            ranges: BTreeMap::new(),
            last: writer.clone(),
            several: false,
            callers: Vec::new(),
        });
        let before = entry.ranges.len();
        entry.several |= claim != Claim::Kernel && entry.last.is_other(&writer);
        match claim {
            Claim::Call => {
                entry.last = writer.clone();
                entry.called(&writer);
                entry.put(start, end, writer);
            }
            Claim::CallToCome => {
                entry.last = writer.clone();
                entry.called(&writer);
                let contested = entry.waiting_of_others(start, end, &writer);
                entry.put(start, end, writer.clone());
                entry.put_shared(&contested, &writer);
            }
            Claim::Folio => {
                entry.last = writer.clone();
                let is_caller = entry.callers.iter().any(|(caller, time)| {
                    *caller == writer.process && writer.time.saturating_sub(*time) < CALL_NS
                });
                let kept = |range: &Range| is_caller || range.place != Place::Home;
                for (from, to) in entry.gaps(start, end, kept) {
                    entry.put(from, to, writer.clone());
                }
            }
            Claim::Store => {
                entry.last = writer.clone();
                let contested = entry.waiting_of_others(start, end, &writer);
                let kept = |range: &Range| range.waits() && !range.writer.is_other(&writer);
                for (from, to) in entry.gaps(start, end, kept) {
                    entry.put(from, to, writer.clone());
                }
                entry.put_shared(&contested, &writer);
            }
            Claim::Kernel => {
                let is_shared = writer.is_shared || self.has_lost;
                let unknown = entry.gaps(start, end, |_| true);
                let at_home = entry.gaps(start, end, Range::waits);
                // It may write for itself, as the thread of a loop device does.
                entry.put_shared(&at_home, &writer);
                let writer = Writer { is_shared, ..writer };
                for (from, to) in unknown {
                    entry.put(from, to, writer.clone());
                }
            }
        }
        self.ranges = (self.ranges + entry.ranges.len()).saturating_sub(before);
    }

    /// Splits `start..end` by writers, in order and without gaps.
    pub(crate) fn split(&self, file: FileIdentity, start: u64, end: u64) -> Vec<(u64, u64, Option<Writer>)> {
        let Some(entry) = self.files.get(&file) else {
            return vec![(start, end, None)];
        };
        let fallback = Writer {
            quality: CauseQuality::Inode,
            through: 0,
            ..entry.last.clone()
        };
        let mut parts: Vec<(u64, u64, Option<Writer>)> = Vec::new();
        let mut push = |from: u64, to: u64, writer: Writer| {
            if from >= to {
                return;
            }
            if let Some((_, last_end, Some(last))) = parts.last_mut()
                && last.process == writer.process
                && last.quality == writer.quality
                && last.through == writer.through
                && last.is_shared == writer.is_shared
                && *last_end == from
            {
                *last_end = to;
                last.time = last.time.min(writer.time);
                return;
            }
            parts.push((from, to, Some(writer)));
        };
        let mut at = start;
        for (range_start, range) in entry.overlapping(start, end) {
            push(at, range_start.max(at), fallback.clone());
            let from = range_start.max(start);
            let to = range.end.min(end);
            push(from, to, range.writer.clone());
            at = to;
        }
        push(at, end, fallback);
        parts
    }

    /// Whether several processes wrote to the file.
    pub(crate) fn are_several(&self, file: FileIdentity) -> bool {
        self.files.get(&file).is_some_and(|entry| entry.several)
    }

    /// Records that `start..end` of the file was written to its home position.
    pub(crate) fn written_out(&mut self, file: FileIdentity, start: u64, end: u64) {
        self.mark(file, start, end, Place::Home);
    }

    /// Records that `start..end` of the file was written to the journal.
    pub(crate) fn journalled(&mut self, file: FileIdentity, start: u64, end: u64) {
        self.mark(file, start, end, Place::Journal);
    }

    fn mark(&mut self, file: FileIdentity, start: u64, end: u64, place: Place) {
        if let Some(entry) = self.files.get_mut(&file) {
            let before = entry.ranges.len();
            entry.mark(start, end, place);
            self.ranges = (self.ranges + entry.ranges.len()).saturating_sub(before);
        }
    }

    /// Records were lost, perhaps of writes: forgets all.
    pub(crate) fn lose(&mut self) {
        self.has_lost = true;
        self.files.clear();
        self.ranges = 0;
    }

    /// A name of the file was removed: its directory entry may become another name.
    pub(crate) fn unnamed(&mut self, file: FileIdentity, name: u64) {
        if let Some(entry) = self.files.get_mut(&file) {
            let through = entry.ranges.values_mut().map(|range| &mut range.writer.through);
            through
                .filter(|through| **through == name)
                .for_each(|through| *through = 0);
        }
    }

    /// Forgets a deleted file.
    pub(crate) fn forget(&mut self, file: FileIdentity) {
        if let Some(entry) = self.files.remove(&file) {
            self.ranges = self.ranges.saturating_sub(entry.ranges.len());
        }
    }

    fn make_room(&mut self) {
        self.has_lost = true;
        for entry in self.files.values_mut().filter(|entry| entry.ranges.len() > 16) {
            entry.ranges.clear();
            self.forgotten += 1;
        }
        self.ranges = self.files.values().map(|entry| entry.ranges.len()).sum();
        if self.ranges >= self.limit / 2 {
            self.forgotten += u64::try_from(self.files.len()).unwrap_or(u64::MAX);
            self.files.clear();
            self.ranges = 0;
        }
    }
}

impl File {
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Range)> {
        let before = self.ranges.range(..start).next_back();
        before
            .into_iter()
            .chain(self.ranges.range(start..end))
            .filter(move |(_, range)| range.end > start)
            .map(|(range_start, range)| (*range_start, range))
    }

    /// The parts of `start..end` outside the ranges to keep.
    fn gaps(&self, start: u64, end: u64, kept: impl Fn(&Range) -> bool) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (range_start, range) in self.overlapping(start, end).filter(|(_, range)| kept(range)) {
            if range_start > at {
                gaps.push((at, range_start));
            }
            at = at.max(range.end);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Removes `start..end` from the ranges; returns the removed parts.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, Range)> {
        let covered: Vec<u64> = self.overlapping(start, end).map(|(at, _)| at).collect();
        let mut taken = Vec::with_capacity(covered.len());
        for at in covered {
            let Some(range) = self.ranges.remove(&at) else {
                continue;
            };
            let part = |end: u64| Range {
                end,
                writer: range.writer.clone(),
                place: range.place,
            };
            if at < start {
                self.ranges.insert(at, part(start));
            }
            if range.end > end {
                self.ranges.insert(end, part(range.end));
            }
            taken.push((at.max(start), part(range.end.min(end))));
        }
        taken
    }

    fn called(&mut self, writer: &Writer) {
        self.callers.retain(|(caller, _)| *caller != writer.process);
        if self.callers.len() == MAX_CALLERS {
            self.callers.remove(0);
        }
        self.callers.push((Arc::clone(&writer.process), writer.time));
    }

    /// The parts of `start..end` with data that is not at home yet, and of other processes, or perhaps of others.
    fn waiting_of_others(&self, start: u64, end: u64, writer: &Writer) -> Vec<(u64, u64)> {
        self.overlapping(start, end)
            .filter(|(_, range)| range.waits() && (range.writer.is_shared || range.writer.is_other(writer)))
            .map(|(at, range)| (at.max(start), range.end.min(end)))
            .collect()
    }

    /// Gives parts to a process that perhaps wrote them.
    fn put_shared(&mut self, parts: &[(u64, u64)], writer: &Writer) {
        for (from, to) in parts {
            let writer = Writer {
                is_shared: true,
                ..writer.clone()
            };
            self.put(*from, *to, writer);
        }
    }

    fn mark(&mut self, start: u64, end: u64, place: Place) {
        for (at, range) in self.take(start, end) {
            self.ranges.insert(at, Range { place, ..range });
        }
    }

    fn put(&mut self, start: u64, end: u64, writer: Writer) {
        self.take(start, end);
        if let Some((_, before)) = self.ranges.range_mut(..start).next_back()
            && before.end == start
            && before.place == Place::Memory
            && before.writer.process == writer.process
            && before.writer.quality == writer.quality
            && before.writer.through == writer.through
            && before.writer.is_shared == writer.is_shared
            && writer.time.saturating_sub(before.writer.time) < MERGE_NS
        {
            before.end = end;
            return;
        }
        let place = Place::Memory;
        self.ranges.insert(start, Range { end, writer, place });
    }
}

#[cfg(test)]
mod tests {
    use results::block_trace::DeviceNumber;

    use super::*;

    const FILE: FileIdentity = FileIdentity {
        file_system: DeviceNumber { major: 7, minor: 0 },
        inode: 12,
        generation: 3,
    };

    fn writer(pid: u32, time: u64) -> Writer {
        Writer {
            process: Arc::new(Process {
                pid,
                tid: pid,
                name: "w".into(),
                package: None,
            }),
            quality: CauseQuality::WriteCall,
            time,
            through: 0,
            is_shared: false,
        }
    }

    fn pids(parts: &[(u64, u64, Option<Writer>)]) -> Vec<(u64, u64, u32)> {
        parts
            .iter()
            .map(|(start, end, writer)| (*start, *end, writer.as_ref().map_or(0, |w| w.process.pid)))
            .collect()
    }

    #[test]
    fn three_writers_of_one_large_folio_each_keep_their_pages() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 65536, writer(1, 0), Claim::Call);
        writers.wrote(FILE, 8192, 12288, writer(2, 1), Claim::Call);
        writers.wrote(FILE, 61440, 65536, writer(3, 2), Claim::Call);
        assert_eq!(
            pids(&writers.split(FILE, 4096, 65536)),
            [
                (4096, 8192, 1),
                (8192, 12288, 2),
                (12288, 61440, 1),
                (61440, 65536, 3)
            ]
        );
    }

    #[test]
    fn a_kernel_thread_takes_only_what_nobody_wrote() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 4096, writer(1, 0), Claim::Call);
        writers.wrote(FILE, 0, 8192, writer(99, 1), Claim::Kernel);
        assert_eq!(
            pids(&writers.split(FILE, 0, 8192)),
            [(0, 4096, 1), (4096, 8192, 99)]
        );
    }

    #[test]
    fn a_kernel_thread_takes_what_was_written_out_but_is_not_sure_of_it() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 8192, writer(1, 0), Claim::Call);
        writers.written_out(FILE, 0, 4096);
        // The thread of a loop device.
        writers.wrote(FILE, 0, 12288, writer(99, 1), Claim::Kernel);
        assert_eq!(
            sure(&writers.split(FILE, 0, 12288)),
            [
                (0, 4096, 99, false),
                (4096, 8192, 1, true),
                (8192, 12288, 99, true)
            ]
        );
    }

    #[test]
    fn a_kernel_thread_is_no_sure_writer_once_records_were_lost() {
        let mut writers = Writers::default();
        let is_shared_after = |writers: &mut Writers| {
            writers.wrote(FILE, 0, 4096, writer(99, 1), Claim::Kernel);
            let parts = writers.split(FILE, 0, 4096);
            parts[0].2.as_ref().expect("it is known").is_shared
        };
        assert!(!is_shared_after(&mut writers));
        writers.lose();
        assert!(is_shared_after(&mut writers));
        writers.wrote(FILE, 0, 4096, writer(1, 2), Claim::Call);
        assert!(
            !writers.split(FILE, 0, 4096)[0].2.as_ref().unwrap().is_shared,
            "a call is sure again"
        );
    }

    #[test]
    fn a_folio_that_becomes_dirty_leaves_fresh_writes_of_others_alone() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 4096, writer(1, 0), Claim::Call);
        writers.wrote(FILE, 4096, 8192, writer(2, 1), Claim::Call);
        writers.wrote(FILE, 0, 16384, writer(1, 2), Claim::Folio);
        assert_eq!(
            pids(&writers.split(FILE, 0, 16384)),
            [(0, 4096, 1), (4096, 8192, 2), (8192, 16384, 1)]
        );
        writers.written_out(FILE, 0, 16384);
        writers.wrote(FILE, 0, 16384, writer(3, 3), Claim::Folio);
        assert_eq!(pids(&writers.split(FILE, 0, 16384)), [(0, 16384, 3)]);
    }

    #[test]
    fn a_folio_that_becomes_dirty_leaves_to_others_what_is_in_the_journal() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 4096, 8192, writer(2, 0), Claim::Call);
        writers.journalled(FILE, 4096, 8192);
        // A store, or sync, by another process.
        writers.wrote(FILE, 4096, 8192, writer(3, 0), Claim::Folio);
        assert_eq!(pids(&writers.split(FILE, 4096, 8192)), [(4096, 8192, 2)]);
        // A caller keeps its range, even if the range counts as written home.
        writers.written_out(FILE, 4096, 8192);
        writers.wrote(FILE, 0, 4096, writer(1, 1), Claim::Call);
        writers.wrote(FILE, 0, 16384, writer(1, 2), Claim::Folio);
        let home = writers.split(FILE, 0, 16384);
        assert_eq!(pids(&home), [(0, 4096, 1), (4096, 8192, 2), (8192, 16384, 1)]);
        // Long after the call, the folio is dirtied by a store to mapped memory.
        writers.written_out(FILE, 0, 16384);
        writers.wrote(FILE, 0, 16384, writer(1, 3 + CALL_NS), Claim::Folio);
        assert_eq!(pids(&writers.split(FILE, 0, 16384)), [(0, 16384, 1)]);
    }

    #[test]
    fn a_removed_name_is_no_longer_that_of_what_was_written_by_it() {
        let mut writers = Writers::default();
        let by = |name: u64| Writer {
            through: name,
            ..writer(1, 0)
        };
        writers.wrote(FILE, 0, 4096, by(2), Claim::Call);
        writers.wrote(FILE, 4096, 8192, by(4), Claim::Call);
        writers.unnamed(FILE, 2);
        let parts = writers.split(FILE, 0, 8192);
        let names: Vec<u64> = parts
            .iter()
            .filter_map(|(_, _, one)| one.as_ref())
            .map(|one| one.through)
            .collect();
        assert_eq!(names, [0, 4]);
    }

    #[test]
    fn a_program_that_a_process_executes_is_another_writer_than_the_one_before() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 8192, writer(1, 0), Claim::Call);
        let mut executed = writer(1, 1);
        executed.process = Arc::new(Process {
            name: "executed".into(),
            ..(*executed.process).clone()
        });
        assert!(!writers.are_several(FILE));
        writers.wrote(FILE, 0, 4096, executed, Claim::Store);
        assert!(writers.are_several(FILE));
        let parts = writers.split(FILE, 0, 8192);
        let told: Vec<(&str, bool)> = parts
            .iter()
            .filter_map(|(_, _, one)| one.as_ref())
            .map(|one| (&*one.process.name, one.is_shared))
            .collect();
        assert_eq!(told, [("executed", true), ("w", false)]);
    }

    fn sure(parts: &[(u64, u64, Option<Writer>)]) -> Vec<(u64, u64, u32, bool)> {
        parts
            .iter()
            .map(|(start, end, writer)| {
                let writer = writer.as_ref().unwrap();
                (*start, *end, writer.process.pid, !writer.is_shared)
            })
            .collect()
    }

    #[test]
    fn a_store_takes_truncated_data_of_others_but_is_not_sure_of_it() {
        let mut writers = Writers::default();
        // Truncated unwritten, which is not told.
        writers.wrote(FILE, 0, 8192, writer(1, 0), Claim::Call);
        writers.wrote(FILE, 0, 16384, writer(2, 1), Claim::Store);
        assert_eq!(
            sure(&writers.split(FILE, 0, 16384)),
            [(0, 8192, 2, false), (8192, 16384, 2, true)]
        );
        // Data of others at home no longer waits.
        writers.written_out(FILE, 0, 16384);
        writers.wrote(FILE, 0, 16384, writer(3, 2), Claim::Store);
        assert_eq!(sure(&writers.split(FILE, 0, 16384)), [(0, 16384, 3, true)]);
    }

    #[test]
    fn a_store_after_a_call_elsewhere_takes_what_others_had_written() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 8192, writer(1, 0), Claim::Call);
        writers.written_out(FILE, 0, 8192);
        writers.wrote(FILE, 40960, 45056, writer(2, 1), Claim::Call);
        writers.wrote(FILE, 0, 4096, writer(2, 2), Claim::Store);
        assert_eq!(
            pids(&writers.split(FILE, 0, 8192)),
            [(0, 4096, 2), (4096, 8192, 1)]
        );
    }

    #[test]
    fn a_call_that_may_fail_is_not_sure_of_data_that_waits() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 4096, 8192, writer(1, 0), Claim::Call);
        writers.wrote(FILE, 0, 16384, writer(2, 1), Claim::CallToCome);
        assert_eq!(
            sure(&writers.split(FILE, 0, 16384)),
            [(0, 4096, 2, true), (4096, 8192, 2, false), (8192, 16384, 2, true)]
        );
        // A second one makes it no surer.
        writers.wrote(FILE, 4096, 12288, writer(2, 2), Claim::CallToCome);
        assert_eq!(
            sure(&writers.split(FILE, 4096, 12288)),
            [(4096, 8192, 2, false), (8192, 12288, 2, true)]
        );
    }

    #[test]
    fn what_no_call_covers_is_the_last_writers_and_says_so() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 4096, writer(1, 0), Claim::Call);
        let parts = writers.split(FILE, 0, 8192);
        assert_eq!(pids(&parts), [(0, 4096, 1), (4096, 8192, 1)]);
        assert_eq!(parts[1].2.as_ref().map(|w| w.quality), Some(CauseQuality::Inode));
        writers.forget(FILE);
        assert_eq!(pids(&writers.split(FILE, 0, 4096)), [(0, 4096, 0)]);
    }

    #[test]
    fn a_full_memory_keeps_the_last_writer_of_each_file() {
        let mut writers = Writers {
            limit: 64,
            ..Writers::default()
        };
        for page in 0..100 {
            writers.wrote(
                FILE,
                page * 8192,
                page * 8192 + 4096,
                writer(1, page * MERGE_NS),
                Claim::Call,
            );
        }
        assert!(writers.ranges <= 64);
        assert_eq!(pids(&writers.split(FILE, 0, 4096)), [(0, 4096, 1)]);
        assert!(writers.forgotten > 0);
    }

    #[test]
    fn many_small_files_are_forgotten_and_counted() {
        let mut writers = Writers {
            limit: 64,
            ..Writers::default()
        };
        for inode in 0..65 {
            let file = FileIdentity { inode, ..FILE };
            writers.wrote(file, 0, 4096, writer(1, 0), Claim::Call);
        }
        assert_eq!((writers.files.len(), writers.forgotten), (1, 64));
        let forgotten = FileIdentity { inode: 0, ..FILE };
        writers.wrote(forgotten, 0, 4096, writer(99, 1), Claim::Kernel);
        let parts = writers.split(forgotten, 0, 4096);
        assert!(
            parts[0].2.as_ref().expect("it is known").is_shared,
            "a kernel thread is no sure writer of what was forgotten"
        );
    }
}
