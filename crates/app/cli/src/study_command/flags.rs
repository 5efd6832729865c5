//! Checks the flags of a plan's cells against the commands that they are for.

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use study::cell::{self, MOUNT, RESERVED};
use study::plan::{Device, Plan};

use crate::arguments::{Arguments, Command};
use crate::bench_command::workloads::WorkloadArguments;
use crate::bench_command::{BenchCommand, job};
use crate::emmc_command::card_file;

/// Lets the definitions of `emmc`, `mount` and `bench` judge the flags of all cells.
pub fn check(plan: &Plan) -> Result<()> {
    if let Device::Card(name) = &plan.environment.device {
        card_file(name).context("environment.device")?;
    }
    for block in cell::blocks(plan)? {
        for cell in &block.cells {
            if let Some(flag) = RESERVED.iter().find(|flag| cell.0.contains_key(**flag)) {
                bail!("{flag}: the study sets it itself; leave it out");
            }
            let mut lines = Vec::new();
            if cell.value("path") == MOUNT {
                lines.push((
                    "mount",
                    ["tidegate", "mount"].to_vec(),
                    cell.flags("mount."),
                    ["source", "mountpoint"].to_vec(),
                ));
            }
            // With the words of the study itself: none of them may be given twice.
            lines.push((
                "workload",
                ["tidegate"].to_vec(),
                study::bench_words(cell, 0),
                ["directory"].to_vec(),
            ));
            for (place, command, flags, folders) in lines {
                let words = command
                    .iter()
                    .copied()
                    .chain(flags.iter().map(String::as_str))
                    .chain(folders);
                let parsed = Arguments::try_parse_from(words).map_err(|error| {
                    let text = error.render().to_string();
                    let first = text.lines().next().unwrap_or_default();
                    anyhow!("{place}: {}", first.trim_start_matches("error: "))
                })?;
                match parsed.command {
                    Command::Mount(arguments) => {
                        crate::mount_options::check(&arguments).context("mount")?;
                    }
                    Command::Replay(arguments) => arguments.check()?,
                    Command::Bench(arguments) => {
                        if let Some(BenchCommand::Run(arguments)) = &arguments.command {
                            job::check_run(arguments)?;
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}
