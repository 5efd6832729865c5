//! `tidegate unmount`: unmounts and waits until the daemon has written everything to the source.

use anyhow::Result;
use mounted::unmount::{Ended, How, unmount};

use crate::arguments::UnmountArguments;
use crate::output;

/// Runs the command.
pub fn run(arguments: &UnmountArguments) -> Result<()> {
    let how = How {
        timeout: arguments.timeout,
        lazy: arguments.lazy,
    };
    if let Ended::Detached { mountpoint, pid } = unmount(&arguments.mountpoint, how, &output::print_error)? {
        let process = pid.map_or_else(|| "its process".to_owned(), |pid| format!("process {pid}"));
        output::print_line(&format!(
            "{}: out of sight; {process} ends when the last open file is closed",
            mountpoint.display()
        ))?;
    }
    Ok(())
}
