//! The ladder: the same workload on a series of configurations, each compared with the native file system in the same
//! round; after the combined study of the papers (base, larger I/O unit, buffer, tuned).

use results::{Estimate, RunRecord, Summary, WANTED_COVERAGE, counter, paired_ratio, values_by_round};

use crate::html;
use crate::number;
use crate::svg::{Bar, BarChart, BarGroup, Scale};
use crate::text_table::{Column, table};

/// Counter of the run records: backing writes derived from the program's writes, for configurations without a daemon
/// that counts them.
pub const BACKING_WRITES_COMPUTED: &str = "backing_writes_computed_count";

/// Result of one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderRow {
    /// Rows of one group are drawn side by side and share a baseline (a file system, a workload). May be empty.
    pub group: String,
    /// Short name, drawn below the bar.
    pub label: String,
    /// Description of the configuration, in a sentence.
    pub description: String,
    /// Whether this is the native file system, the reference line for the others.
    pub is_baseline: bool,
    /// Throughput of each round in MB/s (10^6 bytes per second), rounds in order.
    pub mb_per_s: Vec<f64>,
    /// This configuration's throughput over the baseline's in the same round, rounds in order.
    pub ratios: Vec<f64>,
    /// Median of those with its interval; 1 for the baseline. It is the number that tables tell and charts draw.
    pub ratio: Option<Estimate>,
    /// Writes that reached the underlying file system, median of the rounds.
    pub backing_writes: Option<f64>,
    /// Whether those writes were derived from the program's writes, not counted by a daemon.
    pub backing_writes_computed: bool,
    /// Context switches of the machine (of the workers if the machine's are unknown), median of the rounds.
    pub context_switches: Option<f64>,
    /// Active processor time of the machine in percent, median of the rounds.
    pub cpu_active_percent: Option<f64>,
}

/// The records of a row, and its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderStep {
    /// See [`LadderRow::group`].
    pub group: String,
    /// Label of the records.
    pub run_label: String,
    /// See [`LadderRow::label`].
    pub label: String,
    /// See [`LadderRow::description`].
    pub description: String,
}

impl LadderRow {
    /// The row of one step. `records` belong to one workload; incomplete ones are ignored.
    #[must_use]
    pub fn from_records(records: &[RunRecord], baseline_label: &str, step: &LadderStep) -> Self {
        let throughput = values_by_round(records, &step.run_label, RunRecord::mb_per_s);
        let baseline = values_by_round(records, baseline_label, RunRecord::mb_per_s);
        let paired = paired_ratio(&baseline, &throughput);
        let counter = |name: &str| {
            let values = values_by_round(records, &step.run_label, |record| {
                record.counters.get(name).copied()
            });
            let values: Vec<f64> = values.iter().map(|round| round.value).collect();
            results::median(&values)
        };
        Self {
            group: step.group.clone(),
            label: step.label.clone(),
            description: step.description.clone(),
            is_baseline: step.run_label == baseline_label,
            ratio: paired.as_ref().and_then(Estimate::of_paired_ratio),
            ratios: paired
                .map(|paired| paired.ratios.iter().map(|round| round.value).collect())
                .unwrap_or_default(),
            mb_per_s: throughput.iter().map(|round| round.value).collect(),
            backing_writes: counter(counter::BACKING_WRITES),
            backing_writes_computed: counter(BACKING_WRITES_COMPUTED).is_some_and(|computed| computed > 0.0),
            context_switches: counter(counter::CONTEXT_SWITCHES_SYSTEM)
                .or_else(|| counter(counter::CONTEXT_SWITCHES_VOLUNTARY)),
            cpu_active_percent: counter(counter::CPU_ACTIVE),
        }
    }

    /// Median of the ratios to the baseline, if finite.
    #[must_use]
    pub fn ratio_to_native(&self) -> Option<f64> {
        let ratio = self.ratio.map(|ratio| ratio.value);
        ratio.filter(|ratio| ratio.is_finite())
    }

    /// Median, minimum and maximum throughput; `None` without a finite sample.
    #[must_use]
    pub fn throughput(&self) -> Option<Summary> {
        Summary::of(&self.mb_per_s)
    }
}

/// Throughput of each configuration as a part of native's: the median of the ratios as a bar, each round's as a dot,
/// native as a line.
#[must_use]
pub fn throughput_chart(rows: &[LadderRow]) -> BarChart {
    let bar = |series: usize, row: &LadderRow| {
        let ratio = row
            .ratio_to_native()
            .map_or_else(|| number::NOT_AVAILABLE.to_owned(), number::ratio);
        let value = row.throughput().map_or_else(
            || number::NOT_AVAILABLE.to_owned(),
            |all| number::significant(all.median),
        );
        Bar {
            label: row.label.clone(),
            value: row.ratio_to_native(),
            samples: row.ratios.clone(),
            tooltip: format!(
                "{}: {} of native, {value} MB/s. {}",
                row.label,
                with_interval(row),
                row.description
            ),
            annotation: vec![format!("{ratio}×"), format!("{value} MB/s")],
            series,
        }
    };
    let reference = |rows: &[&LadderRow]| {
        let baseline = rows.iter().find(|row| row.is_baseline)?;
        baseline.ratio_to_native()
    };
    BarChart {
        title: "Throughput of each configuration as a part of the native file system's".to_owned(),
        axis: "of native".to_owned(),
        scale: Scale::Linear,
        groups: grouped(rows, bar, reference),
    }
}

