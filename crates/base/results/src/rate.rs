//! Speed of an operation: throughput for large operations, operations per second for small ones.
//!
//! Small records, syncs and transactions are limited by their number, streams by their volume. The unit follows from
//! the bytes actually moved, so no knowledge of the workload is needed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::{RunRecord, Sample};

/// Average bytes per operation from which the speed is given as throughput.
const LARGE_OPERATION_BYTES: u64 = 64 << 10;

/// An operation done once, inside the window of another operation.
const FINAL_SYNC: &str = "final-sync";

/// False for an operation done once at the end of another operation's window, for which a rate over that window is
/// meaningless.
#[must_use]
pub fn has_own_speed(sample: &Sample) -> bool {
    sample.operation != FINAL_SYNC
}

/// Unit of a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateUnit {
    /// 10^6 bytes per second.
    #[serde(rename = "MB/s")]
    MbPerS,
    /// Operations per second.
    #[serde(rename = "operations/s")]
    OperationsPerS,
}

impl fmt::Display for RateUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::MbPerS => "MB/s",
            Self::OperationsPerS => "operations/s",
        })
    }
}

impl RateUnit {
    /// The appropriate unit for a sample.
    #[must_use]
    pub fn of(sample: &Sample) -> Self {
        let bytes_each = sample.bytes.checked_div(sample.operations_count).unwrap_or(0);
        if bytes_each >= LARGE_OPERATION_BYTES {
            Self::MbPerS
        } else {
            Self::OperationsPerS
        }
    }

    /// The speed of a sample in this unit; `None` when nothing was done or no time passed.
    #[must_use]
    pub fn rate(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::MbPerS => sample.mb_per_s(),
            Self::OperationsPerS => sample.operations_per_s(),
        }
    }
}

/// The speed that represents a whole record: that of its first kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Headline {
    /// The operation.
    pub operation: String,
    /// The speed.
    pub value: f64,
    /// Its unit.
    pub unit: RateUnit,
}

impl Headline {
    /// The first sample with a speed; `None` if all samples lack one.
    #[must_use]
    pub fn of(record: &RunRecord) -> Option<Self> {
        record.samples.iter().find_map(|sample| {
            let unit = RateUnit::of(sample);
            Some(Self {
                operation: sample.operation.clone(),
                value: unit.rate(sample)?,
                unit,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn streams_are_judged_by_bytes_and_small_records_by_number() {
        let large = Headline::of(&record("native", 0, 512 << 10, 1_000_000)).unwrap();
        assert_eq!(large.unit, RateUnit::MbPerS);
        let small = Headline::of(&record("native", 0, 4096, 1_000_000)).unwrap();
        assert_eq!((small.unit, small.value), (RateUnit::OperationsPerS, 1000.0));
        assert_eq!(Headline::of(&record("native", 0, 4096, 0)), None);
    }
}
