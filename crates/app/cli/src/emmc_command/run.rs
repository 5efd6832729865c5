//! `tidegate emmc run`: runs a load on a card and shows the results.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use emmc::command_log::CommandLog;
use emmc::simulation::Simulation;
use formats::{MemorySource, carry};
use media::Nanos;
use programs::stop_on_signals;
use results::append_record;
use runs::report::{self, Origin};
use trace::destination::{self, To};

use super::load::{LoadArguments, describe_left_out};
use super::paper::progress_bar;
use super::setup::SetupArguments;
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
    let load = arguments.load.rules();
    let actors = load.actors(sectors, setup.card.controller.contexts, describe_left_out)?;
    let mut simulation = Simulation::new(&setup, actors)?;
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
    let bar = progress_bar();
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
        output::write_result(path, &report::command_lines(commands)?)?;
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
    let origin = Origin {
        command: programs::own_arguments(),
        started_unix_ns,
        is_complete: !stopped,
    };
    let record = report::record(&setup, &load, &outcome, origin)?;
    if let Some(path) = &arguments.record {
        append_record(path, &record)?;
    }
    if arguments.json {
        output::print_line(&serde_json::to_string(&record)?)?;
    } else {
        output::print_line(&report::text(&setup, &load, &outcome))?;
    }
    if stopped {
        output::print_error("stopped before its end; the numbers are partial");
        return Ok(Finding::Something);
    }
    Ok(Finding::Nothing)
}

fn wanted_format(path: &std::path::Path) -> Result<To> {
    To::by_name(path).with_context(|| {
        format!(
            "{}: the name does not tell the format; expected NAME.trace, .blkparse, .po, .iolog, .pftrace or .jsonl",
            path.display()
        )
    })
}
