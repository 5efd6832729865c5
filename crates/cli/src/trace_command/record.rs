//! `tidegate trace record`: block requests of a device, live, with the file and the process behind each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use results::block_trace::{BlockClass, Event, Operation, Request, TraceHeader};
use serde::Serialize;
use trace::block::{CaptureSpec, Captured, DEFAULT_RING_BYTES, Method, Sink, Target};

use crate::bench_command::repeat::stop_on_signals;
use crate::quantity::{parse_bytes, parse_duration};
use crate::{Finding, output};

/// Arguments of `tidegate trace record`.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs root, or CAP_BPF and CAP_PERFMON. The trace ends with the command, after --duration, or at Ctrl-C;\n\
                  requests under way are waited for. Write the trace to another device than the traced one: requests of\n\
                  the tracer itself are left out, but they are made.\n\
                  Exit codes: 0 done, 1 records were lost or the command failed, 2 nothing could be traced."
)]
pub struct TraceRecordArguments {
    /// A device to trace; a partition stands for its disk (may be given several times)
    #[arg(
        long,
        short = 'd',
        value_name = "DEVICE",
        required_unless_present = "mountpoints"
    )]
    pub device: Vec<PathBuf>,
    /// A folder: the device of the file system that it is on (may be given several times)
    #[arg(long = "mountpoint", short = 'm', value_name = "FOLDER")]
    pub mountpoints: Vec<PathBuf>,
    /// The trace that is written
    #[arg(long, short = 'o', value_name = "FILE", default_value = "trace.jsonl")]
    pub output: PathBuf,
    /// End after this long (10s, 2m)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Memory between kernel and tracer: a power of two; more when records are lost
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value_t = DEFAULT_RING_BYTES)]
    pub ring: u64,
    /// By which means requests are seen
    #[arg(long, value_enum, default_value_t = CaptureMethodArgument::Best)]
    pub method: CaptureMethodArgument,
    /// Don't count system calls: saves some 0.1 us in each call of every process
    #[arg(long)]
    pub no_calls: bool,
    /// Write everything dirty to the devices before the end
    #[arg(long)]
    pub sync: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// A program to run and trace until it ends, behind --
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Means of seeing requests.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CaptureMethodArgument {
    /// BPF, and tracefs where that is forbidden
    Best,
    /// BPF programs on tracepoints
    Bpf,
    /// A tracefs instance: no paths, no direct I/O's files, no journal's home blocks
    Tracefs,
}

impl From<CaptureMethodArgument> for Method {
    fn from(argument: CaptureMethodArgument) -> Self {
        match argument {
            CaptureMethodArgument::Best => Self::Best,
            CaptureMethodArgument::Bpf => Self::Bpf,
            CaptureMethodArgument::Tracefs => Self::Tracefs,
        }
    }
}

