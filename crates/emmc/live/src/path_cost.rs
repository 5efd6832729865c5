//! The kernel's share of a request's latency on both sides of a live card, and its measurement.
//!
//! A request passes the loop device and FUSE before it arrives here, and its answer takes the same way back; each
//! side wakes one or two threads and copies the data once. A client of the block device sees that in addition to the
//! model's time. So each request counts as having arrived earlier by the latency of its way here, and is answered
//! earlier by that of its way back: the client sees it complete at the model's time.
//!
//! The latencies are measured when a card is attached, on the device itself, by a *rehearsal*: requests that are
//! answered after a fixed time and have no effect. The client is a thread of the same process, so both ends read the
//! same clock. Between two requests the processors go idle, as between real requests. The result is the median of
//! several tries.
//!
//! Not included: the client's time between two requests, and the overhead of a file system.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use media::Nanos;
use nand::TimeSource;
use results::block_trace::Operation;

use crate::{LiveDevice, LiveError};

/// Smallest and largest request of the block device.
const SIZES: [u64; 2] = [4096, 512 << 10];

/// Number of measurements of each kind of request.
const TRIES: usize = 9;

/// Response time of a rehearsal, real time: shorter than that of most cards, long enough for idle processors to sleep.
const ANSWER_AFTER: Nanos = Nanos::from_millis(1);

/// Maximum plausible latency, real time; more is due to other load on the machine.
const WAY_MAX: Nanos = Nanos::from_millis(1);

/// Memory alignment required by O_DIRECT.
const ALIGNMENT: usize = 4096;

/// Latencies on the way of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// From the client's call to the arrival here.
    pub before: Nanos,
    /// From the answer to the return of the client's call.
    pub after: Nanos,
}

/// The latencies of all requests, in the time of the card's clock; zero by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCost {
    /// Reads of 4 KiB and of 512 KiB.
    pub reads: [Way; 2],
    /// Writes of the same sizes.
    pub writes: [Way; 2],
}

impl PathCost {
    /// The latencies of a request with `bytes` bytes of data. Requests without data count as small writes.
    #[must_use]
    pub fn of(&self, operation: Operation, bytes: u64) -> Way {
        let [small, large] = match operation {
            Operation::Read => self.reads,
            _ => self.writes,
        };
        let above = bytes.clamp(SIZES[0], SIZES[1]) - SIZES[0];
        let between = |small: Nanos, large: Nanos| {
            let slope = large.saturating_sub(small).0;
            small + Nanos(slope * above / (SIZES[1] - SIZES[0]))
        };
        Way {
            before: between(small.before, large.before),
            after: between(small.after, large.after),
        }
    }

    /// The longest latency of an answer.
    #[must_use]
    pub fn longest_after(&self) -> Nanos {
        let ways = self.reads.iter().chain(&self.writes);
        ways.map(|way| way.after).max().unwrap_or_default()
    }

    /// Measures the latencies of `device`, which is behind `block_device` and not in use yet. Its data stays
    /// unchanged.
    ///
    /// # Errors
    /// If the block device can't be opened, read or written with direct I/O.
    pub fn measure<T: TimeSource + Sync>(
        device: &LiveDevice<T>,
        block_device: &Path,
    ) -> Result<Self, LiveError> {
        let measured = rehearse(device, block_device);
        device.rehearsal().end();
        measured.map_err(|source| LiveError::Rehearsal {
            device: block_device.to_owned(),
            source,
        })
    }
}

fn rehearse<T: TimeSource + Sync>(device: &LiveDevice<T>, block_device: &Path) -> io::Result<PathCost> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(block_device)?;
    let mut memory = vec![0; usize::try_from(SIZES[1]).expect("memory has room") + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let mut path = PathCost::default();
    let (answer_after, way_max) = (device.time().during(ANSWER_AFTER), device.time().during(WAY_MAX));
    // The large ones first: they touch the memory of the threads that serve the small ones too.
    for (place, bytes) in SIZES.into_iter().enumerate().rev() {
        let length = usize::try_from(bytes.min(device.store().size_bytes())).expect("memory has room");
        let data = &mut memory[start..start + length];
        for (ways, writes) in [(&mut path.reads, false), (&mut path.writes, true)] {
            let mut tried = Vec::with_capacity(TRIES);
            for _ in 0..TRIES {
                device.rehearsal().begin(answer_after);
                let called = device.time().now();
                match writes {
                    true => file.write_all_at(data, 0)?,
                    false => file.read_exact_at(data, 0)?,
                }
                let returned = device.time().now();
                tried.extend(device.rehearsal().last().map(|times| Way {
                    before: times.arrived.saturating_sub(called).min(way_max),
                    after: returned.saturating_sub(times.answered).min(way_max),
                }));
            }
            ways[place] = middle(&tried);
        }
    }
    Ok(path)
}

/// The median of each side.
fn middle(ways: &[Way]) -> Way {
    let of = |side: fn(&Way) -> Nanos| {
        let mut sides: Vec<Nanos> = ways.iter().map(side).collect();
        sides.sort_unstable();
        sides.get(sides.len() / 2).copied().unwrap_or_default()
    };
    Way {
        before: of(|way| way.before),
        after: of(|way| way.after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn way(before: u64, after: u64) -> Way {
        Way {
            before: Nanos(before),
            after: Nanos(after),
        }
    }

    /// 4 KiB take 10 and 20, 512 KiB 110 and 1020. 258 KiB lie half way: 60 and 520.
    #[test]
    fn a_way_lies_between_those_of_the_smallest_and_the_largest() {
        let path = PathCost {
            reads: [way(10, 20), way(110, 1020)],
            writes: [way(1, 2), way(3, 4)],
        };
        assert_eq!(path.of(Operation::Read, 512), way(10, 20));
        assert_eq!(path.of(Operation::Read, 258 << 10), way(60, 520));
        assert_eq!(path.of(Operation::Read, 512 << 10), way(110, 1020));
        assert_eq!(path.of(Operation::Write, 512 << 10), way(3, 4));
        assert_eq!(path.of(Operation::Flush, 0), way(1, 2));
        assert_eq!(path.longest_after(), Nanos(1020));
    }

    #[test]
    fn one_try_that_was_held_up_does_not_count() {
        let tried = [way(10, 30), way(12, 500_000), way(900_000, 31)];
        assert_eq!(middle(&tried), way(12, 31));
        assert_eq!(middle(&[]), Way::default());
    }
}
