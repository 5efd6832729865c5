//! Errors of jobs: always with the file, and with line and key if there is one.

use std::io;

use results::words::nearest;
use thiserror::Error;

/// The error of a job. Nothing was touched.
#[derive(Debug, Error)]
pub enum JobError {
    /// The file can't be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The text is not valid TOML.
    #[error("{file}:{line}: no TOML: {problem}")]
    Syntax {
        /// File or preset.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The parser's message.
        problem: String,
    },
    /// An unknown key.
    #[error("{file}:{line}: `{key}` is no key of {place}{hint}")]
    UnknownKey {
        /// File or preset.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The key found.
        key: String,
        /// The table that the key is in.
        place: String,
        /// The closest known key, or all of them.
        hint: String,
    },
    /// An unknown kind of step.
    #[error("{file}:{line}: `{kind}` is no kind of step{hint}")]
    UnknownKind {
        /// File or preset.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The kind found.
        kind: String,
        /// The closest known kind, or all of them.
        hint: String,
    },
    /// A value of the wrong type.
    #[error("{file}:{line}: `{key}` is {found}, expected {expected}")]
    Form {
        /// File or preset.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// The expected type.
        expected: &'static str,
        /// The value found.
        found: String,
    },
    /// A value that the workload rejects.
    #[error("{file}:{line}: step `{step}`: {}{problem}", key.as_ref().map_or(String::new(), |key| format!("`{key}`: ")))]
    Value {
        /// File or preset.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The step.
        step: String,
        /// The key, if a single one is at fault.
        key: Option<String>,
        /// The problem.
        problem: String,
    },
    /// A required entry is missing.
    #[error("{file}:{line}: {place} has no `{key}`; {hint}")]
    Missing {
        /// File or preset.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The table that lacks it.
        place: String,
        /// The key.
        key: &'static str,
        /// An example of the entry.
        hint: &'static str,
    },
    /// Two steps have the same name.
    #[error(
        "{file}:{line}: a step called `{step}` is in line {first} already; give one of them another `name`"
    )]
    SameName {
        /// File or preset.
        file: String,
        /// Line of the second step, counted from 1.
        line: usize,
        /// The name.
        step: String,
        /// Line of the first step.
        first: usize,
    },
    /// A requested step does not exist in the job.
    #[error("the job `{job}` has no step `{step}`; its steps are {known}")]
    NoSuchStep {
        /// The job.
        job: String,
        /// The requested step.
        step: String,
        /// All steps of the job.
        known: String,
    },
    /// The selection leaves no step to run.
    #[error("no step of the job `{job}` is of the kinds and names asked for")]
    NoStepLeft {
        /// The job.
        job: String,
    },
    /// A preset that does not exist.
    #[error("there is no preset `{name}`; the presets are {known}")]
    NoSuchPreset {
        /// The requested name.
        name: String,
        /// All presets.
        known: String,
    },
}

/// The suggestion at the end of a message about an unknown word.
pub fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(nearest) => format!("; did you mean `{nearest}`?"),
        None => format!("; expected one of {}", known.join(", ")),
    }
}
