//! Standard output and messages. A pipe closed by its reader is success: `tidegate stats --watch | head` must not
//! complain.

use std::fs::Metadata;
use std::io::{BufWriter, ErrorKind, IntoInnerError, Write, stdout};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use outfile::{OutFile, Unfinished};
use results::shown;

use crate::log::{self, Level};

/// Outcome of printing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// Everything was written.
    Done,
    /// The reader has closed the pipe.
    Closed,
}

/// Prints `text`, one line or several, and a line feed; active characters are escaped ([`shown::lines`]).
pub fn print_line(text: &str) -> Result<Printed> {
    print_text(&format!("{text}\n"))
}

/// Prints `text`; active characters are escaped ([`shown::lines`]).
pub fn print_text(text: &str) -> Result<Printed> {
    print_bytes(shown::lines(text).as_bytes())
}

/// Prints bytes unchanged.
pub fn print_bytes(bytes: &[u8]) -> Result<Printed> {
    let mut out = stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Printed::Done),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Printed::Closed),
        Err(error) => Err(error).context("standard output can't be written"),
    }
}

/// Writes a result under its name once it is complete; `-` is standard output. Active characters are escaped
/// ([`shown::lines`]), as the file may be shown on a terminal.
pub fn write_result(target: &Path, text: &str) -> Result<()> {
    if target == Path::new("-") {
        print_text(text)?;
        return Ok(());
    }
    outfile::write(target, shown::lines(text).as_bytes())
        .with_context(|| format!("{} can't be written", target.display()))
}

/// Writes to a file, or to standard output for `-`.
pub fn to_output(output: &Path, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()> {
    match output.as_os_str() == "-" {
        true => closed_is_done(write(&mut stdout().lock())),
        false => to_file(output, write),
    }
}

/// Refuses an output that is the file or device that is read: it would be replaced by its own copy.
pub fn refuse_input_as_output(input: &Path, output: &Path) -> Result<()> {
    let metadata = |path: &Path| match path.as_os_str() == "-" {
        true => None,
        false => path.metadata().ok(),
    };
    let is_same = |input: &Metadata, output: &Metadata| match input.file_type().is_block_device() {
        true => output.file_type().is_block_device() && input.rdev() == output.rdev(),
        false => (input.dev(), input.ino()) == (output.dev(), output.ino()) && input.is_file(),
    };
    match metadata(input).zip(metadata(output)) {
        Some((read, written)) if is_same(&read, &written) => bail!(
            "{} is what is read; it can't be the output, too: name another file",
            output.display()
        ),
        _ => Ok(()),
    }
}

/// Treats a pipe closed by its reader as success.
fn closed_is_done(written: Result<()>) -> Result<()> {
    let is_closed = |error: &anyhow::Error| {
        error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    };
    match written {
        Err(error) if is_closed(&error) => Ok(()),
        other => other,
    }
}

/// Writes a file that appears under its name when it is complete and on the medium; a device or a FIFO is written
/// directly.
pub fn to_file(path: &Path, write: &mut dyn FnMut(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = || format!("{} can't be written", path.display());
    let output = OutFile::create(path, Unfinished::Remove).with_context(failed)?;
    let is_straight = output.is_straight();
    let mut out = BufWriter::with_capacity(1 << 20, output);
    let written = write(&mut out).and_then(|()| {
        let output = out
            .into_inner()
            .map_err(IntoInnerError::into_error)
            .with_context(failed)?;
        output.finish().with_context(failed)?;
        Ok(())
    });
    match is_straight {
        true => closed_is_done(written),
        false => written,
    }
}

/// Prints an error on standard error, or sends it to the message target of a mount in the background.
pub fn print_error(message: &str) {
    log::message(Level::Error, message);
}

/// An error with its causes ([`shown::with_causes`]).
pub fn with_causes(error: &anyhow::Error) -> String {
    shown::with_causes(&**error)
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
