//! fio jobs: `tidegate bench --from-fio` and `--to-fio`, and results in the layout of fio's JSON.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ::fio::report::{Moment, document};
use ::fio::{Imported, Treatment, export, import};
use anyhow::{Context, Result, bail};
use clap::Args;
use jobs::{Job, Vocabulary};
use results::RunRecord;

use super::job::run::{JobRunArguments, run_steps};
use super::job::steps::{planned, vocabulary};
use super::job::{job_text, parse_job};
use super::workloads::RunAs;
use crate::Finding;
use crate::output;

/// Arguments of `tidegate bench` itself.
#[derive(Args, Debug)]
pub struct FioArguments {
    /// Run a fio job file, in DIRECTORY or in the one that it names
    #[arg(long, value_names = ["JOB", "DIRECTORY"], num_args = 1..=2, help_heading = "fio")]
    pub from_fio: Option<Vec<PathBuf>>,
    /// Print which options of the job are taken, approximated and ignored, and exit; with --from-fio
    #[arg(long, requires = "from_fio", help_heading = "fio")]
    pub check: bool,
    /// Run all sections one after the other, even those that fio would run concurrently; with --from-fio
    #[arg(long, requires = "from_fio", help_heading = "fio")]
    pub one_by_one: bool,
    /// Print the file steps of a job (a preset or a file) as a fio job, with the flags that make the two comparable
    #[arg(long, value_name = "JOB", conflicts_with = "from_fio", help_heading = "fio")]
    pub to_fio: Option<String>,
    /// Selection of steps, and reporting.
    #[command(flatten)]
    pub run: JobRunArguments,
}

/// Runs `tidegate bench` without a subcommand.
pub fn run(arguments: &FioArguments) -> Result<Finding> {
    if let Some(source) = &arguments.to_fio {
        return show_as_fio(source);
    }
    let Some([path, directory @ ..]) = arguments.from_fio.as_deref() else {
        bail!("nothing to do; see `tidegate bench --help`");
    };
    let file = path.display().to_string();
    let text = programs::small_text::read(path).with_context(|| format!("{file} can't be read"))?;
    if arguments.check {
        return check(&file, &text);
    }
    run_job(
        &file,
        &text,
        directory.first(),
        arguments.one_by_one,
        &arguments.run,
    )
}

/// Distinguishes a fio job from a TOML job: it has sections and options, and no `[[step]]`.
pub fn is_fio_job(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let has_step = lines
        .clone()
        .any(|line| line.starts_with("[[") || line.starts_with("[defaults"));
    !has_step && lines.any(|line| line.starts_with('['))
}

/// Checks that a fio job can be run.
pub fn check_job(file: &str, text: &str) -> Result<()> {
    import(file, text)?;
    Ok(())
}

/// Prints which options of a fio job are taken, approximated and ignored.
pub fn check(file: &str, text: &str) -> Result<Finding> {
    output::print_text(&described(&import(file, text)?))?;
    Ok(Finding::Nothing)
}

/// Runs a fio job.
pub fn run_job(
    file: &str,
    text: &str,
    directory: Option<&PathBuf>,
    one_by_one: bool,
    run: &JobRunArguments,
) -> Result<Finding> {
    let imported = import(file, text)?;
    for note in imported
        .notes
        .iter()
        .filter(|note| note.treatment == Treatment::Approximated)
    {
        let (section, key, text) = (&note.section, &note.key, &note.text);
        output::print_error(&format!(
            "{file}:{}: [{section}] {key} is approximated: {text}",
            note.line
        ));
    }
    let directory = match (directory, &imported.directory) {
        (Some(directory), _) => directory.clone(),
        (None, Some(directory)) => PathBuf::from(directory),
        (None, None) => bail!("{file} names no directory; give one: --from-fio {file} DIR"),
    };
    let mut job = imported.job.select(&run.only, &run.steps)?;
    if one_by_one {
        for (group, step) in job.steps.iter_mut().enumerate() {
            step.group = group;
        }
    }
    let steps = planned(&job, &directory, &vocabulary())?;
    let seed = imported.seed.unwrap_or(run.common.seed);
    run_steps(&job, &steps, &directory, run, seed)
}

