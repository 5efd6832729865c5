//! The record and the summary of a run.

use std::collections::BTreeMap;

use emmc::command_list::CommandList;
use emmc::outcome::Outcome;
use emmc::packing::{Contiguity, Stop};
use emmc::simulation::{DriverMode, Setup};
use media::Nanos;
use results::{HostInfo, RunRecord, TargetInfo};
use serde_json::json;

use crate::RunError;
use crate::load::LoadRules;

/// The commands as JSON lines; the last one counts those beyond the limit.
///
/// # Errors
/// [`RunError::Json`].
pub fn command_lines(commands: CommandList) -> Result<String, RunError> {
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

/// When and how a run was started, and whether it reached its end.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Command line of the program.
    pub command: Vec<String>,
    /// Real time of the start.
    pub started_unix_ns: u64,
    /// False for a run that was stopped.
    pub is_complete: bool,
}

/// The record of a run.
///
/// # Errors
/// [`RunError::Latency`].
pub fn record(
    setup: &Setup,
    load: &LoadRules,
    outcome: &Outcome,
    origin: Origin,
) -> Result<RunRecord, RunError> {
    let mut counters: BTreeMap<String, f64> = outcome.counters();
    let busy = outcome.bank_busy_ns.iter().copied();
    for (bank, busy) in busy.enumerate() {
        counters.insert(format!("emmc_bank_{bank}_busy_ns"), results::nearest_f64(busy));
    }
    Ok(RunRecord {
        schema: results::SCHEMA.to_owned(),
        command: origin.command,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_unix_ns: origin.started_unix_ns,
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
            "load": match &load.replay {
                Some(path) => path.display().to_string(),
                None => format!("{:?}", load.load),
            },
            "seed": load.seed,
            "card": setup.card,
            "host": setup.host,
            "driver": format!("{:?}", setup.driver),
            "pack_sizes": outcome.driver.pack_sizes,
            "halts_of_attempts": outcome.driver.halts_of_attempts,
        }),
        samples: outcome.samples()?,
        counters,
        complete: origin.is_complete,
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

fn load_text(load: &LoadRules) -> String {
    match &load.replay {
        Some(path) => format!("replay of {}", path.display()),
        None => load.load.word().to_owned(),
    }
}

/// The summary of a run.
#[must_use]
pub fn text(setup: &Setup, load: &LoadRules, outcome: &Outcome) -> String {
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
