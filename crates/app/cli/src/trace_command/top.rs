//! `tidegate trace top`: shows live for whom a device works. The table comes from `trace::top`.

use std::io::{self, IsTerminal, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};
use programs::stop_on_signals;
use results::block_trace::{Event, Request};
use trace::block::{CaptureSpec, CommandOutput, ItemOrder, Sink};
use trace::top::{Order, Table, Window};
use trace::top_table::{Size, document, text};

use super::capture_arguments::CaptureArguments;
use super::top_screen::Screen;
use crate::output::{self, Printed};
use crate::quantity::parse_duration;
use crate::{Finding, output::print_text};

/// Columns of a table that does not go to a terminal.
const PLAIN_COLUMNS: usize = 132;
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
