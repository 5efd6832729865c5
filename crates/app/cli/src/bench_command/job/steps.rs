//! Steps of jobs on the command line: steps and commands share one definition of flags.
//!
//! The valid keys of a step are read from the definitions of the subcommands, and a step is parsed as a command. A
//! step therefore has the meaning, notation and checks of `tidegate bench KIND`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use bench::{FileSpec, Measurement, Outcome, Progress};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, Command, FromArgMatches, Subcommand};
use jobs::{Job, JobError, Key, KeyForm, Step, StepKind, Vocabulary};

use crate::bench_command::common::BenchCommonArguments;
use crate::bench_command::workloads::{RunAs, WorkloadCommand};

/// Flags of these subcommands that show something instead of running.
const SHOWS_ONLY: [&str; 2] = ["list", "describe"];

/// A validated step.
#[derive(Debug)]
pub struct PlannedStep {
    /// The step as written in the job.
    pub step: Step,
    /// The command equivalent to the step.
    pub command: WorkloadCommand,
}

/// The valid keys of steps.
pub fn vocabulary() -> Vocabulary {
    let common = BenchCommonArguments::augment_args(Command::new("common"));
    let is_of_the_run = |name: &str| common.get_arguments().any(|argument| argument.get_id() == name);
    Vocabulary {
        kinds: definition()
            .get_subcommands()
            .map(|kind| StepKind {
                name: kind.get_name().to_owned(),
                keys: kind
                    .get_arguments()
                    .filter(|argument| argument.get_id() != "directory")
                    .filter(|argument| !SHOWS_ONLY.contains(&argument.get_id().as_str()))
                    .filter(|argument| !is_of_the_run(argument.get_id().as_str()))
                    .filter_map(|argument| key(kind.get_name(), argument))
                    .collect(),
            })
            .collect(),
    }
}

fn key(kind: &str, argument: &clap::Arg) -> Option<Key> {
    let form = if argument.is_positional() {
        KeyForm::Positional
    } else if argument.get_action().takes_values() {
        KeyForm::Value
    } else {
        KeyForm::Switch
    };
    let name = match form {
        // The name of a step is a separate setting, so the positional argument gets the name of the kind.
        KeyForm::Positional if argument.get_id() == "name" => kind.to_owned(),
        KeyForm::Positional => argument.get_id().as_str().replace('_', "-"),
        KeyForm::Switch | KeyForm::Value => argument.get_long()?.to_owned(),
    };
    // The help flag is not a setting of a step.
    let is_help = matches!(
        argument.get_action(),
        clap::ArgAction::Help
            | clap::ArgAction::HelpShort
            | clap::ArgAction::HelpLong
            | clap::ArgAction::Version
    );
    (!is_help && !argument.is_hide_set()).then_some(Key { name, form })
}

fn definition() -> Command {
    let bench = Command::new("bench").no_binary_name(true).disable_help_flag(true);
    WorkloadCommand::augment_subcommands(bench)
}

/// Validates each step like its own command; touches nothing.
pub fn planned(job: &Job, directory: &Path, vocabulary: &Vocabulary) -> Result<Vec<PlannedStep>> {
    let steps: Vec<PlannedStep> = job
        .steps
        .iter()
        .map(|step| {
            let command = command(job, step, directory, vocabulary)?;
            command
                .arguments()
                .check()
                .map_err(|error| value_error(job, step, None, crate::output::with_causes(&error)))?;
            Ok(PlannedStep {
                step: step.clone(),
                command,
            })
        })
        .collect::<Result<_>>()?;
    for group in groups(&steps).filter(|group| group.len() > 1) {
        if let Some(other) = group.iter().find(|planned| planned.step.kind != "file") {
            let problem = "only steps of kind file run at the same time".to_owned();
            return Err(value_error(job, &other.step, None, problem).into());
        }
    }
    Ok(steps)
}

/// Groups of steps that run concurrently, in order.
pub fn groups(steps: &[PlannedStep]) -> impl Iterator<Item = &[PlannedStep]> {
    steps.chunk_by(|one, next| one.step.group == next.step.group)
}

fn command(job: &Job, step: &Step, directory: &Path, vocabulary: &Vocabulary) -> Result<WorkloadCommand> {
    let directory = directory
        .to_str()
        .with_context(|| format!("{}: the name is not UTF-8", directory.display()))?;
    let parse = |step: &Step| {
        definition()
            .try_get_matches_from(step.words(vocabulary, directory))
            .and_then(|matches| WorkloadCommand::from_arg_matches(&matches))
    };
    let error = match parse(step) {
        Ok(command) => return Ok(command),
        Err(error) => error,
    };
    // Parse with each key separately to find the invalid one; a missing key or a conflict concerns the whole step.
    for setting in &step.settings {
        if let Err(alone) = parse(&step.with_only(&setting.key))
            && matches!(alone.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue)
        {
            return Err(value_error(job, step, Some(&setting.key), problem(&alone)).into());
        }
    }
    Err(value_error(job, step, None, problem(&error)).into())
}

