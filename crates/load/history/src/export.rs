//! Exports runs as CSV, JSON lines and Markdown.

use std::fmt::Display;

use results::{RunRecord, Sample, counter, workload_title};

use crate::store::StoredRun;

/// The columns of [`csv`]; the last word of a name is its unit.
const COLUMNS: [&str; 29] = [
    "run",
    "tags",
    "started_unix_ns",
    "label",
    "round",
    "workload",
    "operation",
    "operations_count",
    "bytes",
    "elapsed_ns",
    "mb_per_s",
    "operations_per_s",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p95_ns",
    "latency_p99_ns",
    "latency_p99_9_ns",
    "latency_max_ns",
    "cpu_active_percent",
    "cpu_iowait_percent",
    "cpu_idle_percent",
    "context_switches_system_count",
    "context_switches_voluntary_count",
    "path",
    "file_system_type",
    "block_device",
    "kernel",
    "tool_version",
    "complete",
];

/// CSV with a header line and one line for each operation of each record, quoted per RFC 4180. Unknown fields are
/// empty.
#[must_use]
pub fn csv(runs: &[StoredRun]) -> String {
    let mut text = COLUMNS.join(",") + "\r\n";
    for run in runs {
        for record in &run.records {
            for sample in &record.samples {
                let fields = fields(run, record, sample);
                let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
                text += &(fields.join(",") + "\r\n");
            }
        }
    }
    text
}

/// All records as stored, one per line, in the format that `tidegate bench compare` reads.
#[must_use]
pub fn json_lines(runs: &[StoredRun]) -> String {
    runs.iter()
        .flat_map(|run| &run.records)
        .filter_map(|record| serde_json::to_string(record).ok())
        .map(|line| line + "\n")
        .collect()
}

/// One table with a row for each operation of each record.
#[must_use]
pub fn markdown(runs: &[StoredRun]) -> String {
    let mut text = String::from(
        "| run | label | workload | operation | MB/s | operations/s | p99 us | path | file system | complete |\n\
         |---:|---|---|---|---:|---:|---:|---|---|---|\n",
    );
    for run in runs {
        for record in &run.records {
            for sample in &record.samples {
                let latency = sample.latency.summary();
                let cells = [
                    run.summary.id.to_string(),
                    record.label.clone(),
                    workload_title(&record.workload),
                    sample.operation.clone(),
                    rounded(sample.mb_per_s()),
                    rounded(sample.operations_per_s()),
                    rounded(latency.map(|summary| results::nearest_f64(summary.p99_ns) / 1e3)),
                    record.target.path.clone(),
                    record.target.file_system_type.clone().unwrap_or_default(),
                    if record.complete { "yes" } else { "no" }.to_owned(),
                ];
                let cells: Vec<String> = cells.iter().map(|cell| markdown_cell(cell)).collect();
                text += &format!("| {} |\n", cells.join(" | "));
            }
        }
    }
    text
}

fn fields(run: &StoredRun, record: &RunRecord, sample: &Sample) -> [String; 29] {
    let latency = sample.latency.summary();
    let of = |pick: fn(&results::LatencySummary) -> u64| known(latency.as_ref().map(pick));
    let counted = |name: &str| known(record.counters.get(name));
    [
        run.summary.id.to_string(),
        run.summary.tags.join(" "),
        record.started_unix_ns.to_string(),
        record.label.clone(),
        record.round.to_string(),
        workload_title(&record.workload),
        sample.operation.clone(),
        sample.operations_count.to_string(),
        sample.bytes.to_string(),
        sample.elapsed_ns.to_string(),
        known(sample.mb_per_s()),
        known(sample.operations_per_s()),
        known(latency.map(|summary| summary.mean_ns)),
        of(|summary| summary.p50_ns),
        of(|summary| summary.p95_ns),
        of(|summary| summary.p99_ns),
        of(|summary| summary.p99_9_ns),
        of(|summary| summary.max_ns),
        counted(counter::CPU_ACTIVE),
        counted(counter::CPU_IOWAIT),
        counted(counter::CPU_IDLE),
        counted(counter::CONTEXT_SWITCHES_SYSTEM),
        counted(counter::CONTEXT_SWITCHES_VOLUNTARY),
        record.target.path.clone(),
        record.target.file_system_type.clone().unwrap_or_default(),
        record.target.block_device.clone().unwrap_or_default(),
        record.host.kernel.clone(),
        record.tool_version.clone(),
        record.complete.to_string(),
    ]
}

fn known(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn rounded(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// Escapes text so that it can't end its cell or become HTML.
fn markdown_cell(text: &str) -> String {
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('|', "\\|");
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}
