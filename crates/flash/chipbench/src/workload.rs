//! The workloads of seeds/001 section 4.3 on one file: records written with `O_SYNC`, and read without a cache.

use bench::Permutation;
use media::Nanos;
use rustix::fs::OFlags;
use vfs::FileSystem;

use crate::error::{Result, ensure};
use crate::simulated_chips::{Mounted, OpenFile, Shape, SimulatedChips};

/// The workloads in execution order: each starts from the result of the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Writes a new file sequentially.
    Write,
    /// Rewrites it sequentially.
    Rewrite,
    /// Rewrites it in random order.
    RandomWrite,
    /// Reads it sequentially.
    Read,
    /// Reads it in random order.
    RandomRead,
}

impl Workload {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [
        Self::Write,
        Self::Rewrite,
        Self::RandomWrite,
        Self::Read,
        Self::RandomRead,
    ];

    /// Name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Rewrite => "rewrite",
            Self::RandomWrite => "random write",
            Self::Read => "cold read",
            Self::RandomRead => "cold random read",
        }
    }

    /// Whether it writes the file.
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Rewrite | Self::RandomWrite)
    }

    const fn is_random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::RandomRead)
    }

    /// Number of the pass whose content the file has after this workload.
    const fn pass(self) -> u64 {
        match self {
            Self::Write => 1,
            Self::Rewrite => 2,
            Self::RandomWrite | Self::Read | Self::RandomRead => 3,
        }
    }
}

/// Seed of the random order.
const SEED: u64 = 1;

/// Makes a file system and runs all workloads; returns the time of each. Calls `each` after each workload.
pub(crate) fn run(
    shape: Shape,
    record_bytes: u64,
    total_bytes: u64,
    each: &mut dyn FnMut(),
) -> Result<Vec<(Workload, Nanos)>> {
    let chips = SimulatedChips::formatted(shape)?;
    let records = total_bytes / record_bytes;
    let mut record = vec![0; usize::try_from(record_bytes)?];
    let mut took = Vec::new();
    for workload in Workload::ALL {
        let mounted = chips.mount()?;
        let file = mounted.open_file("file")?;
        let order = Permutation::new(records, SEED);
        let place = |number| match workload.is_random() {
            true => order.at(number),
            false => number,
        };
        let places = (0..records).map(place);
        let time = match workload.writes() {
            true => write(&mounted, file, workload, places, &mut record)?,
            false => read(&mounted, file, workload, places, &mut record)?,
        };
        took.push((workload, time));
        mounted.file_system.release(file.ino, file.handle);
        mounted.unmount()?;
        each();
    }
    Ok(took)
}

/// The time includes the final commit, so deferred work counts.
fn write(
    mounted: &Mounted,
    file: OpenFile,
    workload: Workload,
    places: impl Iterator<Item = u64>,
    record: &mut [u8],
) -> Result<Nanos> {
    let bytes = u64::try_from(record.len())?;
    mounted.took(|file_system| {
        for place in places {
            fill(place, workload.pass(), record);
            file.write(file_system, place * bytes, record, OFlags::SYNC)?;
        }
        Ok(file_system.sync()?)
    })
}

fn read(
    mounted: &Mounted,
    file: OpenFile,
    workload: Workload,
    places: impl Iterator<Item = u64>,
    record: &mut [u8],
) -> Result<Nanos> {
    let bytes = u64::try_from(record.len())?;
    let mut expected = record.to_vec();
    mounted.took(|file_system| {
        for place in places {
            file.read(file_system, place * bytes, record)?;
            fill(place, workload.pass(), &mut expected);
            ensure(*record == *expected, || {
                format!("record {place} came back with other content")
            })?;
        }
        Ok(())
    })
}

/// Content of a record after a pass; no two are alike.
fn fill(record: u64, pass: u64, out: &mut [u8]) {
    let mut state = (record << 2 | pass).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for word in out.chunks_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_records_and_no_two_passes_are_alike() {
        let mut seen = std::collections::BTreeSet::new();
        for record in 0..50 {
            for pass in 1..=3 {
                let mut content = vec![0; 20];
                fill(record, pass, &mut content);
                assert!(seen.insert(content), "record {record}, pass {pass}");
            }
        }
    }
}
