//! `mkfs.ubifs` of mtd-utils, and file contents for it.

use std::path::Path;
use std::process::Command;

/// Whether `mkfs.ubifs` is installed; prints a note if not.
pub fn has_mkfs() -> bool {
    let found = Command::new("mkfs.ubifs").arg("--version").output().is_ok();
    if !found {
        testkit::report_left_out("there is no mkfs.ubifs (apt install mtd-utils)");
    }
    found
}

/// Partly compressible content, so that compressed and uncompressed blocks occur.
pub fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..bytes)
        .map(|at| {
            if at / 3000 % 2 == 0 {
                random.u8(..4)
            } else {
                random.u8(..)
            }
        })
        .collect()
}

/// Makes an image of a tree. Options in `more` override the defaults.
pub fn mkfs(tree: &Path, image: &Path, min_io: u32, leb: u32, more: &[&str]) {
    let output = Command::new("mkfs.ubifs")
        .args(["-m", &min_io.to_string(), "-e", &leb.to_string(), "-c", "2000"])
        .args(more)
        .arg("-r")
        .arg(tree)
        .arg("-o")
        .arg(image)
        .output()
        .expect("mkfs.ubifs runs");
    assert!(
        output.status.success(),
        "mkfs.ubifs: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
