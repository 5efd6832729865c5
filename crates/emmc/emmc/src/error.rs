//! What is wrong with a description of a card, a host or a load.

use thiserror::Error;

/// Why a card or host cannot be built as it is described.
#[derive(Debug, Error)]
pub enum CardError {
    /// A number that cannot be.
    #[error("{what} is {found}; expected {expected}")]
    Number {
        /// Name of the number, as in the file.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// The text is no TOML of the expected keys.
    #[error("{name}: {source}")]
    Syntax {
        /// File or preset.
        name: String,
        /// Where and what.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// There is no preset of this name.
    #[error("there is no {what} called {name:?}; known are: {known}; or give a file NAME.toml")]
    UnknownPreset {
        /// `card` or `host`.
        what: &'static str,
        /// The name.
        name: String,
        /// Names that there are.
        known: String,
    },
}
