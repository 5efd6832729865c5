//! `tidegate demo`: the ladder of the bFUSE paper on this machine, in one interleaved run.
//!
//! Each round writes one file sequentially through every configuration, in rotated order, so that what changes on the
//! machine meanwhile changes for all of them. What is compared is the median of the ratios of one round. Mounts and
//! measurements are child processes of this binary; counters come from the daemons by `tidegate stats`'s way.
//!
//! Whatever is made (image, loop device, mounts, folders) is owned by a value whose drop removes it; signals only raise
//! a flag. Nothing that was there before is touched.

pub mod arguments;
mod bed;
mod ladder;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use report::ReportInput;
use results::{RecordWriter, RunRecord, counter, nearest_f64};

use self::arguments::DemoArguments;
use crate::Finding;
use crate::bench_command::repeat::command_line;
use crate::compare::write_text;
use crate::demo::bed::Bed;
use crate::demo::ladder::{LADDER, Rung};
use crate::output;
use crate::quantity::show_bytes;
use crate::stats_document::{self, Document};

/// Size of each write, as in the paper's table 3.
const RECORD_BYTES: u64 = 512 << 10;

/// Size of the runs that warm up and tell how fast this machine is.
const PILOT_BYTES: u64 = 16 << 20;

/// The rounds must fit into this; set-up, report and removal need the rest of two minutes.
const TIME_FOR_ROUNDS: Duration = Duration::from_secs(85);

/// Fewer rounds have no median worth its name.
const ROUNDS_MIN: u32 = 3;

/// Smallest file that is still measured.
const SIZE_BYTES_MIN: u64 = 32 << 20;

/// Counter of the run records: context switches of the daemon during the run.
const CONTEXT_SWITCHES_DAEMON: &str = "context_switches_daemon_count";

/// Runs the command.
pub fn run(arguments: &DemoArguments) -> Result<Finding> {
    if arguments.size == 0 || !arguments.size.is_multiple_of(RECORD_BYTES) {
        bail!(
            "a size of {} bytes is not a multiple of {}",
            arguments.size,
            show_bytes(RECORD_BYTES)
        );
    }
    let stop = programs::stop_on_signals()?;
    let bed = Bed::make(&arguments.directory, arguments.size)?;
    let mut notes = bed.notes().to_vec();
    let mut rungs = Vec::new();
    for configuration in &LADDER {
        match Rung::mount(configuration, &bed) {
            Ok(rung) => {
                notes.extend(
                    rung.negotiated()
                        .map(|granted| format!("{}: {granted}", rung.label())),
                );
                rungs.push(rung);
            }
            Err(error) => notes.push(format!(
                "{} is left out: {}",
                configuration.label,
                output::with_causes(&error)
            )),
        }
    }
    notes.iter().for_each(|note| output::print_error(note));
    let plan = Plan::fit(arguments, &rungs, &stop)?;
    let records = measure(&plan, &rungs, &stop)?;
    drop(rungs);
    drop(bed);
    if stop.load(Ordering::Relaxed) {
        bail!("stopped; nothing is reported, and what was made is removed");
    }
    report(arguments, &plan, records, notes)
}

/// How much is run, cut down to the time there is.
struct Plan {
    size_bytes: u64,
    rounds: u32,
}

impl Plan {
    fn fit(arguments: &DemoArguments, rungs: &[Rung], stop: &AtomicBool) -> Result<Self> {
        let started = Instant::now();
        for rung in rungs {
            run_once(rung, PILOT_BYTES, 0, stop)?;
        }
        let pilot = started.elapsed().as_secs_f64();
        let plan = Self::cut(arguments.size, arguments.rounds, pilot);
        if (plan.size_bytes, plan.rounds) != (arguments.size, arguments.rounds) {
            output::print_error(&format!(
                "this machine needs about {:.0} s for what was asked; running {} rounds of {} instead",
                seconds(arguments.size, arguments.rounds, pilot),
                plan.rounds,
                show_bytes(plan.size_bytes)
            ));
        }
        Ok(plan)
    }

