//! The command that measures a cell, and the record that it prints.

use anyhow::{Context, Result};
use results::{LatencyHistogram, RunRecord, Sample, TimedWindow};

use crate::cell::Cell;

/// Requests kept in flight on the raw device.
const RAW_DEPTH: &str = "16";

/// The value of `workload.kind` for a job of `tidegate bench run`, whose file is [`FILE`].
pub const JOB: &str = "job";

/// The value of `workload.kind` for a trace of `tidegate replay`, whose file is [`FILE`].
pub const REPLAY: &str = "replay";

/// The axis of the file of a job or a trace.
pub const FILE: &str = "workload.file";

/// The words of the command that measures a cell, without its target.
#[must_use]
pub fn bench_words(cell: &Cell, round: u32) -> Vec<String> {
    let kind = cell.value("workload.kind");
    let file = cell.value(FILE);
    let mut words: Vec<String> = match kind {
        JOB => ["bench", "run", file].map(str::to_owned).to_vec(),
        REPLAY => ["replay", file].map(str::to_owned).to_vec(),
        "" => ["bench", "file"].map(str::to_owned).to_vec(),
        kind => ["bench", kind].map(str::to_owned).to_vec(),
    };
    let common = ["--json", "--no-history", "--progress", "off", "--seed"];
    words.extend(common.map(str::to_owned));
    words.push(round.saturating_add(1).to_string());
    let is_own = |flag: &String| {
        flag.starts_with("--kind=") || (matches!(kind, JOB | REPLAY) && flag.starts_with("--file="))
    };
    words.extend(cell.flags("workload.").into_iter().filter(|flag| !is_own(flag)));
    if cell.is_raw() {
        let raw = [
            "--device",
            "--destroy-data",
            "--mode",
            "direct",
            "--engine",
            "io_uring",
            "--depth",
            RAW_DEPTH,
            "--fsync-at-end",
        ];
        words.extend(raw.map(str::to_owned));
    }
    words
}

/// The record of a command that measured: its only one, or those of a job's steps as one, with all bytes of the steps
/// over the sum of their times.
pub fn record(output: &str) -> Result<RunRecord> {
    let records = serde_json::Deserializer::from_str(output).into_iter::<RunRecord>();
    let mut records: Vec<RunRecord> = records
        .collect::<Result<_, _>>()
        .context("the measuring process printed no run record")?;
    let mut first = records
        .pop()
        .context("the measuring process printed no run record")?;
    if records.is_empty() {
        return Ok(first);
    }
    records.push(first.clone());
    let samples = || records.iter().flat_map(|record| &record.samples);
    let sum = |value: fn(&Sample) -> u64| samples().map(value).fold(0, u64::saturating_add);
    let elapsed_ns = records.iter().fold(0_u64, |all, record| {
        let longest = record.samples.iter().map(|sample| sample.elapsed_ns).max();
        all.saturating_add(longest.unwrap_or(0))
    });
    let counts = (sum(|sample| sample.operations_count), sum(|sample| sample.bytes));
    let window = TimedWindow::of(elapsed_ns);
    first.samples = vec![Sample::new("job", counts, window, LatencyHistogram::default())?];
    first.complete = records.iter().all(|record| record.complete);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::record_of;
    use crate::plan::Values;

    #[test]
    fn the_steps_of_a_job_are_one_record_with_all_bytes_over_all_time() {
        let cell = Cell(Values::new());
        let lines = |speeds: &[u64]| {
            let lines = speeds
                .iter()
                .map(|speed| serde_json::to_string(&record_of(&cell, 0, *speed)).unwrap() + "\n");
            lines.collect::<String>()
        };
        assert_eq!(record(&lines(&[30])).unwrap().mb_per_s(), Some(30.0));
        // 10, 20 and 90 MB in one second each.
        let whole = record(&lines(&[10, 20, 90])).unwrap();
        assert_eq!(whole.mb_per_s(), Some(40.0));
        assert!(whole.complete);
        assert!(record("").is_err());
        assert!(record("no record").is_err());
    }

    #[test]
    fn a_job_and_a_trace_are_named_before_their_flags() {
        let cell = |kind: &str| {
            let values = [
                ("workload.kind", kind),
                (FILE, "/a/b"),
                ("workload.cache", "cold"),
            ];
            Cell(
                values
                    .map(|(axis, value)| (axis.to_owned(), value.to_owned()))
                    .into(),
            )
        };
        let words = bench_words(&cell("replay"), 4).join(" ");
        assert_eq!(
            words,
            "replay /a/b --json --no-history --progress off --seed 5 --cache=cold"
        );
        assert!(
            bench_words(&cell("job"), 0)
                .join(" ")
                .starts_with("bench run /a/b --json")
        );
        // Other kinds may have a flag of this name.
        assert!(bench_words(&cell("sqlite"), 0).contains(&"--file=/a/b".to_owned()));
    }
}
