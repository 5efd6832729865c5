//! Holds a trace against the ledger: who each request is charged to, by which name, and whether it happened at all.
//!
//! A request of file data, or of a device that is used directly, must be explained by the ledger:
//! - direct I/O: an action of that process, range and moment, and the requests of an action cover its bytes once;
//! - buffered writes: page by page, the last process that made it dirty before the request, and no page is written more
//!   often than it was made dirty by calls;
//! - its path: that of the name which this process used, as it was then; or the trace says that it is one of several.
//!
//! Requests whose owner is not told say so by their quality; they are counted, and a case limits them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use results::block_trace::{
    BlockType, CauseQuality, Event, EventKind, IoMode, Operation, Process, Request, Run,
};

use crate::Outcome;
use crate::ledger::{Act, Action, FileKey, Ledger, Naming, Window};

const PAGE: u64 = 4096;
/// Differences between the clocks of trace and ledger, and between a call and its request, ns.
const SLACK: u64 = 300_000;
/// Maximum number of pieces of which nothing is told: what ext4 initialises after the mount, and what that left in flight.
const UNTOLD_MAX: u64 = 64;
/// Maximum number of complaints shown; the total is printed.
const SHOWN: usize = 4;

/// Circumstances of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Wall clock at the trace's start, ns.
    pub start: u64,
    pub has_generations: bool,
    /// Direct I/O goes past the page cache.
    pub has_direct: bool,
    /// Records were lost: the trace may lack requests.
    pub is_partial: bool,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Requests of data that were compared.
    pub requests: u64,
    pub bytes: u64,
    /// Pieces whose owner the trace says it does not know.
    pub unknown: u64,
    /// Those of a file, by the program's folder.
    pub unknown_of: BTreeMap<String, u64>,
    /// Those of which nothing is told: the kernel's own, and those whose bio came before the trace.
    pub untold: u64,
    /// Pieces under one of several names.
    pub one_of_names: u64,
    pub renames: u64,
    complaints: Vec<String>,
    pub misattributed: u64,
    pub invented: u64,
    pub missing: u64,
}

impl Verdict {
    /// Fails if more is unknown than the kernel hides: programs that may be, and pieces of which nothing is told.
    pub fn limit_unknown(&mut self, programs: &[&str]) {
        for (program, count) in std::mem::take(&mut self.unknown_of) {
            if !programs.contains(&program.as_str()) {
                self.misattributed += count;
                self.complain(format!("{count} pieces of {program} have no owner"));
            }
            self.unknown_of.insert(program, count);
        }
        if self.untold > UNTOLD_MAX {
            self.misattributed += self.untold;
            self.complain(format!("nothing is told of {} pieces", self.untold));
        }
    }

    /// An error if anything is wrong.
    pub fn outcome(&self) -> Outcome<String> {
        let told = format!(
            "{} requests ({} bytes): {} misattributed, {} invented, {} missing, {} pieces say that their owner is \
             unknown {:?}, {} that they bear one of several names; {} renames",
            self.requests,
            self.bytes,
            self.misattributed,
            self.invented,
            self.missing,
            self.unknown,
            self.unknown_of,
            self.one_of_names,
            self.renames
        );
        if self.misattributed + self.invented + self.missing > 0 {
            return Err(format!("{told}\n{}", self.complaints.join("\n")));
        }
        Ok(told)
    }

    fn complain(&mut self, text: String) {
        if self.complaints.len() < SHOWN {
            self.complaints.push(format!("  {text}"));
        }
    }
}

/// A piece of a request, and the actions on its file.
struct Piece<'a> {
    run: &'a Run,
    key: FileKey,
    actions: &'a [Action],
    time: Window,
    offset: u64,
    /// The process, if the trace is sure of it.
    process: Option<&'a Process>,
    /// The process's name may be lost.
    is_partial: bool,
}

impl Piece<'_> {
    fn is_of(&self, action: &Action) -> bool {
        self.process.is_none_or(|process| {
            let is_named = *process.name == *action.process || self.is_partial && *process.name == *"?";
            process.pid == action.pid && is_named
        })
    }

    fn told(&self) -> Option<(u32, &str)> {
        self.process.map(|process| (process.pid, &*process.name))
    }
}

