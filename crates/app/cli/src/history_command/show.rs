//! Tables of stored runs for the terminal.

use anyhow::Result;
use history::{History, RunSummary, StoredRun};
use programs::terminal::WidthArguments;
use report::record_comparison::interval;
use report::{Column, number};
use results::{
    Estimate, RateUnit, RunRecord, counter, median, noise_by_workload, target_title, workload_title,
};

use super::ShowArguments;
use crate::output;

/// Runs `tidegate bench history show`.
pub fn run(history: &History, arguments: &ShowArguments) -> Result<()> {
    for (index, id) in arguments.runs.iter().enumerate() {
        let run = history.get(*id)?;
        if arguments.json {
            for record in &run.records {
                output::print_line(&serde_json::to_string(record)?)?;
            }
        } else {
            let gap = if index == 0 { "" } else { "\n" };
            output::print_text(&format!("{gap}{}", text(&run, arguments.width)))?;
        }
    }
    Ok(())
}

/// One line per run.
pub fn list_table(runs: &[RunSummary], width: WidthArguments) -> String {
    let columns = [
        Column::right("id"),
        Column::left("started"),
        Column::left("label").elided().optional(2),
        Column::left("workload").elided(),
        Column::right("speed"),
        Column::left("unit"),
        Column::right("records").optional(4),
        Column::left("path").elided().optional(1),
        Column::left("file system").optional(3),
        Column::left("tags").elided().optional(1),
    ];
    let row = |run: &RunSummary| {
        vec![
            run.id.to_string(),
            number::utc(run.started_unix_ns),
            run.label.clone(),
            workload(run),
            run.rate.map_or_else(|| "-".to_owned(), number::significant),
            run.unit.clone().unwrap_or_default(),
            format!(
                "{}{}",
                run.records_count,
                if run.complete { "" } else { " (partial)" }
            ),
            run.path.clone(),
            run.file_system_type.clone().unwrap_or_default(),
            run.tags.join(" "),
        ]
    };
    width.table(&columns, &runs.iter().map(row).collect::<Vec<_>>())
}

fn workload(run: &RunSummary) -> String {
    match run.workloads_count {
        0 | 1 => run.workload.clone(),
        count => format!("{} and {} more", run.workload, count - 1),
    }
}

fn text(run: &StoredRun, width: WidthArguments) -> String {
    let summary = &run.summary;
    let mut text = format!(
        "run {}  {}  {}\n",
        summary.id,
        number::utc(summary.started_unix_ns),
        summary.label
    );
    if let Some(first) = run.records.first() {
        text += &format!("  on       {}\n", target_title(&first.target));
        text += &format!(
            "  machine  {}, {}, {} processors\n",
            first.host.kernel, first.host.machine, first.host.cpus
        );
    }
    text += &format!("  command  {}\n", summary.command.join(" "));
    if !summary.tags.is_empty() {
        text += &format!("  tags     {}\n", summary.tags.join(" "));
    }
    if !summary.complete {
        text += "  stopped before its end: partial numbers\n";
    }
    text.push('\n');
    let columns = [
        Column::left("workload").elided(),
        Column::left("operation"),
        Column::right("speed"),
        Column::left("unit"),
        Column::right("p50"),
        Column::right("p99"),
        Column::right("max").optional(1),
        Column::right("active %").optional(3),
        Column::right("iowait %").optional(3),
        Column::right("idle %").optional(3),
        Column::right("switches").optional(4),
        Column::right("rounds").optional(2),
    ];
    let groups = groups(&run.records);
    let rows: Vec<Vec<String>> = groups
        .iter()
        .flat_map(|(title, records)| rows(title, records))
        .collect();
    text += &width.table(&columns, &rows);
    for noise in noise_by_workload(&run.records) {
        text += &format!(
            "{noise}
"
        );
    }
    text
}

/// The records by workload, in the order of measurement.
fn groups(records: &[RunRecord]) -> Vec<(String, Vec<RunRecord>)> {
    let mut groups: Vec<(String, Vec<RunRecord>)> = Vec::new();
    for record in records {
        let title = workload_title(&record.workload);
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, group)) => group.push(record.clone()),
            None => groups.push((title, vec![record.clone()])),
        }
    }
    groups
}

fn rows(title: &str, records: &[RunRecord]) -> Vec<Vec<String>> {
    let Some(first) = records.first() else {
        return Vec::new();
    };
    let middle = |value: &dyn Fn(&RunRecord) -> Option<f64>, text: &dyn Fn(f64) -> String| {
        let values: Vec<f64> = records.iter().filter_map(value).collect();
        median(&values).map_or_else(|| "-".to_owned(), text)
    };
    let counted =
        |name: &'static str| middle(&|record| record.counters.get(name).copied(), &number::significant);
    let row = |sample: &results::Sample| {
        let name = &sample.operation;
        let unit = RateUnit::of(sample);
        let speeds: Vec<f64> = records
            .iter()
            .filter_map(|record| unit.rate(record.sample(name)?))
            .collect();
        let latency = |pick: fn(&results::LatencySummary) -> u64| {
            let of = |record: &RunRecord| {
                let summary = record.sample(name)?.latency.summary()?;
                Some(results::nearest_f64(pick(&summary)) / 1e3)
            };
            middle(&of, &|us| format!("{} us", number::significant(us)))
        };
        vec![
            title.to_owned(),
            name.clone(),
            Estimate::of_median(&speeds)
                .map_or_else(|| "-".to_owned(), |speed| interval(&speed, number::significant)),
            unit.to_string(),
            latency(|summary| summary.p50_ns),
            latency(|summary| summary.p99_ns),
            latency(|summary| summary.max_ns),
            counted(counter::CPU_ACTIVE),
            counted(counter::CPU_IOWAIT),
            counted(counter::CPU_IDLE),
            counted(counter::CONTEXT_SWITCHES_SYSTEM),
            records.len().to_string(),
        ]
    };
    first.samples.iter().map(row).collect()
}
