//! `tidegate mount`: checks the arguments, then serves in the foreground or starts a background process.

use std::ffi::OsString;

use anyhow::Result;
use serde_json::Map;

use crate::arguments::MountArguments;
use crate::background::{self, Report};
use crate::mount_options::MountPlan;
use crate::stack::Stack;
use crate::{daemon, remount, taken};

/// Runs the command; `words` are the arguments it was parsed from, including `mount`.
pub fn run(arguments: &MountArguments, words: &[OsString]) -> Result<()> {
    if arguments.daemon {
        return background::serve_as_daemon(arguments.log_file.as_deref(), |announce| {
            serve(&MountPlan::from_arguments(arguments)?, announce)
        });
    }
    if remount::is_asked(arguments) {
        return remount::run(arguments);
    }
    let plan = MountPlan::from_arguments(arguments)?;
    if !plan.over {
        taken::refuse_if_taken(&plan.mountpoint)?;
    }
    if arguments.fake {
        return Ok(());
    }
    if arguments.foreground {
        return serve(&plan, &mut |report| print(&report, arguments));
    }
    let report = background::start(&["mount"], words, arguments.log_file.as_deref())?;
    print(&report, arguments)
}

fn serve(plan: &MountPlan, announce: &mut dyn FnMut(Report) -> Result<()>) -> Result<()> {
    let served = Stack::build(plan)?.served(plan);
    daemon::serve(&plan.mountpoint, &plan.session, served, |negotiated| {
        announce(Report::mounted(
            plan.source.display().to_string(),
            &plan.mountpoint,
            negotiated,
            Map::new(),
        ))
    })
}

fn print(report: &Report, arguments: &MountArguments) -> Result<()> {
    match report {
        Report::Mounted { .. } if arguments.quiet => Ok(()),
        report => report.print(arguments.json),
    }
}
