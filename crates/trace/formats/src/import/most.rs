//! Reads MOST text (seeds/004 table 2), tab-separated columns: `SECONDS ACTION RWBS SECTOR SECTORS PID NAME TYPE
//! [PATH]`, each padded with blanks.
//!
//! Types are M (metadata), J (journal) and D (data); D is followed by the path, if MOST found one. `file-NONE` is not a
//! path. MOST encodes the class of a temporary file in the process number: 100000 is added for -journal, 200000 for
//! -mj, 300000 for .bak, 400000 for tmp, 500000 for .db. MOST marks a block of such a file as M if it no longer has an
//! owner; here it is data of a deleted file.

use std::sync::Arc;

use results::block_trace::{BlockType, DeviceNumber, Operation};

use super::assembly::Assembly;
use super::block_event::{BlockEvent, Owner, Step};
use super::clock::{digits, nanoseconds};
use super::rwbs;
use super::text_source::{Expected, LineParser};

/// Classes of temporary files, added to process numbers in steps of 100000.
const TEMPORARY: [&str; 5] = ["-journal", "-mj", ".bak", "tmp", ".db"];

const CLASS_STEP: u64 = 100_000;

/// The text names no device; MOST was made for one eMMC.
const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };

/// Reads lines of MOST.
#[derive(Debug, Default)]
pub struct MostParser {
    last_path: Option<Arc<str>>,
    classes: u64,
}

impl LineParser for MostParser {
    const LINE: &str =
        "a line of MOST: `SECONDS<tab>C<tab>WS<tab>SECTOR<tab>SECTORS<tab>PID<tab>NAME<tab>D<tab>PATH`";

    fn is_line(line: &str) -> bool {
        let mut columns = line.split('\t').map(str::trim_ascii);
        let is_time = columns
            .next()
            .is_some_and(|time| time.contains('.') && nanoseconds(time).is_some());
        let action = columns
            .next()
            .is_some_and(|action| !action.is_empty() && action.len() <= 2);
        let kind = columns.nth(5).is_some_and(|kind| matches!(kind, "M" | "J" | "D"));
        is_time && action && kind
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [time, action, letters, sector, sectors, pid, name, kind, rest @ ..] = columns.as_slice() else {
            return Err(Expected(Self::LINE));
        };
        let number = |text: &str| digits(text.trim_ascii());
        let time_ns = nanoseconds(time.trim_ascii()).ok_or(Expected(Self::LINE))?;
        let sector = number(sector).ok_or(Expected("a sector in the fourth column"))?;
        let sectors = number(sectors).ok_or(Expected("sectors in the fifth column"))?;
        let (pid, class) = split_pid(number(pid).ok_or(Expected("a process in the sixth column"))?)
            .ok_or(Expected("a process in the sixth column"))?;
        let path = rest
            .first()
            .map(|path| path.trim_ascii())
            .filter(|path| *path != "file-NONE" && !path.is_empty());
        self.classes += u64::from(class.is_some());
        let owner = self.owner(kind.trim_ascii(), path, class)?;
        let step = match action.trim_ascii() {
            "A" | "G" | "M" | "F" | "S" | "B" | "P" | "U" | "UT" | "X" => return Ok(()),
            letter => Step::of_letter(letter).ok_or(Expected("an action of blkparse (Q, I, D, C ...)"))?,
        };
        let bytes = sectors.saturating_mul(512);
        let (operation, flags) =
            rwbs::parse(letters.trim_ascii(), bytes).ok_or(Expected("letters of a request as in RWBS"))?;
        let process = assembly.process(pid, name.trim_ascii());
        assembly.step(&BlockEvent {
            time_ns,
            device: DEVICE,
            step,
            operation,
            flags,
            priority: None,
            sector,
            bytes,
            process: Some(process),
            status: None,
            owner: (operation != Operation::Flush).then_some(owner),
        })?;
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        assembly.limitation(
            "device",
            "MOST does not tell it; 179:0, the first eMMC, stands for it",
        );
        assembly.limitation("errors", "MOST does not tell them");
        assembly.limitation(
            "processes behind buffered writes",
            "MOST tells who called the block layer, for buffered writes the flusher thread",
        );
        assembly.limitation(
            "kind of metadata",
            "MOST says M for all metadata, for free space, and for data of files deleted since",
        );
        assembly.limitation("inodes, file offsets", "MOST tells paths alone");
        if self.classes > 0 {
            let why = format!(
                "{} lines have it in their process number; where nobody owned the block, it is data of a deleted file here",
                self.classes
            );
            assembly.limitation("temporary files: their class alone", &why);
        }
    }
}

impl MostParser {
    fn owner(
        &mut self,
        kind: &str,
        path: Option<&str>,
        class: Option<&'static str>,
    ) -> Result<Owner, Expected> {
        let block_type = match (kind, class) {
            ("M", None) => BlockType::Metadata,
            ("M", Some(_)) | ("D", _) => BlockType::Data,
            ("J", _) => BlockType::Journal,
            _ => return Err(Expected("M, J or D in the eighth column")),
        };
        Ok(Owner {
            block_type,
            detail: class.map(Arc::from),
            path: path.map(|path| self.share(path)),
            deleted: kind == "M" && class.is_some(),
        })
    }

    /// Shares the path between consecutive lines of one file.
    fn share(&mut self, path: &str) -> Arc<str> {
        match &self.last_path {
            Some(last) if **last == *path => Arc::clone(last),
            _ => Arc::clone(self.last_path.insert(Arc::from(path))),
        }
    }
}

fn split_pid(number: u64) -> Option<(u32, Option<&'static str>)> {
    let class = usize::try_from(number / CLASS_STEP).ok()?;
    if class == 0 || class > TEMPORARY.len() {
        return Some((u32::try_from(number).ok()?, None));
    }
    let pid = u32::try_from(number % CLASS_STEP).ok()?;
    Some((pid, TEMPORARY.get(class - 1).copied()))
}
