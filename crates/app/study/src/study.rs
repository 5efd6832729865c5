//! Runs a study from its plan to its last round.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use runner::{Ran, Runner, Schedule, Settle, Sinks, Watcher, environment};

use crate::calibrate::calibrate;
use crate::cell::{Block, Cell, blocks};
use crate::check;
use crate::child::Children;
use crate::clean::sweep;
use crate::fingerprint::fingerprints;
use crate::folder::{self, BlockRound, Folder, State};
use crate::measure::{Blocks, Limits, sides};
use crate::plan::{Plan, TimeScale, Variant};
use crate::tune::{Race, Tuned, failure_of, has_no_speed};
use crate::warm;

/// How to run a study.
pub struct Options<'run> {
    /// The study's folder.
    pub folder: &'run Path,
    /// This program, or the one under test.
    pub tidegate: PathBuf,
    /// Changes of a quick or a full study, and those of the command line.
    pub variant: Variant,
    /// When to stop.
    pub limits: Limits,
    /// Shows progress.
    pub watcher: &'run dyn Watcher,
    /// Raised by a signal.
    pub stop: &'run AtomicBool,
}

/// Runs a new study.
///
/// # Errors
/// If the plan can't be run, or the folder holds a study.
pub fn run(text: &str, plan: Plan, options: &Options<'_>) -> Result<Ran> {
    Ok(begun(text, plan, options, |_| Ok(None))?.0)
}

/// Races the settings of a plan that [`axes::plan`](crate::tune::axes::plan) made; stopped early, it has no winner.
///
/// # Errors
/// As for [`run`], or if the default setting can't be measured or the workload moves no data.
pub fn tune(text: &str, plan: Plan, options: &Options<'_>) -> Result<(Ran, Tuned)> {
    let base = Cell::of(&plan, &[])?;
    let race = |blocks: &[Block]| {
        let cells = blocks.iter().flat_map(|block| block.cells.clone());
        Ok(Some(Race::new(cells, base.clone(), options.limits.time)))
    };
    let (ran, race) = begun(text, plan, options, race)?;
    let records = folder::records(options.folder)?;
    if has_no_speed(&base, &records) {
        bail!(
            "the workload moves no data, so that its settings have no MB/s to compare; name another workload.kind"
        );
    }
    if let Some(reason) = failure_of(&base, &records) {
        bail!("the default setting can't be measured, so that no other can be compared with it: {reason}");
    }
    let tuned = race.context("a race has its state")?.tuned(&records);
    Ok((ran, tuned))
}

fn begun(
    text: &str,
    mut plan: Plan,
    options: &Options<'_>,
    race: impl FnOnce(&[Block]) -> Result<Option<Race>>,
) -> Result<(Ran, Option<Race>)> {
    plan.apply(&options.variant);
    let blocks = checked(&plan)?;
    let race = race(&blocks)?;
    let folder = Folder::open(options.folder)?;
    folder.refuse_second()?;
    folder.claim()?;
    // A study that was killed while it was calibrated left a card.
    sweep(&folder, &options.tidegate)?;
    let mut state = State {
        device: check::identity(&plan.environment.device)?,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: environment::host().kernel,
        method: folder::METHOD,
        time_scale: 1.0,
        calibrated: None,
        rounds: plan.run.rounds,
        size: options.variant.size.clone(),
        only: options.variant.only.clone(),
        binaries: options.variant.binaries.clone(),
        fingerprints: fingerprints(&options.variant.binaries)?,
        decided: options.limits.decided,
        is_race: race.is_some(),
    };
    match &plan.environment.time_scale {
        TimeScale::Fixed(scale) => state.time_scale = *scale,
        TimeScale::Calibrate(calibration) => {
            let measuring = series(&plan, &blocks, &folder, options, 1.0);
            let found = calibrate(&plan, calibration, &measuring, &|text| options.watcher.say(text));
            if found.is_err() {
                sweep(&folder, &options.tidegate)?;
            }
            let found = found?;
            state.time_scale = found.scale;
            state.calibrated = Some([calibration.target, found.share]);
        }
    }
    folder.begin(text, &state)?;
    rounds(&plan, &blocks, &folder, &state, options, BTreeSet::new(), race)
}

