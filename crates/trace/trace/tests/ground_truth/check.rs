//! The check: compares the stamp in each sector with the last write to it in the trace.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use results::block_trace::{BlockType, Operation, Request, Run};

use crate::load::{SECTOR, Stamp};
use crate::{Outcome, disk, failed};

/// Maximum number of complaints shown; the total is printed.
const SHOWN: usize = 10;
const BLOCK: usize = 1 << 20;
/// Two of the ten writers remove their files: these are in no folder, and others may have overwritten all of them.
const LEAST_PROCESSES: usize = 8;

/// btrfs keeps a file of up to this many bytes inside a leaf of its tree (`max_inline`), and the last item of a leaf
/// may begin on a sector boundary: that is a tree block, and correctly reported as one.
const INLINE_MOST: u64 = 2048;

/// A worker's record of a file.
#[derive(Clone, Debug)]
pub struct Entry {
    pub pid: u32,
    pub inode: u64,
    pub generation: u32,
    deleted: bool,
    pub path: String,
}

/// By file and phase.
pub type Ledger = HashMap<(u32, u32), Entry>;

pub fn read_ledger(path: &Path) -> Outcome<Ledger> {
    let text = std::fs::read_to_string(path).map_err(|error| failed("ledger", error))?;
    let mut ledger = Ledger::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(7, ' ').collect();
        let [file, phase, pid, inode, generation, deleted, path] = fields.as_slice() else {
            return Err(format!("ledger: {line:?} is no entry"));
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| failed(line, error));
        let narrow = |text: &str| text.parse::<u32>().map_err(|error| failed(line, error));
        let entry = Entry {
            pid: narrow(pid)?,
            inode: number(inode)?,
            generation: narrow(generation)?,
            deleted: *deleted == "true",
            path: (*path).to_owned(),
        };
        ledger.insert((narrow(file)?, narrow(phase)?), entry);
    }
    Ok(ledger)
}

/// Stamps of the sectors.
pub struct Stamps {
    by_sector: Vec<(u64, Stamp)>,
}

/// Reads the medium.
pub fn stamps_on(raw: &Path) -> Outcome<Stamps> {
    let mut medium = File::open(raw).map_err(|error| failed(&raw.display().to_string(), error))?;
    let mut by_sector = Vec::new();
    let mut block = vec![0; BLOCK];
    let mut sector = 0_u64;
    loop {
        let filled = fill(&mut medium, &mut block).map_err(|error| failed("reading the medium", error))?;
        for bytes in block[..filled].chunks_exact(SECTOR) {
            by_sector.extend(Stamp::read(bytes).map(|stamp| (sector, stamp)));
            sector += 1;
        }
        if filled < block.len() {
            break;
        }
    }
    Ok(Stamps { by_sector })
}

/// If the medium is encrypted: reads the files and maps their extents.
pub fn stamps_in_files(folder: &Path, ledger: &Ledger) -> Outcome<Stamps> {
    let mut by_sector = Vec::new();
    let mut paths: Vec<&str> = ledger.values().map(|entry| entry.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let path = folder.join(path.trim_start_matches('/'));
        // Removed or renamed since.
        let Ok(content) = std::fs::read(&path) else {
            continue;
        };
        for (offset, sector, count) in extents(&path)? {
            let bytes = content.chunks_exact(SECTOR).enumerate().skip(offset).take(count);
            for (at, bytes) in bytes {
                let place = sector + u64::try_from(at - offset).unwrap_or(0);
                by_sector.extend(Stamp::read(bytes).map(|stamp| (place, stamp)));
            }
        }
    }
    Ok(Stamps { by_sector })
}

/// Compares, and reports how much was compared.
pub fn judge(
    requests: &[Request],
    ledger: &Ledger,
    stamps: &Stamps,
    has_generations: bool,
) -> Outcome<String> {
    in_order(requests)?;
    let writes = last_writes(requests);
    let mut complaints = Vec::new();
    let mut complaint_count = 0_u64;
    let mut seen: BTreeMap<Stamp, u64> = BTreeMap::new();
    let mut journaled = 0_u64;
    let mut inline = 0_u64;
    for &(sector, stamp) in &stamps.by_sector {
        match compare(stamp, sector, &writes, ledger, has_generations) {
            Ok(BlockType::Journal) => journaled += 1,
            Ok(BlockType::TreeNode) => inline += 1,
            Ok(_) => *seen.entry(stamp).or_default() += 1,
            Err(reason) => {
                complaint_count += 1;
                if complaints.is_empty() {
                    complaints.push(history(requests, sector));
                }
                if complaints.len() < SHOWN {
                    complaints.push(format!("  sector {sector}, {stamp:?}: {reason}"));
                }
            }
        }
    }
    if complaint_count > 0 {
        return Err(format!(
            "{complaint_count} sectors are named wrongly:\n{}",
            complaints.join("\n")
        ));
    }
    let files = seen
        .keys()
        .map(|stamp| stamp.file)
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    let processes = seen
        .keys()
        .map(|stamp| stamp.pid)
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    let total: u64 = seen.values().sum();
    if total + journaled == 0 || (journaled == 0 && processes < LEAST_PROCESSES) {
        return Err(format!(
            "only {total} sectors of {processes} processes were there to be judged"
        ));
    }
    Ok(format!(
        "{total} data sectors of {files} files and {processes} processes right, {journaled} in the journal, \
         {inline} inside tree nodes"
    ))
}

