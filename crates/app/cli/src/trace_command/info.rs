//! `tidegate trace info`: describes a trace of block requests, without an analysis.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use formats::native::{self, ItemCounts, NativeReader};
use formats::{Skipped, TraceItem};
use results::block_trace::TraceHeader;
use results::shown;
use serde_json::json;

use super::input::{InputArguments, describe_skipped, skipped_json};
use crate::{Finding, output};

/// Arguments of `tidegate trace info`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit codes: 0 done, 1 done, but the trace is partial or lines could not be read, 2 could not do it."
)]
pub struct TraceInfoArguments {
    #[command(flatten)]
    pub input: InputArguments,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

struct Info {
    trace_id: Option<String>,
    counts: ItemCounts,
    header: TraceHeader,
    skipped: Skipped,
    /// Bytes that the writer of an interrupted native trace did not finish.
    unfinished_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &TraceInfoArguments) -> Result<Finding> {
    let input = &arguments.input;
    let info = if !input.is_stdin() && native::is_native(&input.input) {
        of_native(&NativeReader::open(&input.input)?)
    } else {
        of_foreign(input)?
    };
    if arguments.json {
        let document = json!({
            "trace_id": info.trace_id,
            "counts": info.counts,
            "header": info.header,
            "unfinished_bytes": info.unfinished_bytes,
            "skipped_lines": skipped_json(&info.skipped),
        });
        output::print_line(&serde_json::to_string(&document)?)?;
    } else {
        describe_skipped(&info.skipped);
        output::print_text(&text(&info))?;
    }
    let is_whole = info.header.complete && info.skipped.count == 0;
    Ok(if is_whole {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

fn of_native(reader: &NativeReader) -> Info {
    let stored = reader.stored_header();
    Info {
        trace_id: Some(stored.trace_id.clone()),
        counts: reader.counts(),
        header: stored.header.clone(),
        skipped: Skipped::default(),
        unfinished_bytes: reader.unfinished_bytes(),
    }
}

/// A file of another tool has to be read to describe it.
fn of_foreign(input: &InputArguments) -> Result<Info> {
    let mut source = input.open()?;
    let mut bar = input.bar();
    let mut counts = ItemCounts::default();
    while let Some(item) = source.next_item()? {
        match item {
            TraceItem::Request(request) => {
                counts.requests += 1;
                counts.runs += u64::try_from(request.runs.len())?;
            }
            TraceItem::Event(_) => counts.events += 1,
        }
        bar.step(source.position());
    }
    bar.clear();
    Ok(Info {
        trace_id: None,
        counts,
        header: source.header().clone(),
        skipped: source.skipped().cloned().unwrap_or_default(),
        unfinished_bytes: 0,
    })
}

fn text(info: &Info) -> String {
    let header = &info.header;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "{name:<12} {}", shown::line(value)).expect("a string takes any text");
    };
    line("source", &header.source);
    line("method", &format!("{:?}", header.method).to_lowercase());
    if let Some(trace_id) = &info.trace_id {
        line("trace id", trace_id);
    }
    line("requests", &info.counts.requests.to_string());
    line("runs", &info.counts.runs.to_string());
    line("events", &info.counts.events.to_string());
    // The header of a recording that was cut short has no duration yet.
    let duration = match (header.duration_ns, header.complete) {
        (0, false) => "unknown: the recording has no end".to_owned(),
        (duration_ns, _) => seconds(duration_ns),
    };
    line("duration", &duration);
    if let Some(start) = header.start_realtime_ns {
        line("start", &format!("{} since 1970-01-01 UTC", seconds(start)));
    }
    if let Some(host) = &header.host {
        line(
            "host",
            &format!("{}, {}, {} processors", host.kernel, host.machine, host.cpus),
        );
    }
    for device in &header.devices {
        let mut words = vec![device.device.to_string()];
        words.extend((!device.name.is_empty()).then(|| device.name.clone()));
        words.extend(device.sectors.map(|sectors| format!("{sectors} sectors")));
        words.extend(
            device
                .file_system
                .as_ref()
                .map(|(kind, place)| format!("{kind} on {place}")),
        );
        words.extend(
            device
                .scheduler
                .as_ref()
                .map(|scheduler| format!("scheduler {scheduler}")),
        );
        line("device", &words.join(", "));
    }
    line("lost", &format!("{} records", header.lost_records));
    if header.refused > 0 {
        line(
            "refused",
            &format!(
                "{} I/Os, as the queue was full (NOWAIT); they are no requests",
                header.refused
            ),
        );
    }
    if header.ring_was_tight {
        line("ring", "was over half full at times");
    }
    line(
        "complete",
        if header.complete {
            "yes"
        } else {
            "no: it was interrupted, and is whole up to there"
        },
    );
    if info.unfinished_bytes > 0 {
        let bytes = info.unfinished_bytes;
        line(
            "unfinished",
            &format!("{bytes} bytes behind the last checkpoint are left out"),
        );
    }
    for limitation in &header.limitations {
        line("not told", &format!("{}: {}", limitation.what, limitation.why));
    }
    text
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}
