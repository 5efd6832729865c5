//! The load of a race: a part of a plan, a job or a trace.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use toml::Table;

use crate::words::{JOB, REPLAY};

/// The load of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A workload or another part of a plan: the file's name and its text.
    Plan(String, String),
    /// A job of `tidegate bench run`: an absolute path, or the name of one that is part of the program.
    Job(String),
    /// A trace of `tidegate replay`: an absolute path.
    Trace(String),
}

impl Source {
    /// The load in a file. TOML with steps is a job; what is no TOML is a trace or a job of fio if the caller, who knows
    /// those formats, takes it for one.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn of(
        path: &Path,
        is_fio_job: &dyn Fn(&str) -> bool,
        is_trace: &dyn Fn(&Path) -> bool,
    ) -> Result<Self> {
        let raw = std::fs::read(path).with_context(|| format!("{} can't be read", path.display()))?;
        let whole = path.canonicalize()?.into_os_string().into_string();
        let whole = whole.map_err(|_| anyhow!("{}: a path that is not UTF-8", path.display()))?;
        let Ok(text) = String::from_utf8(raw) else {
            return Ok(Self::Trace(whole));
        };
        Ok(match text.parse::<Table>() {
            Ok(table) if table.contains_key("step") => Self::Job(whole),
            Err(_) if is_trace(path) => Self::Trace(whole),
            Err(_) if is_fio_job(&text) => Self::Job(whole),
            _ => Self::Plan(path.display().to_string(), text),
        })
    }

    /// The name for messages, and the part of a plan.
    pub(super) fn part(&self) -> (String, String) {
        let (kind, file) = match self {
            Self::Plan(name, text) => return (name.clone(), text.clone()),
            Self::Job(file) => (JOB, file),
            Self::Trace(file) => (REPLAY, file),
        };
        let text = format!("[workload]\nkind = \"{kind}\"\nfile = {}\n", quoted(file));
        (file.clone(), text)
    }
}

/// A string in TOML's form.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|character| match character {
        '"' | '\\' => format!("\\{character}"),
        _ if character.is_control() => format!("\\u{:04X}", u32::from(character)),
        _ => character.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_a_job_and_a_trace_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let of = |content: &[u8]| {
            let path = folder.path().join("load \"1\"");
            std::fs::write(&path, content).unwrap();
            Source::of(&path, &|text| text.starts_with("[global]"), &|_| {
                content.starts_with(b"openat(")
            })
            .unwrap()
        };
        assert!(matches!(of(b"[workload]\nsize = \"1m\"\n"), Source::Plan(..)));
        assert!(matches!(of(b"[[step]]\nkind = \"file\"\n"), Source::Job(_)));
        assert!(matches!(of(b"[global]\nrw=write\n"), Source::Job(_)));
        assert!(matches!(of(b"openat(AT_FDCWD\n"), Source::Trace(_)));
        assert!(matches!(of(b"PAR1\xff"), Source::Trace(_)));
        // A mistake in a plan is reported as one.
        assert!(matches!(of(b"[workload\n"), Source::Plan(..)));
        let (_, part) = of(b"PAR1\xff").part();
        let table: Table = part.parse().unwrap();
        let file = table["workload"]["file"].as_str().unwrap();
        assert!(file.ends_with("load \"1\""), "{file}");
    }
}
