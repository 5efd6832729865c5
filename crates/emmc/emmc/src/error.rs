//! Errors in the description of a card, a host or a workload.

use thiserror::Error;

/// Reason why a card or host cannot be built from its description.
#[derive(Debug, Error)]
pub enum CardError {
    /// An invalid number.
    #[error("{what} is {found}; expected {expected}")]
    Number {
        /// Name of the number, as in the file.
        what: &'static str,
        /// Its value.
        found: u64,
        /// Allowed values.
        expected: &'static str,
    },
    /// The text is not TOML with the expected keys.
    #[error("{name}: {}", shortened(error))]
    Syntax {
        /// File or preset.
        name: String,
        /// Position and reason; no source, since messages would then repeat the quoted text in full.
        error: Box<toml::de::Error>,
    },
    /// There is no preset with this name.
    #[error("there is no {what} called {name:?}; give a file NAME.toml, or one of {known}")]
    UnknownPreset {
        /// `card` or `host`.
        what: &'static str,
        /// The name.
        name: String,
        /// The existing names.
        known: String,
    },
}

/// Most characters of a line, and most lines, of an error about TOML, which quotes the text.
const LINE_CHARS: usize = 160;
const LINES: usize = 8;

/// The error, however long the quoted text is.
fn shortened(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let line = |line: &str| line.trim_end().chars().take(LINE_CHARS).collect::<String>();
    text.lines().take(LINES).map(line).collect::<Vec<_>>().join("\n")
}
