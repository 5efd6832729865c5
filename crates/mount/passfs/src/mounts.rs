//! Mounts below the source, and properties of listings on its file system.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::magic;

/// True if a file system may be mounted below `source`.
pub(crate) fn are_below(source: &Path) -> bool {
    let (Ok(source), Ok(mounts)) = (source.canonicalize(), fs::read_to_string("/proc/self/mountinfo")) else {
        return true;
    };
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .map(unescaped)
        .any(|point| point.starts_with(&source) && point != source)
}

/// Reverses the octal escapes of the mount table.
fn unescaped(text: &str) -> PathBuf {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let text = plain.iter().fold(text.to_owned(), |text, (escape, character)| {
        text.replace(escape, character)
    });
    text.into()
}

/// True if another handle may continue a listing by the offset of the first: offsets are hashes or indices of the names,
/// and the file system has one device, so that each directory's changes are reported. btrfs has a device for each
/// subvolume.
pub(crate) fn offsets_last(source: BorrowedFd<'_>) -> bool {
    // tmpfs since Linux 6.6.
    magic::is_on(source, &[magic::EXT4, magic::XFS, magic::TMPFS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_a_folder_is_found_and_the_folder_itself_is_none() {
        assert!(are_below(Path::new("/")), "/proc is mounted");
        assert!(!are_below(Path::new("/proc/self/task")));
        assert_eq!(unescaped("/a\\040b\\134"), Path::new("/a b\\"));
    }
}
