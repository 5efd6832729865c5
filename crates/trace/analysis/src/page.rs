//! The page of a report: one self-contained HTML file.
//!
//! Pictures are drawn by the page's own script from counted cells ([`crate::DensityGrid`]), packed as base64 of LEB128
//! numbers; without scripts the tables contain the same information. Colours follow the reader's light or dark setting.

use ::report::{head, html, number};

use crate::density::{DensityGrid, SERIES, Vertical};
use crate::report::Report;
use crate::table::{Table, Unit, Value};
use crate::text;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Rows of a table that are shown at first; the rest is folded away.
const ROWS_SHOWN: usize = 15;

/// Headings of the page and the analyses below each.
const SECTIONS: [(&str, &[&str]); 7] = [
    ("Overview", &["traces", "operations", "throughput"]),
    ("Shape of the I/O", &["sizes", "locality", "sync", "modes"]),
    ("What lies there", &["classes", "block_types", "file_kinds"]),
    ("Who", &["processes", "submitters", "attribution", "calls"]),
    (
        "How fast",
        &["latencies", "queue_depth", "dirty_age", "driver_commands"],
    ),
    (
        "Files",
        &[
            "hot_files",
            "hot_places",
            "rewrites",
            "short_lived_files",
            "deleted_writes",
            "discards",
            "file_events",
        ],
    ),
    (
        "Journal",
        &["journal_homes", "journal_hot_homes", "journal_contributors"],
    ),
];

pub(crate) fn render(report: &Report) -> String {
    let names: Vec<String> = report.traces.iter().map(crate::StoredTrace::name).collect();
    let title = format!("Block trace: {}", names.join(", "));
    let mut page = head(&title);
    page += &format!("<style>\n{STYLE}</style>\n<header>\n");
    page += &html::text("h1", &title);
    for trace in &report.traces {
        page += &format!(
            "<p class=\"when\">{}</p>\n",
            html::escape(&text::described(&trace.header))
        );
    }
    if let Some(sentence) = headline(report) {
        page += &format!("<p class=\"headline\">{}</p>\n", html::escape(&sentence));
    }
    page += "</header>\n";
    page += &limits(report);
    page += &contents(report);
    page += &pictures(&report.densities);
    let mut shown: Vec<&str> = Vec::new();
    for (heading, analyses) in SECTIONS {
        let tables: Vec<&Table> = analyses.iter().filter_map(|name| report.table(name)).collect();
        shown.extend(analyses);
        page += &section(heading, &tables);
    }
    let rest: Vec<&Table> = report
        .tables
        .iter()
        .filter(|table| !shown.contains(&table.name.as_str()))
        .collect();
    page += &section("Figures of the papers", &rest);
    page += &devices(report);
    page += "<footer>Made by tidegate. Each table is one analysis in SQL: <code>tidegate trace query TRACE --named NAME</code>; \
             its query: <code>--list --named NAME</code>.</footer>\n";
    page + &format!("<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

/// A summary of the trace in a sentence.
fn headline(report: &Report) -> Option<String> {
    let sizes = report.table("paper_figure_4")?;
    let part = |operation: &str| {
        let value = |column: &str| sizes.number(&[operation], column);
        let requests = value("requests")?;
        let percent =
            |column: &str| value(column).map_or("n/a".to_owned(), |part| format!("{:.0} %", part * 100.0));
        // Reads are always synchronous, whatever their flag says.
        let buffered = match operation {
            "write" => format!(", {} buffered", percent("buffered_share")),
            _ => String::new(),
        };
        Some(format!(
            "{} {operation}s: {} over 256 KiB, {} sequential{buffered}, {} data",
            number::count(requests),
            percent("over_256k_share"),
            percent("sequential_share"),
            percent("data_share"),
        ))
    };
    let parts: Vec<String> = ["write", "read"].into_iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.join(". ") + ".")
}

fn limits(report: &Report) -> String {
    let warnings = report.warnings();
    if warnings.is_empty() {
        return String::new();
    }
    let mut html =
        String::from("<div class=\"limits\"><strong>What these traces cannot tell</strong>\n<ul>\n");
    for warning in warnings {
        html += &html::text("li", &warning);
    }
    html + "</ul></div>\n"
}

fn contents(report: &Report) -> String {
    let mut html = String::from("<nav>");
    if !report.densities.is_empty() {
        html += "<a href=\"#pictures\">Pictures</a>";
    }
    for (heading, analyses) in SECTIONS {
        if analyses.iter().any(|name| report.table(name).is_some()) {
            html += &format!("<a href=\"#{}\">{}</a>", anchor(heading), html::escape(heading));
        }
    }
    html + "</nav>\n"
}

fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

fn pictures(grids: &[DensityGrid]) -> String {
    if grids.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2 id=\"pictures\">Pictures</h2>\n");
    html += "<p class=\"subtitle\">Each dot stands for the I/Os of a small part of time and place; the denser, the stronger. Drag \
             to look closer, double-click to see all again, click the words to hide and show.</p>\n";
    for grid in grids {
        html += &picture(grid);
    }
    html
}

