//! Request flags that the kernel does not pass to a loop device: sync (REQ_SYNC) and metadata.
//!
//! The tracepoint at which the kernel passes a request to the loop device has both flags, and fires before the
//! request begins its way here. So the thread that serves a request first reads a tracefs instance with that device's
//! events, and finds its own by operation, offset and length. Requests that are not found have no flags.
//!
//! This is not a tracer (`trace` is): it stores only requests that have not arrived here yet, at most
//! [`WAITING_MAX`]. An instance left behind by a killed process is removed by the next tracer, since it has the same
//! kind of name.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use formats::ftrace_line::{BlockFields, Line};
use results::block_trace::{Operation, RequestFlags};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::device::lock;
use crate::loop_device::LOOP_MAJOR;
use crate::{LiveError, LoopDevice};

const TRACEFS: &str = "/sys/kernel/tracing/instances";
const EVENT: &str = "block_rq_issue";

/// Maximum number of announced requests that have not arrived: the driver's limit, plus some that never arrive.
const WAITING_MAX: usize = 1024;

/// Number of requests by flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FlagCounts {
    /// Found in the kernel's events.
    pub joined: u64,
    /// Not found there.
    pub unknown: u64,
    /// Sync requests (REQ_SYNC).
    pub sync: u64,
    /// Metadata.
    pub meta: u64,
}

/// Operation, first sector, sectors.
type Key = (Operation, u64, u64);

/// The trace events of one device.
#[derive(Debug)]
pub struct IssuedFlags {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pipe: File,
    /// The beginning of an incomplete line.
    text: Vec<u8>,
    waiting: VecDeque<(Key, RequestFlags)>,
    counts: FlagCounts,
}

impl IssuedFlags {
    /// Traces the requests that the kernel passes to `device`.
    ///
    /// # Errors
    /// If tracefs is missing, or access is forbidden.
    pub fn follow(device: &LoopDevice) -> Result<Self, LiveError> {
        let folder = Path::new(TRACEFS).join(format!("tidegate-{}", std::process::id()));
        let started = start(&folder, (LOOP_MAJOR << 20) | device.minor());
        started
            .map(|pipe| Self::new(folder.clone(), pipe))
            .map_err(|source| {
                let _ = fs::remove_dir(&folder);
                LiveError::Flags { folder, source }
            })
    }

    fn new(folder: PathBuf, pipe: File) -> Self {
        let state = State {
            pipe,
            text: Vec::new(),
            waiting: VecDeque::new(),
            counts: FlagCounts::default(),
        };
        Self {
            folder,
            state: Mutex::new(state),
        }
    }

    /// Returns the flags of a request that has arrived here.
    pub fn of(&self, operation: Operation, sector: u64, sectors: u64) -> RequestFlags {
        let mut state = lock(&self.state);
        state.read_events();
        let at = state
            .waiting
            .iter()
            .position(|(key, _)| *key == (operation, sector, sectors));
        let found = at.and_then(|at| state.waiting.remove(at));
        let flags = found.map_or(RequestFlags::default(), |(_, flags)| flags);
        let counts = &mut state.counts;
        counts.joined += u64::from(found.is_some());
        counts.unknown += u64::from(found.is_none());
        counts.sync += u64::from(flags.contains(RequestFlags::SYNC));
        counts.meta += u64::from(flags.contains(RequestFlags::META));
        flags
    }

    /// Counts so far.
    pub fn counts(&self) -> FlagCounts {
        lock(&self.state).counts
    }

