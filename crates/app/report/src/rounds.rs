//! Summary of repeated runs for people: results per kind of operation, as medians over the rounds.

use results::{
    Estimate, LatencySummary, RateUnit, RunRecord, Sample, WANTED_COVERAGE, counter, median, nearest_f64,
};

/// Selects a value of a summary, in nanoseconds.
type Pick = fn(&LatencySummary) -> f64;

/// Latency columns: title and value, in nanoseconds.
const LATENCIES: [(&str, Pick); 8] = [
    ("mean", |summary| summary.mean_ns),
    ("p50", |summary| nearest_f64(summary.p50_ns)),
    ("p90", |summary| nearest_f64(summary.p90_ns)),
    ("p95", |summary| nearest_f64(summary.p95_ns)),
    ("p99", |summary| nearest_f64(summary.p99_ns)),
    ("p99.9", |summary| nearest_f64(summary.p99_9_ns)),
    ("p99.99", |summary| nearest_f64(summary.p99_99_ns)),
    ("max", |summary| nearest_f64(summary.max_ns)),
];

/// Counters shown if a record has them.
const COUNTERS: [(&str, &str); 4] = [
    (counter::CPU_ACTIVE, "processors active %"),
    (counter::CPU_IOWAIT, "processors waiting for I/O %"),
    (counter::CPU_IDLE, "processors idle %"),
    (counter::CONTEXT_SWITCHES_SYSTEM, "context switches, machine"),
];

/// The complete summary; empty when there are no records.
#[must_use]
pub fn table(records: &[RunRecord]) -> String {
    let Some(first) = records.first() else {
        return String::new();
    };
    let width = width(first);
    let mut text = heading(records, first);
    text.push_str(&rates(records, first, width));
    text.push_str(&latencies(records, first, width));
    text.push_str(&intervals(records, width));
    text.push_str(&counters(records));
    text
}

/// The part of the summary that tables of single rounds lack: intervals over all rounds, and the machine's counters.
#[must_use]
pub fn summary(records: &[RunRecord]) -> String {
    let Some(first) = records.first() else {
        return String::new();
    };
    heading(records, first) + &intervals(records, width(first)) + &counters(records)
}

fn heading(records: &[RunRecord], first: &RunRecord) -> String {
    let kind = first.target.file_system_type.as_deref();
    let rounds = match records.len() {
        1 => "one round".to_owned(),
        count => format!("medians of {count} rounds"),
    };
    let path = &first.target.path;
    format!("{path} ({}), {rounds}\n", kind.unwrap_or("unknown file system"))
}

/// Width of the name column: the longest operation name or the title.
fn width(first: &RunRecord) -> usize {
    let names = first
        .samples
        .iter()
        .map(|sample| sample.operation.chars().count());
    names.max().unwrap_or(0).max("latency us".len())
}

fn counters(records: &[RunRecord]) -> String {
    let mut text = String::new();
    for (name, label) in COUNTERS {
        let values = records
            .iter()
            .filter_map(|record| record.counters.get(name).copied());
        if let Some(value) = median(&values.collect::<Vec<_>>()) {
            text.push_str(&format!("  {label:<30} {value:>12.1}\n"));
        }
    }
    text
}

/// Count and rates by kind of operation.
fn rates(records: &[RunRecord], first: &RunRecord, width: usize) -> String {
    let mut text = format!(
        "  {:<width$} {:>10} {:>13} {:>13}\n",
        "operation", "count", "MB/s", "IOPS"
    );
    for Sample { operation, .. } in &first.samples {
        let of = |value: &dyn Fn(&Sample) -> Option<f64>| of_all(records, operation, value);
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        let count = of(&|sample| Some(nearest_f64(sample.operations_count)));
        text.push_str(&format!(
            "  {operation:<width$} {:>10} {:>13} {:>13}\n",
            count.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}")),
            shown(of(&Sample::mb_per_s)),
            shown(of(&Sample::operations_per_s)),
        ));
    }
    text
}

/// Latencies by kind of operation.
fn latencies(records: &[RunRecord], first: &RunRecord, width: usize) -> String {
    let mut text = format!("  {:<width$}", "latency us");
    for (title, _) in LATENCIES {
        text.push_str(&format!(" {title:>10}"));
    }
    text.push('\n');
    for Sample { operation, .. } in &first.samples {
        text.push_str(&format!("  {operation:<width$}"));
        for (_, pick) in LATENCIES {
            let value = of_all(records, operation, &|sample| {
                sample.latency.summary().map(|summary| pick(&summary) / 1e3)
            });
            let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            text.push_str(&format!(" {value:>10}"));
        }
        text.push('\n');
    }
    text
}

/// The median over all records that have the value.
fn of_all(records: &[RunRecord], operation: &str, value: &dyn Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let values = records
        .iter()
        .filter_map(|record| value(record.sample(operation)?));
    median(&values.collect::<Vec<_>>())
}

/// A line for each repeated operation: the median speed between the ends of its interval.
fn intervals(records: &[RunRecord], width: usize) -> String {
    let complete: Vec<&RunRecord> = records.iter().filter(|record| record.complete).collect();
    let Some(first) = complete.first().filter(|_| complete.len() > 1) else {
        return String::new();
    };
    let mut text = String::new();
    for sample in first
        .samples
        .iter()
        .filter(|sample| results::has_own_speed(sample))
    {
        let unit = RateUnit::of(sample);
        let speeds: Vec<f64> = complete
            .iter()
            .filter_map(|record| unit.rate(record.sample(&sample.operation)?))
            .collect();
        if let Some(estimate) = Estimate::of_median(&speeds) {
            // With too few rounds, show the range instead of an interval.
            let meaning = if estimate.coverage >= WANTED_COVERAGE {
                format!("interval of {:.0} % coverage", estimate.coverage * 100.0)
            } else {
                format!("smallest and largest of {} rounds", estimate.count)
            };
            text.push_str(&format!(
                "  {:<width$} {:.1} {unit} [{:.1}, {:.1}], {meaning}\n",
                sample.operation, estimate.value, estimate.low, estimate.high,
            ));
        }
    }
    text
}