fn picture(grid: &DensityGrid) -> String {
    let (title, kind) = match grid.vertical {
        Vertical::Place => ("place on the device over time", "place"),
        Vertical::Latency => ("latency, queue to completion, over time", "latency"),
    };
    let caption = format!("{} {}: {title}", grid.trace_id, grid.device);
    let series: Vec<String> = SERIES
        .iter()
        .map(|(operation, class)| format!("{operation} {class}"))
        .collect();
    format!(
        "<figure class=\"density\" data-kind=\"{kind}\" data-columns=\"{}\" data-rows=\"{}\" data-time=\"{} {}\" \
         data-range=\"{} {}\" data-series=\"{}\"><figcaption>{}</figcaption>\n\
         <div class=\"legend\"></div><canvas role=\"img\" aria-label=\"{}\"></canvas><div class=\"readout\">&nbsp;</div>\n\
         <script type=\"application/octet-stream\">{}</script></figure>\n",
        grid.columns,
        grid.rows,
        grid.time_ns.0,
        grid.time_ns.1,
        grid.range.0,
        grid.range.1,
        html::escape(&series.join("|")),
        html::escape(&caption),
        html::escape(&caption),
        packed(grid)
    )
}

/// Cells as LEB128 numbers in base64: for each, the difference of its number from that of the cell before, and its
/// count. A cell's number is (row x columns + column) x series + series.
fn packed(grid: &DensityGrid) -> String {
    let series_count = u64::try_from(SERIES.len()).expect("few series");
    let mut bytes = Vec::new();
    let mut previous = 0;
    for ((row, column, series), count) in &grid.cells {
        let number = (row * grid.columns + column) * series_count + u64::from(*series);
        leb128(number - previous, &mut bytes);
        leb128(*count, &mut bytes);
        previous = number;
    }
    base64(&bytes)
}

