//! Several workloads on several configurations: for each workload, the speed of each configuration relative to a
//! baseline.
//!
//! Ratios are computed within each round (see [`results::paired_ratio`]), and are always "higher is better":
//! throughput over the baseline's, or the baseline's time over the configuration's. Incomplete runs are ignored.

use results::words::counted;
use results::{HostInfo, PairedRatio, RunRecord, Summary, nearest_f64, paired_ratio, values_by_round};

use crate::html::{self, escape};
use crate::number;
use crate::page;
use crate::svg::{Bar, BarChart, BarGroup, Scale};
use crate::text_table::{Column, table};

/// Steps of a workload on many small files: the name in the table, and the operations that it sums.
const FILE_STEPS: [(&str, &[&str]); 3] = [
    ("create", &["create"]),
    ("list", &["list", "stat"]),
    ("remove", &["remove"]),
];

/// One workload on all configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the workload.
    pub workload: String,
    /// Label of the configuration that the others are compared with.
    pub baseline: String,
    /// Unit of the speeds: `MB/s` (10^6 bytes per second) or `files/s`.
    pub unit: &'static str,
    /// The configurations, in the order of the first round.
    pub rows: Vec<ComparisonRow>,
}

/// One configuration under one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonRow {
    /// Label of the records.
    pub label: String,
    /// Speed of each complete run, rounds in order.
    pub speeds: Vec<f64>,
    /// Ratio to the baseline's speed in the same round; `None` if they share no round.
    pub ratio: Option<PairedRatio>,
    /// Steps of the workload, each with its median ratio; empty if there is only one step.
    pub steps: Vec<(&'static str, Option<f64>)>,
}

/// Content of the page of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparisonInput {
    /// Heading, also the title of the window.
    pub title: String,
    /// Description of the measurement, in a sentence.
    pub subtitle: String,
    /// Every run, including incomplete ones, in the order of measurement.
    pub records: Vec<RunRecord>,
    /// Computed from the records by [`Comparison::all`].
    pub comparisons: Vec<Comparison>,
    /// Notes about the run, such as skipped parts or missed requirements.
    pub notes: Vec<String>,
}

/// The name of a record's workload, if it has one.
#[must_use]
pub fn workload_name(record: &RunRecord) -> Option<&str> {
    record.workload.get("name")?.as_str()
}

impl Comparison {
    /// One comparison for each named workload, in the order of the records.
    #[must_use]
    pub fn all(records: &[RunRecord], baseline: &str) -> Vec<Self> {
        page::distinct(records.iter().filter_map(workload_name))
            .into_iter()
            .map(|name| {
                let of_workload = records
                    .iter()
                    .filter(|record| workload_name(record) == Some(name));
                Self::of(name, &of_workload.cloned().collect::<Vec<_>>(), baseline)
            })
            .collect()
    }

    fn of(name: &str, records: &[RunRecord], baseline: &str) -> Self {
        let counts_files = records.iter().any(is_about_files);
        let row = |label: &str| {
            let compare = |speed: &dyn Fn(&RunRecord) -> Option<f64>| {
                let measured = values_by_round(records, label, speed);
                let ratio = paired_ratio(&values_by_round(records, baseline, speed), &measured);
                (measured, ratio)
            };
            let (measured, ratio) = compare(&speed);
            let steps = FILE_STEPS.iter().filter(|_| counts_files);
            ComparisonRow {
                label: label.to_owned(),
                speeds: measured.iter().map(|round| round.value).collect(),
                ratio,
                steps: steps
                    .map(|(name, operations)| {
                        let (_, ratio) = compare(&|record| files_per_s(record, operations));
                        (*name, ratio.map(|ratio| ratio.summary.median))
                    })
                    .collect(),
            }
        };
        let labels = page::distinct(records.iter().map(|record| record.label.as_str()));
        Self {
            workload: name.to_owned(),
            baseline: baseline.to_owned(),
            unit: if counts_files { "files/s" } else { "MB/s" },
            rows: labels.into_iter().map(row).collect(),
        }
    }

