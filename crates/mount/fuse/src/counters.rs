//! Counters of a session, updated by the workers without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::abi::opcode;
use crate::stats::{OperationCount, SessionStats, SizeCount};

/// Size classes: up to 512 bytes, 1 KiB, ... 1 GiB.
const SIZE_CLASSES: usize = 22;
const SMALLEST_CLASS_BITS: u32 = 9;

#[derive(Default)]
struct Operation {
    count: AtomicU64,
    errors: AtomicU64,
}

#[derive(Default)]
struct Size {
    reads: AtomicU64,
    writes: AtomicU64,
}

/// Counters since the mount.
pub struct Counters {
    operations: [Operation; opcode::COUNT],
    sizes: [Size; SIZE_CLASSES],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    descriptor_shortages: AtomicU64,
}

impl Counters {
    pub fn new() -> Self {
        Self {
            operations: std::array::from_fn(|_| Operation::default()),
            sizes: std::array::from_fn(|_| Size::default()),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            descriptor_shortages: AtomicU64::new(0),
        }
    }

    pub fn operation(&self, opcode: u32, failed: bool) {
        let index = usize::try_from(opcode).unwrap_or(0);
        let slot = self.operations.get(index).unwrap_or(&self.operations[0]);
        slot.count.fetch_add(1, Relaxed);
        if failed {
            slot.errors.fetch_add(1, Relaxed);
        }
    }

    pub fn read(&self, bytes: usize) {
        self.sizes[class(bytes)].reads.fetch_add(1, Relaxed);
        self.read_bytes
            .fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
    }

    pub fn write(&self, bytes: usize) {
        self.sizes[class(bytes)].writes.fetch_add(1, Relaxed);
        self.written_bytes
            .fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Relaxed);
    }

    pub fn descriptor_shortage(&self) {
        self.descriptor_shortages.fetch_add(1, Relaxed);
    }

    pub fn snapshot(&self) -> SessionStats {
        let (voluntary, involuntary) = context_switches();
        let operations = (0u32..)
            .zip(&self.operations)
            .map(|(number, slot)| OperationCount {
                operation: opcode::name(number),
                count: slot.count.load(Relaxed),
                errors: slot.errors.load(Relaxed),
            })
            .filter(|operation| operation.count > 0)
            .collect();
        let sizes = (SMALLEST_CLASS_BITS..)
            .zip(&self.sizes)
            .map(|(bits, slot)| SizeCount {
                bytes_max: 1 << bits,
                reads: slot.reads.load(Relaxed),
                writes: slot.writes.load(Relaxed),
            })
            .filter(|size| size.reads + size.writes > 0)
            .collect();
        SessionStats {
            operations,
            sizes,
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            descriptor_shortages: self.descriptor_shortages.load(Relaxed),
            polls_found: 0,
            polls_missed: 0,
            names_invalidated: 0,
            inodes_invalidated: 0,
            everything_invalidated: 0,
            context_switches_voluntary: voluntary,
            context_switches_involuntary: involuntary,
        }
    }
}

fn class(bytes: usize) -> usize {
    let bits = bytes.next_power_of_two().trailing_zeros();
    usize::try_from(bits.saturating_sub(SMALLEST_CLASS_BITS)).map_or(0, |class| class.min(SIZE_CLASSES - 1))
}

/// Voluntary and involuntary context switches of all threads, from `/proc/self/task/*/status`.
fn context_switches() -> (u64, u64) {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return (0, 0);
    };
    let mut sum = (0, 0);
    for task in tasks.flatten() {
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        sum.0 += field("voluntary_ctxt_switches:");
        sum.1 += field("nonvoluntary_ctxt_switches:");
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_in_the_class_whose_limit_they_reach() {
        let counters = Counters::new();
        for bytes in [0, 1, 512, 513, 4096, 1 << 20] {
            counters.write(bytes);
        }
        let classes: Vec<(u64, u64)> = counters
            .snapshot()
            .sizes
            .iter()
            .map(|size| (size.bytes_max, size.writes))
            .collect();
        assert_eq!(classes, [(512, 3), (1024, 1), (4096, 1), (1 << 20, 1)]);
    }
}