fn leb128(mut value: u64, bytes: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7F).expect("seven bits");
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| usize::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= chunk.len() {
                text.push(char::from(LETTERS[bits >> (18 - place * 6) & 63]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

fn section(heading: &str, tables: &[&Table]) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let mut html = format!("<h2 id=\"{}\">{}</h2>\n", anchor(heading), html::escape(heading));
    for table in tables {
        html += &format!("<h3 id=\"{}\">{}</h3>\n", table.name, html::escape(&table.title));
        html += &format!("<p class=\"about\">{}</p>\n", html::escape(&table.about));
        html += &if table.name == "throughput" {
            throughput(table)
        } else {
            html_table(table)
        };
    }
    html
}

/// A table that also shows shares as bars.
fn html_table(table: &Table) -> String {
    let (first, rest) = table.rows.split_at(table.rows.len().min(ROWS_SHOWN));
    let mut html = rows_as_table(table, first);
    if !rest.is_empty() {
        html += &format!("<details><summary>{} more</summary>\n", rest.len());
        html += &rows_as_table(table, rest);
        html += "</details>\n";
    }
    html
}

fn rows_as_table(table: &Table, rows: &[Vec<Value>]) -> String {
    let class = |unit: Unit| {
        if unit == Unit::Text {
            ""
        } else {
            " class=\"number\""
        }
    };
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr>");
    for column in &table.columns {
        let title = html::escape(&column.title());
        html += &format!("<th scope=\"col\"{}>{title}</th>", class(column.unit));
    }
    html += "</tr></thead>\n<tbody>\n";
    for row in rows {
        html += "<tr>";
        for (value, column) in row.iter().zip(&table.columns) {
            let shown = html::escape(&value.shown(column.unit));
            html += &match (column.unit, value.number()) {
                (Unit::Share, Some(part)) => format!(
                    "<td class=\"number share\" style=\"--part:{:.1}%\">{shown}</td>",
                    (part * 100.0).clamp(0.0, 100.0)
                ),
                (unit, _) if column.key => format!("<th scope=\"row\"{}>{shown}</th>", class(unit)),
                (unit, _) => format!("<td{}>{shown}</td>", class(unit)),
            };
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// Bytes per second as two lines; the table below is folded away.
fn throughput(table: &Table) -> String {
    let (width, height) = (800.0, 140.0);
    let column = |name: &str| -> Vec<f64> {
        let values = (0..table.rows.len()).map(|row| table.value(row, name).and_then(Value::number));
        values.map(|value| value.unwrap_or(0.0)).collect()
    };
    let (times, reads, writes) = (column("from_ns"), column("read_bytes"), column("write_bytes"));
    let last = times.last().copied().unwrap_or(0.0) + 1e9;
    let largest = reads.iter().chain(&writes).copied().fold(1.0, f64::max);
    let area = |values: &[f64]| {
        let mut path = String::new();
        for (time, value) in times.iter().zip(values) {
            let (left, right) = (time / last * width, (time + 1e9) / last * width);
            let top = height - value / largest * height;
            path += &format!("M{left:.1},{height}V{top:.1}H{right:.1}V{height}");
        }
        path
    };
    let most = format!("{:.1} MB/s", largest / 1e6);
    let end = format!("{:.0} s", last / 1e9);
    let svg = format!(
        "<svg class=\"chart throughput\" role=\"img\" viewBox=\"0 0 {width:.0} 170\"><title>Throughput over time</title>\
         <path class=\"series-1\" d=\"{}\"/><path class=\"series-3\" d=\"{}\"/>\
         <text class=\"axis-title\" x=\"2\" y=\"12\">{most} at most; writes orange, reads blue</text>\
         <text class=\"axis-title\" x=\"0\" y=\"162\">0 s</text><text class=\"tick\" x=\"{width:.0}\" y=\"162\">{end}</text></svg>\n",
        area(&writes),
        area(&reads)
    );
    format!(
        "<figure>{svg}</figure><details><summary>As a table</summary>\n{}</details>\n",
        html_table(table)
    )
}

fn devices(report: &Report) -> String {
    let mut html = String::from("<h2 id=\"devices\">Devices</h2>\n");
    let columns = [
        "trace",
        "device",
        "name",
        "size",
        "file system",
        "mounted on",
        "scheduler",
    ]
    .map(::report::Column::left);
    let mut rows = Vec::new();
    for trace in &report.traces {
        for device in &trace.header.devices {
            let file_system = device.file_system.clone().unwrap_or_default();
            rows.push(vec![
                trace.name(),
                device.device.to_string(),
                device.name.clone(),
                device
                    .sectors
                    .map_or_else(String::new, |sectors| number::bytes(sectors.saturating_mul(512))),
                file_system.0,
                file_system.1,
                device.scheduler.clone().unwrap_or_default(),
            ]);
        }
    }
    html += &html::table(&columns, &rows);
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_packed_as_browsers_unpack_them() {
        let texts = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
        let mut bytes = Vec::new();
        for value in [0, 127, 128, 300] {
            leb128(value, &mut bytes);
        }
        assert_eq!(bytes, [0, 127, 0x80, 1, 0xAC, 2]);
    }

    #[test]
    fn every_analysis_has_its_place_on_the_page() {
        for analysis in crate::named::all() {
            let special = analysis.name.starts_with("paper_");
            let placed = SECTIONS.iter().any(|(_, names)| names.contains(&analysis.name));
            assert!(placed || special, "{} is in no section", analysis.name);
        }
    }
}
