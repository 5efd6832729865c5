//! Standard output and messages. A pipe that its reader closed is success: `tidegate stats --watch | head` must not complain.

use std::fs;
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

use anyhow::{Context, Result};

use crate::log::{self, Level};

/// What became of printed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// It is out.
    Done,
    /// Nobody reads any more.
    Closed,
}

/// Prints `text` and a line feed.
pub fn print_line(text: &str) -> Result<Printed> {
    print_bytes(format!("{text}\n").as_bytes())
}

/// Prints bytes as they are.
pub fn print_bytes(bytes: &[u8]) -> Result<Printed> {
    let mut out = stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Printed::Done),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Printed::Closed),
        Err(error) => Err(error).context("standard output can't be written"),
    }
}

/// Writes a result under its name when it is whole; `-` is standard output.
pub fn write_result(target: &Path, text: &str) -> Result<()> {
    if target == Path::new("-") {
        print_bytes(text.as_bytes())?;
        return Ok(());
    }
    let partial = results::partial_name(target);
    let written = fs::File::create(&partial).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, target)
    });
    written.with_context(|| format!("{} can't be written", target.display()))
}

/// Tells people of an error: on standard error, or where messages of a mount in the background go.
pub fn print_error(message: &str) {
    log::message(Level::Error, message);
}

/// An error with its causes, joined by colons. A cause that the message before names already is not said twice: errors of
/// the crates below hold their source in their text, as those who print one error alone expect.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::from_raw_os_error(2);
        let inner =
            anyhow::Error::new(cause).context("open of x failed: No such file or directory (os error 2)");
        let outer = inner.context("the job can't run");
        assert_eq!(
            with_causes(&outer),
            "the job can't run: open of x failed: No such file or directory (os error 2)"
        );
    }
}
