//! Names that do something to a terminal, and a look at what a command printed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Output;

/// Ends a line, clears the screen, sets the title, deletes, turns the direction of writing; the last byte is no UTF-8.
pub const NAME: &[u8] = b"n\x1b[2J\x1b]0;t\x07\nforged: line\r\x7f\xc2\x9b31m\xe2\x80\xae\x08<b>&amp;\xff";
/// The same as far as it is UTF-8.
pub const TEXT: &str = "n\u{1b}[2J\u{1b}]0;t\u{7}\nforged: line\r\u{7f}\u{9b}31m\u{202e}\u{8}<b>&amp;";
/// A word that each form of them holds.
pub const WORD: &str = "forged";

pub fn name() -> &'static OsStr {
    OsStr::from_bytes(NAME)
}

/// Both outputs of a command, which hold nothing that a terminal would obey, and no line that the name made.
pub fn assert_harmless(what: &str, output: &Output) -> String {
    for bytes in [&output.stdout, &output.stderr] {
        assert_text_is_harmless(what, bytes);
    }
    let code = output.status.code();
    assert!(matches!(code, Some(0..=2)), "{what}: {code:?}");
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

pub fn assert_text_is_harmless(what: &str, bytes: &[u8]) {
    let text = str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    let acts = |letter: char| {
        (letter.is_control() && !matches!(letter, '\n' | '\t'))
            || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(acts), "{what}: {text:?}");
    // Further lines of a message are indented.
    let forged = text.lines().find(|line| line.starts_with(WORD));
    assert_eq!(forged, None, "{what}: {text:?}");
}