    /// Median ratio of a configuration; `None` if it shares no round with the baseline.
    #[must_use]
    pub fn ratio_of(&self, label: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.label == label)?;
        Some(row.ratio.as_ref()?.summary.median)
    }

    /// Ratios as bars, each round as a dot, the baseline as a line.
    #[must_use]
    pub fn chart(&self) -> BarChart {
        let bars = self.rows.iter().enumerate().map(|(series, row)| {
            let ratio = row.ratio.as_ref();
            let speed = self.speed_text(row);
            let ratio_text = ratio.map_or_else(
                || number::NOT_AVAILABLE.to_owned(),
                |ratio| number::ratio(ratio.summary.median),
            );
            Bar {
                label: row.label.replace(['-', '_'], " "),
                value: ratio.map(|ratio| ratio.summary.median),
                samples: ratio.map_or_else(Vec::new, |ratio| {
                    ratio.ratios.iter().map(|round| round.value).collect()
                }),
                tooltip: format!(
                    "{}: {ratio_text} of {}, {speed} {}",
                    row.label, self.baseline, self.unit
                ),
                annotation: vec![format!("{ratio_text}×"), speed],
                series,
            }
        });
        BarChart {
            title: format!(
                "{}: speed of each configuration beside {}",
                self.workload, self.baseline
            ),
            axis: format!("of {}", self.baseline),
            scale: Scale::Linear,
            groups: vec![BarGroup {
                label: String::new(),
                reference: Some(1.0),
                bars: bars.collect(),
            }],
        }
    }

    /// A heading and the numbers, for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\n{}", self.workload, table(&self.columns(), &self.cells()))
    }

    fn section(&self) -> String {
        let rounds = self.rows.iter().map(|row| row.speeds.len()).max().unwrap_or(0);
        let caption = format!(
            "Higher is better. Bar and bold: median of the ratios to {} in the same round, {}; dot: one round; below: \
             median speed in {}.",
            self.baseline,
            counted(rounds, "round"),
            self.unit
        );
        html::text("h2", &self.workload)
            + &html::figure(&self.chart().render(), &caption)
            + &html::table(&self.columns(), &self.cells())
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = vec![
            Column::left("configuration"),
            Column::right(self.unit),
            Column::right("min–max"),
            Column::right(&format!("of {}", self.baseline)),
            Column::right("min–max"),
        ];
        if let Some(row) = self.rows.first() {
            columns.extend(row.steps.iter().map(|(name, _)| Column::right(name)));
        }
        columns.push(Column::right("rounds"));
        columns
    }

    fn cells(&self) -> Vec<Vec<String>> {
        let cells_of = |row: &ComparisonRow| {
            let speed = Summary::of(&row.speeds);
            let mut cells = vec![
                row.label.clone(),
                self.speed_text(row),
                or_dash(speed, |all| range(all, number::significant)),
                or_dash(row.ratio.as_ref(), |ratio| number::ratio(ratio.summary.median)),
                or_dash(row.ratio.as_ref(), |ratio| range(ratio.summary, number::ratio)),
            ];
            cells.extend(
                row.steps
                    .iter()
                    .map(|(_, median)| or_dash(*median, number::ratio)),
            );
            cells.push(row.speeds.len().to_string());
            cells
        };
        self.rows.iter().map(cells_of).collect()
    }

    fn speed_text(&self, row: &ComparisonRow) -> String {
        or_dash(Summary::of(&row.speeds), |all| number::significant(all.median))
    }
}

/// Renders one self-contained HTML file: a section for each workload, then target, host and commands.
#[must_use]
pub fn render(input: &ComparisonInput) -> String {
    let mut html = page::head(&input.title);
    html += "<header>\n";
    html += &page::heading(&input.title, &input.subtitle, &input.records);
    html += "</header>\n";
    for comparison in &input.comparisons {
        html += &comparison.section();
    }
    if input.comparisons.is_empty() {
        html += "<p class=\"empty\">No comparison was made.</p>\n";
    }
    html += &page::notes(&input.notes);
    html += &page::environment(&input.records);
    html += &page::raw_samples(&input.records);
    html += &page::rerun(&input.records);
    html += &page::footer(&input.records);
    html + "</body>\n</html>\n"
}

