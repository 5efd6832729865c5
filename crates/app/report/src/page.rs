//! The report page: headline, charts, table, environment, raw samples, commands to repeat it.

use results::words::counted;
use results::{HostInfo, RunRecord, Sample, TargetInfo};

use crate::comparison;
use crate::html::{self, escape};
use crate::ladder::{self, LadderRow};
use crate::number;
use crate::text_table::Column;

const STYLE: &str = include_str!("page.css");

/// Content of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportInput {
    /// Heading, also the title of the window.
    pub title: String,
    /// Description of the measurement, in a sentence.
    pub subtitle: String,
    /// Every run, including incomplete ones, in the order of measurement.
    pub records: Vec<RunRecord>,
    /// The comparison, from the native file system to the fastest configuration.
    pub ladder: Vec<LadderRow>,
    /// Notes about the run, such as skipped parts or what the kernel granted.
    pub notes: Vec<String>,
}

/// Renders one self-contained HTML file.
#[must_use]
pub fn render(input: &ReportInput) -> String {
    let mut page = head(&input.title);
    page += "<header>\n";
    page += &heading(&input.title, &input.subtitle, &input.records);
    if let Some(sentence) = headline(&input.ladder) {
        page += &format!("<p class=\"headline\">{}</p>\n", escape(&sentence));
    }
    page += "</header>\n";
    page += &ladder_section(&input.ladder);
    page += &notes(&input.notes);
    page + &tail(&input.records)
}

/// Everything of a page before its first visible element: title and style sheet.
#[must_use]
pub fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
    )
}

/// Everything of a page after its figures: the machine, the raw samples, the commands and the end.
#[must_use]
pub fn tail(records: &[RunRecord]) -> String {
    let page = environment(records) + &raw_samples(records) + &rerun(records) + &footer(records);
    page + "</body>\n</html>\n"
}

/// The heading, the description, and the time of the measurement.
#[must_use]
pub fn heading(title: &str, subtitle: &str, records: &[RunRecord]) -> String {
    let mut html = html::text("h1", title);
    html += &format!("<p class=\"subtitle\">{}</p>\n", escape(subtitle));
    let starts = records.iter().map(|record| record.started_unix_ns);
    if let (Some(first), Some(last)) = (starts.clone().min(), starts.max()) {
        let (runs, first, last) = (
            counted(records.len(), "run"),
            number::utc(first),
            number::utc(last),
        );
        html += &format!("<p class=\"when\">{runs}, first started {first}, last started {last}</p>\n");
    }
    html
}

/// The main result, from the lowest to the highest step of the ladder; `None` if there is nothing to compare.
fn headline(rows: &[LadderRow]) -> Option<String> {
    let compared = || {
        rows.iter().filter(|row| !row.is_baseline).filter_map(|row| {
            let ratio = row.ratio_to_native().filter(|ratio| ratio.is_finite())?;
            Some((row, ratio))
        })
    };
    let name = |row: &LadderRow| {
        if row.group.is_empty() {
            row.label.clone()
        } else {
            format!("{} ({})", row.label, row.group)
        }
    };
    let (best, best_ratio) = compared().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let (worst, worst_ratio) = compared().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let best_text = format!(
        "{} reaches {} of native throughput",
        name(best),
        number::ratio(best_ratio)
    );
    Some(if std::ptr::eq(best, worst) {
        format!("{best_text}.")
    } else {
        format!(
            "{best_text}; {} reaches {}.",
            name(worst),
            number::ratio(worst_ratio)
        )
    })
}

