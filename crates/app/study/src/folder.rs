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
use rustix::process::{getegid, geteuid};
use serde::{Deserialize, Serialize};

use crate::cell::{Block, Cell};
use crate::claim::claim;
pub use crate::clean::clean;
use crate::gate::Rule;
use crate::plan::Binaries;

pub(crate) const PLAN: &str = "plan.toml";
pub(crate) const CELLS: &str = "cells.jsonl";
pub(crate) const STATE: &str = "environment.json";
pub(crate) const LOCK: &str = "lock";

/// Time to wait for the lock: a child that a killed study was just starting holds it until it executes its program.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The member of a record's workload that says to which cell it belongs.
pub const FIELD: &str = "study";

/// How cells are measured. Numbers of different methods are not compared: it is raised with each change of what a cell reaches by itself. 1: the
/// dirty limit of a card holds for BTRFS, and free memory is used before each cell. 2: that of an image holds too, and all threads' data count. 3: the
/// memory stays in use between cells.
pub const METHOD: u32 = 3;

/// Conditions shared by all records of a study.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct State {
    /// Version of the program.
    pub tool_version: String,
    /// Kernel name and release.
    pub kernel: String,
    /// [`METHOD`] of the program that began the study.
    #[serde(default)]
    pub method: u32,
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
    lock: File,
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
        // Other users who may write to it could put links where root mounts, unmounts and removes. The user's own group
        // often has no other members.
        let of_others = match owner.gid() == getegid().as_raw() {
            true => 0o002,
            false => 0o022,
        };
        if owner.uid() != geteuid().as_raw() || owner.mode() & of_others != 0 {
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
                Ok(()) => return Ok(Self { path, lock }),
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

    /// Claims the folder for a study that is to begin.
    ///
    /// # Errors
    /// If it has something that a study would replace or remove.
    pub fn claim(&self) -> Result<()> {
        claim(&self.path, &self.lock)
    }

    /// Begins a study: writes its plan and its state.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn begin(&self, plan: &str, state: &State) -> Result<()> {
        let write = |name: &str, content: &[u8]| {
            let path = self.path.join(name);
            outfile::write(&path, content).with_context(|| format!("{} can't be written", path.display()))
        };
        write(STATE, &serde_json::to_vec_pretty(state)?)?;
        write(PLAN, plan.as_bytes())
    }

    /// Adds the records of one block and round in one write, and syncs them. After an error, none of them is stored.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn append(&self, records: &[RunRecord]) -> Result<()> {
        let path = self.path.join(CELLS);
        let text = lines_of(records)?;
        let mut file = outfile::append(&path, outfile::Readers::Umask)?;
        let end = file.metadata()?.len();
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        written
            .inspect_err(|_| {
                // Otherwise the next records would continue half a line. A study that is resumed removes it, too.
                let _ = file.set_len(end);
            })
            .with_context(|| format!("{} can't be written", path.display()))
    }

    /// Replaces the records of blocks and rounds that were measured again, at once. If more of the new ones failed, the
    /// old ones stay, and are returned.
    ///
    /// # Errors
    /// If they can't be written; the old ones stay.
    pub fn replace(&self, records: &[RunRecord]) -> Result<Option<Vec<RunRecord>>> {
        let path = self.path.join(CELLS);
        let keys = blocks_of(records);
        let (lines, _) = whole_lines(&path)?;
        let (old, mut kept): (Vec<_>, Vec<_>) = lines
            .into_iter()
            .partition(|(_, record)| block_of(record).is_some_and(|key| keys.contains(&key)));
        let old: Vec<RunRecord> = old.into_iter().map(|(_, record)| record).collect();
        let unmeasured = |records: &[RunRecord]| {
            let places = records.iter().filter_map(place);
            places
                .filter(|place| place.failed.is_some() || place.left_out.is_some())
                .count()
        };
        if unmeasured(records) > unmeasured(&old) && !old.is_empty() {
            return Ok(Some(old));
        }
        let kept: String = kept.drain(..).map(|(line, _)| line + "\n").collect();
        outfile::write(&path, (kept + &lines_of(records)?).as_bytes())?;
        Ok(None)
    }

    /// The blocks and rounds that are to be measured again, as a cell of them failed or was left out; their records stay
    /// until then. Records that a killed study did not finish are removed.
    ///
    /// # Errors
    /// If the file can't be read or replaced.
    pub fn unfinished(&self, blocks: &[Block]) -> Result<BTreeSet<BlockRound>> {
        let path = self.path.join(CELLS);
        let (lines, is_cut) = whole_lines(&path)?;
        let (mut keys, mut again) = (Vec::new(), BTreeSet::new());
        let mut found: BTreeMap<BlockRound, usize> = BTreeMap::new();
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
                again.insert(key);
            }
            *found.entry(key).or_default() += 1;
            keys.push(key);
        }
        let is_whole = |key: &BlockRound| blocks[key.0].order(key.1).len() == found[key];
        if is_cut || !keys.iter().all(is_whole) {
            let kept = lines.iter().zip(&keys).filter(|(_, key)| is_whole(key));
            let kept: String = kept.map(|((line, _), _)| format!("{line}\n")).collect();
            outfile::write(&path, kept.as_bytes())?;
        }
        again.retain(is_whole);
        Ok(again)
    }
}

