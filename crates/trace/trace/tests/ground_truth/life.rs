//! Checks creation and deletion events of files: for each removed file, its creation, the removal of its name, and its
//! deletion.
//!
//! The file system's tracepoints determine which of the three are reported; missing ones are not checked.

use std::path::Path;

use results::block_trace::{Event, EventKind};

use crate::check::Ledger;
use crate::load::is_removed;
use crate::{Outcome, failed, sqlite};

/// Magic number of a file system, and the events that its tracepoints report.
const TELLS: [(u64, &[EventKind]); 4] = [
    (0xEF53, &[EventKind::Create, EventKind::Unlink, EventKind::Delete]),
    (
        0x5846_5342,
        &[EventKind::Create, EventKind::Unlink, EventKind::Delete],
    ),
    (
        0xF2F5_2010,
        &[EventKind::Create, EventKind::Unlink, EventKind::Delete],
    ),
    // btrfs has none for the removal of a name.
    (0x9123_683E, &[EventKind::Create, EventKind::Delete]),
];

/// A file that was removed within the trace.
pub struct Removed {
    inode: u64,
    generation: u32,
    path: String,
    /// `None` if the process was not recorded.
    pid: Option<u32>,
}

/// Removed files of the workers, and SQLite's journals.
pub fn removed(ledger: &Ledger, journals: &[(u64, u32)]) -> Vec<Removed> {
    let of_workers = ledger.iter().filter(|((file, _), _)| is_removed(*file));
    let of_workers = of_workers.map(|(_, entry)| Removed {
        inode: entry.inode,
        generation: entry.generation,
        path: entry.path.clone(),
        pid: Some(entry.pid),
    });
    let of_sqlite = journals.iter().map(|(inode, generation)| Removed {
        inode: *inode,
        generation: *generation,
        path: sqlite::JOURNAL.to_owned(),
        pid: None,
    });
    of_workers.chain(of_sqlite).collect()
}

/// Checks that each has one event of each kind, in this order, with its name and its process.
pub fn judge(events: &[Event], removed: &[Removed], folder: &Path) -> Outcome<String> {
    let told = rustix::fs::statfs(folder).map_err(|error| failed("statfs", error))?;
    let magic = u64::try_from(told.f_type).unwrap_or(0);
    let Some((_, kinds)) = TELLS.iter().find(|(known, _)| *known == magic) else {
        return Ok("the life of files is not told here".to_owned());
    };
    if removed.is_empty() {
        return Err("no file was removed: nothing to judge".to_owned());
    }
    for file in removed {
        let mut after = 0;
        for kind in *kinds {
            after = one(events, file, *kind)
                .filter(|time_ns| *time_ns >= after)
                .ok_or_else(|| complaint(events, file, *kind))?;
        }
    }
    let words: Vec<&str> = kinds.iter().map(|kind| kind.word()).collect();
    Ok(format!(
        "{} of {} removed files told",
        words.join(", "),
        removed.len()
    ))
}

/// Time of the event, if there is exactly one and it is correct.
fn one(events: &[Event], file: &Removed, kind: EventKind) -> Option<u64> {
    let mut found = events
        .iter()
        .filter(|event| event.kind == kind && is_of(event, file));
    let (event, None) = (found.next()?, found.next()) else {
        return None;
    };
    let pid = event.process.as_ref().map(|process| process.pid);
    let is_right = match kind {
        // A new inode has no name yet.
        EventKind::Create => file.pid.is_none() || pid == file.pid,
        EventKind::Unlink => {
            event.value == 0
                && event.path.as_deref() == Some(&file.path)
                && (file.pid.is_none() || pid == file.pid)
        }
        // The kernel may be the last to release it.
        _ => event.path.as_deref() == Some(&file.path),
    };
    is_right.then_some(event.time_ns)
}

fn is_of(event: &Event, file: &Removed) -> bool {
    event
        .file
        .is_some_and(|of| (of.inode, of.generation) == (file.inode, file.generation))
}

fn complaint(events: &[Event], file: &Removed, kind: EventKind) -> String {
    let mut text = format!(
        "{} of {} (inode {}, generation {}, process {:?}) is not told once and rightly; what is told of it:",
        kind.word(),
        file.path,
        file.inode,
        file.generation,
        file.pid
    );
    for event in events.iter().filter(|event| is_of(event, file)) {
        text.push_str(&format!(
            "\n  {} ns: {} {:?} by {:?}, value {}",
            event.time_ns,
            event.kind.word(),
            event.path,
            event.process,
            event.value
        ));
    }
    text
}