fn ladder_section(rows: &[LadderRow]) -> String {
    if rows.is_empty() {
        return "<h2>Throughput</h2>\n<p class=\"empty\">No comparison was made.</p>\n".to_owned();
    }
    let rounds = rows.iter().map(|row| row.mb_per_s.len()).max().unwrap_or(0);
    let mut html = html::text("h2", "Throughput");
    html += &html::figure(
        &ladder::throughput_chart(rows).render(),
        &format!(
            "Higher is better. Bar: median of {}; dot: one round; bold: median of the rounds' ratios to native in the \
             same round; dashed line: native. 1 MB is 1,000,000 bytes.",
            counted(rounds, "round"),
        ),
    );
    html += &descriptions(rows);
    let writes = ladder::backing_writes_chart(rows).render();
    if !writes.is_empty() {
        html += &html::text("h2", "Writes that reach the file system below");
        html += &html::figure(
            &writes,
            "Fewer is better: fewer, larger writes. Logarithmic axis. Counted by the daemon, where one makes the \
             writes. Where none does, the number is computed: native, and with passthrough the kernel, hand on each \
             write of the program as it is, so there are as many as records, by construction.",
        );
    }
    html += &html::text("h2", "Numbers");
    html + &ladder::html_table(rows)
}

/// The description of each configuration, once per name.
fn descriptions(rows: &[LadderRow]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    let mut html = String::new();
    for row in rows {
        if !row.description.is_empty() && !seen.contains(&row.label.as_str()) {
            seen.push(&row.label);
            let (label, description) = (escape(&row.label), escape(&row.description));
            html += &format!("<div><dt>{label}</dt><dd>{description}</dd></div>\n");
        }
    }
    if html.is_empty() {
        html
    } else {
        format!("<dl class=\"steps\">\n{html}</dl>\n")
    }
}

pub(crate) fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| html::text("li", note)).collect();
    format!("<h2>Notes</h2>\n<ul>\n{items}</ul>\n")
}

pub(crate) fn environment(records: &[RunRecord]) -> String {
    let mut html = html::text("h2", "Environment");
    if records.is_empty() {
        return html + "<p class=\"empty\">No run was recorded.</p>\n";
    }
    // The load of a host varies between runs, so this compares the lists without it.
    let versions = versions(records);
    for host in distinct(records.iter().map(|record| host_list(&record.host, &versions))) {
        html += &host;
    }
    html += &html::text("h3", "File systems under test");
    let columns = [
        "configuration",
        "type",
        "source",
        "options",
        "block device",
        "scheduler",
        "directory",
    ];
    let columns = columns.map(Column::left);
    let rows: Vec<Vec<String>> = distinct(
        records
            .iter()
            .map(|record| (&record.label, place(&record.target))),
    )
    .into_iter()
    .map(|(label, place)| [vec![label.clone()], place].concat())
    .collect();
    html + &html::table(&columns, &rows)
}

fn host_list(host: &HostInfo, versions: &str) -> String {
    html::definitions(&[
        ("kernel", Some(host.kernel.clone())),
        ("architecture", Some(host.machine.clone())),
        ("processor", host.processor.clone()),
        ("processors", Some(host.cpus.to_string())),
        ("memory", Some(number::bytes(host.memory_bytes))),
        ("tidegate", Some(versions.to_owned())),
    ])
}

fn versions(records: &[RunRecord]) -> String {
    let versions = distinct(records.iter().map(|record| record.tool_version.as_str()));
    versions.join(", ")
}

fn place(target: &TargetInfo) -> Vec<String> {
    let or_dash = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".to_owned());
    vec![
        or_dash(&target.file_system_type),
        or_dash(&target.mount_source),
        or_dash(&target.mount_options),
        or_dash(&target.block_device),
        or_dash(&target.scheduler),
        target.path.clone(),
    ]
}

pub(crate) fn raw_samples(records: &[RunRecord]) -> String {
    let mut columns = vec![
        Column::left("configuration"),
        Column::right("round"),
        Column::left("operation"),
        Column::right("operations"),
        Column::right("bytes"),
        Column::right("window"),
        Column::right("of it sync"),
        Column::right("of it close"),
        Column::right("MB/s"),
        Column::right("per second"),
        Column::right("p50"),
        Column::right("p90"),
        Column::right("p99"),
        Column::right("p99.9"),
        Column::right("max"),
        Column::left("complete"),
    ];
    let mut rows: Vec<Vec<String>> = records
        .iter()
        .flat_map(|record| {
            record
                .samples
                .iter()
                .map(move |sample| sample_cells(record, sample))
        })
        .collect();
    if records
        .iter()
        .any(|record| comparison::workload_name(record).is_some())
    {
        columns.insert(0, Column::left("workload"));
        let samples = records
            .iter()
            .flat_map(|record| record.samples.iter().map(move |_| record));
        for (row, record) in rows.iter_mut().zip(samples) {
            row.insert(
                0,
                comparison::workload_name(record).unwrap_or_default().to_owned(),
            );
        }
    }
    let (head, table) = (counted(rows.len(), "sample"), html::table(&columns, &rows));
    format!(
        "<h2>Raw samples</h2>\n<details>\n<summary>{head}, with latencies of each operation</summary>\n{table}{}\
         </details>\n",
        counters(records)
    )
}

