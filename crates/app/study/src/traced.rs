//! Cells whose block requests are traced: counts by kind, locality, the layout over time, and a replay in the model.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use results::{RunRecord, nearest_f64};
use serde::Deserialize;

/// Write requests of the traced device.
pub const WRITE_REQUESTS: &str = "traced_write_requests_count";

/// Write requests of metadata and journal among them.
pub const METADATA_REQUESTS: &str = "traced_metadata_journal_requests_count";

/// Share of write requests that begin where the one before ended.
pub const SEQUENTIAL: &str = "traced_sequential_percent";

/// Member of a record's workload: the write requests as [milliseconds, MiB from the device's beginning, class].
pub const LAYOUT: &str = "layout";

/// Requests kept for the figure; of more, every n-th.
const LAYOUT_MAX: usize = 3000;

const SECTOR_BYTES: f64 = 512.0;

/// A line of a trace in JSON lines; other lines are events.
#[derive(Deserialize)]
struct Line {
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    sector: u64,
    bytes: u64,
    operation: String,
    issued_ns: Option<u64>,
    queued_ns: Option<u64>,
    #[serde(default)]
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    block_type: Option<String>,
}

impl Request {
    fn begun_ns(&self) -> u64 {
        self.issued_ns.or(self.queued_ns).unwrap_or(0)
    }

    fn is_data(&self) -> bool {
        let kinds = self.runs.iter().map(|run| run.block_type.as_deref());
        kinds.into_iter().all(|kind| matches!(kind, None | Some("data")))
    }
}

/// Adds counters and the layout of a trace to the record of its cell.
///
/// # Errors
/// If the trace can't be read; the message names the line.
pub fn add(record: &mut RunRecord, trace: &Path) -> Result<()> {
    let file = File::open(trace).with_context(|| format!("{} can't be read", trace.display()))?;
    let mut writes = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.with_context(|| format!("{} can't be read", trace.display()))?;
        let line: Line =
            serde_json::from_str(&line).with_context(|| format!("{}:{number}", trace.display()))?;
        writes.extend(
            line.request
                .filter(|request| request.operation == "write" && request.bytes > 0),
        );
    }
    writes.sort_by_key(Request::begun_ns);
    let count = |wanted: &dyn Fn(&Request) -> bool| {
        let found = writes.iter().filter(|request| wanted(request)).count();
        nearest_f64(u64::try_from(found).unwrap_or(u64::MAX))
    };
    let all = count(&|_| true);
    let sequential = writes
        .windows(2)
        .filter(|pair| pair[0].sector + pair[0].bytes / 512 == pair[1].sector)
        .count();
    let sequential = nearest_f64(u64::try_from(sequential).unwrap_or(u64::MAX));
    record.counters.insert(WRITE_REQUESTS.to_owned(), all);
    record
        .counters
        .insert(METADATA_REQUESTS.to_owned(), count(&|request| !request.is_data()));
    if all > 1.0 {
        record
            .counters
            .insert(SEQUENTIAL.to_owned(), sequential / (all - 1.0) * 100.0);
    }
    let first = writes.first().map_or(0, Request::begun_ns);
    let step = writes.len().div_ceil(LAYOUT_MAX).max(1);
    let layout: Vec<[f64; 3]> = writes
        .iter()
        .step_by(step)
        .map(|request| {
            let ms = (nearest_f64(request.begun_ns() - first) / 1e4).round() / 100.0;
            let mib =
                (nearest_f64(request.sector) * SECTOR_BYTES / f64::from(1 << 20) * 100.0).round() / 100.0;
            [ms, mib, if request.is_data() { 0.0 } else { 1.0 }]
        })
        .collect();
    if let Some(workload) = record.workload.as_object_mut() {
        workload.insert(LAYOUT.to_owned(), serde_json::to_value(layout)?);
    }
    Ok(())
}

/// The write requests of a record as (milliseconds, MiB): data, then metadata and journal.
#[must_use]
pub fn layout(record: &RunRecord) -> [Vec<(f64, f64)>; 2] {
    let stored = record.workload.get(LAYOUT).cloned().unwrap_or_default();
    let requests: Vec<[f64; 3]> = serde_json::from_value(stored).unwrap_or_default();
    let of = |class: bool| {
        let own = requests.iter().filter(|request| (request[2] > 0.5) == class);
        own.map(|request| (request[0], request[1])).collect()
    };
    [of(false), of(true)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_kind_and_by_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let request = |ns: u64, sector: u64, operation: &str, kind: &str| {
            format!(
                "{{\"request\":{{\"sector\":{sector},\"bytes\":1024,\"operation\":\"{operation}\",\"issued_ns\":{ns},\
                 \"queued_ns\":1,\"runs\":[{{\"block_type\":\"{kind}\"}}]}}}}\n"
            )
        };
        let text = "{\"format\":\"tidegate.block-trace\",\"schema\":2}\n".to_owned()
            + &request(30, 12, "write", "data")
            + &request(10, 8, "write", "data")
            + &request(20, 10, "write", "data")
            + &request(15, 0, "read", "data")
            + &request(40, 2, "write", "journal")
            + "{\"event\":{\"time_ns\":1}}\n";
        std::fs::write(&path, text).unwrap();
        let mut record = crate::measure::empty_record();
        add(&mut record, &path).unwrap();
        assert_eq!(record.counters[WRITE_REQUESTS], 4.0);
        assert_eq!(record.counters[METADATA_REQUESTS], 1.0);
        assert!((record.counters[SEQUENTIAL] - 200.0 / 3.0).abs() < 1e-9);
        let [data, metadata] = layout(&record);
        assert_eq!((data.len(), metadata.len()), (3, 1));
        std::fs::write(&path, "{\"request\":1}\n").unwrap();
        let error = format!("{:#}", add(&mut record, &path).unwrap_err());
        assert!(error.contains("t.jsonl:1"), "{error}");
    }
}