/// Whether the piece never happened, and the reason.
type Complaint = Result<(), (bool, String)>;

struct Judge<'a> {
    /// The programs' processes.
    pids: HashSet<u32>,
    requests: &'a [Request],
    ledger: &'a Ledger,
    setting: Setting,
    verdict: Verdict,
    /// Ranges of requests for each direct action, by file and place in its list.
    moved: HashMap<(FileKey, usize), Vec<Range<u64>>>,
    /// Writes of each page to its home.
    written: BTreeMap<(FileKey, u64), u64>,
}

/// Compares a trace with the ledger.
pub fn judge(requests: &[Request], events: &[Event], ledger: &Ledger, setting: Setting) -> Verdict {
    let actions = ledger.actions.values().flatten();
    let mut judge = Judge {
        pids: actions.map(|action| action.pid).collect(),
        requests,
        ledger,
        setting,
        verdict: Verdict::default(),
        moved: HashMap::new(),
        written: BTreeMap::new(),
    };
    // In the order of their time, as a direct action is taken by the first request that fits it.
    let mut in_time: Vec<&Request> = requests.iter().collect();
    in_time.sort_by_key(|request| judge.time(request).from);
    for request in in_time {
        judge.request(request);
    }
    judge.totals();
    judge.renames(events);
    judge.verdict
}

