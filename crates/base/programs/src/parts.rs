//! Parts of `tidegate` that are programs of their own: they would take most of its build time or much of its size.
//!
//! `tidegate` parses their arguments itself, so that help, completions and errors are the same without them, and then
//! replaces itself with the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Finding;

/// A program that runs commands of `tidegate`.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The name of the program.
    name: &'static str,
    /// The package that builds it.
    package: &'static str,
}

/// Analyses of block traces in SQL.
pub const ANALYSIS: Part = Part {
    name: "tidegate-analysis",
    package: "analysis-cli",
};

/// The web page.
pub const UI: Part = Part {
    name: "tidegate-ui",
    package: "ui",
};

impl Part {
    /// Replaces this process with the program, which gets the `words` after `command`.
    ///
    /// # Errors
    /// If it isn't installed or can't be run; otherwise this doesn't return.
    pub fn execute(self, command: &str, words: &[OsString]) -> Result<Finding> {
        let Self { name, package } = self;
        let Some(program) = find(name)? else {
            bail!(
                "{name} is not installed: it is found neither beside tidegate nor by the search path. It comes with \
                 `make install`, or `cargo build --release -p {package}` and a copy of target/release/{name}; the \
                 Python wheel does not have it"
            );
        };
        let words = words.iter().skip_while(|word| *word != command).skip(1);
        let error = Command::new(&program).args(words).exec();
        Err(error).with_context(|| format!("{} can't be run", program.display()))
    }
}

/// The path of `tidegate`, for another program of this project.
///
/// # Errors
/// If it is neither beside that program nor in the search path.
pub fn core() -> Result<PathBuf> {
    find("tidegate")?.context("tidegate is found neither beside this program nor by the search path")
}

/// The path of a program: beside this one, otherwise the first one of that name in the search path.
fn find(name: &str) -> Result<Option<PathBuf>> {
    let own = std::env::current_exe().context("this program's own file can't be found")?;
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name));
    Ok([own.with_file_name(name)]
        .into_iter()
        .chain(found)
        .find(|path| path.is_file()))
}