    /// Stops tracing; no request is found from here on.
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel: it is there, and takes no other's place"
    )]
    pub fn stop(&self) {
        let _ = fs::write(self.folder.join("tracing_on"), "0");
        // The instance can't be removed while its pipe is open.
        if let Ok(closed) = File::open("/dev/null") {
            lock(&self.state).pipe = closed;
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Drop for IssuedFlags {
    fn drop(&mut self) {
        self.stop();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the kernel: it is there, and takes no other's place"
)]
fn start(folder: &Path, device: u32) -> io::Result<File> {
    fs::create_dir(folder)?;
    let event = folder.join("events/block").join(EVENT);
    fs::write(folder.join("buffer_size_kb"), "256")?;
    fs::write(event.join("filter"), format!("dev == {device}"))?;
    fs::write(event.join("enable"), "1")?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder.join("trace_pipe"), flags, Mode::empty())?.into())
}

impl State {
    /// Reads all pending events.
    fn read_events(&mut self) {
        let mut buffer = [0; 8192];
        // End of file, an error and "nothing there" are equivalent here: no more is known.
        while let Ok(count @ 1..) = self.pipe.read(&mut buffer) {
            self.text.extend_from_slice(&buffer[..count]);
        }
        let whole = self
            .text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.text.drain(..whole).collect();
        for line in lines.split(|byte| *byte == b'\n') {
            let Some(event) = std::str::from_utf8(line).ok().and_then(event_of) else {
                continue;
            };
            if self.waiting.len() == WAITING_MAX {
                self.waiting.pop_front();
            }
            self.waiting.push_back(event);
        }
    }
}

/// The request of a line such as `... block_rq_issue: 7,64 WSM 4096 () 8 + 8 none,0,0 [name]`, if it moves data.
fn event_of(text: &str) -> Option<(Key, RequestFlags)> {
    let (name, fields) = Line::read(text, |event| event.starts_with(EVENT))?.named()?;
    let fields = BlockFields::read(fields).filter(|_| name == EVENT)?;
    if !matches!(fields.operation, Operation::Read | Operation::Write) || fields.bytes == 0 {
        return None;
    }
    let told = RequestFlags::SYNC.0 | RequestFlags::META.0;
    let key = (fields.operation, fields.sector, fields.bytes / 512);
    Some((key, RequestFlags(fields.flags.0 & told)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "     kworker/1:2-77      [001] d..1.   123.456789: block_rq_issue: 7,64 ";

    #[test]
    fn a_line_tells_operation_place_and_flags() {
        let of = |rest: &str| event_of(&format!("{HEAD}{rest}"));
        let meta = RequestFlags::SYNC.with(RequestFlags::META);
        assert_eq!(
            of("WSM 4096 () 8 + 24 none,0,0 [jbd2/loop64-8]"),
            Some(((Operation::Write, 8, 24), meta))
        );
        assert_eq!(
            of("FWFS 512 () 77 + 1 none,0,0 [a b]"),
            Some(((Operation::Write, 77, 1), RequestFlags::SYNC))
        );
        assert_eq!(
            of("RA 8192 () 0 + 16 be,0,4 [cat]"),
            Some(((Operation::Read, 0, 16), RequestFlags::default()))
        );
        for other in [
            "FF 0 () 0 + 0 none,0,0 [x]",
            "DS 4096 () 8 + 8 [x]",
            "WZ 4096 () 8 + 8 [x]",
            "W",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(event_of("CPU:1 [LOST 7 EVENTS]"), None);
    }

    #[test]
    fn a_request_finds_its_flags_once_and_what_is_not_told_of_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        fs::write(
            &path,
            format!("{HEAD}WM 4096 () 8 + 8 [x]\n{HEAD}W 4096 () 8 + 8 [x]\n"),
        )
        .unwrap();
        let flags = IssuedFlags::new(folder.path().join("none"), File::open(&path).unwrap());
        assert_eq!(flags.of(Operation::Write, 8, 8), RequestFlags::META);
        assert_eq!(flags.of(Operation::Write, 8, 8), RequestFlags::default());
        assert_eq!(flags.of(Operation::Write, 8, 8), RequestFlags::default());
        let expected = FlagCounts {
            joined: 2,
            unknown: 1,
            sync: 0,
            meta: 1,
        };
        assert_eq!(flags.counts(), expected);
    }
}
