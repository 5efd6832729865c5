//! Why a job can't be run: always with the file, and with line and key where there is one.

use std::io;

use thiserror::Error;

use crate::words::nearest;

/// Why a job can't be run. Nothing was touched.
#[derive(Debug, Error)]
pub enum JobError {
    /// The file can't be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The text is no TOML.
    #[error("{file}:{line}: no TOML: {problem}")]
    Syntax {
        /// File or preset.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What the parser says.
        problem: String,
    },
    /// A key that does not exist here.
    #[error("{file}:{line}: `{key}` is no key of {place}{hint}")]
    UnknownKey {
        /// File or preset.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The key found.
        key: String,
        /// What it was given for.
        place: String,
        /// The known key that it resembles, or all of them.
        hint: String,
    },
    /// A kind of step that does not exist.
    #[error("{file}:{line}: `{kind}` is no kind of step{hint}")]
    UnknownKind {
        /// File or preset.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The kind found.
        kind: String,
        /// The known kind that it resembles, or all of them.
        hint: String,
    },
    /// A value of the wrong form.
    #[error("{file}:{line}: `{key}` is {found}, expected {expected}")]
    Form {
        /// File or preset.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A value that the workload does not take.
    #[error("{file}:{line}: step `{step}`: {}{problem}", key.as_ref().map_or(String::new(), |key| format!("`{key}`: ")))]
    Value {
        /// File or preset.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The step.
        step: String,
        /// The key, when it is one alone.
        key: Option<String>,
        /// What is wrong with it.
        problem: String,
    },
    /// Something that a job needs is missing.
    #[error("{file}:{line}: {place} has no `{key}`; {hint}")]
    Missing {
        /// File or preset.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What lacks it.
        place: String,
        /// The key.
        key: &'static str,
        /// What to write.
        hint: &'static str,
    },
    /// Two steps have one name.
    #[error(
        "{file}:{line}: a step called `{step}` is in line {first} already; give one of them another `name`"
    )]
    SameName {
        /// File or preset.
        file: String,
        /// Of the second step, counted from 1.
        line: usize,
        /// The name.
        step: String,
        /// Line of the first step.
        first: usize,
    },
    /// A step was asked for that the job does not have.
    #[error("the job `{job}` has no step `{step}`; its steps are {known}")]
    NoSuchStep {
        /// The job.
        job: String,
        /// The step asked for.
        step: String,
        /// Every step.
        known: String,
    },
    /// The selection leaves nothing to run.
    #[error("no step of the job `{job}` is of the kinds and names asked for")]
    NoStepLeft {
        /// The job.
        job: String,
    },
    /// A preset that does not exist.
    #[error("there is no preset `{name}`; the presets are {known}")]
    NoSuchPreset {
        /// The name asked for.
        name: String,
        /// Every preset.
        known: String,
    },
}

/// The end of a message about an unknown word.
pub fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; expected one of {}", known.join(", ")),
    }
}