/// One Markdown table: a row for each workload, a column for each configuration, with the baseline's speed and the
/// others' ratios including minimum and maximum, followed by the machine.
#[must_use]
pub fn markdown(comparisons: &[Comparison], records: &[RunRecord]) -> String {
    let labels = page::distinct(
        comparisons
            .iter()
            .flat_map(|one| one.rows.iter().map(|row| row.label.as_str())),
    );
    let mut text = String::from("| workload |");
    for label in &labels {
        text += &format!(" {} |", cell(label));
    }
    text += "\n|---|";
    text += &"---:|".repeat(labels.len());
    text.push('\n');
    for comparison in comparisons {
        text += &format!("| {} |", cell(&comparison.workload));
        for label in &labels {
            let row = comparison.rows.iter().find(|row| row.label == *label);
            text += &format!(" {} |", or_dash(row, |row| markdown_cell(comparison, row)));
        }
        text.push('\n');
    }
    let rounds = records.iter().map(|record| record.round + 1).max().unwrap_or(0);
    text += &format!(
        "\nThe baseline's median speed; for the others the median of their ratios to it in the same round, and the \
         smallest and largest. Rounds: {rounds}.\n"
    );
    for machine in page::distinct(records.iter().map(|record| machine(&record.host))) {
        text += &machine;
    }
    text
}

fn machine(host: &HostInfo) -> String {
    let processor = host.processor.as_deref().unwrap_or("unknown processor");
    let memory = number::bytes(host.memory_bytes);
    format!(
        "Machine: {}, {}, {} x {processor}, {memory}.\n",
        host.kernel, host.machine, host.cpus
    )
}

fn markdown_cell(comparison: &Comparison, row: &ComparisonRow) -> String {
    if row.label == comparison.baseline {
        return format!("{} {}", comparison.speed_text(row), comparison.unit);
    }
    or_dash(row.ratio.as_ref(), |ratio| {
        let all = ratio.summary;
        format!(
            "**{}** ({})",
            number::ratio(all.median),
            range(all, number::ratio)
        )
    })
}

/// Text that can't end its table cell.
fn cell(text: &str) -> String {
    escape(text).replace('|', "\\|").replace('\n', " ")
}

fn is_about_files(record: &RunRecord) -> bool {
    record.workload.get("kind").and_then(|kind| kind.as_str()) == Some("metadata")
}

/// Throughput; for workloads on many small files, files over the time of all steps.
fn speed(record: &RunRecord) -> Option<f64> {
    if is_about_files(record) {
        let operations: Vec<&str> = FILE_STEPS
            .iter()
            .flat_map(|(_, all)| all.iter().copied())
            .collect();
        files_per_s(record, &operations)
    } else {
        record.mb_per_s()
    }
}

/// Files over the total time of these operations; `None` if one of them is missing.
fn files_per_s(record: &RunRecord, operations: &[&str]) -> Option<f64> {
    let mut elapsed_ns = 0_u64;
    let mut files = 0;
    for operation in operations {
        let sample = record.sample(operation)?;
        elapsed_ns = elapsed_ns.saturating_add(sample.elapsed_ns);
        files = files.max(sample.operations_count);
    }
    (elapsed_ns > 0).then(|| nearest_f64(files) * 1e9 / nearest_f64(elapsed_ns))
}