/// The ratio, and its interval where there is one.
fn with_interval(row: &LadderRow) -> String {
    let Some(ratio) = row.ratio.filter(|ratio| ratio.value.is_finite()) else {
        return "–".to_owned();
    };
    if ratio.count < 2 || row.is_baseline {
        return number::ratio(ratio.value);
    }
    format!(
        "{} [{}, {}]",
        number::ratio(ratio.value),
        number::ratio(ratio.low),
        number::ratio(ratio.high)
    )
}

/// Writes that reached the underlying file system, on a logarithmic axis. Omits rows without that number (native); if
/// none has it, the chart is empty.
#[must_use]
pub fn backing_writes_chart(rows: &[LadderRow]) -> BarChart {
    let bar = |series: usize, row: &LadderRow| {
        let writes = row
            .backing_writes
            .map_or_else(|| number::NOT_AVAILABLE.to_owned(), number::count);
        let mut annotation = vec![writes.clone()];
        if row.backing_writes_computed {
            annotation.push("computed".to_owned());
        }
        Bar {
            label: row.label.clone(),
            value: row.backing_writes,
            samples: Vec::new(),
            tooltip: format!("{}: {writes} writes. {}", row.label, row.description),
            annotation,
            series,
        }
    };
    let mut groups = grouped(rows, bar, |_| None);
    for group in &mut groups {
        group.bars.retain(|bar| bar.value.is_some());
    }
    groups.retain(|group| !group.bars.is_empty());
    BarChart {
        title: "Writes that reach the file system below".to_owned(),
        axis: "write calls (logarithmic)".to_owned(),
        scale: Scale::Logarithmic,
        groups,
    }
}

/// The numbers of both charts, for the page.
#[must_use]
pub fn html_table(rows: &[LadderRow]) -> String {
    html::table(&columns(rows), &cells(rows))
}

/// The numbers of both charts, for the terminal.
#[must_use]
pub fn text_table(rows: &[LadderRow]) -> String {
    table(&columns(rows), &cells(rows))
}

/// The groups in order of their first row; colours follow the position in the group.
fn grouped(
    rows: &[LadderRow],
    bar: impl Fn(usize, &LadderRow) -> Bar,
    reference: impl Fn(&[&LadderRow]) -> Option<f64>,
) -> Vec<BarGroup> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.group.as_str()) {
            names.push(&row.group);
        }
    }
    names
        .into_iter()
        .map(|name| {
            let members: Vec<&LadderRow> = rows.iter().filter(|row| row.group == name).collect();
            BarGroup {
                label: name.to_owned(),
                reference: reference(&members),
                bars: members
                    .iter()
                    .enumerate()
                    .map(|(series, row)| bar(series, row))
                    .collect(),
            }
        })
        .collect()
}

fn has_groups(rows: &[LadderRow]) -> bool {
    rows.iter().any(|row| !row.group.is_empty())
}

fn columns(rows: &[LadderRow]) -> Vec<Column> {
    let mut columns = vec![
        Column::left("configuration"),
        Column::right("MB/s"),
        Column::right("min–max"),
        Column::right(interval_title(rows)),
        Column::right("backing writes"),
        Column::right("context switches"),
        Column::right("CPU active %"),
    ];
    if has_groups(rows) {
        columns.insert(1, Column::left("group"));
    }
    columns
}

/// With six rounds or more the brackets hold an interval of 95 %, with fewer the range.
fn interval_title(rows: &[LadderRow]) -> &'static str {
    let mut compared = rows.iter().filter(|row| !row.is_baseline);
    let covers = |row: &LadderRow| row.ratio.is_none_or(|ratio| ratio.coverage >= WANTED_COVERAGE);
    if compared.all(covers) {
        "of native [95 %]"
    } else {
        "of native [min, max]"
    }
}

fn cells(rows: &[LadderRow]) -> Vec<Vec<String>> {
    let or_dash = |value: Option<f64>, text: fn(f64) -> String| {
        value
            .filter(|value| value.is_finite())
            .map_or_else(|| "–".to_owned(), text)
    };
    let with_groups = has_groups(rows);
    rows.iter()
        .map(|row| {
            let summary = row.throughput();
            let range = summary.map_or_else(
                || "–".to_owned(),
                |all| {
                    format!(
                        "{}–{}",
                        number::significant(all.min),
                        number::significant(all.max)
                    )
                },
            );
            let mut cells = vec![
                row.label.clone(),
                or_dash(summary.map(|all| all.median), number::significant),
                range,
                with_interval(row),
                or_dash(row.backing_writes, number::count)
                    + if row.backing_writes_computed {
                        " (computed)"
                    } else {
                        ""
                    },
                or_dash(row.context_switches, number::count),
                or_dash(row.cpu_active_percent, |percent| format!("{percent:.1}")),
            ];
            if with_groups {
                cells.insert(1, row.group.clone());
            }
            cells
        })
        .collect()
}
