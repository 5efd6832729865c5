//! Memory that the host of a virtual machine takes back is kept in use between cells, so that no cell waits for it.
//!
//! With free page reporting (a feature of virtio's balloon) the host takes back free memory after seconds, in blocks of 2 MiB. The next use of
//! each page then waits for the host, about 10 us: a file of 256 MiB is written into the page cache at half the speed, or not, depending on what
//! ran before. Two seconds after a block became free, and every two seconds as long as more do, the kernel reports up to a sixteenth of all free
//! blocks, those first that became free last. Memory is therefore free only while a cell is measured: a short cell seldom has a report, one of
//! several seconds has.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::{Advice, MmapMut};
use programs::quantity::parse_bytes;

use crate::cell::Cell;

const PAGE_BYTES: usize = 4096;
/// A block, between two looks at whether the study is stopped.
const BLOCK_BYTES: usize = 2 << 20;
/// Copies of a workload's data: two page caches, and a card in memory.
const COPIES: u64 = 3;
/// Data of a thread of a workload without a given size, as of `bench file`.
const DATA_BYTES: u64 = 512 << 20;
/// Most that is used, seconds of waiting for the host.
const BYTES_MAX: u64 = 3 << 30;
/// Share of the free memory that is used at most.
const SHARE: u64 = 8;
/// `VIRTIO_BALLOON_F_REPORTING`: its place in the line of features in sysfs.
const REPORTING: usize = 5;
const BALLOONS: &str = "/sys/bus/virtio/drivers/virtio_balloon";

/// An amount that differs from what a cell needs by less than this share of it will do.
const NEAR_SHARE: u64 = 8;

/// Memory in use between cells. The page cache takes it first once it is free.
#[derive(Debug, Default)]
pub struct Held(RefCell<Option<MmapMut>>);

impl Held {
    /// Uses as much memory as a cell needs, unless about as much is held already; none where no host takes back free memory.
    pub fn hold(&self, cell: &Cell, stop: &AtomicBool) {
        if !host_takes_free_memory() {
            return;
        }
        let held = self.0.take();
        let held_bytes = held.as_ref().map_or(0, bytes_of);
        let bytes = bytes_to_use(cell, free_bytes().saturating_add(held_bytes));
        if held_bytes.abs_diff(bytes) <= bytes / NEAR_SHARE {
            self.0.replace(held);
        } else {
            drop(held);
            self.0.replace(used(bytes, stop));
        }
    }

    /// Frees the memory; its size, if there was any.
    pub fn free(&self) -> Option<u64> {
        self.0.take().as_ref().map(bytes_of)
    }
}

fn bytes_of(memory: &MmapMut) -> u64 {
    u64::try_from(memory.len()).unwrap_or(u64::MAX)
}

/// Free memory of the machine, or what its control groups leave to this process.
fn free_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let free = info.freeram.saturating_mul(info.mem_unit.into());
    groups()
        .iter()
        .filter_map(|group| left_in(group))
        .fold(free, u64::min)
}

/// Memory of this size, each page of it written.
fn used(bytes: u64, stop: &AtomicBool) -> Option<MmapMut> {
    let mut memory = MmapMut::map_anon(usize::try_from(bytes).ok()?).ok()?;
    // Whole blocks, as large pieces of the page cache are; without them single pages.
    let _ = memory.advise(Advice::HugePage);
    for block in memory.chunks_mut(BLOCK_BYTES) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for page in block.chunks_mut(PAGE_BYTES) {
            page[0] = 1;
        }
    }
    Some(memory)
}

/// Three times the data of all threads, as far as there is free memory for it.
fn bytes_to_use(cell: &Cell, free_bytes: u64) -> u64 {
    let data = parse_bytes(cell.value("workload.size")).unwrap_or(DATA_BYTES);
    let threads = ["workload.threads", "workload.numjobs"].map(|axis| cell.value(axis).parse::<u64>());
    let threads = threads.into_iter().flatten().max().unwrap_or(1);
    let wanted = data.saturating_mul(threads).saturating_mul(COPIES);
    wanted.min(BYTES_MAX).min(free_bytes / SHARE)
}

