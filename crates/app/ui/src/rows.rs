//! Records as rows of a result table: one row per operation of each workload, with medians over repeated runs.

use results::{Estimate, RunRecord, Sample, counter, median, nearest_f64, workload_title};
use serde::Serialize;

/// One row of a result table. Unknown values are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResultRow {
    /// Short description of the workload.
    pub workload: String,
    /// The configuration.
    pub label: String,
    /// The operation.
    pub operation: String,
    /// Median throughput, with its interval.
    pub mb_per_s: Option<Estimate>,
    /// Median rate, with its interval.
    pub per_s: Option<Estimate>,
    /// `IOPS`, `TPS` or `files/s`.
    pub per_s_unit: &'static str,
    /// 50th percentile of the latency, median over the runs.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, median over the runs.
    pub p99_us: Option<f64>,
    /// Busy processors.
    pub cpu_active: Option<f64>,
    /// Processors idle with I/O outstanding.
    pub cpu_iowait: Option<f64>,
    /// Idle processors.
    pub cpu_idle: Option<f64>,
    /// Context switches of the machine.
    pub switches: Option<f64>,
    /// Voluntary context switches of the workers.
    pub switches_voluntary: Option<f64>,
    /// Number of records.
    pub runs: usize,
    /// `false` if a run was stopped.
    pub complete: bool,
}

/// Rows in the order of measurement.
pub fn result_rows(records: &[RunRecord]) -> Vec<ResultRow> {
    let mut groups: Vec<(String, Vec<&RunRecord>)> = Vec::new();
    for record in records {
        let title = workload_title(&record.workload);
        let group = groups
            .iter_mut()
            .find(|(known, group)| *known == title && group[0].label == record.label);
        match group {
            Some((_, group)) => group.push(record),
            None => groups.push((title, vec![record])),
        }
    }
    groups
        .iter()
        .flat_map(|(title, group)| {
            let operations = group[0].samples.iter().map(|sample| sample.operation.as_str());
            operations
                .map(|operation| row(title, operation, group))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn row(title: &str, operation: &str, records: &[&RunRecord]) -> ResultRow {
    let of_sample = |value: &dyn Fn(&Sample) -> Option<f64>| -> Vec<f64> {
        let samples = records.iter().filter_map(|record| record.sample(operation));
        samples.filter_map(value).collect()
    };
    let counted = |name: &str| {
        let values: Vec<f64> = records
            .iter()
            .filter_map(|record| record.counters.get(name).copied())
            .collect();
        median(&values)
    };
    let latency = |pick: fn(&results::LatencySummary) -> u64| {
        median(&of_sample(&|sample| {
            Some(nearest_f64(pick(&sample.latency.summary()?)) / 1e3)
        }))
    };
    let per_s_unit = match records[0].workload.get("kind").and_then(|kind| kind.as_str()) {
        Some("sqlite") => "TPS",
        Some("metadata") => "files/s",
        _ => "IOPS",
    };
    ResultRow {
        workload: title.to_owned(),
        label: records[0].label.clone(),
        operation: operation.to_owned(),
        mb_per_s: Estimate::of_median(&of_sample(&Sample::mb_per_s)),
        per_s: Estimate::of_median(&of_sample(&Sample::operations_per_s)),
        per_s_unit,
        p50_us: latency(|summary| summary.p50_ns),
        p99_us: latency(|summary| summary.p99_ns),
        cpu_active: counted(counter::CPU_ACTIVE),
        cpu_iowait: counted(counter::CPU_IOWAIT),
        cpu_idle: counted(counter::CPU_IDLE),
        switches: counted(counter::CONTEXT_SWITCHES_SYSTEM),
        switches_voluntary: counted(counter::CONTEXT_SWITCHES_VOLUNTARY),
        runs: records.len(),
        complete: records.iter().all(|record| record.complete),
    }
}
