//! `tidegate emmc attach --self-check`: compares the same requests on the attached card and in virtual time.
//!
//! `tidegate bench file --device` makes the requests past the page cache; the model makes the same ones with the same queue
//! depth. All loads run in sequence on one card, so that the model is in the state of the attached card. They differ in the
//! host: its calls, its scheduler, its wake-ups, and the work of the client between two requests.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use emmc::block::{QueueRules, SchedulerKind};
use emmc::simulation::{Setup, Simulation};
use emmc::workload::{Actor, DirectRules, Order, chain, direct};
use live::Attached;
use media::Nanos;
use nand::TimeScale;
use report::{Column, table};
use results::RunRecord;
use results::block_trace::Operation;
use serde_json::json;

use super::attach::AttachArguments;
use super::detach::{How, detach};
use crate::{Finding, output};

/// Largest accepted difference of bandwidth.
const DIFFERENCE_PERCENT_MAX: f64 = 3.0;

/// Largest accepted median lateness of answers, real time.
const LATE_P50_MAX: Nanos = Nanos::from_micros(60);

/// A load of the comparison.
struct Load {
    name: &'static str,
    pattern: &'static str,
    operation: Operation,
    order: Order,
    sectors: u64,
    depth: u32,
    count: u64,
}

impl Load {
    fn actor(&self) -> Box<dyn Actor> {
        direct(DirectRules {
            operation: self.operation,
            order: self.order,
            sectors: self.sectors,
            piece_sectors: self.sectors,
            count: self.count,
            start: 0,
            range: self.count * self.sectors,
            depth: self.depth,
            seed: 1,
        })
    }
}

/// The order matters: reads find the data of the stream before them, and random writes, whose addresses differ between
/// client and model, come last.
const LOADS: [Load; 4] = [
    Load {
        name: "stream of writes, 512 KiB, 32 at a time",
        pattern: "sequential-write",
        operation: Operation::Write,
        order: Order::Sequential,
        sectors: 1024,
        depth: 32,
        count: 256,
    },
    Load {
        name: "stream of reads, 512 KiB, 32 at a time",
        pattern: "sequential-read",
        operation: Operation::Read,
        order: Order::Sequential,
        sectors: 1024,
        depth: 32,
        count: 256,
    },
    Load {
        name: "stream of writes, 512 KiB, 1 at a time",
        pattern: "sequential-write",
        operation: Operation::Write,
        order: Order::Sequential,
        sectors: 1024,
        depth: 1,
        count: 128,
    },
    Load {
        name: "random writes, 4 KiB, 1 at a time",
        pattern: "random-write",
        operation: Operation::Write,
        order: Order::Random,
        sectors: 8,
        depth: 1,
        count: 2000,
    },
];

/// Time of one load on the model and on the card.
struct Outcome {
    name: &'static str,
    bytes: u64,
    model_ns: u64,
    live_ns: u64,
}

impl Outcome {
    /// Bandwidth of the attached card relative to the model's, percent above it.
    fn difference_percent(&self) -> f64 {
        let ratio = results::nearest_f64(self.model_ns) / results::nearest_f64(self.live_ns.max(1));
        (ratio - 1.0) * 100.0
    }
}

/// Compares on a card that was attached for this check, and detaches it.
pub fn run(arguments: &AttachArguments, setup: &Setup, device: &Path) -> Result<Finding> {
    let attached = Attached::find(&arguments.run_folder, device)?;
    // The load gets the card's priority; if that is refused, other work of the machine is part of the result.
    let _ = live::set_sched_fifo();
    let compared = compare(setup, &attached, device, arguments.time_scale);
    detach(
        &attached,
        How {
            force: false,
            timeout: std::time::Duration::from_secs(60),
        },
    )?;
    let (outcomes, late_p50_ns) = compared?;
    let on_time = Nanos(late_p50_ns) < arguments.time_scale.to_virtual(LATE_P50_MAX);
    let alike = outcomes
        .iter()
        .all(|outcome| outcome.difference_percent().abs() <= DIFFERENCE_PERCENT_MAX);
    output::print_line(&shown(&outcomes, late_p50_ns, arguments.json))?;
    Ok(match alike && on_time {
        true => Finding::Nothing,
        false => Finding::Something,
    })
}

