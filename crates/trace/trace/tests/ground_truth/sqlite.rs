//! A database with a rollback journal that each commit deletes: the blocks of every deleted journal must have its name
//! and its generation.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use results::block_trace::{BlockType, Operation, Request};
use rusqlite::Connection;

use crate::load::generation;
use crate::{Outcome, failed};

const TRANSACTIONS: u32 = 12;
pub const JOURNAL: &str = "/test.db-journal";
/// A journal contains at least a header of one sector and one page.
const LEAST_BYTES: u64 = 4096;

/// The process that writes.
pub fn work(folder: &Path, ledger: &Path) -> Outcome<()> {
    transactions(folder, ledger).map_err(|error| failed("SQLite", error))
}

fn transactions(folder: &Path, ledger: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut ledger = OpenOptions::new().append(true).open(ledger)?;
    let connection = Connection::open(folder.join("test.db"))?;
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")?;
    for number in 0..TRANSACTIONS {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        connection.execute("INSERT INTO rows (text) VALUES (?1)", [format!("row {number}")])?;
        let journal = File::open(folder.join(JOURNAL.trim_start_matches('/')))?;
        let (inode, generation) = (journal.metadata()?.ino(), generation(&journal).unwrap_or(0));
        connection.execute_batch("COMMIT")?;
        writeln!(ledger, "{inode} {generation}")?;
    }
    Ok(())
}

/// Inode and generation of every journal.
pub fn read_ledger(path: &Path) -> Outcome<Vec<(u64, u32)>> {
    let text = std::fs::read_to_string(path).map_err(|error| failed("ledger", error))?;
    let entry = |line: &str| {
        let (inode, generation) = line.split_once(' ')?;
        Some((inode.parse().ok()?, generation.parse().ok()?))
    };
    text.lines()
        .map(|line| entry(line).ok_or_else(|| format!("ledger: {line:?} is no entry")))
        .collect()
}

/// Checks that every journal of the ledger was written under its name.
pub fn judge(requests: &[Request], ledger: &Path, has_generations: bool) -> Outcome<String> {
    let mut journals: BTreeMap<(u64, u32), u64> =
        read_ledger(ledger)?.into_iter().map(|file| (file, 0)).collect();
    let writes = requests
        .iter()
        .filter(|request| request.operation == Operation::Write);
    for run in writes.flat_map(|request| &request.runs) {
        let is_content = matches!(run.block_type, BlockType::Data)
            || (run.block_type == BlockType::Journal && run.detail.as_deref() == Some("home: data"));
        if !is_content {
            continue;
        }
        let Some(file) = run.file else {
            return Err(format!("data without a file: {run:?}"));
        };
        let generation = if has_generations { file.generation } else { 0 };
        // Without generations, an inode may have belonged to one of the other files before.
        match (journals.get_mut(&(file.inode, generation)), run.path.as_deref()) {
            (Some(bytes), Some(JOURNAL)) => *bytes += run.bytes,
            (Some(_), _) if has_generations => return Err(format!("a journal under another name: {run:?}")),
            _ => {}
        }
    }
    match journals.iter().find(|(_, bytes)| **bytes < LEAST_BYTES) {
        Some((journal, bytes)) => Err(format!(
            "of journal {journal:?} only {bytes} bytes are in the trace"
        )),
        None => Ok(format!("{} deleted journals of SQLite named", journals.len())),
    }
}
