//! What `tidegate` and `tidegate-analysis` share at their edges: exit codes, messages and output, sizes and durations as
//! people type them, signals, temporary folders, and disks to measure on.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod analysis_arguments;
pub mod file_system_kind;
pub mod log;
pub mod loop_disk;
pub mod output;
pub mod private_folder;
pub mod quantity;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};

/// What a command that could do its work has to say by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Done.
    Nothing,
    /// Done, and something was found that a script should know.
    Something,
    /// A program was run for the user; its exit code is passed on.
    Code(u8),
}

/// The exit code of a program: 0 done, 1 done and something was found, 2 could not do it, which it tells.
pub fn exit_code(done: Result<Finding>) -> ExitCode {
    match done {
        Ok(Finding::Nothing) => ExitCode::SUCCESS,
        Ok(Finding::Something) => ExitCode::from(1),
        Ok(Finding::Code(code)) => ExitCode::from(code),
        Err(error) => {
            output::print_error(&output::with_causes(&error));
            ExitCode::from(2)
        }
    }
}

/// A flag that SIGINT and SIGTERM raise from now on, in place of ending the process.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("signals can't be caught")?;
    }
    Ok(stop)
}

/// Where another program of this project is: beside this one, else wherever the shell finds it by its name.
pub fn program_beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own file can't be found")?;
    let beside = own.with_file_name(name);
    Ok(if beside.is_file() { beside } else { name.into() })
}
