//! Promised speeds of an array, and their check against measurements.

use media::quantity;
use nand::Preset;
use serde_json::{Value, json};

use crate::throughput::Row;
use crate::workload::Workload;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The ratio that a promise bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Ratio to the throughput of one device.
    ToOneDevice,
    /// Ratio to the highest throughput that the chips can program or read.
    ToLimit,
}

/// A promise: every matching row reaches at least `least`.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    measure: Measure,
    least: f64,
    /// `None` matches all workloads.
    workload: Option<Workload>,
    devices: Devices,
    record_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Devices {
    Exactly(u32),
    Several,
}

const fn times(least: f64, devices: u32, record_bytes: u64, workload: Workload) -> Promise {
    Promise {
        measure: Measure::ToOneDevice,
        least,
        workload: Some(workload),
        devices: Devices::Exactly(devices),
        record_bytes: Some(record_bytes),
    }
}

/// All promises of throughput.
pub const PROMISES: [Promise; 9] = [
    times(1.95, 2, 16 * MIB, Workload::Write),
    times(3.8, 4, 16 * MIB, Workload::Write),
    times(1.5, 4, 4 * KIB, Workload::Write),
    times(3.5, 4, 16 * MIB, Workload::RandomWrite),
    times(3.8, 4, 16 * MIB, Workload::Rewrite),
    times(3.8, 4, 16 * MIB, Workload::Read),
    times(3.8, 4, 16 * MIB, Workload::RandomRead),
    Promise {
        measure: Measure::ToOneDevice,
        least: 1.0,
        workload: None,
        devices: Devices::Several,
        record_bytes: None,
    },
    Promise {
        measure: Measure::ToLimit,
        least: 0.93,
        workload: Some(Workload::Write),
        devices: Devices::Exactly(1),
        record_bytes: Some(MIB),
    },
];

/// A lower or upper bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The smallest figure that is kept.
    AtLeast(f64),
    /// The largest one.
    AtMost(f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }

    /// Orders figures from worst to best.
    fn worse(self, one: f64, other: f64) -> std::cmp::Ordering {
        match self {
            Self::AtLeast(_) => one.total_cmp(&other),
            Self::AtMost(_) => other.total_cmp(&one),
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug)]
pub struct Verdict {
    promised: String,
    bound: Bound,
    /// The worst matching figure and its chips; `None` if nothing was measured.
    worst: Option<(f64, Preset)>,
}

/// Checks every promise of throughput against all rows.
pub fn judge(rows: &[Row]) -> Vec<Verdict> {
    let verdict = |promise: &Promise| {
        let figures = rows.iter().filter(|row| promise.is_about(row));
        let figures = figures.map(|row| (promise.figure(row), row.preset));
        Verdict::of(promise.text(), Bound::AtLeast(promise.least), figures)
    };
    PROMISES.iter().map(verdict).collect()
}

impl Promise {
    fn is_about(&self, row: &Row) -> bool {
        let devices = match self.devices {
            Devices::Exactly(count) => row.devices == count,
            Devices::Several => row.devices > 1,
        };
        devices
            && self.workload.is_none_or(|workload| workload == row.workload)
            && self.record_bytes.is_none_or(|bytes| bytes == row.record_bytes)
    }

    const fn figure(&self, row: &Row) -> f64 {
        match self.measure {
            Measure::ToOneDevice => row.to_one,
            Measure::ToLimit => row.to_limit,
        }
    }

    fn text(&self) -> String {
        let workload = self.workload.map_or("everything", Workload::name);
        let records = self.record_bytes.map_or("any records".to_owned(), |bytes| {
            quantity::show_bytes(bytes) + " records"
        });
        let devices = match self.devices {
            Devices::Exactly(1) => "1 device".to_owned(),
            Devices::Exactly(count) => format!("{count} devices"),
            Devices::Several => "any devices".to_owned(),
        };
        let of = match self.measure {
            Measure::ToOneDevice => "of one device",
            Measure::ToLimit => "of the limit",
        };
        format!("{workload}, {records}, {devices}, {of}")
    }
}

impl Verdict {
    /// Checks a promise against all matching figures.
    pub fn of(promised: String, bound: Bound, figures: impl Iterator<Item = (f64, Preset)>) -> Self {
        Self {
            promised,
            bound,
            worst: figures.min_by(|one, other| bound.worse(one.0, other.0)),
        }
    }

    /// Returns true if it was measured and missed.
    pub fn is_missed(&self) -> bool {
        self.worst.is_some_and(|(found, _)| !self.bound.holds(found))
    }

    /// One line of text.
    pub fn text(&self) -> String {
        let promised = format!("{}: {}", self.promised, self.bound.text());
        match self.worst {
            None => format!("not measured  {promised}"),
            Some((found, preset)) => {
                let word = if self.is_missed() { "missed" } else { "kept" };
                format!("{word:<12}  {promised}; {found:.3} ({})", preset.name())
            }
        }
    }

    /// The verdict as a JSON object.
    pub fn json(&self) -> Value {
        json!({
            "what": "promise",
            "promise": self.promised,
            "bound": self.bound.text(),
            "worst": self.worst.map(|(found, _)| found),
            "cells": self.worst.map(|(_, preset)| preset.name()),
            "missed": self.is_missed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::Nanos;

    fn row(devices: u32, record_bytes: u64, workload: Workload, to_one: f64, to_limit: f64) -> Row {
        Row {
            preset: Preset::Tlc,
            devices,
            record_bytes,
            workload,
            bytes: 1,
            time: Nanos(1),
            to_one,
            to_limit,
        }
    }

    fn missed(row: Row) -> Vec<String> {
        let verdicts = judge(&[row]);
        let missed = verdicts.iter().filter(|verdict| verdict.is_missed());
        missed.map(Verdict::text).collect()
    }

    #[test]
    fn a_figure_below_what_was_promised_is_missed_and_one_at_it_is_kept() {
        assert_eq!(
            missed(row(4, 16 * MIB, Workload::Write, 3.79, 0.9)),
            ["missed        write, 16 MiB records, 4 devices, of one device: at least 3.8; 3.790 (tlc)"]
        );
        assert!(missed(row(4, 16 * MIB, Workload::Write, 3.8, 0.9)).is_empty());
        assert_eq!(missed(row(1, MIB, Workload::Write, 1.0, 0.92)).len(), 1);
        assert!(missed(row(1, MIB, Workload::Write, 1.0, 0.93)).is_empty());
    }

    #[test]
    fn nothing_on_several_devices_may_be_slower_than_on_one() {
        assert_eq!(missed(row(2, 64 * KIB, Workload::RandomRead, 0.99, 0.9)).len(), 1);
        assert!(missed(row(1, 64 * KIB, Workload::RandomRead, 0.99, 0.9)).is_empty());
    }

    #[test]
    fn an_upper_bound_is_missed_by_the_largest_figure() {
        let figures = [(0.3, Preset::Slc), (0.36, Preset::Tlc), (0.2, Preset::Mlc)];
        let verdict = Verdict::of("mount".to_owned(), Bound::AtMost(0.35), figures.into_iter());
        assert_eq!(verdict.text(), "missed        mount: at most 0.35; 0.360 (tlc)");
    }

    #[test]
    fn an_unmeasured_promise_is_named_and_not_missed() {
        let verdicts = judge(&[]);
        assert_eq!(verdicts.len(), PROMISES.len());
        assert!(
            verdicts
                .iter()
                .all(|verdict| !verdict.is_missed() && verdict.text().starts_with("not measured"))
        );
    }
}
