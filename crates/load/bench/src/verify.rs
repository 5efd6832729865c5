//! Verification: compares a file's content with the data written.
//!
//! Content is a function of seed, offset and generation (see [`crate::data`]), so only the number of writes of each
//! record must be stored: four bytes per record. This works for any order of overlapping writes, and detects lost
//! writes as well as misplaced ones.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::retry_on_intr;

use crate::data::{AlignedMemory, Content};
use crate::error::BenchError;
use crate::progress::{Phase, Progress};
use crate::spec::{FileSpec, Pattern};
use crate::worker::Operation;

/// The number of writes of each record in a worker's region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    written: Vec<u32>,
}

impl Generations {
    /// All records are unwritten.
    pub fn new(records: u64) -> Self {
        Self {
            written: vec![0; place_of(records)],
        }
    }

    /// The number of writes of a record.
    pub fn of(&self, record: u64) -> u32 {
        self.written.get(place_of(record)).copied().unwrap_or(0)
    }

    /// Counts another write of the record, and returns its generation.
    pub fn next(&mut self, record: u64) -> u32 {
        let place = place_of(record);
        if place >= self.written.len() {
            // A time-based append continues beyond the expected size.
            self.written.resize(place + 1, 0);
        }
        let generation = &mut self.written[place];
        *generation = generation.wrapping_add(1).max(1);
        *generation
    }

    fn records(&self) -> u64 {
        u64::try_from(self.written.len()).unwrap_or(u64::MAX)
    }
}

fn place_of(record: u64) -> usize {
    usize::try_from(record).expect("a table of records is in memory")
}

/// The expected content of a worker's records.
#[derive(Debug)]
pub struct Expected {
    written: Content,
    prepared: Option<Content>,
}

impl Expected {
    /// For worker `index`, whose region lies in the file of that worker.
    pub fn new(spec: &FileSpec, index: u32) -> Self {
        let record = place_of(spec.record_bytes);
        Self {
            written: Content::written(record, spec.data, written_seed(spec, index)),
            // An append writes after the prepared content.
            prepared: (spec.starts_with_content() && spec.pattern != Pattern::Append)
                .then(|| Content::prepared(record, spec.data, prepared_seed(spec, spec.file_of(index)))),
        }
    }

    /// The content of the record at `offset`; `None` if it was never written.
    pub fn at(&mut self, offset: u64, generation: u32) -> Option<&[u8]> {
        if generation > 0 {
            Some(self.written.at(offset, generation))
        } else {
            self.prepared.as_mut().map(|prepared| prepared.at(offset, 0))
        }
    }
}

/// A worker's state of verification.
#[derive(Debug)]
pub struct Check {
    pub generations: Generations,
    expected: Expected,
}

impl Check {
    /// For worker `index`.
    pub fn new(spec: &FileSpec, index: u32) -> Self {
        Self {
            generations: Generations::new(spec.records()),
            expected: Expected::new(spec, index),
        }
    }

    /// Compares what an operation has read with what was last written there.
    pub fn compare(&mut self, path: &Path, operation: Operation, found: &[u8]) -> Result<(), BenchError> {
        match self.expected.at(operation.offset, operation.generation) {
            Some(expected) => compare(path, operation.offset, expected, found),
            None => Ok(()),
        }
    }
}

/// Seed of the data written by worker `index`.
pub fn written_seed(spec: &FileSpec, index: u32) -> u64 {
    spec.seed.wrapping_add(u64::from(index))
}

/// Seed of the initial content of file `number`: it differs from the written data, so that overwriting changes it.
pub fn prepared_seed(spec: &FileSpec, number: u32) -> u64 {
    const PREPARED: u64 = 0x7072_6570_0000_0000;
    spec.seed.wrapping_add(u64::from(number)) ^ PREPARED
}

/// Fails if a record differs from the expected content.
pub fn compare(path: &Path, offset: u64, expected: &[u8], found: &[u8]) -> Result<(), BenchError> {
    if expected == found {
        return Ok(());
    }
    let place = expected
        .iter()
        .zip(found)
        .take_while(|(one, other)| one == other)
        .count();
    let excerpt = |bytes: &[u8]| {
        let shown = bytes[place.min(bytes.len())..].iter().take(8);
        shown.map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    Err(BenchError::Mismatch {
        path: path.to_owned(),
        offset_bytes: offset.saturating_add(u64::try_from(place).unwrap_or(0)),
        expected: excerpt(expected),
        found: excerpt(found),
    })
}

/// The result of reading back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBack {
    /// Number of compared records.
    pub records: u64,
    /// Number of compared bytes.
    pub bytes: u64,
}

/// Reads and compares every written or prepared record of all workers.
pub fn read_back(
    spec: &FileSpec,
    files: &[PathBuf],
    parts: &[(u32, Generations)],
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<ReadBack, BenchError> {
    let length = place_of(spec.record_bytes);
    let mut memory = AlignedMemory::new(length, 0);
    let mut done = ReadBack::default();
    let total: u64 = parts.iter().map(|(_, part)| part.records()).sum();
    for (index, generations) in parts {
        let path = &files[place_of(u64::from(spec.file_of(*index)))];
        let file = File::open(path).map_err(|error| BenchError::io("open", path, error))?;
        let mut expected = Expected::new(spec, *index);
        for record in 0..generations.records() {
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
            let generation = generations.of(record);
            let offset = spec.base_of(*index) + record * spec.record_bytes;
            let Some(expected) = expected.at(offset, generation) else {
                continue;
            };
            let found = memory.as_mut_slice();
            read_exact(path, &file, offset, found)?;
            compare(path, offset, expected, found)?;
            done.records += 1;
            done.bytes += spec.record_bytes;
            if done.records % 256 == 1 {
                progress.advance(Phase::Verify, done.records.min(total), total);
            }
        }
    }
    progress.advance(Phase::Verify, total, total);
    Ok(done)
}

fn read_exact(path: &Path, file: &File, offset: u64, record: &mut [u8]) -> Result<(), BenchError> {
    let mut done = 0;
    while done < record.len() {
        let place = offset + u64::try_from(done).unwrap_or(0);
        let rest = &mut record[done..];
        let missing = rest.len();
        match retry_on_intr(|| rustix::io::pread(file, &mut *rest, place)) {
            Ok(0) => {
                return Err(BenchError::ShortRead {
                    path: path.to_owned(),
                    offset_bytes: place,
                    missing_bytes: u64::try_from(missing).unwrap_or(0),
                });
            }
            Ok(moved) => done += moved,
            Err(errno) => return Err(BenchError::data("read", path, place, errno)),
        }
    }
    Ok(())
}
