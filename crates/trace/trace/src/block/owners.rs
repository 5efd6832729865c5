//! The last owner of each sector, by which a discard, which carries no data, is attributed to the data that it
//! discards.

use std::collections::BTreeMap;

use formats::pieces::{cut, end};
use results::block_trace::Run;

/// Maximum number of ranges for one device; when it is reached, all are forgotten.
const MAX_RANGES: usize = 1 << 20;

/// The last owners of a device's sectors.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// By first sector; each run as it was written. They do not overlap.
    ranges: BTreeMap<u64, Run>,
    /// Number of times that the limit was reached.
    pub forgotten: u64,
}

impl Owners {
    /// Records that a run was written.
    pub(crate) fn wrote(&mut self, run: &Run) {
        if self.ranges.len() >= MAX_RANGES {
            self.ranges.clear();
            self.forgotten += 1;
        }
        self.clear(run.sector, end(run));
        if let Some((_, before)) = self.ranges.range_mut(..run.sector).next_back()
            && end(before) == run.sector
            && continues(before, run)
        {
            before.bytes += run.bytes;
            return;
        }
        self.ranges.insert(run.sector, run.clone());
    }

    /// Records were lost, perhaps of writes: forgets all.
    pub(crate) fn lose(&mut self) {
        self.ranges.clear();
    }

    /// Splits a range of sectors by owner, in order and without gaps, and forgets it.
    pub(crate) fn take(&mut self, sector: u64, bytes: u64) -> Vec<Run> {
        let stop = sector + bytes.div_ceil(512);
        let mut runs = Vec::new();
        let mut at = sector;
        for run in self.overlapping(sector, stop) {
            if run.sector > at {
                runs.push(Run::unknown(at, (run.sector - at) * 512));
            }
            let part = cut(run, sector, stop);
            at = end(&part);
            runs.push(part);
        }
        if at < stop {
            runs.push(Run::unknown(at, (stop - at) * 512));
        }
        self.clear(sector, stop);
        runs
    }

    fn overlapping(&self, start: u64, stop: u64) -> impl Iterator<Item = &Run> {
        let before = self.ranges.range(..start).next_back();
        before
            .into_iter()
            .chain(self.ranges.range(start..stop))
            .map(|(_, run)| run)
            .filter(move |run| end(run) > start)
    }

    fn clear(&mut self, start: u64, stop: u64) {
        let covered: Vec<u64> = self.overlapping(start, stop).map(|run| run.sector).collect();
        for at in covered {
            let Some(run) = self.ranges.remove(&at) else {
                continue;
            };
            if run.sector < start {
                self.ranges.insert(at, cut(&run, at, start));
            }
            if end(&run) > stop {
                self.ranges.insert(stop, cut(&run, stop, end(&run)));
            }
        }
    }
}

fn continues(before: &Run, run: &Run) -> bool {
    before.file.is_some()
        && before.file == run.file
        && before.path == run.path
        && before.block_type == run.block_type
        && before.cause == run.cause
        && before.file_offset.map(|offset| offset + before.bytes) == run.file_offset
}

#[cfg(test)]
mod tests {
    use results::block_trace::{BlockType, DeviceNumber, FileIdentity};

    use super::*;

    fn data(sector: u64, bytes: u64, inode: u64, offset: u64) -> Run {
        Run {
            block_type: BlockType::Data,
            file: Some(FileIdentity {
                file_system: DeviceNumber { major: 7, minor: 0 },
                inode,
                generation: 1,
            }),
            file_offset: Some(offset),
            ..Run::unknown(sector, bytes)
        }
    }

    #[test]
    fn a_discard_is_named_by_all_that_it_throws_away() {
        let mut owners = Owners::default();
        owners.wrote(&data(0, 8192, 11, 0));
        owners.wrote(&data(16, 8192, 11, 8192));
        owners.wrote(&data(40, 4096, 12, 0));
        let runs = owners.take(8, 40 * 512);
        let told: Vec<_> = runs
            .iter()
            .map(|run| (run.sector, run.bytes, run.file.map(|f| f.inode), run.file_offset))
            .collect();
        assert_eq!(
            told,
            [
                (8, 24 * 512, Some(11), Some(4096)),
                (32, 8 * 512, None, None),
                (40, 8 * 512, Some(12), Some(0))
            ]
        );
        assert_eq!(
            owners.take(0, 8192).len(),
            2,
            "the first 4 KiB are known yet, the rest is not"
        );
    }
}