/// Compares in virtual time: that of the card, which runs at `scale`.
fn compare(
    setup: &Setup,
    attached: &Attached,
    device: &Path,
    scale: TimeScale,
) -> Result<(Vec<Outcome>, u64)> {
    let mut outcomes = Vec::new();
    let mut modelled_before_ns = 0;
    for (load, number) in LOADS.iter().zip(1..) {
        let bytes = load.count * load.sectors * 512;
        if bytes > attached.card.capacity_bytes {
            bail!(
                "a card of {} bytes is too small for {}",
                attached.card.capacity_bytes,
                load.name
            );
        }
        let modelled_ns = modelled(setup, &LOADS[..number])?;
        outcomes.push(Outcome {
            name: load.name,
            bytes,
            model_ns: modelled_ns - modelled_before_ns,
            live_ns: scale.to_virtual(measured(load, device)?).0,
        });
        modelled_before_ns = modelled_ns;
    }
    let document = attached.document()?;
    let late = document
        .backing
        .get("late_p50_ns")
        .and_then(serde_json::Value::as_u64);
    Ok((outcomes, late.context("the card does not say how late it is")?))
}

/// The model's time for several loads in sequence.
fn modelled(setup: &Setup, loads: &[Load]) -> Result<u64> {
    let setup = Setup {
        queue: QueueRules::usual(SchedulerKind::None),
        ..setup.clone()
    };
    let simulation = Simulation::new(&setup, vec![chain(loads.iter().map(Load::actor).collect())])?;
    Ok(simulation.run(|_| ControlFlow::Continue(())).0.elapsed_ns)
}

/// The time of the attached card for a load, real time.
fn measured(load: &Load, device: &Path) -> Result<Nanos> {
    let program =
        std::env::current_exe().context("the path of this program can't be found; is /proc mounted?")?;
    let record_bytes = load.sectors * 512;
    let output = Command::new(program)
        .args(["bench", "file"])
        .arg(device)
        .args([
            "--device",
            "--destroy-data",
            "--mode",
            "direct",
            "--engine",
            "io_uring",
            "--json",
            "--pattern",
            load.pattern,
        ])
        .args(["--record", &record_bytes.to_string()])
        .args(["--size", &(record_bytes * load.count).to_string()])
        .args(["--depth", &load.depth.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("tidegate bench can't be started")?;
    if !output.status.success() {
        bail!(
            "{}: {}",
            load.name,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    let record: RunRecord =
        serde_json::from_slice(&output.stdout).context("tidegate bench printed no record")?;
    let sample = record
        .samples
        .first()
        .context("tidegate bench measured nothing")?;
    // The time of the client's requests, without its sync and close.
    let elapsed_ns = sample.elapsed_ns.saturating_sub(sample.sync_ns + sample.close_ns);
    Ok(Nanos(elapsed_ns))
}

fn shown(outcomes: &[Outcome], late_p50_ns: u64, as_json: bool) -> String {
    let rate = |bytes: u64, ns: u64| results::nearest_f64(bytes) * 1e3 / results::nearest_f64(ns.max(1));
    if as_json {
        let loads: Vec<_> = outcomes
            .iter()
            .map(|outcome| {
                json!({
                    "load": outcome.name,
                    "bytes": outcome.bytes,
                    "model_ns": outcome.model_ns,
                    "live_ns": outcome.live_ns,
                    "difference_percent": outcome.difference_percent(),
                })
            })
            .collect();
        return json!({"loads": loads, "late_p50_ns": late_p50_ns}).to_string();
    }
    let columns = [
        Column::left("load"),
        Column::right("model MB/s"),
        Column::right("live MB/s"),
        Column::right("difference %"),
    ];
    let rows: Vec<Vec<String>> = outcomes
        .iter()
        .map(|outcome| {
            vec![
                outcome.name.to_owned(),
                format!("{:.2}", rate(outcome.bytes, outcome.model_ns)),
                format!("{:.2}", rate(outcome.bytes, outcome.live_ns)),
                format!("{:+.2}", outcome.difference_percent()),
            ]
        })
        .collect();
    format!(
        "{}half of the answers were at most {} later than the model says",
        table(&columns, &rows),
        Nanos(late_p50_ns)
    )
}
