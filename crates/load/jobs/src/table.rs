//! The results of a job as a table, with the columns of the original's result windows.

use results::{RunRecord, counter, median, nearest_f64};

/// The field of a record's workload that holds the step's name.
pub const STEP_FIELD: &str = "name";

/// One line per step, in the order in which steps first appear; several rounds as medians.
///
/// MB/s are 10^6 bytes per second, operations and transactions are of the whole timed window, processor shares are of
/// the whole machine, and context switches are of the threads that did the work, with the voluntary ones in
/// parentheses.
#[must_use]
pub fn table(records: &[RunRecord]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        let name = step_name(record);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<width$} {:>10} {:>12} {:>12} {:>9} {:>9}  {:>19}  {:>20}\n",
        "step",
        "MB/s",
        "operations/s",
        "transact./s",
        "mean us",
        "p99 us",
        "cpu act/iow/idl %",
        "switches (voluntary)"
    );
    for name in names {
        let rounds: Vec<&RunRecord> = records
            .iter()
            .filter(|record| step_name(record) == name)
            .collect();
        let line = Line::of(&rounds);
        text.push_str(&format!("{name:<width$} {}\n", line.0.join(" ")));
    }
    text
}

/// The name of a record's step; its label if the record does not belong to a job.
#[must_use]
pub fn step_name(record: &RunRecord) -> &str {
    record
        .workload
        .get(STEP_FIELD)
        .and_then(serde_json::Value::as_str)
        .unwrap_or(&record.label)
}

struct Line(Vec<String>);

impl Line {
    fn of(rounds: &[&RunRecord]) -> Self {
        let of = |value: &dyn Fn(&RunRecord) -> Option<f64>, digits: usize| {
            let values: Vec<f64> = rounds.iter().filter_map(|record| value(record)).collect();
            median(&values).map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let named = |name: &'static str| move |record: &RunRecord| record.counters.get(name).copied();
        let latency = |pick: fn(&results::LatencySummary) -> f64| {
            move |record: &RunRecord| {
                let sample = main_sample(record)?;
                sample.latency.summary().map(|summary| pick(&summary) / 1e3)
            }
        };
        let is_database = rounds.iter().any(|record| is_database(record));
        let rate = |record: &RunRecord| main_sample(record)?.operations_per_s();
        let all_operations = |record: &RunRecord| operations_per_s(record);
        let (operations, transactions) = if is_database {
            ("-".to_owned(), of(&rate, 1))
        } else {
            (of(&all_operations, 1), "-".to_owned())
        };
        let processor = [counter::CPU_ACTIVE, counter::CPU_IOWAIT, counter::CPU_IDLE]
            .map(|name| of(&named(name), 1))
            .join("/");
        let voluntary = named(counter::CONTEXT_SWITCHES_VOLUNTARY);
        let involuntary = named(counter::CONTEXT_SWITCHES_INVOLUNTARY);
        let total = |record: &RunRecord| Some(voluntary(record)? + involuntary(record)?);
        let switches = format!("{} ({})", of(&total, 0), of(&voluntary, 0));
        let throughput = if is_database {
            "-".to_owned()
        } else {
            of(&mb_per_s, 1)
        };
        Self(vec![
            format!("{throughput:>10}"),
            format!("{operations:>12}"),
            format!("{transactions:>12}"),
            format!("{:>9}", of(&latency(|summary| summary.mean_ns), 1)),
            format!("{:>9}", of(&latency(|summary| nearest_f64(summary.p99_ns)), 1)),
            format!(" {processor:>19}"),
            format!(" {switches:>20}"),
        ])
    }
}

fn mb_per_s(record: &RunRecord) -> Option<f64> {
    main_sample(record).and_then(|_| record.mb_per_s())
}

fn is_database(record: &RunRecord) -> bool {
    kind(record) == Some("sqlite")
}

fn kind(record: &RunRecord) -> Option<&str> {
    record.workload.get("kind").and_then(serde_json::Value::as_str)
}

/// The main sample of a step: not the syncs beside it, and not a single point of a curve.
fn main_sample(record: &RunRecord) -> Option<&results::Sample> {
    if kind(record) == Some("uflip") {
        return None;
    }
    record
        .sample("transaction")
        .or_else(|| record.samples.iter().find(|sample| sample.operation != "sync"))
}

/// All operations of a step over its longest window; syncs are not counted.
///
/// `None` for uFLIP, whose samples are points of a curve.
fn operations_per_s(record: &RunRecord) -> Option<f64> {
    if kind(record) == Some("uflip") {
        return None;
    }
    let samples = || record.samples.iter().filter(|sample| sample.operation != "sync");
    let count = samples()
        .map(|sample| sample.operations_count)
        .fold(0, u64::saturating_add);
    let elapsed_ns = samples().map(|sample| sample.elapsed_ns).max()?;
    (count > 0 && elapsed_ns > 0).then(|| nearest_f64(count) * 1e9 / nearest_f64(elapsed_ns))
}
