//! Parses TOML into a [`Job`] and keeps the line of every entry.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::error::{JobError, suggestion};
use crate::{Job, KeyForm, Setting, SettingValue, Step, StepKind, Vocabulary};

/// Keys of the file itself.
const JOB_KEYS: [&str; 4] = ["name", "description", "defaults", "step"];

/// Keys of a step that are not flags.
const STEP_KEYS: [&str; 3] = ["name", "kind", TOGETHER];

/// Runs a step at the same time as the previous one.
const TOGETHER: &str = "with-previous";

type Entry<'table, 'text> = (&'table Spanned<DeString<'text>>, &'table Spanned<DeValue<'text>>);

pub fn parse(source: &str, text: &str, vocabulary: &Vocabulary) -> Result<Job, JobError> {
    let reader = Reader {
        source,
        text,
        vocabulary,
    };
    let document = DeTable::parse(text).map_err(|error| JobError::Syntax {
        file: source.to_owned(),
        line: reader.line_at(error.span().map_or(0, |span| span.start)),
        problem: error.message().to_owned(),
    })?;
    reader.job(document.get_ref())
}

struct Reader<'job> {
    source: &'job str,
    text: &'job str,
    vocabulary: &'job Vocabulary,
}

/// General defaults, for every kind that knows the key, and the defaults of each kind.
struct Defaults {
    general: Vec<Setting>,
    of_kind: Vec<(String, Vec<Setting>)>,
}

