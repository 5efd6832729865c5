//! Runs outside programs and captures their output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::JudgeError;

/// Maximum length of output quoted in a message.
const SHOWN_CHARACTERS: usize = 300;

/// A program with its arguments.
#[derive(Debug)]
pub struct Program {
    command: Command,
    next_step: &'static str,
}

impl Program {
    /// A program; `next_step` tells the user how to install it if it is missing.
    pub fn new(path: impl AsRef<OsStr>, next_step: &'static str) -> Self {
        Self {
            command: Command::new(path),
            next_step,
        }
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, arguments: I) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets the working directory.
    pub fn current_dir(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// The command line, for messages.
    pub fn line(&self) -> String {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Runs the program to completion and returns its output.
    ///
    /// # Errors
    /// When it does not start or its exit code is not 0.
    pub fn answer(mut self) -> Result<String, JudgeError> {
        let line = self.line();
        let output = self.command.output().map_err(|source| JudgeError::Start {
            program: self.command.get_program().to_string_lossy().into_owned(),
            source,
            next_step: self.next_step,
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = if said.trim().is_empty() {
                String::from_utf8_lossy(&output.stdout)
            } else {
                said
            };
            return Err(JudgeError::Failed {
                command: line,
                found: output.status.to_string(),
                message: beginning(&said),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The beginning of a text, on one line.
pub fn beginning(text: &str) -> String {
    let line = text.trim().replace('\n', " | ");
    line.chars().take(SHOWN_CHARACTERS).collect()
}

/// Compiles a C program into `build` unless the result exists and is newer than its source. `further` are arguments
/// after the source: libraries, other sources.
///
/// # Errors
/// When there is no compiler, or compilation fails.
pub fn compile(source: &Path, build: &Path, name: &str, further: &[String]) -> Result<PathBuf, JudgeError> {
    let program = build.join(name);
    std::fs::create_dir_all(build).map_err(|error| JudgeError::io("create", build, error))?;
    let made = |path: &Path| std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let written = made(source).map_err(|error| JudgeError::io("look at", source, error))?;
    if made(&program).is_ok_and(|made| made > written) {
        return Ok(program);
    }
    // Compile under a temporary name first: another process may be compiling the same program.
    let unfinished = build.join(format!("{name}.{}", std::process::id()));
    Program::new("cc", "install gcc and libc6-dev")
        .args(["-O2", "-Wall", "-pthread", "-o"])
        .args([unfinished.as_os_str(), source.as_os_str()])
        .args(further)
        .answer()?;
    std::fs::rename(&unfinished, &program).map_err(|error| JudgeError::io("rename", &unfinished, error))?;
    Ok(program)
}
