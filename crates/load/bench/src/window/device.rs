//! Counters of the block device below a directory, from `/sys/dev/block/MAJOR:MINOR/stat`.
//!
//! The device is the one whose number the file system reports for its files: the partition, the loop or mapped
//! device, not the devices below that. File systems with their own device numbers (FUSE, tmpfs, btrfs, overlays) have
//! none.

use std::fs;
use std::path::{Path, PathBuf};

use results::counter;

/// The kernel counts in units of 512 bytes here, whatever the device's sector size.
const STAT_SECTOR_BYTES: u64 = 512;

/// Location of the counters of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    stat: PathBuf,
    /// The kernel does not count flushes of partitions.
    is_partition: bool,
}

impl Device {
    /// Finds the device below `directory`; the error says why the directory has no device.
    pub fn below(directory: &Path) -> Result<Self, String> {
        let status = rustix::fs::stat(directory)
            .map_err(|errno| format!("{} can't be examined: {errno}", directory.display()))?;
        let (major, minor) = (rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev));
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let stat = folder.join("stat");
        if !stat.exists() {
            return Err(format!(
                "{} is on a file system without a block device of its own (device number {major}:{minor})",
                directory.display()
            ));
        }
        Ok(Self {
            stat,
            is_partition: folder.join("partition").exists(),
        })
    }

    /// Reads the counters; `None` if the device is gone.
    pub fn snapshot(&self) -> Option<DeviceSnapshot> {
        DeviceSnapshot::parse(&fs::read_to_string(&self.stat).ok()?, self.is_partition)
    }
}

/// Counters of one device, since boot or as a difference between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSnapshot {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Kernels before 4.18 do not count discards.
    pub discards: Option<u64>,
    pub discarded_bytes: Option<u64>,
    /// Kernels before 5.5 do not count flushes, and no kernel counts those of partitions.
    pub flushes: Option<u64>,
    /// Time during which the device had requests in flight.
    pub busy_ms: u64,
}

impl DeviceSnapshot {
    fn parse(text: &str, is_partition: bool) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        let field = |place: usize| fields.get(place).copied();
        let bytes = |place: usize| field(place).map(|sectors| sectors.saturating_mul(STAT_SECTOR_BYTES));
        Some(Self {
            reads: field(0)?,
            read_bytes: bytes(2)?,
            writes: field(4)?,
            written_bytes: bytes(6)?,
            busy_ms: field(9)?,
            discards: field(11),
            discarded_bytes: bytes(13),
            flushes: if is_partition { None } else { field(15) },
        })
    }

    /// The difference since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let both = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
            discards: both(self.discards, earlier.discards),
            discarded_bytes: both(self.discarded_bytes, earlier.discarded_bytes),
            flushes: both(self.flushes, earlier.flushes),
        }
    }

    /// Names and values for a run record.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            (counter::DEVICE_READS, Some(self.reads)),
            (counter::DEVICE_READ, Some(self.read_bytes)),
            (counter::DEVICE_WRITES, Some(self.writes)),
            (counter::DEVICE_WRITTEN, Some(self.written_bytes)),
            (counter::DEVICE_DISCARDS, self.discards),
            (counter::DEVICE_DISCARDED, self.discarded_bytes),
            (counter::DEVICE_FLUSHES, self.flushes),
            (counter::DEVICE_BUSY, Some(self.busy_ms)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "   10 1 80 5 20 2 160 6 0 70 11 3 0 24 1 9 2\n";

    #[test]
    fn every_field_is_read_from_its_place() {
        let found = DeviceSnapshot::parse(LINE, false).unwrap();
        let expected = DeviceSnapshot {
            reads: 10,
            read_bytes: 80 * 512,
            writes: 20,
            written_bytes: 160 * 512,
            discards: Some(3),
            discarded_bytes: Some(24 * 512),
            flushes: Some(9),
            busy_ms: 70,
        };
        assert_eq!(found, expected);
        assert_eq!(found.since(&DeviceSnapshot::default()).discards, None);
        assert_eq!(found.since(&found).counters().count(), 8);
    }

    #[test]
    fn a_partition_and_an_old_kernel_have_fewer_counters() {
        assert_eq!(DeviceSnapshot::parse(LINE, true).unwrap().flushes, None);
        let old = DeviceSnapshot::parse("10 1 80 5 20 2 160 6 0 70 11", false).unwrap();
        assert_eq!((old.discards, old.flushes), (None, None));
        assert_eq!(DeviceSnapshot::parse("10 1 80", false), None);
    }
}
