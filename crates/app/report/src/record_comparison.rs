//! Two sets of records side by side: a table for the terminal, one in Markdown, one HTML file.

use results::{ComparedOperation, Estimate, RatioVerdict, RecordComparison, RunRecord, target_title};

use crate::html::{self, escape};
use crate::number;
use crate::page;
use crate::svg::{Bar, BarChart, BarGroup, Scale};
use crate::text_table::{Column, table};

/// A named set of records.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordSet {
    /// Name as given by the user: a file, an id, a tag.
    pub name: String,
    /// The records.
    pub records: Vec<RunRecord>,
}

impl RecordSet {
    /// Name of the set and the targets of its records.
    #[must_use]
    pub fn title(&self) -> String {
        let places = page::distinct(self.records.iter().map(|record| target_title(&record.target)));
        format!("{}: {}", self.name, places.join(", "))
    }
}

/// Both titles, the table and notes about it, for the terminal.
#[must_use]
pub fn text(comparison: &RecordComparison, a: &RecordSet, b: &RecordSet) -> String {
    let mut text = format!("A  {}\nB  {}\n\n", a.title(), b.title());
    text += &table(&columns(comparison), &cells(comparison));
    text + "\n" + EXPLANATION + "\n"
}

/// The comparison in Markdown.
#[must_use]
pub fn markdown(comparison: &RecordComparison, a: &RecordSet, b: &RecordSet) -> String {
    let cell = |text: &str| escape(text).replace('|', "\\|").replace('\n', " ");
    let columns = columns(comparison);
    let titles: Vec<String> = columns.iter().map(|column| cell(&column.title)).collect();
    let mut text = format!("A: {}  \nB: {}\n\n", cell(&a.title()), cell(&b.title()));
    text += &format!("| {} |\n", titles.join(" | "));
    text += &format!("|{}\n", "---|".repeat(columns.len()));
    for row in cells(comparison) {
        let row: Vec<String> = row.iter().map(|text| cell(text)).collect();
        text += &format!("| {} |\n", row.join(" | "));
    }
    text += &format!("\n{EXPLANATION}\n");
    for note in comparison.left_out.iter().chain(&comparison.warnings) {
        text += &format!("- {}\n", cell(note));
    }
    text
}

/// The comparison as one self-contained HTML file.
#[must_use]
pub fn render(comparison: &RecordComparison, a: &RecordSet, b: &RecordSet) -> String {
    let records: Vec<RunRecord> = a.records.iter().chain(&b.records).cloned().collect();
    let title = format!("{} compared with {}", b.name, a.name);
    let mut page_html = page::head(&title);
    page_html += "<header>\n";
    page_html += &page::heading(
        &title,
        &format!("A is {}. B is {}.", a.title(), b.title()),
        &records,
    );
    page_html += "</header>\n<h2>B over A</h2>\n";
    let caption = "Above 1: B is faster. Below each bar: the interval of the ratio.";
    page_html += &html::figure(&chart(comparison).render(), caption);
    page_html += &html::table(&columns(comparison), &cells(comparison));
    page_html += &html::text("p", EXPLANATION);
    let notes: Vec<String> = comparison
        .left_out
        .iter()
        .chain(&comparison.warnings)
        .cloned()
        .collect();
    page_html += &page::notes(&notes);
    page_html += &page::environment(&records);
    page_html += &page::raw_samples(&records);
    page_html += &page::rerun(&records);
    page_html += &page::footer(&records);
    page_html + "</body>\n</html>\n"
}

/// The verdict on B as in the table.
#[must_use]
pub const fn verdict_text(verdict: RatioVerdict) -> &'static str {
    match verdict {
        RatioVerdict::Higher => "B is faster",
        RatioVerdict::Lower => "B is slower",
        RatioVerdict::NoDifference => "no difference shown",
        RatioVerdict::TooFewRuns => "too few runs to tell",
    }
}

/// `1.23 [1.10, 1.31]`
#[must_use]
pub fn interval(estimate: &Estimate, text: fn(f64) -> String) -> String {
    if estimate.count < 2 {
        return text(estimate.value);
    }
    format!(
        "{} [{}, {}]",
        text(estimate.value),
        text(estimate.low),
        text(estimate.high)
    )
}

