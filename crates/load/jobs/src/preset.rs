//! Jobs that ship with the program.

use results::words::expected;

use super::error::JobError;

/// A job that ships with the program, as TOML like a user's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name on the command line.
    pub name: &'static str,
    /// The job file.
    pub text: &'static str,
}

/// All presets.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "mobibench",
        text: include_str!("../presets/mobibench-head.toml"),
    },
    Preset {
        name: "mobibench-head",
        text: include_str!("../presets/mobibench-head.toml"),
    },
    Preset {
        name: "mobibench-2013",
        text: include_str!("../presets/mobibench-2013.toml"),
    },
    Preset {
        name: "androbench",
        text: include_str!("../presets/androbench.toml"),
    },
];

/// Looks up a preset by name.
///
/// # Errors
/// [`JobError::NoSuchPreset`].
pub fn preset(name: &str) -> Result<Preset, JobError> {
    PRESETS
        .into_iter()
        .find(|preset| preset.name == name)
        .ok_or_else(|| JobError::NoSuchPreset {
            name: name.to_owned(),
            known: expected(name, &PRESETS.map(|preset| preset.name)),
        })
}
