//! Jobs: several workloads as the steps of one run, described in TOML.
//!
//! A job file holds a name, defaults shared by steps, and the steps in order:
//!
//! ```toml
//! name = "two steps"
//!
//! [defaults.file]
//! record = "4k"
//! size = "64m"
//!
//! [[step]]
//! name = "rand-write"
//! kind = "file"
//! pattern = "random-write"
//! ```
//!
//! The keys of a step are the command-line flags of its kind, and its values are written as on the command line. This
//! crate does not know the flags: the caller that defines them passes their names as a [`Vocabulary`], and gets each
//! step back as [`Step::words`] for the same definition to parse. A flag therefore has one definition for the command
//! line, its help and job files. This crate does not run anything and does not judge values.
//!
//! Defaults directly under `[defaults]` apply to every step whose kind knows the key, those under `[defaults.KIND]`
//! to steps of that kind. A step's own key takes precedence over both, and the kind's defaults over the general ones.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod parse;
pub mod preset;
pub mod table;

pub use error::JobError;

/// A parsed job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name of the file or preset in messages.
    pub source: String,
    /// The job's own name.
    pub name: String,
    /// Its purpose, one paragraph; may be empty.
    pub description: String,
    /// At least one step; names are unique.
    pub steps: Vec<Step>,
}

/// One workload of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The name in tables and records.
    pub name: String,
    /// The workload: `file`, `sqlite` ...
    pub kind: String,
    /// Line in the file, counted from 1.
    pub line: usize,
    /// Consecutive steps with the same number run at the same time.
    pub group: usize,
    /// Keys and values including defaults, sorted by key.
    pub settings: Vec<Setting>,
}

/// One key of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag, without dashes.
    pub key: String,
    /// The value.
    pub value: SettingValue,
    /// Line in the file, counted from 1.
    pub line: usize,
}

/// The value of a key, as text in the notation of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A flag without a value: present or absent.
    Switch(bool),
    /// A flag that is repeated for each entry.
    Texts(Vec<String>),
}

/// The keys known to each kind of step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// The kinds; names are unique.
    pub kinds: Vec<StepKind>,
}

/// A kind of step and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepKind {
    /// The subcommand.
    pub name: String,
    /// Flags and positional arguments, other than the directory.
    pub keys: Vec<Key>,
}

/// One key of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The flag without dashes, or the name of a positional argument.
    pub name: String,
    /// Its form on the command line.
    pub form: KeyForm,
}

/// The form of a key on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// `--key`.
    Switch,
    /// `--key=value`.
    Value,
    /// `value`, in the order in which the kind lists such keys.
    Positional,
}

impl Vocabulary {
    /// Looks up a kind by name.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<&StepKind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }

    fn kind_names(&self) -> Vec<&str> {
        self.kinds.iter().map(|kind| kind.name.as_str()).collect()
    }
}

impl StepKind {
    /// Looks up a key by name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    fn key_names(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.name.as_str()).collect()
    }
}

impl Job {
    /// Parses a job. `source` is the text's name in messages: a file name or the name of a preset.
    ///
    /// # Errors
    /// [`JobError`] with source, line and key.
    pub fn parse(source: &str, text: &str, vocabulary: &Vocabulary) -> Result<Self, JobError> {
        parse::parse(source, text, vocabulary)
    }

    /// Keeps only the steps of these kinds (all if `kinds` is empty) and names (all if `names` is empty), in the
    /// order of the job.
    ///
    /// # Errors
    /// [`JobError::NoSuchStep`] for a name that the job does not have, [`JobError::NoStepLeft`] if no step is left.
    pub fn select(mut self, kinds: &[String], names: &[String]) -> Result<Self, JobError> {
        for name in names {
            if !self.steps.iter().any(|step| step.name == *name) {
                let known: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
                return Err(JobError::NoSuchStep {
                    job: self.name.clone(),
                    step: name.clone(),
                    known: known.join(", "),
                });
            }
        }
        self.steps.retain(|step| {
            (kinds.is_empty() || kinds.contains(&step.kind))
                && (names.is_empty() || names.contains(&step.name))
        });
        if self.steps.is_empty() {
            return Err(JobError::NoStepLeft { job: self.name });
        }
        Ok(self)
    }
}

impl Step {
    /// The step as command-line words: the kind, the directory, then its flags.
    #[must_use]
    pub fn words(&self, vocabulary: &Vocabulary, directory: &str) -> Vec<String> {
        let mut flags = Vec::new();
        let mut positional = Vec::new();
        let keys = vocabulary
            .kind(&self.kind)
            .map_or(&[][..], |kind| kind.keys.as_slice());
        for key in keys {
            let Some(setting) = self.settings.iter().find(|setting| setting.key == key.name) else {
                continue;
            };
            match (&setting.value, key.form) {
                (SettingValue::Switch(true), _) => flags.push(format!("--{}", key.name)),
                (SettingValue::Switch(false), _) => {}
                (SettingValue::Texts(texts), KeyForm::Positional) => positional.extend(texts.iter().cloned()),
                (SettingValue::Texts(texts), _) => {
                    flags.extend(texts.iter().map(|text| format!("--{}={text}", key.name)));
                }
            }
        }
        let mut words = vec![self.kind.clone()];
        words.append(&mut flags);
        words.push("--".to_owned());
        words.append(&mut positional);
        words.push(directory.to_owned());
        words
    }

    /// The step with a single setting, to find out which one a command line refuses.
    #[must_use]
    pub fn with_only(&self, key: &str) -> Self {
        let mut alone = self.clone();
        alone.settings.retain(|setting| setting.key == key);
        alone
    }

    /// The first value of a key, if it has one.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|setting| setting.key == key)?;
        match &setting.value {
            SettingValue::Texts(texts) => texts.first().map(String::as_str),
            SettingValue::Switch(_) => None,
        }
    }
}
