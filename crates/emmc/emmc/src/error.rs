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
    #[error("{name}: {source}")]
    Syntax {
        /// File or preset.
        name: String,
        /// Position and reason.
        #[source]
        source: Box<toml::de::Error>,
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
