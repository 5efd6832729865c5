//! Logs single operations of a run in fixed-size memory: the latency of each, and the count per second.
//!
//! Histograms hold the same in less space; the log is for programs that need every number (the original Mobibench's
//! `-L` and `-k`). No file is written during a timed run, and the memory is allocated before the window begins.

use serde::{Deserialize, Serialize};

const NANOSECONDS_OF_A_SECOND: u64 = 1_000_000_000;

/// Log capacity per thread. The default keeps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Number of latencies, eight bytes each.
    pub latencies_max: u64,
    /// Number of seconds, eight bytes each.
    pub seconds_max: u32,
}

impl LogLimits {
    /// Keeps nothing.
    pub const NOTHING: Self = Self {
        latencies_max: 0,
        seconds_max: 0,
    };

    /// True if the log keeps nothing.
    #[must_use]
    pub const fn is_nothing(self) -> bool {
        self.latencies_max == 0 && self.seconds_max == 0
    }
}

/// The log of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationLog {
    /// Latency of each operation in completion order, including the sync after it.
    pub latencies_ns: Vec<u64>,
    /// Operations completed in each second of the window. The last second may be cut short by the end of the window.
    pub operations_of_second: Vec<u64>,
    /// Number of operations whose latency did not fit.
    pub latencies_lost: u64,
    /// Number of operations completed after the last second that fitted.
    pub operations_lost: u64,
}

/// Writes the log of a running thread.
#[derive(Debug)]
pub struct LogWriter {
    began_ns: u64,
    latencies: Vec<u64>,
    latencies_count: usize,
    seconds: Vec<u64>,
    seconds_count: usize,
    lost: OperationLog,
}

impl LogWriter {
    /// A log for at most `operations`; `None` if nothing is kept.
    pub fn new(limits: LogLimits, operations: u64) -> Option<Self> {
        if limits.is_nothing() {
            return None;
        }
        let latencies = usize::try_from(limits.latencies_max.min(operations)).unwrap_or(usize::MAX);
        let seconds = usize::try_from(limits.seconds_max).unwrap_or(usize::MAX);
        Some(Self {
            began_ns: 0,
            // Not zero, so that the memory is allocated before the window.
            latencies: vec![u64::MAX; latencies],
            latencies_count: 0,
            seconds: vec![u64::MAX; seconds],
            seconds_count: 0,
            lost: OperationLog::default(),
        })
    }

    /// Starts the window, discarding earlier entries.
    pub fn begin(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
        (self.latencies_count, self.seconds_count) = (0, 0);
        self.lost = OperationLog::default();
    }

    /// Records a completed operation.
    pub fn add(&mut self, start_ns: u64, end_ns: u64) {
        match self.latencies.get_mut(self.latencies_count) {
            Some(place) => {
                *place = end_ns.saturating_sub(start_ns);
                self.latencies_count += 1;
            }
            None => self.lost.latencies_lost += 1,
        }
        let second = end_ns.saturating_sub(self.began_ns) / NANOSECONDS_OF_A_SECOND;
        let second = usize::try_from(second).unwrap_or(usize::MAX);
        let Some(place) = self.seconds.get_mut(self.seconds_count..second.saturating_add(1)) else {
            return self.add_to_known(second);
        };
        // Seconds without an operation, and the first operation of this one.
        place.fill(0);
        self.seconds_count = second + 1;
        self.add_to_known(second);
    }

    fn add_to_known(&mut self, second: usize) {
        match self
            .seconds
            .get_mut(second)
            .filter(|_| second < self.seconds_count)
        {
            Some(count) => *count += 1,
            None => self.lost.operations_lost += 1,
        }
    }

    /// Converts the recorded data to the log.
    pub fn finish(mut self) -> OperationLog {
        self.latencies.truncate(self.latencies_count);
        self.seconds.truncate(self.seconds_count);
        OperationLog {
            latencies_ns: self.latencies,
            operations_of_second: self.seconds,
            ..self.lost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(latencies_max: u64, seconds_max: u32) -> LogWriter {
        let limits = LogLimits {
            latencies_max,
            seconds_max,
        };
        let mut log = LogWriter::new(limits, 100).unwrap();
        log.begin(1_000);
        log
    }

    #[test]
    fn operations_are_counted_in_the_second_of_their_end() {
        let mut log = log(0, 10);
        for end_ns in [1_001, 1_000_000_999, 1_000_001_000, 3_500_000_000] {
            log.add(0, end_ns);
        }
        assert_eq!(log.finish().operations_of_second, [2, 1, 0, 1]);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut log = log(2, 2);
        for end_ns in [1_500, 2_000, 5_000_000_000] {
            log.add(1_000, end_ns);
        }
        let kept = log.finish();
        assert_eq!(
            (kept.latencies_ns.as_slice(), kept.latencies_lost),
            ([500, 1_000].as_slice(), 1)
        );
        assert_eq!(
            (kept.operations_of_second.as_slice(), kept.operations_lost),
            ([2].as_slice(), 1)
        );
    }

    #[test]
    fn a_window_that_begins_again_forgets_what_was_before() {
        let mut log = log(4, 4);
        log.add(0, 2_000_000_000);
        log.begin(10_000_000_000);
        log.add(10_000_000_000, 10_000_000_007);
        let kept = log.finish();
        assert_eq!((kept.latencies_ns, kept.operations_of_second), (vec![7], vec![1]));
    }

    #[test]
    fn nothing_asked_for_costs_nothing() {
        assert!(LogWriter::new(LogLimits::default(), 100).is_none());
    }
}
