//! Completions and man pages, generated from the one definition in `arguments.rs`.

use std::path::Path;

use anyhow::{Context, Result};
use programs::command_line::whole_definition;

use crate::arguments::{Arguments, CompletionsArguments, ManArguments};
use crate::output;
use crate::private_folder::private_folder;

/// Prints the completion script of a shell.
pub fn print_completions(arguments: &CompletionsArguments) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut whole_definition::<Arguments>(),
        "tidegate",
        &mut script,
    );
    output::print_bytes(&script)?;
    Ok(())
}

/// Writes `tidegate.1` and one page for each command (`tidegate-mount.1` ...) to a folder.
pub fn write_man_pages(arguments: &ManArguments) -> Result<()> {
    let directory = &arguments.directory;
    // The generator follows links and truncates what they lead to.
    let made = private_folder(&std::env::temp_dir(), "tidegate-man-")?;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(whole_definition::<Arguments>(), made.path()))
        .and_then(|()| take_over(made.path(), directory))
        .with_context(|| format!("man pages can't be written to {}", directory.display()))
}

fn take_over(made: &Path, directory: &Path) -> std::io::Result<()> {
    for page in std::fs::read_dir(made)? {
        let page = page?;
        outfile::write(&directory.join(page.file_name()), &std::fs::read(page.path())?)?;
    }
    Ok(())
}
