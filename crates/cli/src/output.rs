//! Standard output and messages. A pipe that its reader closed is success: `tidegate stats --watch | head` must not complain.

use std::io::{ErrorKind, Write, stdout};

use anyhow::{Context, Result};

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

/// Prints a message for people to standard error. When that is gone as well, nobody is left to tell.
pub fn print_error(message: &str) {
    let _ = writeln!(std::io::stderr(), "tidegate: {message}");
}
