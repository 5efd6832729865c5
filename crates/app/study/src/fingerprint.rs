//! Fingerprints of the programs under test, so that a resumed study measures the programs that it began with.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result};

use crate::plan::Binaries;

/// The fingerprints of programs: length and FNV-1a (64 bits) of their content. They tell an honest change, not a forged one.
///
/// # Errors
/// If a program can't be read.
pub fn fingerprints(binaries: &Binaries) -> Result<Vec<String>> {
    binaries.iter().map(|(_, path)| fingerprint(path)).collect()
}

fn fingerprint(path: &Path) -> Result<String> {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut length: u64 = 0;
    let mut read = || -> std::io::Result<String> {
        let mut file = BufReader::new(File::open(path)?);
        let mut chunk = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut chunk)?;
            if count == 0 {
                return Ok(format!("{length} bytes, FNV-1a {hash:016x}"));
            }
            for byte in &chunk[..count] {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                length += 1;
            }
        }
    };
    read().with_context(|| format!("{} can't be read", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let of = |content: &str| {
            let path = folder.path().join("program");
            std::fs::write(&path, content).unwrap();
            fingerprint(&path).unwrap()
        };
        assert_eq!(of("a"), "1 bytes, FNV-1a af63dc4c8601ec8c");
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
    }
}