/// Continues a study: measures what is missing, and nothing twice.
///
/// # Errors
/// If the folder holds no study, or another kernel or program measured it.
pub fn resume(options: &Options<'_>) -> Result<Ran> {
    let (plan, state) = stored(options.folder)?;
    if state.is_race {
        bail!(
            "{}: a race of settings can't be continued; `tidegate study tune` begins one in another folder",
            options.folder.display()
        );
    }
    for (what, found, expected) in [
        ("program", env!("CARGO_PKG_VERSION"), state.tool_version.as_str()),
        (
            "device",
            &check::identity(&plan.environment.device)?,
            &state.device,
        ),
        ("kernel", &environment::host().kernel, &state.kernel),
        (
            "method of measuring",
            &folder::METHOD.to_string(),
            &state.method.to_string(),
        ),
    ] {
        if found != expected {
            bail!(
                "{}: its records are of another {what}, `{expected}`, and this is `{found}`; begin a study in another folder",
                options.folder.display()
            );
        }
    }
    let found = fingerprints(&state.binaries)?;
    for ((name, path), (found, expected)) in state.binaries.iter().zip(found.iter().zip(&state.fingerprints))
    {
        if found != expected {
            bail!(
                "{}: the program {name} ({}) has changed since the study began: it had {expected}, and has {found}; \
                 begin a study in another folder",
                options.folder.display(),
                path.display()
            );
        }
    }
    folder::clean(options.folder, &options.tidegate)?;
    let missing = check::missing(&plan)?;
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    let folder = Folder::open(options.folder)?;
    let blocks = checked(&plan)?;
    let again = folder.unfinished(&blocks)?;
    Ok(rounds(&plan, &blocks, &folder, &state, options, again, None)?.0)
}

/// The plan of a folder as it was run, and its state.
///
/// # Errors
/// If the folder holds no study.
pub fn stored(folder: &Path) -> Result<(Plan, State)> {
    let (text, state) = folder::stored_plan(folder)?;
    let mut plan = Plan::parse(&folder.join("plan.toml").display().to_string(), &text)?;
    plan.apply(&Variant {
        rounds: Some(state.rounds),
        size: state.size.clone(),
        only: state.only.clone(),
        binaries: state.binaries.clone(),
    });
    Ok((plan, state))
}

/// The blocks of a plan.
fn checked(plan: &Plan) -> Result<Vec<Block>> {
    let blocks = blocks(plan)?;
    if blocks.is_empty() {
        bail!("the plan has no cell");
    }
    Ok(blocks)
}

fn series<'run>(
    plan: &'run Plan,
    blocks: &'run [Block],
    folder: &'run Folder,
    options: &'run Options<'run>,
    scale: f64,
) -> Blocks<'run> {
    Blocks {
        plan,
        blocks,
        sides: sides(blocks),
        folder,
        children: Children {
            tidegate: &options.tidegate,
            study: folder.path(),
            stop: options.stop,
        },
        scale,
        stored: Vec::new(),
        replaced: BTreeSet::new(),
        limits: options.limits,
        rounds: plan.run.rounds,
        race: None,
        watcher: options.watcher,
        began: Instant::now(),
        without_guest: None,
        memory: warm::Held::default(),
    }
}

fn rounds(
    plan: &Plan,
    blocks: &[Block],
    folder: &Folder,
    state: &State,
    options: &Options<'_>,
    again: BTreeSet<BlockRound>,
    race: Option<Race>,
) -> Result<(Ran, Option<Race>)> {
    let mut series = series(plan, blocks, folder, options, state.time_scale);
    series.limits.decided = state.decided;
    series.race = race;
    series.stored = folder::records(folder.path())?;
    series
        .stored
        .retain(|record| folder::block_of(record).is_none_or(|key| !again.contains(&key)));
    series.replaced = again;
    // The folder keeps the records; the runner's own sinks would keep them a second time.
    let mut runner = Runner::new(options.watcher, options.stop, Settle::Machine, Sinks::none());
    let sides = series.sides.len();
    let ended = runner.run(&Schedule::interleaved(state.rounds, sides), &mut series);
    sweep(folder, &options.tidegate)?;
    ended?;
    Ok((runner.finish()?, series.race))
}
