//! Text from outside as it is shown: names of files and processes, labels, lines of other tools' files.
//!
//! A name may hold any byte but a zero and a slash. Escape sequences move a terminal's cursor and change its title, line feeds
//! forge lines, and bidirectional marks reorder the text. Everything that a command prints or draws goes
//! through the functions of this module; stored names stay unchanged.
//!
//! Escapes have the form that JSON has for them (`\u001b`, `\n`), so a document whose strings hold such characters is the
//! same document afterwards. Bytes that are no UTF-8 become `\xNN`.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Write as _;

/// Whether a character does something to a terminal, or to the order of those around it, instead of being seen.
#[must_use]
pub fn is_active(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Text of one line: all active characters are escaped.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_active)
}

/// Text of several lines, or JSON: active characters are escaped but tabulators and the ends of lines, which CSV has as CR LF.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let part = |text| escaped(text, |letter| is_active(letter) && !matches!(letter, '\n' | '\t'));
    if !text.contains("\r\n") {
        return part(text);
    }
    Cow::Owned(text.split("\r\n").map(part).collect::<Vec<_>>().join("\r\n"))
}

/// Bytes of a name, as a text of one line.
#[must_use]
pub fn name(bytes: &[u8]) -> String {
    line(&from_bytes(bytes)).into_owned()
}

/// Bytes as text to be stored: UTF-8 as it is, control characters included; each other byte as `\xNN`.
#[must_use]
pub fn from_bytes(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a string takes any text");
        }
    }
    Cow::Owned(text)
}

/// An error with its causes, joined by colons. A cause that the message before already contains is not repeated: errors of
/// crates include their source in their text, for callers that print a single error.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    // Nearly all text is this.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            _ if !is_escaped(letter) => shown.push(letter),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            // None of them is beyond 16 bits.
            _ => write!(shown, "\\u{:04x}", u32::from(letter)).expect("a string takes any text"),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_characters_are_escaped_and_others_are_not() {
        assert_eq!(
            line("a\u{1b}[2Jb\r\n\t\u{7f}\u{202E}c\u{9b}\0"),
            "a\\u001b[2Jb\\r\\n\\t\\u007f\\u202ec\\u009b\\u0000"
        );
        assert_eq!(lines("one\n\ttwo\u{1b}"), "one\n\ttwo\\u001b");
        assert!(matches!(line("ünd \\ \u{1F980}"), Cow::Borrowed(_)));
        assert_eq!(lines("a\r\nb\rc\u{1b}\r\n"), "a\r\nb\\rc\\u001b\r\n");
        assert!(matches!(lines("one\ntwo"), Cow::Borrowed(_)));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_by_number() {
        assert_eq!(name(b"a\xffb\x1b"), "a\\xffb\\u001b");
        assert_eq!(from_bytes(b"a\xffb\x1b"), "a\\xffb\u{1b}");
    }

    #[test]
    fn a_json_document_stays_the_same_document() {
        let active: String = (0..0x3000).filter_map(char::from_u32).collect();
        let value = serde_json::json!({ "name \u{9b}": active, "more": ["\\", "\\\u{7f}"] });
        let shown = lines(&serde_json::to_string_pretty(&value).unwrap()).into_owned();
        assert!(!shown.contains(|letter| is_active(letter) && letter != '\n'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