impl Judge<'_> {
    fn request(&mut self, request: &Request) {
        if !request.moves_data() {
            return;
        }
        let covered: u64 = request.runs.iter().map(|run| run.bytes).sum();
        if covered != request.bytes {
            self.verdict.misattributed += 1;
            self.verdict
                .complain(format!("runs do not cover the request: {request:?}"));
        }
        let mut is_judged = false;
        for run in &request.runs {
            let is_unknown =
                run.block_type == BlockType::Unknown && run.file.is_none() && run.cause.is_none();
            if is_unknown {
                self.verdict.unknown += 1;
                self.verdict.untold += 1;
                is_judged = true;
                // The kernel's own writers (ext4lazyinit) are no programs.
                let submitter = request.submitter.as_ref().map(|process| process.pid);
                let is_of_program = submitter.is_some_and(|pid| self.pids.contains(&pid));
                if is_of_program && !self.setting.is_partial {
                    self.verdict.misattributed += 1;
                    let text = format!("nothing is told of a program's own piece: {request:?}");
                    self.verdict.complain(text);
                }
                continue;
            }
            let is_device =
                matches!(run.block_type, BlockType::Raw | BlockType::Unknown) && run.file.is_none();
            if run.block_type != BlockType::Data && !is_device {
                continue;
            }
            is_judged = true;
            self.verdict.bytes += run.bytes;
            self.verdict.one_of_names += u64::from(run.one_of_names);
            if let Err((is_invented, reason)) = self.run(request, run) {
                match is_invented {
                    true => self.verdict.invented += 1,
                    false => self.verdict.misattributed += 1,
                }
                let time = self.time(request);
                self.verdict
                    .complain(format!("{reason}: {} at {time:?}, {run:?}", request.operation));
            }
        }
        self.verdict.requests += u64::from(is_judged);
    }

    /// When a piece of the request was given to the block layer: with several, any time until the request was issued, as
    /// later ones may have been merged into it.
    fn time(&self, request: &Request) -> Window {
        let first = request.queued_ns.or(request.first_ns()).unwrap_or(0);
        let last = request
            .issued_ns
            .filter(|_| request.runs.len() > 1)
            .unwrap_or(first);
        Window {
            from: self.setting.start + first,
            to: self.setting.start + last.max(first),
        }
    }

    fn key(&self, request: &Request, run: &Run) -> FileKey {
        match run.file {
            None => ((request.device.major, request.device.minor), 0, 0),
            Some(file) => {
                let generation = if self.setting.has_generations {
                    file.generation
                } else {
                    0
                };
                (
                    (file.file_system.major, file.file_system.minor),
                    file.inode,
                    generation,
                )
            }
        }
    }

    /// An error tells whether the piece never happened.
    fn run(&mut self, request: &Request, run: &Run) -> Complaint {
        let key = self.key(request, run);
        let ledger = self.ledger;
        let actions = ledger
            .actions
            .get(&key)
            .ok_or((true, "a file that nobody used".to_owned()))?;
        let is_sure = matches!(run.cause_quality, CauseQuality::Folio | CauseQuality::WriteCall);
        if !is_sure {
            self.verdict.unknown += 1;
            let program = run.path.as_deref().and_then(|path| path.split('/').nth(2));
            let of = self.verdict.unknown_of.entry(program.unwrap_or("?").to_owned());
            *of.or_default() += 1;
        }
        let piece = Piece {
            run,
            key,
            actions,
            time: self.time(request),
            offset: run.file_offset.unwrap_or(run.sector * 512),
            process: run.cause.as_deref().filter(|_| is_sure),
            is_partial: self.setting.is_partial,
        };
        // A request of several pieces has the mode of the first one.
        let is_mixed = request.runs.len() > 1 && run.file.is_some();
        let is_direct = request.mode == IoMode::Direct || run.file.is_none();
        let is_read = request.operation == Operation::Read;
        let act = if is_read {
            Act::ReadDirectly
        } else {
            Act::WroteDirectly
        };
        if is_direct || is_mixed {
            let direct = self.direct(&piece, act);
            if direct.is_ok() || !is_mixed {
                return direct;
            }
        }
        match is_read {
            true => self.read(&piece),
            false => self.buffered(&piece),
        }
    }

    fn direct(&mut self, piece: &Piece<'_>, act: Act) -> Complaint {
        let (bytes, key) = (piece.run.bytes, piece.key);
        let is_its = |action: &Action| {
            action.act == act
                && covers(action, piece.offset, bytes)
                && action.when.overlaps(piece.time, SLACK)
        };
        let range = piece.offset..piece.offset + bytes;
        let is_free = |at: usize| {
            let moved = self.moved.get(&(key, at)).map_or(&[][..], Vec::as_slice);
            !moved
                .iter()
                .any(|moved| moved.start < range.end && range.start < moved.end)
        };
        // Several threads may read one place at once: the action that ends first can't wait for a later request.
        let candidates = piece.actions.iter().enumerate();
        let found = candidates
            .filter(|(at, action)| is_its(action) && piece.is_of(action) && is_free(*at))
            .min_by_key(|(_, action)| action.when.to);
        let Some((at, action)) = found else {
            let is_invented = !piece.actions.iter().any(is_its);
            return Err((
                is_invented,
                format!("no such direct action of process {:?}", piece.told()),
            ));
        };
        self.moved.entry((key, at)).or_default().push(range);
        self.name(piece, &[action])
    }

    fn read(&self, piece: &Piece<'_>) -> Complaint {
        let near = piece
            .actions
            .iter()
            .filter(|action| action.when.overlaps(piece.time, SLACK));
        // Writes of parts of pages, and stores, read the rest.
        let (writes, reads): (Vec<&Action>, Vec<&Action>) =
            near.partition(|action| matches!(action.act, Act::Dirtied | Act::Stored | Act::Touched));
        let near = if reads.is_empty() { writes } else { reads };
        let is_invented = near.is_empty();
        let its: Vec<&Action> = near.into_iter().filter(|action| piece.is_of(action)).collect();
        if its.is_empty() {
            return Err((is_invented, format!("no read of process {:?}", piece.told())));
        }
        self.name(piece, &its)
    }

    fn buffered(&mut self, piece: &Piece<'_>) -> Complaint {
        for page in piece.offset / PAGE..(piece.offset + piece.run.bytes).div_ceil(PAGE) {
            *self.written.entry((piece.key, page)).or_default() += 1;
            let last = last_writers(piece.actions, page, piece.time);
            if last.is_empty() {
                return Err((true, format!("page {page} was not made dirty before")));
            }
            let its: Vec<&Action> = last
                .iter()
                .copied()
                .filter(|action| piece.is_of(action))
                .collect();
            if its.is_empty() {
                let of: Vec<(u32, &str)> = last.iter().map(|one| (one.pid, &*one.process)).collect();
                return Err((false, format!("page {page} is of {of:?}")));
            }
            self.name(piece, &its)?;
        }
        Ok(())
    }

    /// Whether the path is that of a name that one of these actions used, or one of several names and told to be. A removed
    /// name is none, unless it was the last one.
    fn name(&self, piece: &Piece<'_>, actions: &[&Action]) -> Complaint {
        let (run, time) = (piece.run, piece.time);
        if run.file.is_none() {
            return Ok(());
        }
        let Some(path) = run.path.as_deref() else {
            // Nothing is claimed.
            return match self.setting.is_partial {
                true => Ok(()),
                false => Err((false, "no path is told".to_owned())),
            };
        };
        let is_left = |name: u32| {
            let was_removed = |naming: &Naming| naming.path.is_none() && naming.when.to + SLACK < time.from;
            run.deleted || !self.ledger.namings(name).iter().any(was_removed)
        };
        let has = |name: u32| is_left(name) && self.ledger.paths(name, time, SLACK).contains(&path);
        if actions.iter().any(|action| has(action.name)) {
            return Ok(());
        }
        let names = self
            .ledger
            .names_of
            .get(&piece.key)
            .map_or(&[][..], Vec::as_slice);
        let is_gone = |name: u32| {
            let namings = self.ledger.namings(name);
            namings
                .iter()
                .any(|naming| naming.path.is_none() && naming.when.from <= time.to + SLACK)
        };
        // Written without a name (O_TMPFILE): the one that it got since is told.
        let is_none = |name: u32| self.ledger.namings(name).is_empty();
        let used_is_gone = actions
            .iter()
            .all(|action| is_gone(action.name) || is_none(action.name));
        if (run.one_of_names || used_is_gone) && names.iter().any(|name| has(*name)) {
            return Ok(());
        }
        // Made without a name (O_TMPFILE) and not linked yet: told as deleted, by the name that the kernel gives it in the
        // folder where it was made, which is that of its later names.
        let had_name = |name: &u32| {
            let is_before = |naming: &Naming| naming.path.is_some() && naming.when.to + SLACK < time.from;
            self.ledger.namings(*name).iter().any(is_before)
        };
        // While it gets its first one the inode has a link, and no entry of that name yet.
        let gets_name = |name: &u32| {
            let is_now = |naming: &Naming| naming.path.is_some() && naming.when.overlaps(time, SLACK);
            self.ledger.namings(*name).iter().any(is_now)
        };
        let own_name = format!("#{}", piece.key.1);
        let has_own_name = |name: &u32| {
            let namings = self.ledger.namings(*name);
            let later = namings.iter().filter_map(|naming| naming.path.as_deref());
            later
                .map(Path::new)
                .any(|named| named.with_file_name(&own_name) == Path::new(path))
        };
        if (run.deleted || names.iter().any(gets_name))
            && !names.iter().any(had_name)
            && names.iter().any(has_own_name)
        {
            return Ok(());
        }
        let paths = |action: &&Action| self.ledger.paths(action.name, time, SLACK);
        let expected: Vec<Vec<&str>> = actions.iter().map(paths).collect();
        Err((false, format!("told to be {path:?}, was {expected:?}")))
    }

    /// No action has more or fewer bytes of requests than it moved, and no page more writes than dirtyings.
    fn totals(&mut self) {
        for (key, actions) in &self.ledger.actions {
            for (at, action) in actions.iter().enumerate() {
                let is_direct = matches!(action.act, Act::WroteDirectly | Act::ReadDirectly);
                let ranges = self.moved.get(&(*key, at)).map_or(&[][..], Vec::as_slice);
                let moved: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                let is_exact = self.setting.has_direct || key.1 == 0;
                if is_direct && is_exact && !self.setting.is_partial && moved != action.bytes {
                    self.verdict.missing += 1;
                    let history = self.history(*key, action.offset);
                    let text = format!("{moved} bytes are in the trace of {key:?} {action:?}{history}");
                    self.verdict.complain(text);
                }
            }
        }
        let written = std::mem::take(&mut self.written);
        for ((key, page), count) in written {
            let actions = self.ledger.actions.get(&key).map_or(&[][..], Vec::as_slice);
            if actions.iter().any(|action| action.act == Act::Stored) {
                continue;
            }
            let dirtied = actions.iter().filter(|action| dirties(action, page)).count();
            if count > u64::try_from(dirtied).unwrap_or(u64::MAX) {
                self.verdict.invented += 1;
                let text = format!(
                    "page {page} of {key:?} is written {count} times, was made dirty {dirtied} times"
                );
                self.verdict.complain(text);
            }
        }
    }

    /// All requests of a place in a file, as context for a complaint.
    fn history(&self, key: FileKey, offset: u64) -> String {
        let mut lines = String::new();
        for request in self.requests {
            for run in &request.runs {
                let start = run.file_offset.unwrap_or(run.sector * 512);
                if self.key(request, run) == key && (start..start + run.bytes).contains(&offset) {
                    let when = self.time(request);
                    let pid = run.cause.as_ref().map(|cause| cause.pid);
                    let (operation, mode) = (request.operation, request.mode);
                    let line = format!(
                        "\n    {operation} {mode} at {when:?}: {start} +{} {pid:?}",
                        run.bytes
                    );
                    lines += &line;
                }
            }
        }
        lines
    }

    /// Each rename is told once, with its file, its new path and its process, and no other.
    fn renames(&mut self, events: &[Event]) {
        let mut told: Vec<&Event> = events
            .iter()
            .filter(|event| event.kind == EventKind::Rename)
            .collect();
        self.verdict.renames = u64::try_from(told.len()).unwrap_or(u64::MAX);
        for rename in &self.ledger.renames {
            let is_it = |event: &&Event| {
                let key = event.file.map(|file| {
                    let generation = if self.setting.has_generations {
                        file.generation
                    } else {
                        0
                    };
                    (
                        (file.file_system.major, file.file_system.minor),
                        file.inode,
                        generation,
                    )
                });
                let is_its =
                    |process: &Arc<Process>| process.pid == rename.pid && *process.name == *rename.process;
                key == Some(rename.file)
                    && event.path.as_deref() == Some(&rename.path)
                    && event.process.as_ref().is_some_and(is_its)
            };
            match told.iter().position(is_it) {
                Some(at) => {
                    told.remove(at);
                }
                None => {
                    self.verdict.missing += 1;
                    self.verdict.complain(format!("not told: {rename:?}"));
                }
            }
        }
        for event in told {
            self.verdict.invented += 1;
            self.verdict.complain(format!("nobody did it: {event:?}"));
        }
    }
}

fn covers(action: &Action, offset: u64, bytes: u64) -> bool {
    action.offset <= offset && offset + bytes <= action.offset + action.bytes
}

/// Direct writes count too: some file systems do them through the cache.
fn dirties(action: &Action, page: u64) -> bool {
    use Act::{Dirtied, Stored, Touched, WroteDirectly};
    matches!(action.act, Dirtied | Stored | Touched | WroteDirectly)
        && action.offset / PAGE <= page
        && page < (action.offset + action.bytes).div_ceil(PAGE)
}

/// Those who may have been the last to make a page dirty before some moment of a time: the last that had ended, and all
/// later ones.
fn last_writers(actions: &[Action], page: u64, time: Window) -> Vec<&Action> {
    let mut last: Vec<&Action> = Vec::new();
    let mut ended = 0;
    for action in actions.iter().filter(|action| dirties(action, page)) {
        if action.when.from > time.to + SLACK {
            continue;
        }
        // Earlier ones are out once this one began after their end.
        if action.when.to + SLACK <= time.from && action.act != Act::Touched {
            ended = ended.max(action.when.from.saturating_sub(SLACK));
        }
        last.push(action);
    }
    last.retain(|action| action.when.to >= ended);
    last
}
