//! `tidegate study tune`: arguments, and the result of a race of settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use formats::calls::format_of;
use jobs::preset::PRESETS;
use programs::Finding;
use study::plan::{Plan, Variant};
use study::tune::axes::{self, Wish};
use study::tune::{COMBINATIONS_MAX, Source, Tuned, advice};
use study::{Limits, cell};

use crate::bench_command::fio;
use crate::output;
use crate::quantity::parse_duration;

/// Scheduler of an attached card.
const SCHEDULER_OF_CARDS: &str = "mq-deadline";

/// Arguments of `tidegate study tune`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n\
                  \x20 tidegate study tune --folder /srv/data -d out/tune\n\
                  \x20 sudo tidegate study tune load.toml --card gt-i9300 --time-scale 9 --time 10min -d out/tune\n\
                  \x20 tidegate study tune app.trace --folder /srv/data -d out/tune\n\
                  \x20 sudo tidegate study tune load.toml --device /dev/sdX --destroy-data --axes fs,scheduler --durable\n\
                  load.toml has a table [workload] with flags of `tidegate bench file`, and may have [defaults] and\n\
                  [environment] as a plan has them; or it is a job of `tidegate bench run` or a trace of\n\
                  `tidegate replay`.\n\
                  Exit codes: 0 done, 1 stopped or a setting failed, 2 could not do it.")]
pub struct TuneArguments {
    /// The load: a workload with the default setting if it is not that of `tidegate mount`, a job or a trace
    /// [default: sequential writes of 64m]
    pub workload: Option<PathBuf>,
    /// Make file systems on this block device
    #[arg(long, value_name = "PATH", requires = "destroy_data", conflicts_with_all = ["card", "folder"])]
    pub device: Option<PathBuf>,
    /// Allow overwriting the data on the device
    #[arg(long, requires = "device")]
    pub destroy_data: bool,
    /// Make file systems on a modelled card: a name from `tidegate emmc presets`, or a file
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "folder")]
    pub card: Option<String>,
    /// Seconds of the card's time that pass in one real second
    #[arg(long, value_name = "K", requires = "card")]
    pub time_scale: Option<f64>,
    /// Tune mount options only, for this folder; without root
    #[arg(long, value_name = "DIRECTORY")]
    pub folder: Option<PathBuf>,
    /// Vary these axes: fs, scheduler, mount-options, unit, buffer, stream-after, writeback, passthrough, uring, poll, threads
    /// [default: fs,scheduler,unit,buffer; in a folder unit,buffer,writeback]
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    pub axes: Vec<String>,
    /// Keep the default's value of these axes
    #[arg(long, value_name = "AXIS", value_delimiter = ',')]
    pub keep: Vec<String>,
    /// Leave out settings that keep synced data, or written data after a kill of the daemon, less safe
    #[arg(long)]
    pub durable: bool,
    /// Begin no round after this time; the race takes at most 60 % of it
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time: Option<Duration>,
    /// Folder of the race, which is made
    #[arg(long, short = 'd', value_name = "DIRECTORY", default_value = "tune")]
    pub directory: PathBuf,
    /// Print one document in JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &TuneArguments) -> Result<Finding> {
    let (text, remarks) = axes::plan(&wish(arguments)?)?;
    let name = arguments
        .workload
        .as_ref()
        .map_or_else(|| "tune".to_owned(), |path| path.display().to_string());
    let plan = Plan::parse(&name, &text)?;
    let count = cell::combinations(&plan);
    if count > COMBINATIONS_MAX {
        bail!("{count} settings, at most {COMBINATIONS_MAX} can race; name fewer by --axes, or --keep some");
    }
    super::flags::check(&plan)?;
    let missing = study::check::missing(&plan)?;
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    for remark in remarks {
        output::print_error(&remark);
    }
    let limits = Limits {
        time: arguments.time,
        ..Limits::default()
    };
    let mut found = None;
    let race = plan.clone();
    let ran = super::rounds(&arguments.directory, Variant::default(), limits, |options| {
        let (ran, tuned) = study::run_tune(&text, race, options)?;
        found = Some(tuned);
        Ok(ran)
    })?;
    let tuned: Tuned = found.context("a race has a result")?;
    if ran.notes.iter().any(|note| note == runner::STOPPED) {
        output::print_error(&format!(
            "stopped before a setting was confirmed; the records are in {}",
            arguments.directory.display()
        ));
        return Ok(Finding::Something);
    }
    let document = serde_json::to_string_pretty(&advice::json(&plan, &tuned))? + "\n";
    output::write_result(&arguments.directory.join("tune.json"), &document)?;
    output::print_text(&match arguments.json {
        true => document,
        false => advice::text(&plan, &tuned),
    })?;
    Ok(match tuned.failed.is_empty() {
        true => Finding::Nothing,
        false => Finding::Something,
    })
}

/// The race as asked for.
fn wish(arguments: &TuneArguments) -> Result<Wish> {
    let (device, scheduler) = match (&arguments.device, &arguments.card, &arguments.folder) {
        (Some(path), ..) => (Some(path.display().to_string()), current_scheduler(path)),
        (_, Some(name), _) => (Some(format!("card:{name}")), Some(SCHEDULER_OF_CARDS.to_owned())),
        (.., Some(folder)) => {
            let folder = folder
                .canonicalize()
                .with_context(|| format!("{} can't be used", folder.display()))?;
            (Some(format!("directory:{}", folder.display())), None)
        }
        _ => (None, None),
    };
    let environment = device.map(|device| {
        let mut text = format!("[environment]\ndevice = \"{}\"\n", device.replace('"', "\\\""));
        if arguments.destroy_data {
            text += "destroy-data = true\n";
        }
        if arguments.card.is_some() {
            // The page cache of a PC would hide the card.
            text += "size = \"1g\"\ndirty-limit = \"64m\"\n";
        }
        if let Some(scale) = arguments.time_scale {
            text += &format!("time-scale = {scale}\n");
        }
        text
    });
    Ok(Wish {
        source: arguments.workload.as_deref().map(source).transpose()?,
        environment,
        scheduler,
        axes: arguments.axes.clone(),
        keep: arguments.keep.clone(),
        durable: arguments.durable,
        in_folder: arguments.folder.is_some(),
    })
}

/// The load in a file, or a built-in job by its name.
fn source(path: &Path) -> Result<Source> {
    if !path.exists() && PRESETS.iter().any(|preset| Path::new(preset.name) == path) {
        return Ok(Source::Job(path.display().to_string()));
    }
    Source::of(path, &fio::is_fio_job, &|path| format_of(path, None).is_ok())
}

/// The scheduler that a device has; `None` if it has none.
fn current_scheduler(device: &Path) -> Option<String> {
    let names = std::fs::read_to_string(study::check::scheduler_of(device).ok()?).ok()?;
    let (_, rest) = names.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}