fn sample_cells(record: &RunRecord, sample: &Sample) -> Vec<String> {
    let rate = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number::significant);
    let mut cells = vec![
        record.label.clone(),
        (u64::from(record.round) + 1).to_string(),
        sample.operation.clone(),
        number::count(results::nearest_f64(sample.operations_count)),
        number::count(results::nearest_f64(sample.bytes)),
        number::duration_ns(sample.elapsed_ns),
        number::duration_ns(sample.sync_ns),
        number::duration_ns(sample.close_ns),
        rate(sample.mb_per_s()),
        rate(sample.operations_per_s()),
    ];
    let summary = sample.latency.summary();
    for percentile in [50.0, 90.0, 99.0, 99.9, 100.0] {
        cells.push(summary.map_or_else(
            || "–".to_owned(),
            |all| {
                let latency = if percentile < 100.0 {
                    sample.latency.percentile_ns(percentile)
                } else {
                    all.max_ns
                };
                number::duration_ns(latency)
            },
        ));
    }
    cells.push(
        if record.complete {
            "yes"
        } else {
            "no, stopped early"
        }
        .to_owned(),
    );
    cells
}

/// All counters: one row per run, one column per name.
fn counters(records: &[RunRecord]) -> String {
    let mut names: Vec<&String> = records.iter().flat_map(|record| record.counters.keys()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return String::new();
    }
    let mut columns = vec![Column::left("configuration"), Column::right("round")];
    columns.extend(names.iter().map(|name| Column::right(name)));
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            let mut cells = vec![record.label.clone(), (u64::from(record.round) + 1).to_string()];
            cells.extend(names.iter().map(|name| {
                let value = record.counters.get(*name);
                value.map_or_else(|| "–".to_owned(), |value| counter_text(name, *value))
            }));
            cells
        })
        .collect();
    html::text("h3", "Counters") + &html::table(&columns, &rows)
}

/// Counts, bytes and nanoseconds are integers; other units are not.
fn counter_text(name: &str, value: f64) -> String {
    let is_whole = ["_count", "_bytes", "_ns"]
        .iter()
        .any(|unit| name.ends_with(unit));
    if is_whole {
        number::count(value)
    } else {
        number::significant(value)
    }
}

pub(crate) fn rerun(records: &[RunRecord]) -> String {
    let commands = distinct(
        records
            .iter()
            .map(|record| &record.command)
            .filter(|command| !command.is_empty()),
    );
    if commands.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = commands
        .iter()
        .map(|command| escape(&shell_line(command)))
        .collect();
    format!("<h2>Run it again</h2>\n<pre>{}</pre>\n", lines.join("\n"))
}

/// A command line quoted for a shell.
fn shell_line(command: &[String]) -> String {
    let word = |word: &String| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

pub(crate) fn footer(records: &[RunRecord]) -> String {
    let versions = versions(records);
    let maker = if versions.is_empty() {
        "tidegate".to_owned()
    } else {
        format!("tidegate {versions}")
    };
    format!(
        "<footer>Made by {}. Ratios are formed inside each round and then their median is taken; every sample is \
         kept above.</footer>\n",
        escape(&maker)
    )
}

/// Distinct values, in order of first appearance.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_reads_back_as_the_same_words() {
        let command = ["tidegate", "demo", "a b", "it's", "", "--size=4k"].map(str::to_owned);
        assert_eq!(
            shell_line(&command),
            "tidegate demo 'a b' 'it'\\''s' '' --size=4k"
        );
    }
}
