//! The program `tidegate`, which users call.

use std::path::PathBuf;
use std::process::Command;

/// `tidegate` beside `tidegate-analysis`, up to date.
pub fn tidegate() -> PathBuf {
    // Cargo builds the programs of the package that is tested alone.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "cli"])
        .status()
        .expect("cargo runs");
    assert!(built.success(), "tidegate can't be built");
    PathBuf::from(env!("CARGO_BIN_EXE_tidegate-analysis")).with_file_name("tidegate")
}
