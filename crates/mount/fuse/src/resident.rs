//! Keeps the daemon small: releases program pages that only the start needed.
//!
//! Reading the command line and mounting touch megabytes of program text and constants once; serving requests needs a
//! fraction. These pages are file mappings that are never written, so a released page is read from the file again on
//! the next access. JUSTIFICATION of the unsafe block: it saves 2 MiB of the 6 that a daemon may use.

use std::ffi::c_void;

/// Releases the resident pages of this process's unmodified file mappings, and the allocator's free memory. A failure
/// only costs memory.
pub fn drop_start_up_pages() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and the allocator does its own locking.
    unsafe {
        libc::malloc_trim(0);
    }
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    for (start, length) in unwritten_file_mappings(&maps) {
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(start);
        // SAFETY: the range is a file mapping that this process may not write to and of which it has no private page
        // (`Anonymous: 0`): its pages equal the file's content, and a later access reads it again. Pages that
        // relocation wrote before they were protected are anonymous, so their mappings are excluded.
        let _ = unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Start and length of each mapping in the text of `/proc/self/smaps` that is read-only, backed by a file, and has no
/// page that differs from the file.
fn unwritten_file_mappings(smaps: &str) -> Vec<(usize, usize)> {
    let (mut found, mut current) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(mapping) = header(line) {
            current = mapping;
        } else if let Some(size) = line.strip_prefix("Anonymous:")
            && size.trim() == "0 kB"
        {
            found.extend(current.take());
        }
    }
    found
}

/// Parses the first line of a mapping. `None`: another line; `Some(None)`: a mapping that must not be touched.
fn header(line: &str) -> Option<Option<(usize, usize)>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let read_only = matches!(words.next()?, "r-xp" | "r--p");
    let from_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
    Some((read_only && from_file).then_some((start, end.checked_sub(start)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unwritten_mappings_of_files_are_taken() {
        let smaps = "\
55d0-55f0 r-xp 00001000 fd:00 123                        /usr/bin/tidegate
Anonymous:             0 kB
55f0-5600 r--p 00001000 fd:00 123                        /usr/bin/tidegate
Rss:                   4 kB
Anonymous:             4 kB
5600-5700 rw-p 00001000 fd:00 123                        /usr/bin/tidegate
Anonymous:             0 kB
7000-7800 r--p 00000000 fd:00 124                        /lib/libc.so.6
Anonymous:             0 kB
7ff0-7ff8 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
8ff0-8ff8 r-xp 00000000 00:00 0
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
";
        assert_eq!(unwritten_file_mappings(smaps), [(0x55d0, 0x20), (0x7000, 0x800)]);
        assert_eq!(unwritten_file_mappings("nonsense\nAnonymous: 0 kB\n"), []);
    }

    #[test]
    fn the_program_goes_on_after_its_pages_were_dropped() {
        let before = format!("{:?}", std::time::Duration::from_millis(1500));
        drop_start_up_pages();
        assert_eq!(format!("{:?}", std::time::Duration::from_millis(1500)), before);
    }
}
