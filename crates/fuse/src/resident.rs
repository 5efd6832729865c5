//! Keeping the daemon small: the pages of code that only starting needed are given back.
//!
//! Reading the command line and mounting touch megabytes of program text once; serving requests needs a fraction. Text
//! is mapped from the executable and never written, so that dropped pages come back from the file when they are needed.
//! JUSTIFICATION of the unsafe block: 2 MiB of 6 that a daemon may take.

use std::ffi::c_void;

/// Drops the resident pages of this process' executable mappings. Failing costs memory, nothing else.
pub fn drop_program_text() {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else {
        return;
    };
    for (start, length) in maps.lines().filter_map(text_mapping) {
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: the range is a mapping of this process that can't be written (`r-xp`) and has a file behind it: its
        // pages hold what the file holds, and an access after this reads it again.
        let _ = unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Start and length of a line of `/proc/self/maps` that is program text from a file.
fn text_mapping(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let readable_text = words.next()? == "r-xp";
    let from_file = words.nth(3)?.starts_with('/');
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    (readable_text && from_file).then_some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_from_files_is_taken() {
        let text = "55d0-55f0 r-xp 00001000 fd:00 123                        /usr/bin/tidegate";
        assert_eq!(text_mapping(text), Some((0x55d0, 0x20)));
        for other in [
            "55d0-55f0 rw-p 00001000 fd:00 123                        /usr/bin/tidegate",
            "55d0-55f0 r--p 00001000 fd:00 123                        /usr/bin/tidegate",
            "7fff0-7fff8 r-xp 00000000 00:00 0                          [vdso]",
            "7fff0-7fff8 r-xp 00000000 00:00 0",
            "nonsense",
        ] {
            assert_eq!(text_mapping(other), None, "{other}");
        }
    }

    #[test]
    fn the_program_goes_on_after_its_text_was_dropped() {
        drop_program_text();
        assert_eq!("still".len() + "here".len(), 9);
    }
}