fn value_error(job: &Job, step: &Step, key: Option<&str>, problem: String) -> JobError {
    let setting = step
        .settings
        .iter()
        .find(|setting| Some(setting.key.as_str()) == key);
    JobError::Value {
        file: job.source.clone(),
        line: setting.map_or(step.line, |setting| setting.line),
        step: step.name.clone(),
        key: key.map(str::to_owned),
        problem,
    }
}

/// The reason in a parser error, without usage and hints.
fn problem(error: &clap::Error) -> String {
    if let Some(source) = std::error::Error::source(error) {
        return source.to_string();
    }
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let reason = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    let missing: Vec<&str> = text
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| line.starts_with('-') || line.starts_with('<'))
        .collect();
    match error.get(ContextKind::InvalidArg) {
        Some(_) if !missing.is_empty() => format!("{reason} {}", missing.join(", ")),
        _ => reason,
    }
}

/// Runs the steps of a group (usually one) concurrently; returns their outcomes in order.
pub fn run_group(
    group: &[PlannedStep],
    seed: u64,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Vec<Outcome>> {
    let workloads = group
        .iter()
        .map(|planned| planned.command.arguments().workload(RunAs::Step))
        .collect::<Result<Vec<_>>>()?;
    if let [workload] = workloads.as_slice() {
        return Ok(vec![workload.run(seed, progress, stop)?]);
    }
    let specs: Vec<FileSpec> = workloads
        .iter()
        .filter_map(|workload| workload.as_file())
        .map(|spec| FileSpec { seed, ..spec.clone() })
        .collect();
    let outcomes = bench::run_together(&specs, progress, stop)?.into_iter();
    Ok(outcomes.map(Measurement::outcome).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = include_str!("../../../../../../docs/reference/glossary.md");
    const JOBS: &str = include_str!("../../../../../../docs/guide/jobs.md");

    fn plan(text: &str) -> Result<Vec<PlannedStep>> {
        let vocabulary = vocabulary();
        let job = Job::parse("j.toml", text, &vocabulary)?;
        planned(&job, Path::new("/nowhere"), &vocabulary)
    }

    fn refused(text: &str) -> String {
        plan(text).expect_err(text).to_string()
    }

    #[test]
    fn every_kind_is_a_subcommand_and_has_its_flags_as_keys() {
        let vocabulary = vocabulary();
        let names: Vec<&str> = vocabulary.kinds.iter().map(|kind| kind.name.as_str()).collect();
        // The pages name every kind.
        let row = GLOSSARY.lines().find(|line| line.starts_with("| kind |"));
        let known: Vec<&str> = row.expect("a row").split('`').skip(1).step_by(2).collect();
        assert_eq!(names, known);
        for name in names {
            assert!(
                JOBS.contains(&format!("`{name}`")),
                "docs/guide/jobs.md lacks {name}"
            );
        }
        let file = vocabulary.kind("file").expect("a kind");
        for key in [
            "pattern",
            "record",
            "size",
            "threads",
            "mode",
            "overwrite",
            "cache",
        ] {
            assert!(file.key(key).is_some(), "{key}");
        }
        for key in [
            "directory",
            "rounds",
            "json",
            "output",
            "help",
            "progress",
            "seed",
        ] {
            assert!(file.key(key).is_none(), "{key} belongs to the run");
        }
    }

    #[test]
    fn a_step_is_what_its_command_line_is() {
        let text = "name = \"x\"\n[[step]]\nkind = \"file\"\nrecord = \"4k\"\nsize = \"8KiB\"\nthreads = 3\n\
                    mode = \"direct\"\noverwrite = true\n";
        let steps = plan(text).unwrap();
        let workload = steps[0].command.arguments().workload(RunAs::Step).unwrap();
        let spec = workload.as_file().expect("a file workload");
        assert_eq!(
            (spec.record_bytes, spec.file_bytes, spec.threads),
            (4096, 8192, 3)
        );
        assert_eq!(spec.write_target, bench::WriteTarget::ExistingFile);
        assert_eq!(spec.directory, Path::new("/nowhere"));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_and_key() {
        let text = "name = \"x\"\n[[step]]\nname = \"w\"\nkind = \"file\"\nsize = \"1m\"\nrecord = \"4q\"\n";
        let message = refused(text);
        assert!(
            message.starts_with("j.toml:6: step `w`: `record`: `4q` is no size"),
            "{message}"
        );
        let message = refused("name = \"x\"\n[defaults]\nmode = \"turbo\"\n[[step]]\nkind = \"file\"\n");
        assert!(
            message.starts_with("j.toml:3: step `file`: `mode`: `turbo` is none of"),
            "{message}"
        );
    }

    #[test]
    fn a_contradiction_of_several_keys_is_named_with_its_step() {
        let text = "name = \"x\"\n[[step]]\nname = \"w\"\nkind = \"file\"\nsize = \"10k\"\nrecord = \"4k\"\n";
        let message = refused(text);
        assert!(
            message.starts_with("j.toml:2: step `w`: file size: 10240 bytes, expected"),
            "{message}"
        );
    }
}