/// Explanation of the columns.
pub const EXPLANATION: &str = "Median [interval] of the speeds and of B over A; the coverage is that of the ratio's \
                               interval. No distribution is assumed.";

fn columns(comparison: &RecordComparison) -> Vec<Column> {
    let mut columns = vec![Column::left("workload")];
    if has_labels(comparison) {
        columns.push(Column::left("configuration"));
    }
    columns.extend([
        Column::left("operation"),
        Column::left("unit"),
        Column::right("A"),
        Column::right("B"),
        Column::right("B / A"),
        Column::right("coverage"),
        Column::left("verdict"),
        Column::right("runs"),
    ]);
    columns
}

fn cells(comparison: &RecordComparison) -> Vec<Vec<String>> {
    let row = |one: &ComparedOperation| {
        let mut cells = vec![one.workload.clone()];
        if has_labels(comparison) {
            cells.push(one.label.clone().unwrap_or_default());
        }
        cells.extend([
            one.operation.clone(),
            one.unit.to_string(),
            interval(&one.a, number::significant),
            interval(&one.b, number::significant),
            interval(&one.ratio, number::ratio),
            format!("{:.1} %", one.ratio.coverage * 100.0),
            verdict_text(one.verdict).to_owned(),
            format!(
                "{}+{}{}",
                one.a.count,
                one.b.count,
                if one.paired { ", paired" } else { "" }
            ),
        ]);
        cells
    };
    comparison.operations.iter().map(row).collect()
}

fn has_labels(comparison: &RecordComparison) -> bool {
    comparison.operations.iter().any(|one| one.label.is_some())
}

fn chart(comparison: &RecordComparison) -> BarChart {
    let bar = |one: &ComparedOperation| {
        let label = [
            one.workload.as_str(),
            one.label.as_deref().unwrap_or(""),
            &one.operation,
        ]
        .join(" ");
        Bar {
            tooltip: format!("{label}: {}", verdict_text(one.verdict)),
            label,
            value: Some(one.ratio.value),
            samples: vec![one.ratio.low, one.ratio.high],
            annotation: vec![number::ratio(one.ratio.value)],
            series: match one.verdict {
                RatioVerdict::NoDifference | RatioVerdict::TooFewRuns => 0,
                RatioVerdict::Higher | RatioVerdict::Lower => 1,
            },
        }
    };
    BarChart {
        title: "Ratio of B to A for each workload and operation".to_owned(),
        axis: "B / A".to_owned(),
        scale: Scale::Linear,
        groups: vec![BarGroup {
            label: String::new(),
            reference: Some(1.0),
            bars: comparison.operations.iter().map(bar).collect(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            count: 5,
            value,
            low,
            high,
            coverage: 0.9375,
        }
    }

    fn comparison() -> RecordComparison {
        RecordComparison {
            operations: vec![ComparedOperation {
                workload: "a|b<c>".to_owned(),
                label: None,
                operation: "write".to_owned(),
                unit: results::RateUnit::MbPerS,
                a: estimate(100.0, 90.0, 110.0),
                b: estimate(120.0, 115.0, 130.0),
                ratio: estimate(1.2, 1.1, 1.3),
                verdict: RatioVerdict::Higher,
                paired: true,
            }],
            left_out: vec!["only in B: files".to_owned()],
            warnings: Vec::new(),
        }
    }

    fn set(name: &str) -> RecordSet {
        RecordSet {
            name: name.to_owned(),
            records: Vec::new(),
        }
    }

    #[test]
    fn every_form_says_ratio_interval_coverage_and_verdict() {
        let (a, b) = (set("one"), set("two"));
        for text in [
            text(&comparison(), &a, &b),
            markdown(&comparison(), &a, &b),
            render(&comparison(), &a, &b),
        ] {
            for word in ["1.20 [1.10, 1.30]", "93.8 %", "B is faster", "5+5, paired"] {
                assert!(text.contains(word), "{word} is missing in {text}");
            }
        }
    }

    #[test]
    fn names_can_not_end_their_cell() {
        let (a, b) = (set("one"), set("two"));
        assert!(markdown(&comparison(), &a, &b).contains("| a\\|b&lt;c&gt; |"));
        assert!(render(&comparison(), &a, &b).contains("a|b&lt;c&gt;"));
        assert!(markdown(&comparison(), &a, &b).contains("- only in B: files"));
    }
}
