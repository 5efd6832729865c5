//! Memory that the host of a virtual machine has taken back is used before a cell, not during its measurement.
//!
//! With free page reporting (a feature of virtio's balloon) the host takes back free memory after seconds, in blocks of 2 MiB. The next use of
//! each page then waits for the host, about 10 us: a file of 256 MiB is written into the page cache at half the speed, or not, depending on what
//! ran before.

use std::fs;
use std::hint::black_box;

use memmap2::{Advice, MmapMut};
use programs::quantity::parse_bytes;

use crate::cell::Cell;

const PAGE_BYTES: usize = 4096;
/// Copies of a workload's data: two page caches, and a card in memory.
const COPIES: u64 = 3;
/// Data of a workload without a given size.
const DATA_BYTES: u64 = 256 << 20;
/// Share of the free memory that is used at most.
const SHARE: u64 = 8;
/// `VIRTIO_BALLOON_F_REPORTING`: its place in the line of features in sysfs.
const REPORTING: usize = 5;
const BALLOONS: &str = "/sys/bus/virtio/drivers/virtio_balloon";

/// Writes to as much free memory as a cell needs and frees it again: the page cache takes that first. Does nothing where no host takes back
/// free memory.
pub fn use_free_memory(cell: &Cell) {
    if !host_takes_free_memory() {
        return;
    }
    let data = parse_bytes(cell.value("workload.size")).unwrap_or(DATA_BYTES);
    let info = rustix::system::sysinfo();
    let free = info.freeram.saturating_mul(info.mem_unit.into());
    let Ok(bytes) = usize::try_from(data.saturating_mul(COPIES).min(free / SHARE)) else {
        return;
    };
    let Ok(mut memory) = MmapMut::map_anon(bytes) else {
        return;
    };
    // Whole blocks, as large pieces of the page cache are; without them single pages.
    let _ = memory.advise(Advice::HugePage);
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    black_box(&memory);
}

fn host_takes_free_memory() -> bool {
    let Ok(devices) = fs::read_dir(BALLOONS) else {
        return false;
    };
    devices.flatten().any(|device| {
        fs::read(device.path().join("features")).is_ok_and(|features| features.get(REPORTING) == Some(&b'1'))
    })
}
