//! The program `tidegate`, which users call.

use std::path::PathBuf;
use std::process::Command;

/// Path of `tidegate` beside `tidegate-analysis`, built first.
pub fn tidegate() -> PathBuf {
    // Cargo builds only the programs of the tested package.
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--package", "cli"])
        .status()
        .expect("cargo runs");
    assert!(built.success(), "tidegate can't be built");
    PathBuf::from(env!("CARGO_BIN_EXE_tidegate-analysis")).with_file_name("tidegate")
}
