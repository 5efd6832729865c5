//! Calls on file descriptors: reads, writes, syncs, sizes.

use results::call_trace::{Action, Descriptor, Handle, Outcome, Whence};

use super::line::{self, descriptor};
use super::{Done, Tracer};

impl Tracer {
    /// Handles calls on descriptors; false if `name` is not one of them.
    pub(super) fn on_descriptors(&mut self, name: &str, done: &Done<'_>) -> bool {
        const CALLS: [&str; 27] = [
            "read",
            "write",
            "readv",
            "writev",
            "pread64",
            "pwrite64",
            "pread",
            "pwrite",
            "preadv",
            "pwritev",
            "preadv2",
            "pwritev2",
            "fsync",
            "fdatasync",
            "sync_file_range",
            "lseek",
            "_llseek",
            "ftruncate",
            "ftruncate64",
            "fallocate",
            "fstat",
            "fstat64",
            "getdents",
            "getdents64",
            "sendfile",
            "sendfile64",
            "copy_file_range",
        ];
        if !CALLS.contains(&name) {
            return false;
        }
        let Some(handle) = self.file(done) else {
            return true;
        };
        let mut outcome = done.outcome();
        let action = match name {
            "sendfile" | "sendfile64" | "copy_file_range" => self.copied(name, handle, done),
            "lseek" | "_llseek" => {
                let whence = done.argument(if name == "lseek" { 2 } else { 3 });
                let reached = done.argument(2).trim_matches(['[', ']']);
                if name == "_llseek" && outcome.is_success() {
                    outcome = unsigned(reached).map_or(Outcome::Unknown, Outcome::Done);
                }
                let place = line::number(done.argument(1)).zip(whence_of(whence));
                place.map(|(offset, whence)| Action::Seek {
                    handle,
                    offset,
                    whence,
                })
            }
            _ => transfer(name, handle, done, outcome),
        };
        match action {
            Some(action) => self.push(done, action, outcome),
            None => self.skip(&format!("{name} with arguments that were not understood")),
        }
        true
    }

    fn copied(&mut self, name: &str, first: Handle, done: &Done<'_>) -> Option<Action> {
        let sends = name.starts_with("sendfile");
        let (other, bytes) = if sends { (1, 3) } else { (2, 4) };
        let positions = if sends { [2, 2] } else { [1, 3] };
        let bytes = unsigned(done.argument(bytes))?;
        let uses_positions = positions.iter().all(|place| done.argument(*place) == "NULL");
        let (number, annotation) = descriptor(done.argument(other));
        let second = self.look_up(done.thread, done.at_ns, number?, annotation, name);
        let Some(Descriptor::File(second)) = second.filter(|_| uses_positions) else {
            return None;
        };
        let (from, to) = if sends { (second, first) } else { (first, second) };
        Some(Action::Copy { from, to, bytes })
    }
}

fn transfer(name: &str, handle: Handle, done: &Done<'_>, outcome: Outcome) -> Option<Action> {
    let moved = outcome.value();
    let count = || unsigned(done.argument(2));
    let offset = || unsigned(done.argument(3));
    Some(match name {
        "read" => Action::Read {
            handle,
            bytes: count()?,
        },
        "write" => Action::Write {
            handle,
            bytes: count()?,
        },
        "readv" => Action::Read {
            handle,
            bytes: moved?,
        },
        "writev" => Action::Write {
            handle,
            bytes: moved?,
        },
        "pread64" | "pread" => Action::ReadAt {
            handle,
            bytes: count()?,
            offset: offset()?,
        },
        "pwrite64" | "pwrite" => Action::WriteAt {
            handle,
            bytes: count()?,
            offset: offset()?,
        },
        "preadv" | "preadv2" => Action::ReadAt {
            handle,
            bytes: moved?,
            offset: offset()?,
        },
        "pwritev" | "pwritev2" => Action::WriteAt {
            handle,
            bytes: moved?,
            offset: offset()?,
        },
        "fsync" => Action::Fsync { handle },
        "fdatasync" => Action::Fdatasync { handle },
        "sync_file_range" => {
            let (offset, bytes) = (unsigned(done.argument(1))?, unsigned(done.argument(2))?);
            Action::SyncRange {
                handle,
                offset,
                bytes,
            }
        }
        "ftruncate" | "ftruncate64" => {
            let bytes = unsigned(done.argument(1))?;
            Action::TruncateHandle { handle, bytes }
        }
        "fallocate" => {
            let mode = allocation_mode(done.argument(1))?;
            let (offset, bytes) = (unsigned(done.argument(2))?, unsigned(done.argument(3))?);
            Action::Allocate {
                handle,
                mode,
                offset,
                bytes,
            }
        }
        "fstat" | "fstat64" => Action::StatHandle { handle },
        _ => Action::List { handle },
    })
}

pub(super) fn unsigned(argument: &str) -> Option<u64> {
    u64::try_from(line::number(argument)?).ok()
}

fn whence_of(word: &str) -> Option<Whence> {
    Some(match word {
        "SEEK_SET" => Whence::Start,
        "SEEK_CUR" => Whence::Current,
        "SEEK_END" => Whence::End,
        "SEEK_DATA" => Whence::Data,
        "SEEK_HOLE" => Whence::Hole,
        _ => return None,
    })
}

/// Converts `fallocate` flags from strace's spelling to Linux flag numbers.
fn allocation_mode(argument: &str) -> Option<u32> {
    const FLAGS: [(&str, u32); 6] = [
        ("FALLOC_FL_KEEP_SIZE", 0x01),
        ("FALLOC_FL_PUNCH_HOLE", 0x02),
        ("FALLOC_FL_COLLAPSE_RANGE", 0x08),
        ("FALLOC_FL_ZERO_RANGE", 0x10),
        ("FALLOC_FL_INSERT_RANGE", 0x20),
        ("FALLOC_FL_UNSHARE_RANGE", 0x40),
    ];
    let mut mode = 0;
    for word in argument.split('|') {
        match (FLAGS.iter().find(|(name, _)| *name == word), line::number(word)) {
            (Some((_, flag)), _) => mode |= flag,
            (None, Some(number)) => mode |= u32::try_from(number).ok()?,
            (None, None) => return None,
        }
    }
    Some(mode)
}