fn range(all: Summary, text: fn(f64) -> String) -> String {
    format!("{}–{}", text(all.min), text(all.max))
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use results::{HostInfo, LatencyHistogram, SCHEMA, Sample, TargetInfo, TimedWindow};

    use super::*;

    fn record(name: &str, label: &str, round: u32, samples: &[(&str, u64)]) -> RunRecord {
        let sample = |(operation, elapsed_ns): &(&str, u64)| {
            let window = TimedWindow::of(*elapsed_ns);
            Sample::new(*operation, (1000, 1_000_000_000), window, LatencyHistogram::new()).unwrap()
        };
        let kind = if samples.len() > 1 { "metadata" } else { "file" };
        RunRecord {
            schema: SCHEMA.to_owned(),
            command: Vec::new(),
            tool_version: "1".to_owned(),
            started_unix_ns: 0,
            host: HostInfo::default(),
            target: TargetInfo::default(),
            label: label.to_owned(),
            round,
            workload: serde_json::json!({ "name": name, "kind": kind }),
            samples: samples.iter().map(sample).collect(),
            counters: BTreeMap::new(),
            complete: true,
        }
    }

    const SECOND: u64 = 1_000_000_000;

    fn steps(create: u64, list: u64, stat: u64, remove: u64) -> [(&'static str, u64); 4] {
        [
            ("create", create),
            ("list", list),
            ("stat", stat),
            ("remove", remove),
        ]
    }

    fn records() -> Vec<RunRecord> {
        let write = |label, round, seconds| record("write", label, round, &[("write", seconds * SECOND)]);
        let files = |label, times: [(&'static str, u64); 4]| record("files", label, 0, &times);
        vec![
            write("native", 0, 1),
            write("other", 0, 2),
            write("other", 1, 4),
            write("native", 1, 1),
            files("native", steps(SECOND, SECOND, SECOND, SECOND)),
            files("other", steps(2 * SECOND, SECOND, 3 * SECOND, 4 * SECOND)),
        ]
    }

    #[test]
    fn each_workload_is_compared_by_itself_in_the_order_of_the_records() {
        let all = Comparison::all(&records(), "native");
        let names: Vec<&str> = all.iter().map(|one| one.workload.as_str()).collect();
        assert_eq!(names, ["write", "files"]);
        assert_eq!(all[0].ratio_of("other"), Some(0.375), "the median of 1/2 and 1/4");
        assert_eq!(all[0].ratio_of("native"), Some(1.0));
        assert_eq!(all[0].ratio_of("nobody"), None);
    }

    #[test]
    fn small_files_are_compared_by_the_time_of_all_steps_and_of_each() {
        let all = Comparison::all(&records(), "native");
        assert_eq!(all[1].unit, "files/s");
        assert_eq!(all[1].ratio_of("other"), Some(0.4), "4 s over 10 s");
        let steps = &all[1].rows[1].steps;
        assert_eq!(
            *steps,
            [("create", Some(0.5)), ("list", Some(0.5)), ("remove", Some(0.25))]
        );
    }

    #[test]
    fn runs_that_were_stopped_take_no_part() {
        let mut records = records();
        records[2].complete = false;
        assert_eq!(
            Comparison::all(&records, "native")[0].ratio_of("other"),
            Some(0.5)
        );
    }

    #[test]
    fn the_markdown_table_has_a_row_for_each_workload() {
        let records = records();
        let text = markdown(&Comparison::all(&records, "native"), &records);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| workload | native | other |");
        assert_eq!(lines[1], "|---|---:|---:|");
        assert_eq!(lines[2], "| write | 1,000 MB/s | **0.38** (0.25–0.50) |");
        assert!(lines[3].starts_with("| files | 250 files/s | **0.40**"), "{text}");
    }

    #[test]
    fn a_machine_is_told_once_whatever_its_load_was() {
        let mut records = records();
        for (load, record) in [0.5, 1.25].iter().cycle().zip(&mut records) {
            record.host.load_average = Some(*load);
        }
        let comparisons = Comparison::all(&records, "native");
        let text = markdown(&comparisons, &records);
        assert_eq!(text.matches("Machine:").count(), 1, "{text}");
        let page = render(&ComparisonInput {
            title: "t".to_owned(),
            subtitle: String::new(),
            comparisons,
            records,
            notes: Vec::new(),
        });
        assert_eq!(page.matches("<dt>kernel</dt>").count(), 1, "{page}");
    }

    #[test]
    fn the_page_has_a_section_for_each_workload_and_names_it_in_the_samples() {
        let records = records();
        let page = render(&ComparisonInput {
            title: "t".to_owned(),
            subtitle: String::new(),
            comparisons: Comparison::all(&records, "native"),
            records,
            notes: vec!["<left out>".to_owned()],
        });
        for part in [
            "<h2>write</h2>",
            "<h2>files</h2>",
            "&lt;left out&gt;",
            "<th scope=\"col\">workload</th>",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }
}
