//! Parts of `tidegate` that are programs of their own: they would take most of its build time or much of its size.
//!
//! `tidegate` parses their arguments itself, so that help, completions and errors are the same without them, and then
//! replaces itself with the program.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Finding;

/// The variable by which `tidegate` tells the program where it is itself.
const CORE: &str = "TIDEGATE_CORE";

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
        // The first word is the name by which `tidegate` was called, which may be the command's, too.
        let words = words.iter().skip(1).skip_while(|word| *word != command).skip(1);
        let error = Command::new(&program).args(words).env(CORE, own()?).exec();
        Err(error).with_context(|| format!("{} can't be run", program.display()))
    }
}

/// The path of `tidegate`, for another program of this project: the one that executed it, so that what was started is what
/// measures. A program that was started by itself takes the one beside it, or in the search path.
///
/// # Errors
/// If there is none.
pub fn core() -> Result<PathBuf> {
    let caller = std::env::var_os(CORE).map(PathBuf::from);
    if let Some(caller) = caller.filter(|path| path.is_file()) {
        return Ok(caller);
    }
    find("tidegate")?.context("tidegate is found neither beside this program nor by the search path")
}

fn own() -> Result<PathBuf> {
    std::env::current_exe().context("this program's own file can't be found")
}

/// The path of a program: beside this one, otherwise the first one of that name in the search path. Relative folders are
/// left out, and so is an empty `PATH`: the program must not depend on the current folder.
fn find(name: &str) -> Result<Option<PathBuf>> {
    let own = own()?;
    let beside = own.with_file_name(name);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&folders)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name));
    Ok(match is_of_us(&beside, &own) {
        true => Some(beside),
        false => found.find(|path| path.is_file()),
    })
}

/// Whether a program beside `own` is one of its user's, of its owner's or of root's: in `/tmp` anybody may put one there.
fn is_of_us(program: &Path, own: &Path) -> bool {
    let owner = |path: &Path| path.metadata().map(|metadata| metadata.uid()).ok();
    let ours = [Some(0), Some(rustix::process::geteuid().as_raw()), owner(own)];
    program.is_file() && ours.contains(&owner(program))
}
