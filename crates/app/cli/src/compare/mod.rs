//! `tidegate bench compare`: several directories, several workloads, interleaved rounds, ratios to a baseline; or two
//! sets of records that were measured before (`records.rs`).
//!
//! Within a workload each round runs every target once, and the first target of a round is the second of the one before:
//! what changes on the machine meanwhile changes for all of them. Everything is synced between two runs. It mounts
//! nothing: what is compared is whatever is mounted at the directories given.
//!
//! A target that fails in a workload is left out of the rest of that workload, and named. A signal ends the run after
//! the record that was being measured: the records keep the name `FILE.partial`, and tables say that they are partial.

pub mod arguments;
mod records;
pub mod requirement;
mod show;
pub mod workload;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use bench::RunIdentity;
use clap::ValueEnum;
use programs::stop_on_signals;
use report::Comparison;
use results::{RecordWriter, RunRecord, TargetInfo};

use self::arguments::BenchCompareArguments;
use self::workload::{Amount, Spec, Workload};
use crate::bench_command::progress::{Bar, ProgressForm};
use crate::bench_command::repeat::command_line;
use crate::history_command::log::HistoryLog;
use crate::{Finding, output};

pub use self::show::run as run_show;
pub use self::show::write_text;

/// A directory that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name in tables and records.
    pub label: String,
    /// Where to work.
    pub directory: PathBuf,
}

impl Target {
    /// Parses `LABEL=DIRECTORY`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((label, directory))
                if !label.is_empty() && !label.contains([':', '>', '<']) && !directory.is_empty() =>
            {
                Ok(Self {
                    label: label.to_owned(),
                    directory: directory.into(),
                })
            }
            _ => Err(format!(
                "`{text}` is no target; write LABEL=DIRECTORY, for example native=/data"
            )),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &BenchCompareArguments) -> Result<Finding> {
    if let [a, b] = &arguments.sets[..] {
        return records::run(a, b, arguments);
    }
    let places = check(arguments)?;
    let stop = stop_on_signals()?;
    let rounds = usize::try_from(arguments.rounds)?;
    let steps = rounds * arguments.targets.len() * workloads(arguments).len();
    let mut run = Run {
        arguments,
        places,
        stop: &stop,
        bar: Bar::new(ProgressForm::Auto, steps),
        writer: arguments
            .output
            .as_deref()
            .map(RecordWriter::create)
            .transpose()?,
        log: HistoryLog::new(&arguments.store),
        records: Vec::new(),
        notes: Vec::new(),
    };
    for workload in workloads(arguments) {
        run.workload(workload)?;
    }
    run.finish()
}

fn workloads(arguments: &BenchCompareArguments) -> Vec<Workload> {
    if arguments.workloads.is_empty() {
        Workload::value_variants().to_vec()
    } else {
        arguments.workloads.clone()
    }
}

/// Everything that can be wrong before anything is touched; the file systems of the targets.
fn check(arguments: &BenchCompareArguments) -> Result<Vec<TargetInfo>> {
    let labels: Vec<&str> = arguments
        .targets
        .iter()
        .map(|target| target.label.as_str())
        .collect();
    for (index, label) in labels.iter().enumerate() {
        if labels[..index].contains(label) {
            bail!("two targets are called `{label}`");
        }
    }
    if !labels.contains(&arguments.baseline.as_str()) {
        bail!(
            "the baseline `{}` is none of the targets {}",
            arguments.baseline,
            labels.join(", ")
        );
    }
    for requirement in &arguments.requirements {
        if !labels.contains(&requirement.label.as_str()) {
            bail!(
                "a requirement names `{}`, which is none of the targets {}",
                requirement.label,
                labels.join(", ")
            );
        }
        if !workloads(arguments).contains(&requirement.workload) {
            bail!(
                "a requirement names {}, which is not among the workloads",
                requirement.workload.name()
            );
        }
    }
    let amount = amount(arguments, 0);
    for workload in workloads(arguments) {
        if let Spec::File(spec) = workload.spec(Path::new("."), amount) {
            spec.validate().with_context(|| workload.name())?;
        }
    }
    let place = |directory: &Path| {
        bench::environment::target(directory)
            .with_context(|| format!("{} can't be used", directory.display()))
    };
    arguments
        .targets
        .iter()
        .map(|target| place(&target.directory))
        .collect()
}

/// Each round has other contents, as a device that finds known blocks would look too fast.
fn amount(arguments: &BenchCompareArguments, round: u32) -> Amount {
    Amount {
        file_bytes: arguments.size,
        files: arguments.files,
        seed: arguments.seed.wrapping_add(u64::from(round)),
    }
}