    /// Cuts rounds first, then sizes, until the estimate fits.
    fn cut(size_bytes: u64, rounds: u32, pilot_seconds: f64) -> Self {
        let mut plan = Self { size_bytes, rounds };
        let fits = |plan: &Self| {
            seconds(plan.size_bytes, plan.rounds, pilot_seconds) <= TIME_FOR_ROUNDS.as_secs_f64()
        };
        while !fits(&plan) && plan.rounds > ROUNDS_MIN {
            plan.rounds -= 1;
        }
        while !fits(&plan) && plan.size_bytes / 2 >= SIZE_BYTES_MIN {
            plan.size_bytes = plan.size_bytes / 2 / RECORD_BYTES * RECORD_BYTES;
        }
        plan
    }
}

/// What rounds take, by what the pilot took. The fixed part of a run is counted too often: an upper bound.
fn seconds(size_bytes: u64, rounds: u32, pilot_seconds: f64) -> f64 {
    pilot_seconds * nearest_f64(size_bytes) / nearest_f64(PILOT_BYTES) * f64::from(rounds)
}

fn measure(plan: &Plan, rungs: &[Rung], stop: &AtomicBool) -> Result<Vec<RunRecord>> {
    let mut records = Vec::new();
    for round in 0..plan.rounds {
        for position in 0..rungs.len() {
            let turn = usize::try_from(round).expect("rounds fit into memory") + position;
            let rung = &rungs[turn % rungs.len()];
            if stop.load(Ordering::Relaxed) {
                return Ok(records);
            }
            rustix::fs::sync();
            records.push(run_once(rung, plan.size_bytes, round, stop)?);
        }
        output::print_error(&format!("round {} of {} done", round + 1, plan.rounds));
    }
    Ok(records)
}

/// One measured write, with the daemon's counters of the time between.
fn run_once(rung: &Rung, size_bytes: u64, round: u32, stop: &AtomicBool) -> Result<RunRecord> {
    let before = rung.statistics()?;
    let mut record = bench_child(rung, size_bytes, stop)?;
    record.round = round;
    let counted = match (before, rung.statistics()?) {
        (Some(before), Some(after)) => Counted::between(&before, &after, size_bytes),
        // Without a mount each write reaches the file system as it is.
        _ => Counted {
            backing_writes: size_bytes / RECORD_BYTES,
            computed_writes: size_bytes / RECORD_BYTES,
            context_switches: 0,
        },
    };
    record.command = command_line();
    record.counters.insert(
        counter::BACKING_WRITES.to_owned(),
        nearest_f64(counted.backing_writes),
    );
    record.counters.insert(
        report::ladder::BACKING_WRITES_COMPUTED.to_owned(),
        nearest_f64(counted.computed_writes),
    );
    record.counters.insert(
        CONTEXT_SWITCHES_DAEMON.to_owned(),
        nearest_f64(counted.context_switches),
    );
    Ok(record)
}

/// What a daemon did for one run.
struct Counted {
    backing_writes: u64,
    /// Those of the backing writes that no daemon made or counted: as many as records, by construction.
    computed_writes: u64,
    context_switches: u64,
}

impl Counted {
    fn between(before: &Document, after: &Document, size_bytes: u64) -> Self {
        let writes = |document: &Document| document.backing.get("writes").and_then(serde_json::Value::as_u64);
        let switches = |document: &Document| {
            document.session.context_switches_voluntary + document.session.context_switches_involuntary
        };
        let daemon_writes = writes(after)
            .unwrap_or(0)
            .saturating_sub(writes(before).unwrap_or(0));
        let by_the_kernel = after.negotiated.get("passthrough") == Some(&serde_json::Value::Bool(true));
        // With passthrough the kernel hands each write of the program to the file system as it is.
        let computed_writes = if by_the_kernel {
            size_bytes / RECORD_BYTES
        } else {
            0
        };
        Self {
            backing_writes: daemon_writes + computed_writes,
            computed_writes,
            context_switches: switches(after).saturating_sub(switches(before)),
        }
    }
}

