//! The model of one file, inferred from the calls of a trace: its size, and its minimum initial size.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::InitialFile;

/// Ranges read within this distance are filled together.
const GRAIN_BYTES: u64 = 64 << 10;

/// Files up to this size are filled completely; larger ones only in the ranges that are read, with holes elsewhere.
const WHOLE_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct FileModel {
    /// Path at the start of the trace; `None` if the trace created the file.
    pub origin: Option<PathBuf>,
    /// True if the file certainly existed at the start.
    pub must_exist: bool,
    pub size: u64,
    pub initial_size: u64,
    pub reads: BTreeMap<u64, u64>,
    pub was_cut: bool,
    pub grown: u64,
}

impl FileModel {
    pub fn read(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        if bytes == 0 || self.was_cut {
            return;
        }
        if end > self.size {
            self.must_have(end);
        }
        let end = end.min(self.initial_size.max(self.size));
        if end > offset {
            insert_grains(&mut self.reads, offset, end);
        }
    }

    /// Records that the file has at least `size` bytes; unless earlier writes explain them, it had them from the
    /// start.
    pub fn must_have(&mut self, size: u64) {
        if size > self.size && !self.was_cut {
            self.initial_size = self.initial_size.max(size);
            self.size = size;
        }
    }

    pub fn write(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        if end > self.size && bytes > 0 {
            self.grown = self.grown.saturating_add(bytes.min(end - self.size));
            self.size = end;
        }
    }

    pub fn resize(&mut self, size: u64) {
        // Data read beyond this size was not in the initial file.
        self.was_cut |= size < self.size || size == 0;
        self.size = size;
    }

    pub fn into_initial(self) -> InitialFile {
        let bytes = self.initial_size;
        let filled = if bytes == 0 {
            Vec::new()
        } else if bytes <= WHOLE_BYTES {
            vec![(0, bytes)]
        } else {
            let clipped = self.reads.into_iter().map(|(start, end)| (start, end.min(bytes)));
            clipped.filter(|(start, end)| start < end).collect()
        };
        InitialFile { bytes, filled }
    }
}

/// Adds the range of a call, extended to whole grains.
pub(super) fn insert_grains(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    insert_range(ranges, start / GRAIN_BYTES * GRAIN_BYTES, end);
}

/// Adds a range to an ascending set of disjoint ranges.
fn insert_range(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let (mut start, mut end) = (start, end);
    while let Some((&before, &until)) = ranges.range(..=end).next_back() {
        if until < start {
            break;
        }
        ranges.remove(&before);
        start = start.min(before);
        end = end.max(until);
    }
    ranges.insert(start, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_stay_apart() {
        let mut ranges = BTreeMap::new();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (0, 5), (24, 31), (50, 60)] {
            insert_range(&mut ranges, start, end);
        }
        assert_eq!(Vec::from_iter(ranges), [(0, 5), (10, 40), (50, 60)]);
    }
}
