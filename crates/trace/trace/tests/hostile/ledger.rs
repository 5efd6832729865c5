//! The ledger: each program's own record of its actions, independent of the tracer.
//!
//! One line per action, appended by one write: the process and its name then, the time before and after, the file, and the
//! range. Names of files have numbers, so that an action says by which of several names it was made, whatever the name's
//! path was then.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use rustix::time::{ClockId, clock_gettime};

use crate::{Outcome, failed};

/// `FS_IOC_GETVERSION`.
const GETVERSION: libc::c_ulong = 0x8008_7601;

/// Kind of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Made a range of the page cache dirty.
    Dirtied,
    /// Stored to a range of mapped memory. With large pages the kernel may write more, and more often.
    Stored,
    /// Changed no data of a range, but made clean pages of it dirty: prepared memory for stores, or grew the last page.
    Touched,
    /// Wrote a range with `O_DIRECT`.
    WroteDirectly,
    /// Read a range with `O_DIRECT`.
    ReadDirectly,
    /// Read a range through the page cache, which may read ahead.
    Read,
    /// Was refused without waiting, but the kernel may have begun to read the range for the next attempt.
    Refused,
}

/// Word of each kind in the ledger.
const WORDS: [(Act, &str); 7] = [
    (Act::Dirtied, "dirtied"),
    (Act::Stored, "stored"),
    (Act::Touched, "touched"),
    (Act::WroteDirectly, "wrote_directly"),
    (Act::ReadDirectly, "read_directly"),
    (Act::Read, "read"),
    (Act::Refused, "refused"),
];

/// File system, inode, generation. The device itself: its number, 0, 0.
pub type FileKey = ((u32, u32), u64, u32);

/// Time before and after, ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub to: u64,
}

impl Window {
    /// Whether both have a moment in common, or are this near.
    pub const fn overlaps(self, other: Self, slack: u64) -> bool {
        self.from <= other.to.saturating_add(slack) && other.from <= self.to.saturating_add(slack)
    }
}

/// One action.
#[derive(Clone, Debug)]
pub struct Action {
    pub act: Act,
    pub pid: u32,
    /// The process's name, which changes with the program it executes.
    pub process: String,
    pub when: Window,
    pub offset: u64,
    pub bytes: u64,
    /// Number of the name that was opened.
    pub name: u32,
}

/// A name's path from this time on; `None`: it was removed.
#[derive(Clone, Debug)]
pub struct Naming {
    pub when: Window,
    pub path: Option<String>,
}

/// A rename of a file.
#[derive(Clone, Debug)]
pub struct Rename {
    pub pid: u32,
    /// The process's name.
    pub process: String,
    pub file: FileKey,
    pub path: String,
}

/// All that the programs did.
#[derive(Debug, Default)]
pub struct Ledger {
    /// In the order of the times at which they ended.
    pub actions: HashMap<FileKey, Vec<Action>>,
    pub names: HashMap<u32, Vec<Naming>>,
    /// Names of each file.
    pub names_of: HashMap<FileKey, Vec<u32>>,
    pub renames: Vec<Rename>,
}

/// Wall clock, ns since 1970.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A program's end of the ledger.
#[derive(Debug)]
pub struct Log {
    file: File,
}

impl Log {
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { file })
    }

    /// Does something to a range of a file and records it. The action tells how many bytes it moved; none is recorded if it
    /// moved none.
    pub fn act(
        &self,
        act: Act,
        (file, name): (&File, u32),
        offset: u64,
        action: impl FnOnce() -> std::io::Result<u64>,
    ) -> std::io::Result<u64> {
        let from = now();
        let bytes = action()?;
        if bytes > 0 {
            self.ended(act, (file, name), offset, bytes, from)?;
        }
        Ok(bytes)
    }

    /// Records an action that began at a time and has just ended.
    pub fn ended(
        &self,
        act: Act,
        (file, name): (&File, u32),
        offset: u64,
        bytes: u64,
        from: u64,
    ) -> std::io::Result<()> {
        let to = now();
        let (word, key) = (word(act), words_of(&key_of(file)?));
        let pid = std::process::id();
        // Threads have the name of their process.
        let process = rustix::thread::name()?;
        let process = process.to_string_lossy();
        self.line(&format!(
            "A {word} {pid} {process} {from} {to} {key} {offset} {bytes} {name}\n"
        ))
    }

    /// Records the path of a name from here on; `from`: the time before the call that made it.
    pub fn named(&self, from: u64, name: u32, file: &File, path: &str) -> std::io::Result<()> {
        let key = words_of(&key_of(file)?);
        self.line(&format!("N {from} {} {key} {name} {path}\n", now()))
    }

    /// Records that a name was removed.
    pub fn removed(&self, from: u64, name: u32) -> std::io::Result<()> {
        self.line(&format!("X {from} {} {name}\n", now()))
    }

    /// Records that this process renamed a file.
    pub fn renamed(&self, from: u64, name: u32, file: &File, path: &str) -> std::io::Result<()> {
        self.named(from, name, file, path)?;
        let key = words_of(&key_of(file)?);
        let process = std::fs::read_to_string("/proc/self/comm")?;
        self.line(&format!(
            "M {} {} {key} {path}\n",
            std::process::id(),
            process.trim_end()
        ))
    }

    fn line(&self, line: &str) -> std::io::Result<()> {
        (&self.file).write_all(line.as_bytes())
    }
}

