//! Shared parts of `tidegate`, `tidegate-analysis` and `tidegate-ui`: exit codes, messages and output, sizes and durations
//! in option syntax, signals, temporary folders, and disks for measurements.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod analysis_arguments;
pub mod command_line;
pub mod file_system_kind;
pub mod log;
pub mod loop_disk;
pub mod output;
pub mod parts;
pub mod private_folder;
pub mod small_text;
pub mod terminal;
pub mod ui_arguments;
pub mod user_files;

pub use media::quantity;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ};
use signal_hook::iterator::Signals;

/// Outcome of a command that could do its work, for its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Done.
    Nothing,
    /// Done, with a finding that a script should know about.
    Something,
    /// A program was run for the user; its exit code is passed on.
    Code(u8),
}

/// The exit code of a program: 0 done, 1 done and something was found, 2 could not do it, which it reports.
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

/// A flag that SIGINT, SIGTERM and SIGHUP set from now on, instead of ending the process. A SIGHUP that is ignored, as
/// `nohup` has it, stays ignored.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let hangup = (!ignores(&own_status(), SIGHUP)).then_some(SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        signal_hook::flag::register(signal, stop.clone()).context("signals can't be caught")?;
    }
    outfile::stop_with(stop.clone());
    Ok(stop)
}

/// Calls `clean` at the first SIGINT, SIGTERM, SIGHUP or SIGXCPU from now on, and then ends the process by that signal. Those that are
/// ignored stay ignored. A write beyond the limit on the size of files is an error, and no signal.
pub fn clean_on_signals(clean: impl FnOnce() + Send + 'static) -> Result<()> {
    let status = own_status();
    let caught = [SIGINT, SIGTERM, SIGHUP, SIGXCPU]
        .into_iter()
        .filter(|signal| !ignores(&status, *signal));
    let mut signals = Signals::new(caught).context("signals can't be caught")?;
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("signals can't be caught")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            clean();
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("no thread for signals")?;
    Ok(())
}

fn own_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
}

/// Whether a process ignores a signal, by its `/proc/PID/status`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal)
        .ok()
        .and_then(|signal| signal.checked_sub(1));
    bit.zip(mask)
        .and_then(|(bit, mask)| mask.checked_shr(bit))
        .is_some_and(|mask| mask & 1 == 1)
}

/// The arguments of this program, for records; bytes that are not UTF-8 become `\xNN`.
pub fn own_arguments() -> Vec<String> {
    let words = std::env::args_os();
    words
        .map(|word| results::shown::from_bytes(word.as_encoded_bytes()).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hangup_that_nohup_ignores_is_told_from_one_that_ends_the_process() {
        assert!(ignores("Name:\tx\nSigIgn:\t0000000000000001\n", SIGHUP));
        assert!(ignores("SigIgn:\t0000000000004002\n", SIGTERM));
        assert!(!ignores("SigIgn:\t0000000000004002\n", SIGHUP));
        assert!(!ignores("", SIGHUP));
    }
}