fn host_takes_free_memory() -> bool {
    let Ok(devices) = fs::read_dir(BALLOONS) else {
        return false;
    };
    devices.flatten().any(|device| {
        fs::read(device.path().join("features")).is_ok_and(|features| features.get(REPORTING) == Some(&b'1'))
    })
}

/// The control groups of this process that may limit its memory, and those above them (cgroups 2 and 1).
fn groups() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let places: Vec<PathBuf> = own.lines().filter_map(place_of).collect();
    let above = places.iter().flat_map(|place| place.ancestors());
    above.map(Path::to_owned).collect()
}

/// The folder of a line of `/proc/self/cgroup`, if it is of the memory controller.
fn place_of(line: &str) -> Option<PathBuf> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let root = match controllers {
        "" => "/sys/fs/cgroup",
        names if names.split(',').any(|name| name == "memory") => "/sys/fs/cgroup/memory",
        _ => return None,
    };
    Some(Path::new(root).join(path.trim_start_matches('/')))
}

/// Memory that a control group may still take, if it has a limit. Its pages of files count as free: they make way.
fn left_in(group: &Path) -> Option<u64> {
    let number = |name: &str| {
        let text = fs::read_to_string(group.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let limits = [
        ("memory.max", "memory.current"),
        ("memory.high", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ];
    let of_files = file_bytes_in(group);
    let left = |(limit, used)| {
        let used = number(used)?.saturating_sub(of_files);
        Some(number(limit)?.saturating_sub(used))
    };
    limits.into_iter().filter_map(left).min()
}

/// Bytes of a control group's pages of files.
fn file_bytes_in(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let values = text.lines().filter_map(|line| line.split_once(' '));
    let of_files = values.filter(|(name, _)| ["active_file", "inactive_file"].contains(name));
    of_files.filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_may_limit_memory_are_found() {
        let of = |line| place_of(line).map(|place| place.display().to_string());
        assert_eq!(of("0::/a.slice/b"), Some("/sys/fs/cgroup/a.slice/b".into()));
        assert_eq!(of("4:memory:/a"), Some("/sys/fs/cgroup/memory/a".into()));
        assert_eq!(of("3:cpu,memory:/"), Some("/sys/fs/cgroup/memory/".into()));
        assert_eq!(of("8:pids:/"), None);
    }

    #[test]
    fn three_copies_of_the_data_of_all_threads_are_used_if_there_is_memory() {
        let of = |axes: &[(&str, &str)], free| {
            let cell = Cell(crate::plan::Values::new());
            let cell = axes
                .iter()
                .fold(cell, |cell, (axis, value)| cell.with(axis, value));
            bytes_to_use(&cell, free)
        };
        let much = 16 << 30;
        assert_eq!(of(&[], much), 3 * DATA_BYTES);
        assert_eq!(of(&[("workload.size", "64m")], much), 192 << 20);
        let threads = [("workload.size", "64m"), ("workload.threads", "4")];
        assert_eq!(of(&threads, much), 768 << 20);
        assert_eq!(of(&threads, 1 << 30), 128 << 20);
        assert_eq!(of(&[("workload.size", "8g")], 64 << 30), BYTES_MAX);
    }

    #[test]
    fn the_rest_below_a_limit_is_what_may_be_used() {
        let group = tempfile::tempdir().unwrap();
        let set = |name: &str, value: &str| fs::write(group.path().join(name), value).unwrap();
        assert_eq!(left_in(group.path()), None);
        set("memory.max", "max\n");
        set("memory.current", "300\n");
        assert_eq!(left_in(group.path()), None);
        set("memory.max", "1000\n");
        assert_eq!(left_in(group.path()), Some(700));
        set("memory.stat", "anon 100\ninactive_file 50\nactive_file 50\n");
        assert_eq!(left_in(group.path()), Some(800));
        set("memory.high", "900\n");
        assert_eq!(left_in(group.path()), Some(700));
        set("memory.current", "2000\n");
        assert_eq!(left_in(group.path()), Some(0));
    }
}
