//! The table of [`crate::top`] as text and as JSON.

use std::fmt::Write as _;

use results::{nearest_f64, shown};
use serde_json::json;

use crate::top::{Key, Sums, Table};

/// Columns before the file column.
const COLUMNS_BEFORE_FILE: usize = 88;

/// Size of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters per line.
    pub columns: usize,
    /// Number of lines.
    pub lines: usize,
}

/// The table as text that fits into `size`.
#[must_use]
pub fn text(table: &Table, size: Size) -> String {
    let mut text = format!(
        "{:.1} s: {:.0} requests/s, {:.2} MB/s read, {:.2} MB/s written{}",
        table.elapsed.as_secs_f64(),
        table.a_second(table.total.requests),
        megabytes(table, table.total.read_bytes),
        megabytes(table, table.total.written_bytes),
        table.total.latency_ns().map_or_else(String::new, |(mean, p99)| {
            format!(
                ", latency mean {:.3} ms, p99 {:.3} ms",
                mean / 1e6,
                nearest_f64(p99) / 1e6
            )
        }),
    );
    let _ = write!(
        text,
        "\n{:>8} {:<16} {:<16} {:>8} {:>8} {:>8} {:>8} {:>8} FILE",
        "PID", "PROCESS", "TYPE", "R MB/s", "W MB/s", "REQ/s", "MEAN ms", "P99 ms"
    );
    let columns_of_file = size.columns.saturating_sub(COLUMNS_BEFORE_FILE);
    let lines = size.lines.saturating_sub(2);
    let place = |key: &Key| (key.device, key.file_system);
    let is_one_place = table
        .rows
        .iter()
        .all(|(key, _)| place(key) == place(&table.rows[0].0));
    for (key, sums) in table.rows.iter().take(lines) {
        let _ = write!(
            text,
            "\n{} {}",
            numbers(table, key, sums),
            shortened(&file_of(key, is_one_place), columns_of_file)
        );
    }
    if let Some(beyond) = table.beyond.as_ref().filter(|_| table.rows.len() < lines) {
        let key = Key {
            pid: None,
            process: Some("(all others)".into()),
            device: None,
            file_system: None,
            path: None,
            kind: "-",
        };
        let _ = write!(text, "\n{} -", numbers(table, &key, beyond));
    }
    let cut = text.lines().map(|line| line.chars().take(size.columns).collect());
    cut.collect::<Vec<String>>().join("\n")
}

/// Path of a row, after its file system's device number if the table has several.
fn file_of(key: &Key, is_one_place: bool) -> String {
    let path = key.path.as_deref().unwrap_or("-");
    match key.file_system.or(key.device) {
        Some(device) if !is_one_place => format!("{device} {path}"),
        _ => path.to_owned(),
    }
}

fn numbers(table: &Table, key: &Key, sums: &Sums) -> String {
    let latency = sums.latency_ns();
    let milliseconds =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ns| format!("{:.3}", ns / 1e6));
    format!(
        "{:>8} {:<16} {:<16} {:>8.2} {:>8.2} {:>8.0} {:>8} {:>8}",
        key.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
        shortened(key.process.as_deref().unwrap_or("-"), 16),
        key.kind,
        megabytes(table, sums.read_bytes),
        megabytes(table, sums.written_bytes),
        table.a_second(sums.requests),
        milliseconds(latency.map(|(mean, _)| mean)),
        milliseconds(latency.map(|(_, p99)| nearest_f64(p99))),
    )
}

/// Megabytes (1,000,000 bytes) per second.
fn megabytes(table: &Table, bytes: u64) -> f64 {
    table.a_second(bytes) / 1e6
}

/// Keeps the end of a name, which says more than its beginning.
fn shortened(name: &str, columns: usize) -> String {
    let shown: Vec<char> = shown::line(name).chars().collect();
    if shown.len() <= columns {
        return shown.into_iter().collect();
    }
    let kept = columns.saturating_sub(1);
    let end: String = shown[shown.len() - kept..].iter().collect();
    format!("…{end}")
}

/// The table as JSON.
#[must_use]
pub fn document(table: &Table) -> serde_json::Value {
    let sums = |sums: &Sums| {
        let latency = sums.latency_ns();
        json!({
            "requests": sums.requests,
            "read_bytes": sums.read_bytes,
            "written_bytes": sums.written_bytes,
            "latency_mean_ns": latency.map(|(mean, _)| mean),
            "latency_p99_ns": latency.map(|(_, p99)| p99),
        })
    };
    let rows: Vec<_> = table
        .rows
        .iter()
        .map(|(key, of_row)| {
            let mut row = sums(of_row);
            row["pid"] = json!(key.pid);
            row["process"] = json!(key.process);
            row["device"] = json!(key.device);
            row["file_system"] = json!(key.file_system);
            row["file"] = json!(key.path);
            row["type"] = json!(key.kind);
            row
        })
        .collect();
    json!({
        "interval_seconds": table.elapsed.as_secs_f64(),
        "total": sums(&table.total),
        "rows": rows,
        "beyond": table.beyond.as_ref().map(sums),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn long_names_keep_their_end_and_control_characters_never_reach_the_terminal() {
        assert_eq!(shortened("/data/app/base.db", 8), "…base.db");
        assert_eq!(shortened("/short", 8), "/short");
        assert_eq!(shortened("a\u{1b}[2Jb", 16), "a\\u001b[2Jb");
    }

    #[test]
    fn no_line_is_wider_and_no_table_longer_than_the_screen() {
        let mut sums = Sums::default();
        sums.requests = 3;
        sums.written_bytes = 6_000_000;
        let row = |pid| {
            let key = Key {
                pid: Some(pid),
                process: Some("a-name-of-more-than-sixteen".into()),
                device: None,
                file_system: None,
                path: Some("/a/long/path/of/a/file/that/does/not/fit".into()),
                kind: "data",
            };
            (key, sums.clone())
        };
        let table = Table {
            elapsed: Duration::from_secs(2),
            total: sums.clone(),
            rows: (1..50).map(row).collect(),
            beyond: None,
        };
        let shown = text(
            &table,
            Size {
                columns: 100,
                lines: 10,
            },
        );
        assert_eq!(shown.lines().count(), 10);
        assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
        assert!(
            shown.contains("3.00 MB/s written") && shown.contains("…oes/not/fit"),
            "{shown}"
        );
    }
}
