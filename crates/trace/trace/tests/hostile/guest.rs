//! The hostile programs in the lab guest: f2fs, which this machine's kernel may lack, and an older kernel.

use std::path::Path;
use std::time::Duration;

use testkit::lab::{self, Ended, Job};

use crate::ledger::generation_of;
use crate::machine::Machine;
use crate::programs::PROGRAMS;
use crate::{Case, MAPPED, Means, Outcome, QUEUE, failed, run_on, say};

/// File systems of the guest, by the words of `lab/jobs/on-filesystem.sh`.
pub const FILE_SYSTEMS: [&str; 2] = ["f2fs", "ext4"];
/// Limit of a run: the guest is emulated.
const TIMEOUT: Duration = Duration::from_secs(1200);

/// Runs all programs on this file system of the guest; returns the number of requests compared, and the report. `None`:
/// there is no guest on this machine, and the reason is recorded.
pub fn run(kind: &str) -> Outcome<Option<(u64, String)>> {
    let program = std::env::current_exe().map_err(|error| failed("this program's path", error))?;
    let Some(mut guest) = lab::shared() else {
        return Ok(None);
    };
    let job = Job::ready_made("on-filesystem.sh")
        .map_err(|error| failed(kind, error))?
        .copy_of("hostile", program)
        .variable("KIND", kind)
        .variable("RUN", "/host/hostile here \"$FOLDER\" \"$DEVICE\" 1")
        .timeout(TIMEOUT);
    let outcome = guest.run(&job).map_err(|error| failed(kind, error))?;
    let text = outcome.text().trim().to_owned();
    if outcome.ended != Ended::Code(0) {
        return Err(format!("{:?}: {text}", outcome.ended));
    }
    let verdict = text.lines().find_map(|line| line.strip_prefix(VERDICT));
    let count = verdict.and_then(|told| told.split(' ').next()?.parse().ok());
    let count = count.ok_or_else(|| format!("no verdict in {text:?}"))?;
    Ok(Some((count, text)))
}

const VERDICT: &str = "judged: ";

/// In the guest: all programs on a mounted file system.
pub fn here(folder: &str, device: &str, scale: &str) -> Outcome<()> {
    let folder = Path::new(folder);
    let root = std::fs::File::open(folder).map_err(|error| failed("the file system", error))?;
    let case = Case {
        name: "here".to_owned(),
        file_systems: Vec::new(),
        with_device: false,
        programs: PROGRAMS.iter().map(|(name, _)| *name).collect(),
        is_losing: false,
    };
    let means = Means {
        scale: scale.parse().map_err(|error| failed("scale", error))?,
        has_generations: generation_of(&root).is_some(),
        has_direct: true,
        may_be_unknown: MAPPED,
    };
    let machine = Machine::mounted(folder, device, QUEUE)?;
    let verdict = run_on(&machine, &case, means)?.ok_or("the guest forbids tracing")?;
    say(&format!("{VERDICT}{}", verdict.outcome()?));
    Ok(())
}
