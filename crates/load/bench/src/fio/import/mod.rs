//! fio job files as jobs: each section becomes a step of kind `file`.

mod step;
mod way;

use self::step::StepMaker;
use super::error::FioError;
use super::ini;
use super::options::Options;
use crate::job::{Job, Step};

/// A fio job file as a job of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// One step for each section, in their order.
    pub job: Job,
    /// The directory that the sections name, when it is one for all.
    pub directory: Option<String>,
    /// `randseed` of the sections.
    pub seed: Option<u64>,
    /// What became of each option, by section and line.
    pub notes: Vec<Note>,
}

/// What became of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The section that it counts for.
    pub section: String,
    /// Where it stands; the section's line when it is a default of fio that is not written down.
    pub line: usize,
    /// The option.
    pub key: String,
    /// Its value, when it is written down with one.
    pub value: Option<String>,
    /// What became of it.
    pub treatment: Treatment,
    /// In what it differs, or why it is ignored.
    pub text: String,
}

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Means here what it means in fio.
    Taken,
    /// Means nearly the same.
    Approximated,
    /// Changes nothing that is measured.
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

/// Reads a fio job file. `file` is how messages call it.
///
/// # Errors
/// [`FioError`], naming section, key and line, and what would be needed.
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
        // fio starts all sections at once; a stonewall waits for those before it.
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

/// fio allows several sections of one name; steps have one each.
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
