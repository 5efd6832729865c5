//! Names of folders and files that are made from names in a dump.

use std::collections::{HashMap, HashSet};

use results::shown;

/// Names of one folder, which differ from each other.
#[derive(Debug, Default)]
pub struct Names {
    taken: HashSet<String>,
    /// By name: the number to try next, so that thousands of equal names take no quadratic time.
    next: HashMap<String, u32>,
}

/// Longest name, bytes; an ending and a number still fit into a host's 255.
const NAME_BYTES_MAX: usize = 200;

impl Names {
    /// The name, or the name with a number if it is taken.
    pub fn unique(&mut self, name: &str) -> String {
        if self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        let next = self.next.entry(name.to_owned()).or_insert(2);
        loop {
            let numbered = format!("{name}~{next}");
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// A name that is one component of a path, is not hidden, is no option, and does nothing to a terminal.
pub fn harmless(name: &[u8]) -> String {
    let mut text = shown::name(name).replace(['/', '\\'], "_");
    if text.is_empty() || text.starts_with(['.', '-', '~']) {
        text.insert(0, '_');
    }
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_harmless_ones_and_usual_ones_stay() {
        for name in ["rootfs", "ubi_rootfs-1.2", "data 2", "süd"] {
            assert_eq!(harmless(name.as_bytes()), name);
        }
        for name in [
            b"".as_slice(),
            b".",
            b"..",
            b"../etc",
            b"/etc/passwd",
            b"-rf",
            b"a/../b",
            b"\x1b[2J",
            b"a\nb",
            b"\xFF",
        ] {
            let made = harmless(name);
            assert!(
                !made.is_empty() && !made.contains(['/', '\n', '\x1b']),
                "{made:?}"
            );
            assert!(!made.starts_with(['.', '-']), "{made:?}");
        }
        assert!(harmless(&[b'\x01'; 127]).len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn a_name_is_given_once() {
        let mut names = Names::default();
        assert_eq!(names.unique("a"), "a");
        assert_eq!(names.unique("a"), "a~2");
        assert_eq!(names.unique("a~2"), "a~2~2");
        assert_eq!(names.unique("a"), "a~3");
    }
}