/// Requests are in the order of their times, and the times of each in the order of its steps.
fn in_order(requests: &[Request]) -> Outcome<()> {
    let mut before = 0;
    for request in requests {
        let first = request.first_ns().unwrap_or(0);
        if first < before {
            return Err(format!("a request of {first} ns comes after one of {before} ns"));
        }
        before = first;
        let times = [
            request.queued_ns,
            request.inserted_ns,
            request.issued_ns,
            request.completed_ns,
        ];
        if !times.iter().flatten().is_sorted() {
            return Err(format!("times that run backwards: {request:?}"));
        }
        let covered: u64 = request.runs.iter().map(|run| run.bytes).sum();
        if request.moves_data() && covered != request.bytes {
            return Err(format!("runs do not cover the request: {request:?}"));
        }
    }
    Ok(())
}

/// All requests that touched a sector, as context for a complaint.
fn history(requests: &[Request], sector: u64) -> String {
    let mut text = String::new();
    for request in requests {
        for run in &request.runs {
            if (run.sector..run.sector + run.bytes / 512).contains(&sector) {
                let who = run.cause.as_ref().map(|process| process.pid);
                text.push_str(&format!(
                    "  {} {} +{} queued {:?} issued {:?} done {:?}: {} {:?} {:?} {who:?} {}\n",
                    request.operation,
                    run.sector,
                    run.bytes,
                    request.queued_ns,
                    request.issued_ns,
                    request.completed_ns,
                    run.block_type,
                    run.file.map(|file| (file.inode, file.generation)),
                    run.path,
                    run.cause_quality
                ));
            }
        }
    }
    text
}

/// The last write to each sector.
fn last_writes(requests: &[Request]) -> HashMap<u64, &Run> {
    let mut writes = HashMap::new();
    for request in requests
        .iter()
        .filter(|request| request.operation == Operation::Write)
    {
        for run in &request.runs {
            for sector in run.sector..run.sector + run.bytes / 512 {
                writes.insert(sector, run);
            }
        }
    }
    writes
}

fn compare(
    stamp: Stamp,
    sector: u64,
    writes: &HashMap<u64, &Run>,
    ledger: &Ledger,
    has_generations: bool,
) -> Outcome<BlockType> {
    let run = writes.get(&sector).ok_or("no write to it is in the trace")?;
    let entry = ledger
        .get(&(stamp.file, stamp.phase))
        .ok_or("the ledger does not know the file")?;
    if run.block_type == BlockType::TreeNode && stamp.offset < INLINE_MOST {
        return Ok(run.block_type);
    }
    if !matches!(run.block_type, BlockType::Data | BlockType::Journal) {
        return Err(format!("told to be {}: {run:?}", run.block_type));
    }
    let file = run.file.ok_or_else(|| format!("no file told: {run:?}"))?;
    if file.inode != entry.inode || (has_generations && file.generation != entry.generation) {
        return Err(format!("told to be of {file:?}, is of {entry:?}"));
    }
    let offset = run.file_offset.map(|offset| offset + (sector - run.sector) * 512);
    if offset != Some(stamp.offset) {
        return Err(format!("told to be at {offset:?}: {run:?}"));
    }
    let path = run.path.as_deref();
    if path != Some(entry.path.as_str()) {
        return Err(format!("told to be of {path:?}, is of {:?}", entry.path));
    }
    if entry.deleted && !run.deleted {
        return Err("not told to have lost its name".to_owned());
    }
    let pid = run.cause.as_ref().map(|process| process.pid);
    if pid != Some(stamp.pid) {
        return Err(format!(
            "told to be of process {:?} ({})",
            run.cause, run.cause_quality
        ));
    }
    Ok(run.block_type)
}

fn fill(file: &mut File, block: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read(&mut block[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Extents of a file, in sectors: offset in the file, position on the device, length.
fn extents(path: &Path) -> Outcome<Vec<(usize, u64, usize)>> {
    let text = disk::run(&["filefrag", "-b512", "-v", &path.to_string_lossy()])?;
    let extent = |line: &str| {
        let fields: Vec<&str> = line
            .split([':', '.'])
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        let [_number, offset, _, place, _, length, ..] = fields.as_slice() else {
            return None;
        };
        Some((offset.parse().ok()?, place.parse().ok()?, length.parse().ok()?))
    };
    Ok(text.lines().filter_map(extent).collect())
}
