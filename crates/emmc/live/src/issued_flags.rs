//! What the kernel does not tell a loop device of its requests: that somebody waits for one, or that it is metadata.
//!
//! The tracepoint at which the kernel gives a request to the loop device knows both, and fires before the request begins its way here. So
//! who serves a request reads a tracefs instance of that device's events first, and finds its own by operation, place and length. Requests
//! that are not found have no flags.
//!
//! It is not a tracer (`trace` is): it keeps nothing but what has not come here yet, [`WAITING_MAX`] requests at most. An instance that a
//! killed process has left is removed by the next tracer, as it is named as theirs are.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use results::block_trace::{Operation, RequestFlags};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::device::lock;
use crate::loop_device::LOOP_MAJOR;
use crate::{LiveError, LoopDevice};

const TRACEFS: &str = "/sys/kernel/tracing/instances";

/// Requests that were announced and have not come: as many as there can be in the driver, and those that were forgotten.
const WAITING_MAX: usize = 1024;

/// How many requests had what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct FlagCounts {
    /// Found in the kernel's events.
    pub joined: u64,
    /// Not found there.
    pub unknown: u64,
    /// Somebody waits.
    pub sync: u64,
    /// Metadata.
    pub meta: u64,
}

/// Operation, first sector, sectors.
type Key = (Operation, u64, u64);

/// The events of one device.
#[derive(Debug)]
pub struct IssuedFlags {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pipe: File,
    /// The beginning of a line.
    text: Vec<u8>,
    waiting: VecDeque<(Key, RequestFlags)>,
    counts: FlagCounts,
}

impl IssuedFlags {
    /// Follows the requests that the kernel gives to `device`.
    ///
    /// # Errors
    /// Where there is no tracefs, or it is forbidden.
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

    /// The flags of a request that has come here.
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

    /// What was found so far.
    pub fn counts(&self) -> FlagCounts {
        lock(&self.state).counts
    }

    /// Follows no longer; nothing is found from here on.
    #[expect(
        clippy::disallowed_methods,
        reason = "a file of the kernel: it is there, and takes no other's place"
    )]
    pub fn stop(&self) {
        let _ = fs::write(self.folder.join("tracing_on"), "0");
        // The instance can't go while its pipe is open.
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
    let event = folder.join("events/block/block_rq_issue");
    fs::write(folder.join("buffer_size_kb"), "256")?;
    fs::write(event.join("filter"), format!("dev == {device}"))?;
    fs::write(event.join("enable"), "1")?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder.join("trace_pipe"), flags, Mode::empty())?.into())
}

impl State {
    /// Takes in all events that there are.
    fn read_events(&mut self) {
        let mut buffer = [0; 8192];
        // An end, an error and "nothing there" are the same here: no more is known.
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

/// The request of a line such as `... block_rq_issue: 7,64 WSM 4096 () 8 + 8 none,0,0 [name]`, when it moves data.
fn event_of(line: &str) -> Option<(Key, RequestFlags)> {
    let (_, event) = line.split_once(" block_rq_issue: ")?;
    let mut words = event.split(' ').skip(1);
    let letters = words.next()?;
    let mut places = words.skip_while(|word| !word.ends_with(')')).skip(1);
    let sector = places.next()?.parse().ok()?;
    let sectors = places.nth(1)?.parse().ok()?;
    let (operation, behind) = match letters.strip_prefix('F').unwrap_or(letters).split_at_checked(1)? {
        ("R", behind) => (Operation::Read, behind),
        ("W", behind) if !behind.starts_with('Z') => (Operation::Write, behind),
        _ => return None,
    };
    let mut flags = RequestFlags::default();
    for (letter, flag) in [('S', RequestFlags::SYNC), ('M', RequestFlags::META)] {
        if behind.contains(letter) {
            flags = flags.with(flag);
        }
    }
    Some(((operation, sector, sectors), flags))
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
