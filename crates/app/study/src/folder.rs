//! The folder of a study: its plan, its records, and what it has mounted and attached.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use results::RunRecord;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::cell::{Block, Cell};
pub use crate::clean::clean;
use crate::gate::Rule;
use crate::plan::Binaries;

const PLAN: &str = "plan.toml";
const CELLS: &str = "cells.jsonl";
const STATE: &str = "environment.json";
const LOCK: &str = "lock";

/// Time to wait for the lock: a child that a killed study was just starting holds it until it executes its program.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The member of a record's workload that says to which cell it belongs.
pub const FIELD: &str = "study";

/// Conditions shared by all records of a study.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct State {
    /// Version of the program.
    pub tool_version: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Speed of the card.
    pub time_scale: f64,
    /// Share of MAX that the speed was fitted to, and the one then measured.
    pub calibrated: Option<[f64; 2]>,
    /// The device or folder measured, so that no other is measured or overwritten under the same name.
    pub device: String,
    /// Rounds.
    pub rounds: u32,
    /// Size of the workload's file, if it is not that of the plan.
    pub size: Option<String>,
    /// Names of the exhibits; empty for all.
    pub only: Vec<String>,
    /// Programs under test; empty for the one of `tool_version`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binaries: Binaries,
    /// Fingerprints of the programs under test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<String>,
    /// Decision that ends the rounds between programs under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Rule>,
    /// Its records are those of a race of settings, whose later rounds depend on the earlier ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_race: bool,
}

/// The place of a record in a study.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Number of the block.
    pub block: usize,
    /// The cell.
    pub cell: Cell,
    /// Why there is no measurement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// Why the cell was not tried: this machine lacks something that the rest of the study does without.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub left_out: Option<String>,
    /// The virtual machine, if it did not run on this one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub machine: Option<String>,
}

/// The place of a record; `None` if it belongs to no study.
#[must_use]
pub fn place(record: &RunRecord) -> Option<Place> {
    serde_json::from_value(record.workload.get(FIELD)?.clone()).ok()
}

/// Changes the place of a record, if it has one.
pub(crate) fn set_place(record: &mut RunRecord, change: impl FnOnce(&mut Place)) {
    let Some(mut place) = place(record) else {
        return;
    };
    change(&mut place);
    if let Some(workload) = record.workload.as_object_mut() {
        let place = serde_json::to_value(&place).unwrap_or_default();
        workload.insert(FIELD.to_owned(), place);
    }
}

