//! `tidegate emmc run`: runs a load on a card and shows the results.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use emmc::command_list::CommandList;
use emmc::command_log::CommandLog;
use emmc::outcome::Outcome;
use emmc::packing::{Contiguity, Stop};
use emmc::simulation::{DriverMode, Setup, Simulation};
use formats::{MemorySource, carry};
use indicatif::ProgressBar;
use media::Nanos;
use programs::stop_on_signals;
use results::{HostInfo, RunRecord, TargetInfo, append_record};
use serde_json::json;

use super::load::LoadArguments;
use super::setup::SetupArguments;
use crate::trace_command::destination::{self, To};
use crate::{Finding, output};

/// Arguments of `tidegate emmc run`.
#[derive(Args, Debug)]
#[command(
    after_help = "Times are virtual: the same flags give the same numbers on every machine. MB/s are 10^6 bytes \
                  per second of virtual time, latencies milliseconds from the request's submission to its \
                  completion. A pack ends for one of these reasons: NOREQ, no further request waits; RAND, the \
                  next request is not contiguous; SYNC, it is synchronous; REL, a reliable write; READ, a read; \
                  FUA, a forced write; full, the limit of requests, sectors or segments. `with singles` counts \
                  attempts with one request too.\n\
                  Exit codes: 0 done, 1 interrupted (numbers are partial), 2 could not do it."
)]
pub struct RunArguments {
    #[command(flatten)]
    pub setup: SetupArguments,
    #[command(flatten)]
    pub load: LoadArguments,
    /// Write every command as a block trace, for `tidegate trace report`: NAME.trace or another tool's format
    #[arg(long, value_name = "OUT", help_heading = "Results")]
    pub trace: Option<PathBuf>,
    /// Write every command on the card's bus as JSON lines: time, number, argument, and the header of a pack in hexadecimal
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub commands: Option<PathBuf>,
    /// Maximum number of requests in the trace, and of commands in their list; later ones are only counted
    #[arg(long, value_name = "N", default_value_t = 2_000_000, help_heading = "Results")]
    pub trace_requests: usize,
    /// Replace an existing trace
    #[arg(long, help_heading = "Results")]
    pub force: bool,
    /// Append a run record to this file
    #[arg(
        long = "output",
        short = 'o',
        visible_alias = "record",
        value_name = "FILE",
        help_heading = "Results"
    )]
    pub record: Option<PathBuf>,
    /// Print the run record as JSON
    #[arg(long, help_heading = "Results")]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &RunArguments) -> Result<Finding> {
    let setup = arguments.setup.setup()?;
    let to = arguments.trace.as_deref().map(wanted_format).transpose()?;
    let sectors = setup.card.flash.capacity_bytes / 512;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut simulation = Simulation::new(
        &setup,
        arguments.load.actors(sectors, setup.card.controller.contexts)?,
    )?;
    if let Some(bytes) = arguments.load.written {
        if bytes > setup.card.flash.capacity_bytes {
            bail!(
                "--written {bytes} is more than the card's {} bytes",
                setup.card.flash.capacity_bytes
            );
        }
        simulation = simulation.with_written(0, bytes / 512);
    }
    if let Some(bytes) = arguments.load.rewritten {
        simulation = simulation.with_overwritten(bytes / 4096, arguments.load.seed);
    }
    if to.is_some() || arguments.commands.is_some() {
        let log = CommandLog::new(arguments.trace_requests);
        simulation = simulation.with_log(if arguments.commands.is_some() {
            log.with_commands()
        } else {
            log
        });
    }
    let bar = if stderr().is_terminal() {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::hidden()
    };
    let stop = stop_on_signals()?;
    let (outcome, mut log) = simulation.run(|requests| {
        bar.set_message(format!("{requests} requests"));
        bar.tick();
        if stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bar.finish_and_clear();
    let stopped = stop.load(Ordering::Relaxed);
    if let (Some(path), Some(commands)) = (
        &arguments.commands,
        log.as_mut().and_then(CommandLog::take_commands),
    ) {
        output::write_result(path, &command_lines(commands)?)?;
    }
    if let (Some(path), Some(to), Some(log)) = (&arguments.trace, to, log) {
        let scheduler = setup.queue.scheduler.word();
        let source = format!(
            "tidegate emmc run, card {}, host {}",
            setup.card.name, setup.host.name
        );
        let trace = log.into_trace(source, sectors, scheduler, Nanos(outcome.elapsed_ns));
        let existing = destination::existing(arguments.force);
        let sink = destination::create(path, to, &trace.header, existing)?;
        carry(&mut MemorySource::new(trace), sink, |_| ControlFlow::Continue(()))
            .with_context(|| format!("{} can't be written", path.display()))?;
    }
    let started_unix_ns = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
    let record = record(&setup, arguments, &outcome, started_unix_ns, stopped)?;
    if let Some(path) = &arguments.record {
        append_record(path, &record)?;
    }
    if arguments.json {
        output::print_line(&serde_json::to_string(&record)?)?;
    } else {
        output::print_line(&text(&setup, &arguments.load, &outcome))?;
    }
    if stopped {
        output::print_error("stopped before its end; the numbers are partial");
        return Ok(Finding::Something);
    }
    Ok(Finding::Nothing)
}

/// The commands as JSON lines; the last one counts those beyond the limit.
fn command_lines(commands: CommandList) -> Result<String> {
    let left_out = commands.left_out();
    let mut text = String::new();
    for command in commands.into_commands() {
        let mut line = json!({
            "at_ns": command.at.0,
            "command": command.code,
            "argument": command.argument,
        });
        if let Some(header) = &command.header {
            let digits: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
            line["pack_header"] = digits.into();
        }
        text += &serde_json::to_string(&line)?;
        text.push('\n');
    }
    if left_out > 0 {
        text += &json!({ "left_out_count": left_out }).to_string();
        text.push('\n');
    }
    Ok(text)
}

fn wanted_format(path: &std::path::Path) -> Result<To> {
    To::by_name(path).with_context(|| {
        format!(
            "{}: the name does not tell the format; expected NAME.trace, .blkparse, .po, .iolog, .pftrace or .jsonl",
            path.display()
        )
    })
}

fn record(
    setup: &Setup,
    arguments: &RunArguments,
    outcome: &Outcome,
    started_unix_ns: u64,
    stopped: bool,
) -> Result<RunRecord> {
    let mut counters: BTreeMap<String, f64> = outcome.counters();
    let busy = outcome.bank_busy_ns.iter().copied();
    for (bank, busy) in busy.enumerate() {
        counters.insert(format!("emmc_bank_{bank}_busy_ns"), results::nearest_f64(busy));
    }
    Ok(RunRecord {
        schema: results::SCHEMA.to_owned(),
        command: programs::own_arguments(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_ns,
        host: HostInfo {
            kernel: "virtual time".to_owned(),
            ..HostInfo::default()
        },
        target: TargetInfo {
            path: format!("emmc:{}", setup.card.name),
            device_model: Some(setup.card.description.clone()),
            scheduler: Some(setup.queue.scheduler.word().to_owned()),
            ..TargetInfo::default()
        },
        label: format!("{} {}", setup.card.name, setup.queue.scheduler.word()),
        round: 0,
        workload: json!({
            "load": match &arguments.load.replay {
                Some(path) => path.display().to_string(),
                None => format!("{:?}", arguments.load.load),
            },
            "seed": arguments.load.seed,
            "card": setup.card,
            "host": setup.host,
            "driver": format!("{:?}", setup.driver),
            "pack_sizes": outcome.driver.pack_sizes,
            "halts_of_attempts": outcome.driver.halts_of_attempts,
        }),
        samples: outcome.samples()?,
        counters,
        complete: !stopped,
    })
}

fn driver_text(driver: &DriverMode) -> String {
    match driver {
        DriverMode::Packed(rules) if rules.max_requests <= 1 => {
            "one command at a time, no packing".to_owned()
        }
        DriverMode::Packed(rules) => {
            let order = match rules.contiguity {
                Contiguity::Needed => "sequential",
                Contiguity::Free => "random",
            };
            format!("packs of up to {} {order} writes", rules.max_requests)
        }
        DriverMode::CommandQueue(depth) => format!("command queue of {depth}"),
    }
}

/// Meaning of the words that the text contains.
fn legend(driver: &emmc::outcome::DriverCounters) -> String {
    let meaning = |stop: Stop| match stop {
        Stop::NoRequest => "NOREQ no request waits",
        Stop::Random => "RAND the next one is not contiguous",
        Stop::Sync => "SYNC it is synchronous",
        Stop::Reliable => "REL a reliable write",
        Stop::Read => "READ a read",
        Stop::Fua => "FUA a forced write",
        Stop::FullCount => "full (count) the limit of requests",
        Stop::FullSectors => "full (sectors) the limit of sectors",
        Stop::FullSegments => "full (segments) the limit of segments",
    };
    let seen = Stop::WORDS
        .iter()
        .zip(&driver.halts_of_attempts)
        .filter(|(_, count)| **count > 0);
    let mut parts = vec!["MB/s: 10^6 bytes per second of virtual time".to_owned()];
    parts.extend(seen.map(|((stop, _), _)| meaning(*stop).to_owned()));
    format!("({})", parts.join("; "))
}

fn load_text(load: &LoadArguments) -> String {
    match &load.replay {
        Some(path) => format!("replay of {}", path.display()),
        None => load
            .load
            .to_possible_value()
            .map_or_else(String::new, |word| word.get_name().to_owned()),
    }
}

fn text(setup: &Setup, load: &LoadArguments, outcome: &Outcome) -> String {
    let shown = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.digits$}"))
    };
    let (driver, nand, layer) = (&outcome.driver, &outcome.nand, &outcome.translation);
    let mut lines = vec![
        format!(
            "card           {}, {}, {}",
            setup.card.name,
            setup.card.translation.kind.word(),
            if setup.card.controller.cache {
                "cache on"
            } else {
                "cache off"
            },
        ),
        format!(
            "host           {}, {}",
            setup.host.name,
            driver_text(&setup.driver)
        ),
        format!("scheduler      {}", setup.queue.scheduler.word()),
        format!("load           {}", load_text(load)),
        format!("virtual time   {}", Nanos(outcome.elapsed_ns)),
    ];
    for (name, kind) in [("reads", &outcome.reads), ("writes", &outcome.writes)] {
        if kind.requests > 0 {
            let rate =
                results::nearest_f64(kind.bytes) * 1e3 / results::nearest_f64(outcome.elapsed_ns.max(1));
            let summary = kind.latency.summary();
            let latency = summary.map_or_else(String::new, |summary| {
                let milliseconds = |nanos: u64| results::nearest_f64(nanos) / 1e6;
                format!(
                    ", latency p50 {:.3} ms, p99 {:.3} ms",
                    milliseconds(summary.p50_ns),
                    milliseconds(summary.p99_ns)
                )
            });
            lines.push(format!(
                "{name:<14} {} requests, {rate:.2} MB/s{latency}",
                kind.requests
            ));
        }
    }
    lines.push(format!(
        "commands       {}, {} interrupts, {} flushes, {} discards",
        driver.commands, driver.interrupts, driver.flushes, driver.discards
    ));
    lines.push(format!(
        "packs          {} of {} requests on average, {} % of write requests packed",
        driver.packs,
        shown(driver.mean_pack(), 2),
        shown(driver.packed_percent(), 1)
    ));
    let halts = |counts: &emmc::outcome::Halts| {
        let words = Stop::WORDS.iter().zip(counts).filter(|(_, count)| **count > 0);
        let listed: Vec<_> = words
            .map(|((_, word), count)| format!("{word} {count}"))
            .collect();
        if listed.is_empty() {
            "none".to_owned()
        } else {
            listed.join(", ")
        }
    };
    lines.push(format!("  ended by     {}", halts(&driver.halts_of_packs)));
    lines.push(format!("  with singles {}", halts(&driver.halts_of_attempts)));
    lines.push(format!(
        "flash          {} programs, {} LSB backups, {} reads, {} erases",
        nand.programs, nand.backups, nand.reads, nand.erases
    ));
    lines.push(format!(
        "translation    write amplification {}, {} units copied, {} collections",
        shown(layer.write_amplification(), 3),
        layer.copied_units,
        layer.collections
    ));
    lines.push(format!(
        "wear           {} to {} erases of a super block, with those before the run",
        outcome.erases.0, outcome.erases.1
    ));
    let (least, most) = outcome.bank_busy_percent().unwrap_or_default();
    lines.push(format!("banks          {least:.1} to {most:.1} % busy"));
    if let Some(energy) = outcome.energy_mj() {
        let megabytes = results::nearest_f64(outcome.reads.bytes + outcome.writes.bytes) / 1e6;
        let of_data = (megabytes > 0.0).then(|| energy / megabytes);
        lines.push(format!(
            "energy         {energy:.1} mJ of the flash, {} mJ per MB of data",
            shown(of_data, 3)
        ));
    }
    lines.push(String::new());
    lines.push(legend(driver));
    lines.join("\n")
}