fn bench_child(rung: &Rung, size_bytes: u64, stop: &AtomicBool) -> Result<RunRecord> {
    let output = this_program()?
        .args([
            "bench",
            "file",
            "--pattern",
            "sequential-write",
            "--fsync-at-end",
            "--json",
        ])
        .args([
            "--record",
            &RECORD_BYTES.to_string(),
            "--size",
            &size_bytes.to_string(),
        ])
        .args(["--label", rung.label()])
        .arg(rung.directory())
        .stdin(Stdio::null())
        .output()
        .context("the measuring process can't be started")?;
    if stop.load(Ordering::Relaxed) {
        bail!("stopped; what was made is removed");
    }
    if !output.status.success() {
        bail!(
            "measuring {} failed: {}",
            rung.label(),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    serde_json::from_slice(&output.stdout).context("the measuring process printed no run record")
}

fn report(
    arguments: &DemoArguments,
    plan: &Plan,
    records: Vec<RunRecord>,
    mut notes: Vec<String>,
) -> Result<Finding> {
    let ladder = table::rows(&records);
    let subtitle = format!(
        "Sequential write of {} in {} records with fsync at the end; {} interleaved rounds, medians.",
        show_bytes(plan.size_bytes),
        show_bytes(RECORD_BYTES),
        plan.rounds
    );
    if arguments.json {
        for record in &records {
            output::print_line(&serde_json::to_string(record)?)?;
        }
    } else {
        output::print_line(&format!("{subtitle}\n"))?;
        output::print_bytes(report::ladder::text_table(&ladder).as_bytes())?;
        output::print_bytes(table::legend(&ladder).as_bytes())?;
    }
    let order = table::order_note(&ladder);
    if let Some(note) = &order {
        output::print_error(note);
        notes.push(note.clone());
    }
    write_records(&arguments.report.with_extension("jsonl"), &records)?;
    let title = "How much of native speed each layer keeps".to_owned();
    if let Some(path) = &arguments.svg {
        write_text(
            path,
            &report::ladder::throughput_chart(&ladder).render_standalone(),
        )?;
    }
    let page = report::render(&ReportInput {
        title,
        subtitle,
        records,
        ladder,
        notes,
    });
    write_text(&arguments.report, &page)?;
    output::print_error(&format!("report: {}", arguments.report.display()));
    Ok(if order.is_some() && arguments.strict {
        Finding::Something
    } else {
        Finding::Nothing
    })
}

fn write_records(path: &Path, records: &[RunRecord]) -> Result<()> {
    make_parent(path)?;
    let mut writer = RecordWriter::create(path)?;
    for record in records {
        writer.write(record)?;
    }
    Ok(writer.finish()?)
}

fn make_parent(path: &Path) -> Result<()> {
    let parent: PathBuf = path.parent().map(Path::to_path_buf).unwrap_or_default();
    if parent.as_os_str().is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(&parent).with_context(|| format!("{} can't be made", parent.display()))
}

/// This binary, to be run once more.
fn this_program() -> Result<Command> {
    let path =
        std::env::current_exe().context("the path of this program can't be found; is /proc mounted?")?;
    Ok(Command::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_machine_runs_what_was_asked() {
        let plan = Plan::cut(512 << 20, 5, 0.4);
        assert_eq!((plan.size_bytes, plan.rounds), (512 << 20, 5));
    }

    #[test]
    fn a_slow_machine_runs_fewer_rounds_and_then_smaller_files() {
        let plan = Plan::cut(512 << 20, 5, 0.7);
        assert_eq!((plan.size_bytes, plan.rounds), (512 << 20, 3));
        let plan = Plan::cut(512 << 20, 5, 3.0);
        assert_eq!((plan.size_bytes, plan.rounds), (128 << 20, 3));
        assert!(seconds(plan.size_bytes, plan.rounds, 3.0) <= TIME_FOR_ROUNDS.as_secs_f64());
    }
}
