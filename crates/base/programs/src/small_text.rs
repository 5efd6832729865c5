//! Reads files that people write: cards, plans, jobs.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Largest size of such a file in bytes. Larger ones are something else, and messages about them would be as long.
pub const BYTES_MAX: u64 = 1 << 20;

/// The text of a file.
///
/// # Errors
/// If it can't be read, is no text, or is longer than [`BYTES_MAX`].
pub fn read(path: &Path) -> io::Result<String> {
    read_from(File::open(path)?)
}

/// The text of a stream; see [`read`].
///
/// # Errors
/// As [`read`].
pub fn read_from(reader: impl Read) -> io::Result<String> {
    let mut text = String::new();
    reader.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() > usize::try_from(BYTES_MAX).unwrap_or(usize::MAX) {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            "it is longer than 1 MiB, so it is no such file",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_at_most_the_limit_is_read() {
        let longest = "x".repeat(usize::try_from(BYTES_MAX).unwrap());
        assert_eq!(read_from(longest.as_bytes()).unwrap(), longest);
        let error = read_from((longest + "x").as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert_eq!(
            read_from([0xFF].as_slice()).unwrap_err().kind(),
            ErrorKind::InvalidData
        );
        // Never read to its end.
        assert_eq!(
            read(Path::new("/dev/zero")).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
    }
}
