//! The run of a job: steps in their order, rounds around them, one progress for all.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use bench::job::table::{STEP_FIELD, table};
use bench::job::{Job, Vocabulary};
use clap::Args;
use programs::stop_on_signals;
use results::{RecordWriter, RunRecord};
use serde_json::json;

use super::steps::{PlannedStep, groups, measure_group, planned};
use crate::Finding;
use crate::bench_command::fio::write_json;
use crate::bench_command::progress::Bar;
use crate::bench_command::repeat::{BenchCommonArguments, Measured, Turn, identity};
use crate::history_command::log::HistoryLog;
use crate::output::{self, Printed};

/// Which steps of a job run, and how they are reported.
#[derive(Args, Debug)]
pub struct JobRunArguments {
    /// Only steps of these kinds, separated by commas: file, sqlite ...
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these steps, separated by commas
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    pub steps: Vec<String>,
    /// Write the results in the layout of fio's JSON to this file; - is standard output, and nothing else goes there
    #[arg(long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    pub fio_json: Option<PathBuf>,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Runs the steps that were asked for, in each round all of them.
pub fn run_job(
    job: Job,
    vocabulary: &Vocabulary,
    directory: &Path,
    arguments: &JobRunArguments,
) -> Result<Finding> {
    let job = job.select(&arguments.only, &arguments.steps)?;
    let steps = planned(&job, directory, vocabulary)?;
    run_steps(&job, &steps, directory, arguments, arguments.common.seed)
}

/// Runs steps that were found to be in order.
pub fn run_steps(
    job: &Job,
    steps: &[PlannedStep],
    directory: &Path,
    arguments: &JobRunArguments,
    seed: u64,
) -> Result<Finding> {
    let common = &arguments.common;
    let for_fio_alone = arguments.fio_json.as_deref() == Some(Path::new("-"));
    if for_fio_alone && common.json {
        bail!("--json and --fio-json - both want standard output; give --fio-json a file");
    }
    let stop = stop_on_signals()?;
    let turns = usize::try_from(common.warmup.saturating_add(common.rounds))?;
    let bar = Bar::new(common.progress, groups(steps).count().saturating_mul(turns));
    let mut run = JobRun {
        job,
        directory,
        common,
        seed,
        bar: &bar,
        stop: &stop,
        log: HistoryLog::new(&common.store),
        writer: common.output.as_deref().map(RecordWriter::create).transpose()?,
        records: Vec::new(),
        own_tables: Vec::new(),
        finding: Finding::Nothing,
    };
    let outcome = run.all(steps);
    bar.hide();
    // What was measured before a failure is worth keeping.
    if let Some(writer) = run.writer {
        writer.finish()?;
    }
    if let Some(target) = &arguments.fio_json {
        write_json(target, &run.records)?;
    }
    if !common.json && !for_fio_alone && !run.records.is_empty() {
        output::print_bytes(heading(job, &run.records).as_bytes())?;
        output::print_bytes(table(&run.records).as_bytes())?;
        output::print_bytes(run.own_tables.concat().as_bytes())?;
    }
    outcome.map(|()| run.finding)
}

struct JobRun<'run> {
    job: &'run Job,
    directory: &'run Path,
    common: &'run BenchCommonArguments,
    seed: u64,
    bar: &'run Bar,
    stop: &'run AtomicBool,
    writer: Option<RecordWriter>,
    log: HistoryLog,
    records: Vec<RunRecord>,
    /// Tables of steps that one line does not hold.
    own_tables: Vec<String>,
    finding: Finding,
}

impl JobRun<'_> {
    fn all(&mut self, steps: &[PlannedStep]) -> Result<()> {
        for turn in 0..self.common.warmup.saturating_add(self.common.rounds) {
            for group in groups(steps) {
                let went_on = self
                    .group(group, turn)
                    .with_context(|| format!("step `{}`", names(group).join("`, `")))?;
                if !went_on {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Runs steps at the same time, usually one, and keeps their records. `false` ends the run.
    fn group(&mut self, group: &[PlannedStep], turn: u32) -> Result<bool> {
        let kept = turn.checked_sub(self.common.warmup);
        let round = kept.unwrap_or_else(|| self.common.rounds.saturating_add(turn));
        let names = names(group);
        self.bar.begin(&names.join(", "));
        let all = measure_group(
            group,
            Turn {
                seed: self.seed.wrapping_add(u64::from(round)),
                identity: identity(self.common, self.directory, round)?,
                bar: self.bar,
                stop: self.stop,
            },
        )?;
        self.bar.end();
        let mut is_read = true;
        for (planned, (mut measured, own_table)) in group.iter().zip(all) {
            let workload = &mut measured.record.workload;
            workload[STEP_FIELD] = json!(planned.step.name);
            workload["job"] = json!(self.job.name);
            if group.len() > 1 {
                workload["at_the_same_time"] = json!(names);
            }
            is_read &= self.keep(planned, measured, kept.is_some())?;
            if kept.is_some() {
                self.own_tables
                    .extend(own_table.map(|text| format!("\n{}: {text}", planned.step.name)));
            }
        }
        Ok(is_read && !self.stop.load(Ordering::Relaxed))
    }

    /// Says, writes and stores what a step gave. `false` when nobody reads it any more.
    fn keep(&mut self, planned: &PlannedStep, measured: Measured, is_kept: bool) -> Result<bool> {
        for note in &measured.notes {
            output::print_error(&format!("step `{}`: {note}", planned.step.name));
            self.finding = Finding::Something;
        }
        let record = measured.record;
        let mut is_read = true;
        if is_kept {
            if let Some(writer) = &mut self.writer {
                writer.write(&record)?;
            }
            self.log.store(&record);
            is_read =
                !self.common.json || output::print_line(&serde_json::to_string(&record)?)? != Printed::Closed;
        }
        if !record.complete {
            output::print_error("stopped before its end; the numbers are partial");
            self.finding = Finding::Something;
        }
        if is_kept {
            self.records.push(record);
        }
        Ok(is_read)
    }
}

fn names(group: &[PlannedStep]) -> Vec<&str> {
    group.iter().map(|planned| planned.step.name.as_str()).collect()
}

fn heading(job: &Job, records: &[RunRecord]) -> String {
    let Some(first) = records.first() else {
        return String::new();
    };
    let kind = first
        .target
        .file_system_type
        .as_deref()
        .unwrap_or("unknown file system");
    let rounds = records.iter().map(|record| record.round).max().unwrap_or(0) + 1;
    let rounds = if rounds == 1 {
        String::new()
    } else {
        format!(", {rounds} rounds, medians")
    };
    format!("{} on {} ({kind}){rounds}\n", job.name, first.target.path)
}