/// The number of a block, and a round: their records are stored together or not at all.
pub(crate) type BlockRound = (usize, u32);

/// The block and round of a record; `None` if it belongs to no study.
pub(crate) fn block_of(record: &RunRecord) -> Option<BlockRound> {
    place(record).map(|place| (place.block, record.round))
}

/// The blocks and rounds of records.
pub(crate) fn blocks_of(records: &[RunRecord]) -> BTreeSet<BlockRound> {
    records.iter().filter_map(block_of).collect()
}

/// The lines of records in a file.
fn lines_of(records: &[RunRecord]) -> Result<String> {
    let mut text = String::new();
    for record in records {
        text += &serde_json::to_string(record)?;
        text.push('\n');
    }
    Ok(text)
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
/// If a line is no record of a cell.
pub fn records(folder: &Path) -> Result<Vec<RunRecord>> {
    let path = folder.join(CELLS);
    let (lines, _) = whole_lines(&path)?;
    let of_cell = |(number, (_, record)): (usize, (String, RunRecord))| match place(&record) {
        Some(_) => Ok(record),
        None => bail!(
            "{}:{number}: expected the record of a cell, with `workload.{FIELD}`, found another; remove the line",
            path.display()
        ),
    };
    (1..).zip(lines).map(of_cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_another_schema_are_refused_and_half_a_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CELLS);
        let line = |schema: &str| {
            let mut record = record(0, 0, None);
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

    fn record(block: usize, round: u32, failed: Option<&str>) -> RunRecord {
        let mut record = crate::measure::record_of(&Cell(crate::plan::Values::new()), round, 100);
        record.workload[FIELD]["block"] = block.into();
        if let Some(reason) = failed {
            record.workload[FIELD]["failed"] = reason.into();
        }
        record
    }

    #[test]
    fn a_line_that_is_no_cell_is_named_and_never_left_out_in_silence() {
        let folder = tempfile::tempdir().unwrap();
        let mut other = record(0, 0, None);
        other.workload[FIELD]["block"] = "x".into();
        let lines = lines_of(&[record(0, 0, None), other]).unwrap();
        fs::write(folder.path().join(CELLS), lines).unwrap();
        let error = records(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("cells.jsonl:2: expected the record of a cell"),
            "{error}"
        );
    }

    #[test]
    fn records_are_replaced_by_better_ones_and_never_lost() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        let stored = || records(place.path()).unwrap();
        let old = [record(0, 0, None), record(0, 0, Some("no"))];
        folder.append(&old).unwrap();
        folder.append(&[record(1, 0, None)]).unwrap();
        let worse = [record(0, 0, Some("no")), record(0, 0, Some("no"))];
        assert_eq!(folder.replace(&worse).unwrap().unwrap(), old);
        assert_eq!(stored(), [old[0].clone(), old[1].clone(), record(1, 0, None)]);
        let better = [record(0, 0, None), record(0, 0, None)];
        assert_eq!(folder.replace(&better).unwrap(), None);
        assert_eq!(
            stored(),
            [record(1, 0, None), better[0].clone(), better[1].clone()]
        );
    }
}
