//! Settings of the kernel.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// Writes a setting. Its file is the kernel's: there is no link that another user could have planted, and none is made.
pub fn set(path: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(value.as_bytes())
}
