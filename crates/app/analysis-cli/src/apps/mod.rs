//! `tidegate trace apps`: runs the bench's applications on file systems made for them, traces them, and compares figure
//! 4 and table 3 with the paper's.
//!
//! Each file system is newly made in an image behind a loop device; each application runs on it as a child process
//! under `tidegate trace record`. The preparation (files that the application expects) is cut from the trace at the
//! start of the timed window, as reported by the bench. Everything is removed at the end, unless the traces are kept.

mod figure;
mod paper;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use analysis::{Session, Table, named};
use anyhow::{Context, Result, bail};
use formats::native::{Existing, NativeWriter, TraceId};
use formats::{BadLines, ReadOptions, TraceItem, TraceSink};
use indicatif::{ProgressBar, ProgressStyle};
use programs::analysis_arguments::TraceAppsArguments;
use programs::file_system_kind::FileSystemKind;
use programs::loop_disk::{LoopDisk, WorkFolder};
use programs::{Finding, output, parts, stop_on_signals};
use results::block_trace::TraceHeader;

use self::figure::Cell;
use crate::traces::limits;

/// Name of the paper's table 3 workload, a sequential write, in the list of applications.
const SEQUENTIAL: &str = "sequential-write";

/// Option value for the applications' real speed.
const REAL: &str = "real";

/// Runs the command.
pub fn run(arguments: &TraceAppsArguments) -> Result<Finding> {
    if !rustix::process::geteuid().is_root() {
        bail!("file systems are made and devices traced: that needs root");
    }
    let stop = stop_on_signals()?;
    let folder = WorkFolder::make(&arguments.directory, "tidegate-apps")?;
    if let Some(keep) = &arguments.keep {
        fs::create_dir_all(keep).with_context(|| format!("{} can't be made", keep.display()))?;
    }
    let traces = arguments.keep.clone().unwrap_or_else(|| folder.path.clone());
    let bar = bar(arguments.file_systems.len() * arguments.apps.len());
    let (mut cells, mut notes) = (Vec::new(), Vec::new());
    for kind in &arguments.file_systems {
        for app in &arguments.apps {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            bar.set_message(format!("{app} on {}", kind.name()));
            match cell(arguments, &folder.path, &traces, *kind, app) {
                Ok(cell) => cells.push(cell),
                // Errors of interrupted children are not worth reporting.
                Err(_) if stop.load(Ordering::Relaxed) => {
                    notes.push(format!("{app} on {}: interrupted", kind.name()));
                }
                Err(error) => notes.push(format!(
                    "{app} on {}: {}",
                    kind.name(),
                    output::with_causes(&error)
                )),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for note in &notes {
        output::print_error(note);
    }
    if cells.is_empty() {
        bail!("nothing was traced");
    }
    let text = if arguments.json {
        figure::to_json(&cells, &notes)? + "\n"
    } else {
        figure::to_text(&cells)
    };
    output::print_text(&text)?;
    if let Some(target) = &arguments.output {
        output::write_result(target, &figure::to_html(&cells, &notes))?;
        output::print_error(&format!("page: {}", target.display()));
    }
    let lost = cells.iter().any(|cell| cell.lost_records > 0);
    Ok(if lost || !notes.is_empty() || stop.load(Ordering::Relaxed) {
        Finding::Something
    } else {
        Finding::Nothing
    })
}

/// Makes the file system, and runs, traces and analyses one application on it.
fn cell(
    arguments: &TraceAppsArguments,
    folder: &Path,
    traces: &Path,
    kind: FileSystemKind,
    app: &str,
) -> Result<Cell> {
    let bed = LoopDisk::make(kind.file_system(), folder, arguments.size)?;
    let name = format!("{}-{app}", kind.name());
    let (whole, records) = (
        folder.join(format!("{name}.whole.trace")),
        folder.join(format!("{name}.jsonl")),
    );
    let recorded = record(arguments, &bed, app, &whole, &records);
    drop(bed);
    recorded?;
    let began_unix_ns = results::read_records(&records)?
        .first()
        .map(|record| record.started_unix_ns)
        .context("the bench wrote no record")?;
    let trace = traces.join(format!("{name}.trace"));
    let header = cut(&whole, &trace, &name, began_unix_ns)?;
    let session = Session::open(std::slice::from_ref(&trace), limits(&arguments.limits))?;
    let table = |name: &str| -> Result<Table> { Ok(session.run(&named::find(name)?)?) };
    Ok(Cell {
        file_system: kind.name(),
        app: app.to_owned(),
        shares: table("paper_figure_4")?,
        counts: table("paper_table_3")?,
        sizes: table("sizes")?,
        lost_records: header.lost_records,
    })
}

/// Runs the application under the tracer; both are `tidegate`.
fn record(
    arguments: &TraceAppsArguments,
    bed: &LoopDisk,
    app: &str,
    trace: &Path,
    records: &Path,
) -> Result<()> {
    let binary = parts::core()?;
    let mut command = Command::new(&binary);
    command.args(["trace", "record", "-d"]).arg(&bed.device);
    // At real speed the trace covers the application's minute, as the paper's does: data that is dirty at its end is
    // not synced.
    if app == SEQUENTIAL || arguments.speed != REAL {
        command.arg("--sync");
    }
    command.arg("-o").arg(trace).arg("--").arg(&binary).arg("bench");
    if app == SEQUENTIAL {
        command.arg("file").arg(&bed.mountpoint);
    } else {
        command.args(["app", app]).arg(&bed.mountpoint);
        command.args(["--cold", "--speed", &arguments.speed]);
    }
    // Removing the files would discard data that is not yet written.
    command
        .args(["--keep-files", "--no-history", "--progress", "off", "--output"])
        .arg(records);
    let done = command
        .stdin(Stdio::null())
        .output()
        .context("the tracer can't be started")?;
    // 1: done, with a finding that the trace's header also contains.
    if !matches!(done.status.code(), Some(0 | 1)) {
        bail!("not traced: {}", String::from_utf8_lossy(&done.stderr).trim_end());
    }
    Ok(())
}

/// Copies a trace without the items before a wall clock time.
fn cut(whole: &Path, target: &Path, name: &str, began_unix_ns: u64) -> Result<TraceHeader> {
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Refuse,
    };
    let mut source = formats::open(whole, options)?;
    let start = source.header().start_realtime_ns;
    let writer = NativeWriter::create(
        target,
        TraceId::from_text(name),
        source.header(),
        Existing::Replace,
    )?;
    let mut sink: Box<dyn TraceSink> = Box::new(writer);
    let mut kept: u64 = 0;
    while let Some(item) = source.next_item()? {
        // A JSON lines trace contains its start time only at its end; until it is known, nothing is cut.
        let start = start.or(source.header().start_realtime_ns);
        let began_ns = start.map_or(0, |start| began_unix_ns.saturating_sub(start));
        match item {
            TraceItem::Request(mut request) if request.first_ns().is_some_and(|first| first >= began_ns) => {
                request.id = kept;
                kept += 1;
                sink.request(&request)?;
            }
            TraceItem::Request(_) => {}
            TraceItem::Event(event) if event.time_ns >= began_ns => sink.event(&event)?,
            TraceItem::Event(_) => {}
        }
    }
    let header = source.header().clone();
    sink.finish(&header)?;
    if kept == 0 {
        bail!("the trace has no request after the workload's start");
    }
    Ok(header)
}

fn bar(cells: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("[{bar:40}] {pos}/{len}  {elapsed_precise}  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(u64::try_from(cells).unwrap_or(u64::MAX)).with_style(style)
}