impl Reader<'_> {
    fn job(&self, document: &DeTable<'_>) -> Result<Job, JobError> {
        let mut job = Job {
            source: self.source.to_owned(),
            name: String::new(),
            description: String::new(),
            steps: Vec::new(),
        };
        let mut defaults = Defaults {
            general: Vec::new(),
            of_kind: Vec::new(),
        };
        let mut steps = None;
        for (key, value) in in_order(document) {
            match key.get_ref().as_ref() {
                "name" => job.name = self.string(key, value)?,
                "description" => job.description = self.string(key, value)?,
                "defaults" => defaults = self.defaults(self.table(key, value)?)?,
                "step" => steps = Some((key, value)),
                _ => return Err(self.unknown_key(key, "a job", &JOB_KEYS)),
            }
        }
        if let Some((key, value)) = steps {
            let array = value
                .get_ref()
                .as_array()
                .ok_or_else(|| self.form(key, value, "one [[step]] for each step"))?;
            for step in array {
                let step = self.step(step, &defaults, job.steps.last())?;
                self.check_name(&job, &step)?;
                job.steps.push(step);
            }
        }
        if job.name.is_empty() {
            return Err(self.missing(1, "the job", "name", "write name = \"...\" at the top"));
        }
        if job.steps.is_empty() {
            let hint = "write [[step]] and its kind, such as kind = \"file\"";
            return Err(self.missing(1, "the job", "step", hint));
        }
        Ok(job)
    }

    fn defaults(&self, table: &DeTable<'_>) -> Result<Defaults, JobError> {
        let mut defaults = Defaults {
            general: Vec::new(),
            of_kind: Vec::new(),
        };
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            if let Some(of_kind) = value.get_ref().as_table() {
                let kind = self.kind(name, key.span().start)?;
                let settings = in_order(of_kind)
                    .into_iter()
                    .map(|entry| self.setting(entry, kind, &format!("defaults of kind {name}")))
                    .collect::<Result<_, _>>()?;
                defaults.of_kind.push((name.to_owned(), settings));
                continue;
            }
            let knowing = self.vocabulary.kinds.iter().find(|kind| kind.key(name).is_some());
            match knowing {
                Some(kind) => defaults
                    .general
                    .push(self.setting((key, value), kind, "defaults")?),
                None => {
                    let mut known: Vec<&str> = self
                        .vocabulary
                        .kinds
                        .iter()
                        .flat_map(StepKind::key_names)
                        .collect();
                    known.sort_unstable();
                    known.dedup();
                    return Err(self.unknown_key(key, "any kind of step", &known));
                }
            }
        }
        Ok(defaults)
    }

    fn step(
        &self,
        value: &Spanned<DeValue<'_>>,
        defaults: &Defaults,
        previous: Option<&Step>,
    ) -> Result<Step, JobError> {
        let line = self.line_at(value.span().start);
        let Some(table) = value.get_ref().as_table() else {
            return Err(JobError::Form {
                file: self.source.to_owned(),
                line,
                key: "step".to_owned(),
                expected: "one [[step]] for each step",
                found: described(value.get_ref()),
            });
        };
        let (Some(kind_name), name) = (self.entry(table, "kind")?, self.entry(table, "name")?) else {
            let hint = "write kind = \"file\", for example";
            return Err(self.missing(line, "the step", "kind", hint));
        };
        let kind = self.kind(&kind_name.0, kind_name.1)?;
        let place = format!("kind {}", kind.name);
        let mut settings = Vec::new();
        for (key, value) in in_order(table) {
            if !STEP_KEYS.contains(&key.get_ref().as_ref()) {
                settings.push(self.setting((key, value), kind, &place)?);
            }
        }
        let of_kind = defaults.of_kind.iter().find(|(name, _)| *name == kind.name);
        let shared = of_kind
            .into_iter()
            .flat_map(|(_, settings)| settings)
            .chain(&defaults.general);
        for setting in shared {
            let is_set = settings.iter().any(|own: &Setting| own.key == setting.key);
            if !is_set && kind.key(&setting.key).is_some() {
                settings.push(setting.clone());
            }
        }
        settings.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Step {
            name: name.map_or_else(|| kind.name.clone(), |(name, _)| name),
            kind: kind.name.clone(),
            line,
            group: self.group(table, previous)?,
            settings,
        })
    }

    /// The group number of a step: steps of one group run together.
    fn group(&self, table: &DeTable<'_>, previous: Option<&Step>) -> Result<usize, JobError> {
        let Some((key, value)) = table.get_key_value(TOGETHER) else {
            return Ok(previous.map_or(0, |step| step.group + 1));
        };
        match (value.get_ref(), previous) {
            (DeValue::Boolean(false), _) => Ok(previous.map_or(0, |step| step.group + 1)),
            (DeValue::Boolean(true), Some(previous)) => Ok(previous.group),
            (DeValue::Boolean(true), None) => Err(self.form(key, value, "another step before this one")),
            _ => Err(self.form(key, value, "true or false")),
        }
    }

    fn setting(
        &self,
        (key, value): Entry<'_, '_>,
        kind: &StepKind,
        place: &str,
    ) -> Result<Setting, JobError> {
        let name = key.get_ref().as_ref();
        let Some(known) = kind.key(name) else {
            return Err(self.unknown_key(key, place, &kind.key_names()));
        };
        let value = match (known.form, value.get_ref()) {
            (KeyForm::Switch, DeValue::Boolean(given)) => SettingValue::Switch(*given),
            (KeyForm::Switch, _) => return Err(self.form(key, value, "true or false")),
            (_, DeValue::Array(entries)) => SettingValue::Texts(
                entries
                    .iter()
                    .map(|entry| {
                        scalar(entry.get_ref())
                            .ok_or_else(|| self.form(key, entry, "a list of texts and numbers"))
                    })
                    .collect::<Result<_, _>>()?,
            ),
            (_, scalar_value) => match scalar(scalar_value) {
                Some(text) => SettingValue::Texts(vec![text]),
                None => return Err(self.form(key, value, "a text or a number")),
            },
        };
        Ok(Setting {
            key: name.to_owned(),
            value,
            line: self.line_at(key.span().start),
        })
    }

    fn check_name(&self, job: &Job, step: &Step) -> Result<(), JobError> {
        match job.steps.iter().find(|other| other.name == step.name) {
            Some(first) => Err(JobError::SameName {
                file: self.source.to_owned(),
                line: step.line,
                step: step.name.clone(),
                first: first.line,
            }),
            None => Ok(()),
        }
    }

    /// A text entry of a table and its byte offset.
    fn entry(&self, table: &DeTable<'_>, name: &str) -> Result<Option<(String, usize)>, JobError> {
        match table.get_key_value(name) {
            Some((key, value)) => Ok(Some((self.string(key, value)?, value.span().start))),
            None => Ok(None),
        }
    }

    fn kind(&self, name: &str, at: usize) -> Result<&StepKind, JobError> {
        let names = self.vocabulary.kind_names();
        self.vocabulary.kind(name).ok_or_else(|| JobError::UnknownKind {
            file: self.source.to_owned(),
            line: self.line_at(at),
            kind: name.to_owned(),
            hint: suggestion(name, &names),
        })
    }

    fn string(&self, key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) -> Result<String, JobError> {
        let text = value.get_ref().as_str();
        text.map(str::to_owned)
            .ok_or_else(|| self.form(key, value, "a text in quotes"))
    }

    fn table<'table, 'text>(
        &self,
        key: &Spanned<DeString<'_>>,
        value: &'table Spanned<DeValue<'text>>,
    ) -> Result<&'table DeTable<'text>, JobError> {
        value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.form(key, value, "a table"))
    }

    fn form(
        &self,
        key: &Spanned<DeString<'_>>,
        value: &Spanned<DeValue<'_>>,
        expected: &'static str,
    ) -> JobError {
        JobError::Form {
            file: self.source.to_owned(),
            line: self.line_at(value.span().start),
            key: key.get_ref().as_ref().to_owned(),
            expected,
            found: described(value.get_ref()),
        }
    }

    fn unknown_key(&self, key: &Spanned<DeString<'_>>, place: &str, known: &[&str]) -> JobError {
        let name = key.get_ref().as_ref();
        JobError::UnknownKey {
            file: self.source.to_owned(),
            line: self.line_at(key.span().start),
            key: name.to_owned(),
            place: place.to_owned(),
            hint: suggestion(name, known),
        }
    }

    fn missing(&self, line: usize, place: &str, key: &'static str, hint: &'static str) -> JobError {
        JobError::Missing {
            file: self.source.to_owned(),
            line,
            place: place.to_owned(),
            key,
            hint,
        }
    }

    /// The line of a byte offset in the text, counted from 1.
    fn line_at(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or(self.text);
        before.matches('\n').count() + 1
    }
}

/// The entries of a table in file order, so that the first mistake is reported first.
fn in_order<'table, 'text>(table: &'table DeTable<'text>) -> Vec<Entry<'table, 'text>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

fn described(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text \"{text}\""),
        other => format!("of type {}", other.type_str()),
    }
}

#[cfg(test)]
mod tests;
