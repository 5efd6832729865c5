//! Built-in descriptions of cards and hosts: TOML texts by name.

use results::words::expected;
use serde::de::DeserializeOwned;

use crate::error::CardError;

/// The presets of one kind.
pub(crate) struct Presets {
    /// `card` or `host`, for messages.
    pub(crate) what: &'static str,
    /// Name and text of each preset.
    pub(crate) texts: &'static [(&'static str, &'static str)],
}

impl Presets {
    /// Finds a preset by name; the error lists the existing names.
    pub(crate) fn find(&self, name: &str) -> Result<(&'static str, &'static str), CardError> {
        let found = self.texts.iter().find(|(known, _)| *known == name);
        found.copied().ok_or_else(|| CardError::UnknownPreset {
            what: self.what,
            name: name.to_owned(),
            known: expected(name, &self.names().collect::<Vec<_>>()),
        })
    }

    /// Names of the presets.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.texts.iter().map(|(name, _)| *name)
    }
}

/// Parses a description; `name` is for messages.
pub(crate) fn from_toml<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, CardError> {
    toml::from_str(text).map_err(|error| CardError::Syntax {
        name: name.to_owned(),
        error: Box::new(error),
    })
}