/// Runs the command.
pub fn run(arguments: &TraceRecordArguments) -> Result<Finding> {
    let stop = stop_on_signals()?;
    let devices = arguments.device.iter().cloned().map(Target::Device);
    let mountpoints = arguments.mountpoints.iter().cloned().map(Target::Mountpoint);
    let spec = CaptureSpec {
        targets: devices.chain(mountpoints).collect(),
        method: arguments.method.into(),
        ring_bytes: arguments.ring,
        count_calls: !arguments.no_calls,
        command: arguments.command.clone(),
        duration: arguments.duration,
        sync_at_end: arguments.sync,
        host: Some(bench::environment::host()),
        source: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let partial = results::partial_name(&arguments.output);
    let mut lines = JsonLines::create(&partial)?;
    let captured = match trace::block::capture(&spec, &stop, &mut lines) {
        Ok(captured) => captured,
        Err(error) => {
            let _ = fs::remove_file(&partial);
            return Err(error).context("nothing was traced");
        }
    };
    let summary = lines.finish(&captured, &arguments.output, &partial)?;
    if arguments.json {
        output::print_line(&serde_json::to_string_pretty(&summary)?)?;
    } else {
        describe(&summary, &captured);
    }
    let command_failed = captured.command_status.is_some_and(|status| !status.success());
    Ok(if captured.header.lost_records > 0 || command_failed {
        Finding::Something
    } else {
        Finding::Nothing
    })
}

/// What was traced, in a few numbers.
#[derive(Debug, Default, Serialize)]
struct TraceSummary {
    file: PathBuf,
    duration_seconds: f64,
    requests: u64,
    events: u64,
    read_bytes: u64,
    written_bytes: u64,
    discarded_bytes: u64,
    flushes: u64,
    /// Bytes moved by class of blocks.
    bytes_by_class: BTreeMap<&'static str, u64>,
    lost_records: u64,
    complete: bool,
    limitations: Vec<String>,
}

/// A trace as JSON lines: one object a line, of one key: `request`, `event`, and at the end `header`.
struct JsonLines {
    out: BufWriter<File>,
    path: PathBuf,
    summary: TraceSummary,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Request(&'a Request),
    Event(&'a Event),
    Header(&'a TraceHeader),
}

impl JsonLines {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("{} can't be written", path.display()))?;
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            path: path.to_owned(),
            summary: TraceSummary::default(),
        })
    }

    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }

    fn finish(mut self, captured: &Captured, output: &Path, partial: &Path) -> Result<TraceSummary> {
        let header = &captured.header;
        let written = self.line(&Line::Header(header)).and_then(|()| self.out.flush());
        written.with_context(|| format!("{} can't be written", self.path.display()))?;
        fs::rename(partial, output)
            .with_context(|| format!("{} can't be renamed to {}", partial.display(), output.display()))?;
        let mut summary = self.summary;
        summary.file = output.to_owned();
        summary.duration_seconds = Duration::from_nanos(header.duration_ns).as_secs_f64();
        summary.requests = captured.requests;
        summary.events = captured.events;
        summary.lost_records = header.lost_records;
        summary.complete = header.complete;
        summary.limitations = header
            .limitations
            .iter()
            .map(|limitation| format!("{}: {}", limitation.what, limitation.why))
            .collect();
        Ok(summary)
    }
}

impl Sink for JsonLines {
    fn request(&mut self, request: &Request) -> io::Result<()> {
        let summary = &mut self.summary;
        match request.operation {
            Operation::Read => summary.read_bytes += request.bytes,
            Operation::Write | Operation::ZoneAppend => summary.written_bytes += request.bytes,
            Operation::Discard | Operation::SecureErase => summary.discarded_bytes += request.bytes,
            Operation::Flush => summary.flushes += 1,
            _ => {}
        }
        if request.moves_data() {
            for run in &request.runs {
                let class: BlockClass = run.block_type.class();
                *summary.bytes_by_class.entry(class.word()).or_default() += run.bytes;
            }
        }
        self.line(&Line::Request(request))
    }

    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.line(&Line::Event(event))
    }
}

fn describe(summary: &TraceSummary, captured: &Captured) {
    let mib = |bytes: u64| format!("{:.1} MiB", results::nearest_f64(bytes) / 1_048_576.0);
    output::print_error(&format!(
        "{} requests in {:.1} s: {} read, {} written, {} discarded, {} flushes",
        summary.requests,
        summary.duration_seconds,
        mib(summary.read_bytes),
        mib(summary.written_bytes),
        mib(summary.discarded_bytes),
        summary.flushes
    ));
    let classes: Vec<String> = summary
        .bytes_by_class
        .iter()
        .map(|(class, bytes)| format!("{class} {}", mib(*bytes)))
        .collect();
    if !classes.is_empty() {
        output::print_error(&classes.join(", "));
    }
    for limitation in &summary.limitations {
        output::print_error(&format!("not in the trace: {limitation}"));
    }
    if summary.lost_records > 0 {
        output::print_error(&format!(
            "{} records were lost; trace again with a larger --ring",
            summary.lost_records
        ));
    } else if captured.header.ring_was_tight {
        output::print_error("no record was lost, but the ring was over half full; a larger --ring is safer");
    }
    if !summary.complete {
        output::print_error("stopped before the command's end");
    }
    output::print_error(&format!(
        "{} events; all in {}",
        summary.events,
        summary.file.display()
    ));
}
