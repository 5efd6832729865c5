//! Who made which bytes of which file dirty, last.
//!
//! Ranges come from write calls and from folios that became dirty; a later one takes the place of what it covers. A
//! kernel thread that makes a folio dirty again (the journal, write-back) takes nobody's place.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use results::block_trace::{CauseQuality, FileIdentity, Process};

/// Ranges kept over all files: some 100 MB. Beyond it, files are forgotten but for their last writer.
const MAX_RANGES: usize = 1 << 20;
/// Neighbouring ranges of one thread this close in time are one.
const MERGE_NS: u64 = 100_000_000;

/// A process and when it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub process: Arc<Process>,
    pub quality: CauseQuality,
    pub time: u64,
}

#[derive(Debug)]
struct Range {
    end: u64,
    writer: Writer,
}

#[derive(Debug)]
struct File {
    ranges: BTreeMap<u64, Range>,
    last: Writer,
}

/// The last writers of all files.
#[derive(Debug)]
pub(crate) struct Writers {
    files: HashMap<FileIdentity, File>,
    ranges: usize,
    limit: usize,
    /// Files that were forgotten for want of room.
    pub forgotten: u64,
}

impl Default for Writers {
    fn default() -> Self {
        Self {
            files: HashMap::new(),
            ranges: 0,
            limit: MAX_RANGES,
            forgotten: 0,
        }
    }
}

impl Writers {
    /// `writer` made `start..end` of the file dirty.
    pub(crate) fn wrote(
        &mut self,
        file: FileIdentity,
        start: u64,
        end: u64,
        writer: Writer,
        by_kernel: bool,
    ) {
        if start >= end {
            return;
        }
        if self.ranges >= self.limit {
            self.make_room();
        }
        let entry = self.files.entry(file).or_insert_with(|| File {
            ranges: BTreeMap::new(),
            last: writer.clone(),
        });
        let before = entry.ranges.len();
        if by_kernel {
            for (gap_start, gap_end) in entry.gaps(start, end) {
                entry.put(gap_start, gap_end, writer.clone());
            }
        } else {
            entry.last = writer.clone();
            entry.put(start, end, writer);
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

    /// The file is gone.
    pub(crate) fn forget(&mut self, file: FileIdentity) {
        if let Some(entry) = self.files.remove(&file) {
            self.ranges = self.ranges.saturating_sub(entry.ranges.len());
        }
    }

    fn make_room(&mut self) {
        for entry in self.files.values_mut().filter(|entry| entry.ranges.len() > 16) {
            entry.ranges.clear();
            self.forgotten += 1;
        }
        self.ranges = self.files.values().map(|entry| entry.ranges.len()).sum();
        if self.ranges >= self.limit / 2 {
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

    fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (range_start, range) in self.overlapping(start, end) {
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

    fn put(&mut self, start: u64, end: u64, writer: Writer) {
        let covered: Vec<u64> = self.overlapping(start, end).map(|(at, _)| at).collect();
        for at in covered {
            let Some(range) = self.ranges.remove(&at) else {
                continue;
            };
            if at < start {
                let writer = range.writer.clone();
                self.ranges.insert(at, Range { end: start, writer });
            }
            if range.end > end {
                self.ranges.insert(end, range);
            }
        }
        if let Some((_, before)) = self.ranges.range_mut(..start).next_back()
            && before.end == start
            && before.writer.process == writer.process
            && before.writer.quality == writer.quality
            && writer.time.saturating_sub(before.writer.time) < MERGE_NS
        {
            before.end = end;
            return;
        }
        self.ranges.insert(start, Range { end, writer });
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
        writers.wrote(FILE, 0, 65536, writer(1, 0), false);
        writers.wrote(FILE, 8192, 12288, writer(2, 1), false);
        writers.wrote(FILE, 61440, 65536, writer(3, 2), false);
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
        writers.wrote(FILE, 0, 4096, writer(1, 0), false);
        writers.wrote(FILE, 0, 8192, writer(99, 1), true);
        assert_eq!(
            pids(&writers.split(FILE, 0, 8192)),
            [(0, 4096, 1), (4096, 8192, 99)]
        );
    }

    #[test]
    fn what_no_call_covers_is_the_last_writers_and_says_so() {
        let mut writers = Writers::default();
        writers.wrote(FILE, 0, 4096, writer(1, 0), false);
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
                false,
            );
        }
        assert!(writers.ranges <= 64);
        assert_eq!(pids(&writers.split(FILE, 0, 4096)), [(0, 4096, 1)]);
        assert!(writers.forgotten > 0);
    }
}