fn word(act: Act) -> &'static str {
    WORDS
        .iter()
        .find(|(known, _)| *known == act)
        .map_or("?", |(_, word)| word)
}

fn words_of(((major, minor), inode, generation): &FileKey) -> String {
    format!("{major} {minor} {inode} {generation}")
}

/// Identity of an open file, or of a device.
pub fn key_of(file: &File) -> std::io::Result<FileKey> {
    let metadata = file.metadata()?;
    let split = |device: u64| (rustix::fs::major(device), rustix::fs::minor(device));
    if metadata.rdev() != 0 {
        return Ok((split(metadata.rdev()), 0, 0));
    }
    let generation = generation_of(file).unwrap_or(0);
    Ok((split(metadata.dev()), metadata.ino(), generation))
}

/// Generation of an open file, if its file system tells it.
pub fn generation_of(file: &File) -> Option<u32> {
    let mut value: libc::c_long = 0;
    // SAFETY: the call writes at most a long to the address.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), GETVERSION, &raw mut value) };
    // Only 32 bits of it are written.
    (answer == 0).then(|| u32::try_from(value & 0xFFFF_FFFF).unwrap_or(0))
}

impl Ledger {
    /// Reads a ledger.
    pub fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| failed("ledger", error))?;
        let mut ledger = Self::default();
        for line in text.lines() {
            ledger
                .add(line)
                .ok_or_else(|| format!("ledger: {line:?} is no entry"))?;
        }
        for actions in ledger.actions.values_mut() {
            actions.sort_by_key(|action| action.when.to);
        }
        for namings in ledger.names.values_mut() {
            namings.sort_by_key(|naming| naming.when.to);
        }
        Ok(ledger)
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let words = &mut words;
        match words.next()? {
            "A" => {
                let word = words.next()?;
                let (act, _) = WORDS.into_iter().find(|(_, known)| *known == word)?;
                let pid = next(words)?;
                let process = words.next()?.to_owned();
                let when = window(words)?;
                let file = key(words)?;
                let action = Action {
                    act,
                    pid,
                    process,
                    when,
                    offset: next(words)?,
                    bytes: next(words)?,
                    name: next(words)?,
                };
                self.actions.entry(file).or_default().push(action);
            }
            "N" => {
                let when = window(words)?;
                let file = key(words)?;
                let name: u32 = next(words)?;
                let path = Some(words.next()?.to_owned());
                self.names.entry(name).or_default().push(Naming { when, path });
                let names = self.names_of.entry(file).or_default();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            "X" => {
                let when = window(words)?;
                let name: u32 = next(words)?;
                self.names
                    .entry(name)
                    .or_default()
                    .push(Naming { when, path: None });
            }
            "M" => {
                let pid = next(words)?;
                let process = words.next()?.to_owned();
                let file = key(words)?;
                let path = words.next()?.to_owned();
                self.renames.push(Rename {
                    pid,
                    process,
                    file,
                    path,
                });
            }
            _ => return None,
        }
        Some(())
    }

    /// Names given and taken away, by time.
    pub fn namings(&self, name: u32) -> &[Naming] {
        self.names.get(&name).map_or(&[], Vec::as_slice)
    }

    /// Paths that a name may have had at a time: more than one while it changed. A removed name keeps its last one.
    pub fn paths(&self, name: u32, time: Window, slack: u64) -> Vec<&str> {
        let mut paths = Vec::new();
        for naming in self.namings(name) {
            let Some(path) = &naming.path else { continue };
            if naming.when.from > time.to.saturating_add(slack) {
                break;
            }
            if naming.when.to.saturating_add(slack) < time.from {
                paths.clear();
            }
            paths.push(path.as_str());
        }
        paths
    }
}

fn next<T: FromStr>(words: &mut std::str::Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

fn window(words: &mut std::str::Split<'_, char>) -> Option<Window> {
    Some(Window {
        from: next(words)?,
        to: next(words)?,
    })
}

fn key(words: &mut std::str::Split<'_, char>) -> Option<FileKey> {
    Some(((next(words)?, next(words)?), next(words)?, next(words)?))
}