/// Lists the handling of each option, and the resulting steps.
fn described(imported: &Imported) -> String {
    let mut text = String::new();
    for note in &imported.notes {
        let value = note
            .value
            .as_ref()
            .map_or_else(String::new, |value| format!("={value}"));
        let reason = if note.text.is_empty() {
            String::new()
        } else {
            format!(": {}", note.text)
        };
        text.push_str(&format!(
            "{}:{}: [{}] {}{value} {}{reason}\n",
            imported.job.source,
            note.line,
            note.section,
            note.key,
            note.treatment.name(),
        ));
    }
    let mut previous = None;
    for step in &imported.job.steps {
        if previous == Some(step.group) {
            text.push_str("at the same time ");
        }
        previous = Some(step.group);
        let words = step.words(&vocabulary(), "DIR").join(" ").replace(" -- ", " ");
        text.push_str(&format!("{}: tidegate bench {words}\n", step.name));
    }
    text
}

fn show_as_fio(source: &str) -> Result<Finding> {
    let vocabulary = vocabulary();
    let job = named_job(source, &vocabulary)?;
    let mut workloads = Vec::new();
    for planned in planned(&job, Path::new("."), &vocabulary)? {
        let (name, kind) = (planned.step.name, planned.step.kind);
        match planned.command.arguments().workload(RunAs::Step)?.as_file() {
            Some(spec) => workloads.push(export::Workload {
                name,
                group: planned.step.group,
                spec: spec.clone(),
            }),
            None => output::print_error(&format!("step `{name}` is left out: fio has no {kind}")),
        }
    }
    if workloads.is_empty() {
        bail!("the job `{}` has no step of kind file", job.name);
    }
    output::print_text(&export::job_file(&workloads))?;
    Ok(Finding::Nothing)
}

/// Loads a built-in job by name, or a job file.
fn named_job(source: &str, vocabulary: &Vocabulary) -> Result<Job> {
    let path = Path::new(source);
    parse_job(path, &job_text(path)?, vocabulary)
}

/// Writes records in the layout of fio's JSON to a file, or to standard output for `-`.
pub fn write_json(target: &Path, records: &[RunRecord]) -> Result<()> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Moment {
        unix_ms: u64::try_from(since.as_millis()).unwrap_or(0),
    };
    let document = document(records, env!("CARGO_PKG_VERSION"), &now);
    let text = serde_json::to_string_pretty(&document)? + "\n";
    output::write_result(target, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_that_an_import_sets_is_one_of_bench_file() {
        let text = "[global]\nsize=1m\nbs=4k\nstonewall\n[a]\nrw=randrw\nrwmixread=70\ndirect=1\nioengine=libaio\n\
                    iodepth=4\nnumjobs=2\nrate_iops=50\n[b]\nrw=randwrite\nruntime=1\ntime_based\nramp_time=1\n\
                    thinktime=5\nnorandommap\nverify=crc32c\noverwrite=1\nend_fsync=1\n[c]\nrw=readwrite\n\
                    ioengine=mmap\nfsync_on_close=1\nbuffer_compress_percentage=50\nrate=1m\nfilename=/x/y\n";
        let imported = import("j.fio", text).unwrap();
        let steps = planned(&imported.job, Path::new("/nowhere"), &vocabulary()).unwrap();
        let vocabulary = vocabulary();
        let file = vocabulary.kind("file").unwrap();
        for planned in &steps {
            for setting in &planned.step.settings {
                assert!(file.key(&setting.key).is_some(), "{}", setting.key);
            }
        }
        assert_eq!(steps.len(), 3);
    }
}