/// An opened folder; no other study runs in it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens a folder, which is made if missing.
    ///
    /// # Errors
    /// If another study runs in it.
    pub fn open(path: &Path) -> Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o755)
            .create(path)
            .with_context(|| format!("{} can't be made", path.display()))?;
        let path = path
            .canonicalize()
            .with_context(|| format!("{} can't be used", path.display()))?;
        let owner = fs::metadata(&path)?;
        // Other users who may write to it could put links where root mounts, unmounts and removes.
        if owner.uid() != geteuid().as_raw() || owner.mode() & 0o002 != 0 {
            bail!(
                "{}: user {} owns it and its mode is {:03o}; expected a folder of user {} that others can't change; \
                 name a new one",
                path.display(),
                owner.uid(),
                owner.mode() & 0o777,
                geteuid().as_raw()
            );
        }
        let name = path.join(LOCK);
        let lock = outfile::append(&name, outfile::Readers::Umask)
            .with_context(|| format!("{} can't be opened", name.display()))?;
        let until = Instant::now() + LOCK_PATIENCE;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { path, _lock: lock }),
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
                Err(Errno::WOULDBLOCK) => bail!("{}: another study runs in this folder", path.display()),
                Err(error) => {
                    return Err(error).with_context(|| format!("{} can't be locked", name.display()));
                }
            }
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to begin a study where there is one.
    ///
    /// # Errors
    /// If there is one.
    pub fn refuse_second(&self) -> Result<()> {
        if self.path.join(PLAN).exists() {
            bail!(
                "{} holds a study already; `tidegate study resume` continues it, or name another folder",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Begins a study: writes its plan and its state.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn begin(&self, plan: &str, state: &State) -> Result<()> {
        outfile::write(&self.path.join(STATE), &serde_json::to_vec_pretty(state)?)?;
        outfile::write(&self.path.join(PLAN), plan.as_bytes())?;
        Ok(())
    }

    /// Adds the records of one block and round in one write, and syncs them.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn append(&self, records: &[RunRecord]) -> Result<()> {
        let path = self.path.join(CELLS);
        let mut text = String::new();
        for record in records {
            text += &serde_json::to_string(record)?;
            text.push('\n');
        }
        let mut file = outfile::append(&path, outfile::Readers::Umask)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(|| format!("{} can't be written", path.display()))
    }

    /// Removes records of blocks that are to be measured again: those that a killed study did not finish, and those with a
    /// cell that failed or was left out.
    ///
    /// # Errors
    /// If the file can't be read or replaced.
    pub fn drop_unfinished(&self, blocks: &[Block]) -> Result<()> {
        let path = self.path.join(CELLS);
        let (lines, is_cut) = whole_lines(&path)?;
        let (mut places, mut failed) = (Vec::new(), BTreeSet::new());
        let mut found: BTreeMap<(usize, u32), usize> = BTreeMap::new();
        for (number, (_, record)) in (1..).zip(&lines) {
            let place = place(record)
                .with_context(|| format!("{}:{number}: it is no cell of a study", path.display()))?;
            let block = blocks.get(place.block);
            if !block.is_some_and(|block| block.cells.contains(&place.cell)) {
                bail!(
                    "{}:{number}: its cell is not in {}, which was changed after the study began; begin another study",
                    path.display(),
                    self.path.join(PLAN).display()
                );
            }
            let key = (place.block, record.round);
            if place.failed.is_some() || place.left_out.is_some() {
                failed.insert(key);
            }
            *found.entry(key).or_default() += 1;
            places.push(key);
        }
        let is_whole =
            |key: &(usize, u32)| blocks[key.0].order(key.1).len() == found[key] && !failed.contains(key);
        if is_cut || !places.iter().all(is_whole) {
            let kept = lines.iter().zip(&places).filter(|(_, key)| is_whole(key));
            let kept: String = kept.map(|((line, _), _)| format!("{line}\n")).collect();
            outfile::write(&path, kept.as_bytes())?;
        }
        Ok(())
    }
}

/// The records of a file with their lines, and whether a line at its end is not finished: a study is just writing it,
/// or was killed then.
fn whole_lines(path: &Path) -> Result<(Vec<(String, RunRecord)>, bool)> {
    let raw = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((Vec::new(), false)),
        raw => raw.with_context(|| format!("{} can't be read", path.display()))?,
    };
    let whole = raw
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let text = str::from_utf8(&raw[..whole]).with_context(|| format!("{} is not UTF-8", path.display()))?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let record: RunRecord =
            serde_json::from_str(line).with_context(|| format!("{}:{number}", path.display()))?;
        if record.schema != results::SCHEMA {
            bail!(
                "{}:{number}: schema `{}`, expected `{}`; use the program that measured it",
                path.display(),
                record.schema,
                results::SCHEMA
            );
        }
        lines.push((line.to_owned(), record));
    }
    Ok((lines, whole < raw.len()))
}

/// The plan of a study.
///
/// # Errors
/// If the folder holds none.
pub fn stored_plan(folder: &Path) -> Result<(String, State)> {
    let path = folder.join(PLAN);
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "{} holds no study ({} can't be read)",
            folder.display(),
            path.display()
        )
    })?;
    let path = folder.join(STATE);
    let raw = fs::read(&path).with_context(|| format!("{} can't be read", path.display()))?;
    let state = serde_json::from_slice(&raw).with_context(|| format!("{} is damaged", path.display()))?;
    Ok((text, state))
}

/// The records of a study; none if it has not measured anything yet.
///
/// # Errors
/// If a line is no record.
pub fn records(folder: &Path) -> Result<Vec<RunRecord>> {
    let (lines, _) = whole_lines(&folder.join(CELLS))?;
    Ok(lines.into_iter().map(|(_, record)| record).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_schema_are_refused_and_half_a_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CELLS);
        let line = |schema: &str| {
            let mut record = crate::measure::empty_record();
            record.schema = schema.to_owned();
            serde_json::to_string(&record).unwrap()
        };
        let good = line(results::SCHEMA);
        fs::write(&path, format!("{good}\n{}", &good[..20])).unwrap();
        assert_eq!(records(folder.path()).unwrap().len(), 1);
        fs::write(&path, format!("{good}\n{}\n", line("tidegate.run/99"))).unwrap();
        let error = records(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("cells.jsonl:2: schema `tidegate.run/99`"),
            "{error}"
        );
    }
}
