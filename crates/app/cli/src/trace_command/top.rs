//! `tidegate trace top`: shows live for whom a device works. The sums come from `trace::top`; this file displays them.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use programs::stop_on_signals;
use results::block_trace::{Event, Request};
use results::{nearest_f64, shown};
use serde_json::json;
use trace::block::{CaptureSpec, CommandOutput, ItemOrder, Sink};
use trace::top::{Key, Order, Sums, Table, Window};

use super::capture_arguments::CaptureArguments;
use super::top_screen::{Screen, Size};
use crate::output::{self, Printed};
use crate::quantity::parse_duration;
use crate::{Finding, output::print_text};

/// Columns of a table that does not go to a terminal.
const PLAIN_COLUMNS: usize = 132;
/// Columns before the file column.
const COLUMNS_BEFORE_FILE: usize = 88;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `tidegate trace top`.
#[derive(Args, Debug)]
#[command(
    after_help = "q or Ctrl-C ends it. Without a terminal it prints a plain table for each interval. A request whose blocks belong to several is counted with each of them; the first \
                  line counts it once. Latency is from the block layer to the completion. Needs root, or CAP_BPF \
                  and CAP_PERFMON.\n\
                  Exit codes: 0 done, 1 records were lost, 2 nothing could be traced."
)]
pub struct TraceTopArguments {
    /// The devices to trace.
    #[command(flatten)]
    pub capture: CaptureArguments,
    /// Update interval (500ms, 2s); at least 100ms
    #[arg(long, value_name = "TIME", value_parser = parse_interval, default_value = "1s")]
    pub interval: Duration,
    /// Stop after this many intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Order of rows, largest first
    #[arg(long, value_enum, default_value_t = SortArgument::Bytes)]
    pub sort: SortArgument,
    /// Print one JSON object a line for each interval
    #[arg(long)]
    pub json: bool,
}

/// Orders of rows.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SortArgument {
    /// Bytes read and written
    Bytes,
    /// Bytes read
    Read,
    /// Bytes written
    Written,
    /// Requests
    Requests,
    /// 99th percentile of latency
    Latency,
}

impl From<SortArgument> for Order {
    fn from(argument: SortArgument) -> Self {
        match argument {
            SortArgument::Bytes => Self::Bytes,
            SortArgument::Read => Self::Read,
            SortArgument::Written => Self::Written,
            SortArgument::Requests => Self::Requests,
            SortArgument::Latency => Self::Latency,
        }
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    if interval < SHORTEST_INTERVAL {
        return Err(format!("expected at least 100ms, found {text}"));
    }
    Ok(interval)
}

pub fn run(arguments: &TraceTopArguments) -> Result<Finding> {
    let stop = stop_on_signals()?;
    let spec = CaptureSpec {
        targets: arguments.capture.targets(),
        method: arguments.capture.method.into(),
        ring_bytes: arguments.capture.ring,
        count_calls: false,
        driver_commands: false,
        command: Vec::new(),
        command_output: CommandOutput::Inherited,
        duration: None,
        sync_at_end: false,
        order: ItemOrder::AsCompleted,
        host: None,
        source: "tidegate trace top".to_owned(),
    };
    let mut live = Live {
        arguments,
        stop: &stop,
        window: Window::default(),
        since: Instant::now(),
        shown: 0,
        screen: None,
    };
    let captured = trace::block::capture(&spec, &stop, &mut live);
    // Restore the terminal before printing messages.
    live.screen = None;
    let captured =
        captured.map_err(|error| arguments.capture.explain(error).context("nothing can be shown"))?;
    if captured.header.refused > 0 {
        output::print_error(&format!(
            "{} I/Os were refused as the queue was full (NOWAIT), and are not counted",
            captured.header.refused
        ));
    }
    let lost = captured.header.lost_records;
    if lost > 0 {
        output::print_error(&format!(
            "{lost} records were lost; watch again with a larger --ring"
        ));
        return Ok(Finding::Something);
    }
    Ok(Finding::Nothing)
}

/// Shows each interval as it ends.
struct Live<'run> {
    arguments: &'run TraceTopArguments,
    stop: &'run AtomicBool,
    window: Window,
    since: Instant,
    shown: u64,
    /// `None` if standard output is not a terminal.
    screen: Option<Screen>,
}

impl Live<'_> {
    fn is_over(&self) -> bool {
        self.arguments.count.is_some_and(|count| self.shown >= count)
    }

    fn show(&mut self, table: &Table) -> io::Result<()> {
        if self.arguments.json {
            return self.print(&format!("{}\n", document(table)));
        }
        let Some(screen) = &mut self.screen else {
            let size = Size {
                columns: PLAIN_COLUMNS,
                lines: usize::MAX,
            };
            return self.print(&format!("{}\n", text(table, size)));
        };
        let size = screen.size();
        screen.draw(&text(table, size))
    }

    fn print(&self, text: &str) -> io::Result<()> {
        match print_text(text).map_err(io::Error::other)? {
            Printed::Done => {}
            Printed::Closed => self.stop.store(true, Ordering::Relaxed),
        }
        Ok(())
    }
}

impl Sink for Live<'_> {
    fn started(&mut self, _header: &results::block_trace::TraceHeader) -> io::Result<()> {
        if !self.arguments.json && stdout().is_terminal() {
            let mut screen = Screen::open()?;
            screen.draw("waiting for the first interval; q ends")?;
            self.screen = Some(screen);
        }
        self.since = Instant::now();
        Ok(())
    }

    fn request(&mut self, request: &Request) -> io::Result<()> {
        self.window.add(request);
        Ok(())
    }

    fn event(&mut self, _event: &Event) -> io::Result<()> {
        Ok(())
    }

    fn idle(&mut self) -> io::Result<()> {
        if self.screen.as_ref().is_some_and(Screen::wants_to_end) {
            self.stop.store(true, Ordering::Relaxed);
        }
        let elapsed = self.since.elapsed();
        if elapsed < self.arguments.interval || self.is_over() {
            return Ok(());
        }
        self.since = Instant::now();
        self.shown += 1;
        let table = self.window.take(elapsed, self.arguments.sort.into());
        self.show(&table)?;
        if self.is_over() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The table as text that fits into `size`.
fn text(table: &Table, size: Size) -> String {
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
fn document(table: &Table) -> serde_json::Value {
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
