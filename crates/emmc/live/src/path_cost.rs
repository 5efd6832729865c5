//! What the kernel takes of a request's time on both sides of a live card, and how it is measured.
//!
//! A request goes through the loop device and FUSE before it comes here, and its answer goes back the same way; each side wakes a
//! thread or two and copies the data once. A client of the block device pays for that beside the model's time. So each request
//! counts as come by so much earlier as its way here takes, and is answered so much earlier as the answer's way back takes:
//! the client sees it done when the model says.
//!
//! It is measured when a card is attached, on the very device, by a *rehearsal*: requests that are answered after a fixed time and
//! change nothing. The client is a thread of the same process, so that both ends read one clock. Between two requests the
//! processors go to sleep as they do between requests to a card. Of a few tries the median counts.
//!
//! It is not: the time that a client takes between two requests, or what a file system adds. These are theirs.

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

/// Requests of each kind that are measured.
const TRIES: usize = 9;

/// How long they take here: shorter than most of a card's, long enough for idle processors to go to sleep.
const ANSWER_AFTER: Nanos = Nanos::from_millis(1);

/// More than this is no way through the kernel but a machine that is busy with other things.
const WAY_MAX: Nanos = Nanos::from_millis(1);

/// What O_DIRECT wants of memory.
const ALIGNMENT: usize = 4096;

/// The way of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// From the client's call until the request is here.
    pub before: Nanos,
    /// From the answer until the client's call returns.
    pub after: Nanos,
}

/// The ways of all requests; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCost {
    /// Reads of 4 KiB and of 512 KiB.
    pub reads: [Way; 2],
    /// Writes of the same sizes.
    pub writes: [Way; 2],
}

impl PathCost {
    /// The way of a request with so many bytes of data. What moves none goes the way of a small write.
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

    /// The longest way of an answer.
    #[must_use]
    pub fn longest_after(&self) -> Nanos {
        let ways = self.reads.iter().chain(&self.writes);
        ways.map(|way| way.after).max().unwrap_or_default()
    }

    /// Measures the ways of `device`, which is behind `block_device` and is used by nobody else yet. Its data stays.
    ///
    /// # Errors
    /// When the block device can't be opened, read or written past the page cache.
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
    // The large ones first: they touch the memory of the threads that serve the small ones too.
    for (place, bytes) in SIZES.into_iter().enumerate().rev() {
        let length = usize::try_from(bytes.min(device.store().size_bytes())).expect("memory has room");
        let data = &mut memory[start..start + length];
        for (ways, writes) in [(&mut path.reads, false), (&mut path.writes, true)] {
            let mut tried = Vec::with_capacity(TRIES);
            for _ in 0..TRIES {
                device.rehearsal().begin(ANSWER_AFTER);
                let called = device.time().now();
                match writes {
                    true => file.write_all_at(data, 0)?,
                    false => file.read_exact_at(data, 0)?,
                }
                let returned = device.time().now();
                tried.extend(device.rehearsal().last().map(|times| Way {
                    before: times.arrived.saturating_sub(called).min(WAY_MAX),
                    after: returned.saturating_sub(times.answered).min(WAY_MAX),
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
