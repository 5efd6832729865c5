//! Rows of the demo's table, and the check for the order of the paper.

use report::{LadderRow, LadderStep};
use results::{Noise, RunRecord};

use crate::ladder::{LADDER, NATIVE};

/// One row for each measured configuration, native first.
pub fn rows(records: &[RunRecord]) -> Vec<LadderRow> {
    LADDER
        .iter()
        .filter(|configuration| records.iter().any(|record| record.label == configuration.label))
        .map(|configuration| {
            let step = LadderStep {
                group: String::new(),
                run_label: configuration.label.to_owned(),
                label: configuration.label.to_owned(),
                description: configuration.description(),
            };
            LadderRow::from_records(records, NATIVE, &step)
        })
        .collect()
}

/// Width of the widest interval of a ratio, relative to the ratio; `None` with fewer than two rounds.
pub fn widest_interval(records: &[RunRecord]) -> Option<f64> {
    let widths = rows(records).into_iter().filter(|row| !row.is_baseline);
    let widths = widths.map(|row| row.ratio?.relative_width());
    widths.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
}

/// Reasons why the numbers can't show small differences, one per line. The CPU load of other processes is checked
/// only in native runs, because in the others it can't be distinguished from the daemon's.
pub fn noise(records: &[RunRecord], rows: &[LadderRow]) -> Vec<String> {
    let of_native: Vec<RunRecord> = records
        .iter()
        .filter(|record| record.label == NATIVE)
        .cloned()
        .collect();
    let machine = Noise::of(&of_native).into_iter();
    let machine = machine.filter(|noise| !matches!(noise, Noise::WideInterval { .. }));
    let wide = rows
        .iter()
        .filter_map(|row| Noise::of_width(&row.label, &row.ratio?));
    let all = machine.chain(wide);
    all.map(|noise| format!("too noisy to tell small differences: {noise}"))
        .collect()
}

/// Descriptions of the rows, one per line.
pub fn legend(rows: &[LadderRow]) -> String {
    let lines = rows
        .iter()
        .map(|row| format!("{:<10} {}\n", row.label, row.description));
    format!("\n{}", lines.collect::<String>())
}

/// Note on rows that violate the paper's order, in which each rung is faster than the one before.
pub fn order_note(rows: &[LadderRow]) -> Option<String> {
    let in_paper = |row: &&LadderRow| {
        LADDER
            .iter()
            .any(|configuration| configuration.is_in_paper && configuration.label == row.label)
    };
    let ladder: Vec<(&str, f64)> = rows
        .iter()
        .filter(in_paper)
        .filter_map(|row| Some((row.label.as_str(), row.ratio_to_native()?)))
        .collect();
    let (lower, upper) = ladder
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .find(|(lower, upper)| lower.1 >= upper.1)?;
    Some(format!(
        "not in the order of the paper: {} ({:.2} of native) is not slower than {} ({:.2}); is the machine busy?",
        lower.0, lower.1, upper.0, upper.1
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use results::{HostInfo, LatencyHistogram, SCHEMA, Sample, TargetInfo, TimedWindow, counter};

    use super::*;

    fn record(label: &str, round: u32, elapsed_ns: u64) -> RunRecord {
        let window = TimedWindow::of(elapsed_ns);
        let sample = Sample::new("write", (1, 1_000_000_000), window, LatencyHistogram::new()).unwrap();
        RunRecord {
            schema: SCHEMA.into(),
            command: Vec::new(),
            tool_version: String::new(),
            started_unix_ns: 0,
            host: HostInfo::default(),
            target: TargetInfo::default(),
            label: label.into(),
            round,
            workload: serde_json::Value::Null,
            samples: vec![sample],
            counters: BTreeMap::from([(counter::BACKING_WRITES.to_owned(), 1024.0)]),
            complete: true,
        }
    }

    fn records(times_ns: [(&str, u64); 4]) -> Vec<RunRecord> {
        (0..3)
            .flat_map(|round| times_ns.map(|(label, ns)| record(label, round, ns)))
            .collect()
    }

    #[test]
    fn a_ladder_in_order_has_no_note() {
        let rows = rows(&records([
            ("native", 1_000_000_000),
            ("fuse-4k", 20_000_000_000),
            ("fuse-512k", 2_000_000_000),
            ("bfuse-8m", 1_500_000_000),
        ]));
        assert_eq!(order_note(&rows), None);
        assert_eq!(rows[2].ratio_to_native(), Some(0.5));
        assert_eq!(rows[2].backing_writes, Some(1024.0));
    }

    #[test]
    fn ratios_that_scatter_are_told_with_their_row() {
        let mut records = records([
            ("native", 1_000_000_000),
            ("fuse-4k", 20_000_000_000),
            ("fuse-512k", 2_000_000_000),
            ("bfuse-8m", 1_500_000_000),
        ]);
        assert_eq!(widest_interval(&records), Some(0.0));
        assert_eq!(noise(&records, &rows(&records)), Vec::<String>::new());
        records.push(record("native", 3, 1_000_000_000));
        records.push(record("bfuse-8m", 3, 3_000_000_000));
        let told = noise(&records, &rows(&records));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("range of bfuse-8m is 50 %"), "{told:?}");
        assert_eq!(widest_interval(&records), Some(0.5));
    }

    #[test]
    fn a_ladder_out_of_order_names_the_two_rungs() {
        let rows = rows(&records([
            ("native", 1_000_000_000),
            ("fuse-4k", 2_000_000_000),
            ("fuse-512k", 3_000_000_000),
            ("bfuse-8m", 1_500_000_000),
        ]));
        let note = order_note(&rows).unwrap();
        assert!(note.contains("fuse-4k") && note.contains("fuse-512k"), "{note}");
    }
}
