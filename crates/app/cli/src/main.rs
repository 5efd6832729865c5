//! The command `tidegate`: arguments, wiring and exit codes.
//!
//! The functionality is in the other crates; this one combines them. Exit codes: 0 done, 1 done and something was found, 2
//! could not do it. Messages go to standard error, results to standard output.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod arguments;
mod array_command;
mod background;
mod bench_command;
mod compare;
mod daemon;
mod demo;
mod emmc_command;
mod history_command;
mod inspect;
mod invocation;
mod manual;
mod mobibench;
mod mount;
mod mount_options;
mod nand_command;
mod nand_device;
mod remount;
mod replay;
mod source_overlap;
mod stack;
mod stats;
mod study_command;
mod trace_command;
mod ubi_command;
mod ubifs_command;
mod ubireader;
mod unmount;
mod unpack;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
// Imported for the modules below, which use them as `crate::...`.
use mounted::{document as stats_document, end_status, table as mount_table, taken};
use programs::{Finding, command_line, log, output, parts, private_folder, quantity};

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    // Defining the commands takes most of the time of a short command, so it is done once.
    let definition = Arguments::command();
    let words = normalised(&definition, std::env::args_os().collect());
    let arguments = command_line::parse_or_refuse(definition, &words);
    programs::exit_code(run(&arguments, &words))
}

/// Rewrites a command line into the form that [`Arguments`] parses.
fn normalised(definition: &clap::Command, words: Vec<OsString>) -> Vec<OsString> {
    let names: Vec<&str> = definition
        .get_subcommands()
        .flat_map(clap::Command::get_name_and_visible_aliases)
        .chain(["help"])
        .collect();
    invocation::normalise(words, &names, |path| path.exists())
}

fn run(arguments: &Arguments, words: &[OsString]) -> Result<Finding> {
    match &arguments.command {
        Command::Mount(arguments) => mount::run(arguments, words)?,
        Command::Unmount(arguments) => unmount::run(arguments)?,
        Command::Stats(arguments) => stats::run(arguments)?,
        Command::Inspect(arguments) => return inspect::run(arguments),
        Command::Unpack(arguments) => return unpack::run(arguments),
        Command::Ubireader(tool) => return ubireader::run(tool),
        Command::Bench(arguments) => return bench_command::run(arguments),
        Command::Replay(arguments) => return bench_command::run_workload(&**arguments),
        Command::Trace(command) => return trace_command::run(command, words),
        Command::Array(command) => return array_command::run(command),
        Command::Emmc(command) => return emmc_command::run(command, words),
        Command::Nand(command) => return nand_command::run(command),
        Command::Ubi(command) => return ubi_command::run(command),
        Command::Ubifs(command) => return ubifs_command::run(command, words),
        Command::Study(command) => return study_command::run(command),
        Command::Demo(arguments) => return demo::run(arguments),
        Command::Mobibench(arguments) => return mobibench::run(arguments, words.len()),
        Command::Ui(_) => return parts::UI.execute("ui", words),
        Command::Completions(arguments) => manual::print_completions(arguments)?,
        Command::Man(arguments) => manual::write_man_pages(arguments)?,
    }
    Ok(Finding::Nothing)
}
