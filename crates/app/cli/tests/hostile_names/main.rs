//! Names of files, processes, volumes and devices that hold escapes, control bytes, line feeds and bytes that are no UTF-8:
//! no command prints them as they are, whatever they come from.

#[path = "../support"]
mod support {
    pub mod bench;
    pub mod disk;
    pub mod shown;
}

mod images;
mod programs;
mod traces;

use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a folder; a `_` is a blank of one argument.
fn run(folder: &Path, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words.split(' ').map(|word| word.replace('_', " ")))
        .current_dir(folder)
        .output()
        .expect("the program runs")
}
