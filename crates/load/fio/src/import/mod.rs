//! Imports fio job files as jobs: each section becomes a step of kind `file`.

mod step;
mod way;

use self::step::StepMaker;
use super::error::FioError;
use super::ini;
use super::options::Options;
use jobs::{Job, Step};

/// A fio job file, imported as a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// One step per section, in file order.
    pub job: Job,
    /// The directory named by the sections, if it is the same for all.
    pub directory: Option<String>,
    /// `randseed` of the sections.
    pub seed: Option<u64>,
    /// The treatment of each option, by section and line.
    pub notes: Vec<Note>,
}

/// The treatment of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The section that the option applies to.
    pub section: String,
    /// The option's line; the section's line for an implicit fio default.
    pub line: usize,
    /// The option.
    pub key: String,
    /// Its value, if the file gives one.
    pub value: Option<String>,
    /// The treatment.
    pub treatment: Treatment,
    /// The difference from fio, or the reason for ignoring the option.
    pub text: String,
}

/// How an option is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Means the same as in fio.
    Taken,
    /// Means nearly the same.
    Approximated,
    /// Does not affect the measurement.
    Ignored,
}

impl Treatment {
    /// One word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Approximated => "approximated",
            Self::Ignored => "ignored",
        }
    }
}

/// Parses a fio job file. `file` is its name in messages.
///
/// # Errors
/// [`FioError`] with section, key and line, and the missing feature.
pub fn import(file: &str, text: &str) -> Result<Imported, FioError> {
    let sections = ini::sections(file, text)?;
    let mut imported = Imported {
        job: Job {
            source: file.to_owned(),
            name: file.rsplit('/').next().unwrap_or(file).to_owned(),
            description: String::new(),
            steps: Vec::new(),
        },
        directory: None,
        seed: None,
        notes: Vec::new(),
    };
    let mut directories = Vec::new();
    let mut group = 0;
    for (number, section) in sections.iter().enumerate() {
        let options = Options::new(file, section);
        // fio starts all sections at once; a stonewall waits for the previous ones.
        if number > 0 && options.switch("stonewall", false)? {
            group += 1;
        }
        let mut step = StepMaker::new(&options);
        step.fill()?;
        directories.extend(step.directory.take());
        imported.seed = imported.seed.or(step.seed);
        let settings = step.finished();
        imported.job.steps.push(Step {
            name: free_name(&imported.job.steps, &section.name),
            kind: "file".to_owned(),
            line: section.line,
            group,
            settings,
        });
        imported.notes.extend(options.finish()?);
    }
    directories.dedup();
    if let [directory] = directories.as_slice() {
        imported.directory = Some(directory.clone());
    }
    Ok(imported)
}

/// Makes a step name unique: fio allows several sections of one name, a job does not.
fn free_name(steps: &[Step], name: &str) -> String {
    let is_free = |name: &str| steps.iter().all(|step| step.name != name);
    if is_free(name) {
        return name.to_owned();
    }
    (2_u32..)
        .map(|number| format!("{name}-{number}"))
        .find(|name| is_free(name))
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests;