/// A comparison on its way.
struct Run<'run> {
    arguments: &'run BenchCompareArguments,
    /// The file system of each target.
    places: Vec<TargetInfo>,
    stop: &'run AtomicBool,
    bar: Bar,
    writer: Option<RecordWriter>,
    log: HistoryLog,
    records: Vec<RunRecord>,
    notes: Vec<String>,
}

impl Run<'_> {
    fn workload(&mut self, workload: Workload) -> Result<()> {
        let targets = &self.arguments.targets;
        let mut failed = vec![false; targets.len()];
        for round in 0..self.arguments.rounds {
            for position in 0..targets.len() {
                let turn = usize::try_from(round).expect("rounds fit into memory") + position;
                let place = turn % targets.len();
                if self.is_stopped() {
                    return Ok(());
                }
                if failed[place] {
                    continue;
                }
                self.bar.begin(&format!(
                    "{} {}, round {} of {}",
                    workload.name(),
                    targets[place].label,
                    round + 1,
                    self.arguments.rounds
                ));
                rustix::fs::sync();
                let measured = self.measure(workload, place, round);
                self.bar.end();
                match measured {
                    Ok(record) => self.keep(record)?,
                    Err(error) => {
                        failed[place] = true;
                        self.note(format!(
                            "{} is left out of {}: {error}",
                            targets[place].label,
                            workload.name()
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn measure(
        &mut self,
        workload: Workload,
        place: usize,
        round: u32,
    ) -> Result<RunRecord, bench::BenchError> {
        let target = &self.arguments.targets[place];
        let identity = RunIdentity {
            command: command_line(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            label: target.label.clone(),
            round,
            host: bench::environment::host(),
            target: self.places[place].clone(),
        };
        let (mut record, warmth, leftover) =
            match workload.spec(&target.directory, amount(self.arguments, round)) {
                Spec::File(spec) => {
                    let outcome = bench::run(&spec, &self.bar, self.stop)?;
                    let is_warm = outcome.cache.is_warmer_than_asked();
                    let warmth = is_warm.then(|| outcome.cache.describe());
                    let leftover = outcome.leftover.clone();
                    (outcome.into_record(identity)?, warmth, leftover)
                }
                Spec::Files(spec) => {
                    let outcome = bench::metadata::run(&spec, &self.bar, self.stop)?;
                    let leftover = outcome.leftover.clone();
                    (outcome.into_record(identity)?, None, leftover)
                }
            };
        record.workload["name"] = workload.name().into();
        let about = format!("{} {}", workload.name(), target.label);
        if let Some(warmth) = warmth {
            self.note(format!("{about}: not cold: {warmth}"));
        }
        if let Some(reason) = leftover {
            self.note(format!("{about}: files were left behind: {reason}"));
        }
        Ok(record)
    }

    fn keep(&mut self, record: RunRecord) -> Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.write(&record)?;
        }
        self.log.store(&record);
        if self.arguments.json {
            self.bar.hide();
            output::print_line(&serde_json::to_string(&record)?)?;
        }
        self.records.push(record);
        Ok(())
    }

    /// Says something once; it is in the report too, and makes exit code 1.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.bar.hide();
            output::print_error(&note);
            self.notes.push(note);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn finish(mut self) -> Result<Finding> {
        self.bar.hide();
        let comparisons = Comparison::all(&self.records, &self.arguments.baseline);
        if !self.arguments.json {
            output::print_bytes(show::tables(&comparisons).as_bytes())?;
        }
        if self.is_stopped() {
            self.note("stopped before its end: the numbers are partial".to_owned());
        }
        for violation in self
            .arguments
            .requirements
            .iter()
            .filter_map(|requirement| requirement.violation(&comparisons))
            .collect::<Vec<_>>()
        {
            self.note(violation);
        }
        match (self.writer.take(), &self.arguments.output) {
            (Some(writer), Some(path)) if self.is_stopped() => {
                drop(writer);
                output::print_error(&format!(
                    "records so far: {}",
                    outfile::partial_name(path).display()
                ));
            }
            (Some(writer), _) => writer.finish()?,
            (None, _) => {}
        }
        if let Some(path) = &self.arguments.markdown {
            write_text(path, &report::comparison::markdown(&comparisons, &self.records))?;
        }
        let finding = if self.notes.is_empty() {
            Finding::Nothing
        } else {
            Finding::Something
        };
        if let Some(path) = &self.arguments.report {
            show::write_html(path, comparisons, self.records, self.notes)?;
            output::print_error(&format!("report: {}", path.display()));
        }
        Ok(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_label_and_a_directory() {
        let target = Target::parse("native=/data/a=b").unwrap();
        assert_eq!(
            (target.label.as_str(), target.directory),
            ("native", "/data/a=b".into())
        );
        for text in ["", "native", "=/data", "native=", "a:b=/data"] {
            Target::parse(text).expect_err(text);
        }
    }
}
