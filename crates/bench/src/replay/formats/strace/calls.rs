//! What each system call in strace output means for a replay.

use results::call_trace::{Action, Closed, Descriptor, Handle, Name, OpenFlags, Outcome, Whence};

use super::super::{KERNEL_FILE, UNKNOWN_DESCRIPTOR, is_kernel_file, path_of_bytes};
use super::line::{self, descriptor};
use super::{Done, Tracer, kind_of_annotation, not_replayed, path_of_annotation};

const NOT_FILES: &str = "call that is no operation on files";

/// Calls that have to do with files and that a replay does not make.
const FILE_CALLS: [&str; 47] = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "readlink",
    "readlinkat",
    "symlink",
    "symlinkat",
    "mknod",
    "mknodat",
    "statfs",
    "fstatfs",
    "statfs64",
    "fstatfs64",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "listxattr",
    "llistxattr",
    "flistxattr",
    "removexattr",
    "fremovexattr",
    "fadvise64",
    "readahead",
    "flock",
    "ioctl",
    "fcntl",
    "fcntl64",
    "mmap",
    "mmap2",
    "msync",
    "sync",
    "syncfs",
    "splice",
    "tee",
    "vmsplice",
];

/// Calls on names whose first argument is a directory.
const AT_CALLS: [&str; 10] = [
    "newfstatat",
    "fstatat64",
    "statx",
    "faccessat",
    "faccessat2",
    "unlinkat",
    "mkdirat",
    "renameat",
    "renameat2",
    "linkat",
];

/// Calls that make a descriptor that is no file: name, what it is, and whether the numbers are in an argument.
const MAKERS: [(&str, &str, Made); 17] = [
    ("socket", "socket", Made::Answer),
    ("accept", "socket", Made::Answer),
    ("accept4", "socket", Made::Answer),
    ("socketpair", "socket", Made::Pair(3)),
    ("pipe", "pipe", Made::Pair(0)),
    ("pipe2", "pipe", Made::Pair(0)),
    ("eventfd", "event counter", Made::Answer),
    ("eventfd2", "event counter", Made::Answer),
    ("epoll_create", "epoll", Made::Answer),
    ("epoll_create1", "epoll", Made::Answer),
    ("timerfd_create", "timer", Made::Answer),
    ("signalfd4", "signal descriptor", Made::Answer),
    ("inotify_init1", "inotify", Made::Answer),
    ("memfd_create", "memory file", Made::Answer),
    ("pidfd_open", "process descriptor", Made::Answer),
    ("perf_event_open", "performance counter", Made::Answer),
    (
        "io_uring_setup",
        "io_uring (its operations cannot be seen in system calls)",
        Made::Answer,
    ),
];

#[derive(Clone, Copy)]
enum Made {
    /// The answer is the descriptor.
    Answer,
    /// The argument at this place is `[3, 4]`.
    Pair(usize),
}

impl Tracer {
    pub(super) fn call(&mut self, name: &str, done: &Done<'_>) {
        match name {
            "open" => self.open(done, None, done.argument(0), done.argument(1)),
            "creat" => self.open(done, None, done.argument(0), "O_WRONLY|O_CREAT|O_TRUNC"),
            "openat" | "openat2" => {
                self.open(done, Some(done.argument(0)), done.argument(1), done.argument(2));
            }
            "close" => self.close(done),
            "close_range" => self.close_range(done),
            "dup" | "dup2" | "dup3" => self.duplicate(done, done.argument(2).contains("O_CLOEXEC")),
            "fcntl" | "fcntl64" => self.control(name, done),
            "clone" | "clone3" | "fork" | "vfork" => {
                if let Outcome::Done(child) = done.outcome()
                    && let Ok(child) = u32::try_from(child)
                {
                    let all = done.arguments.join(",");
                    self.tables.fork(done.thread, child, all.contains("CLONE_FILES"));
                    if let Some(directory) = self.directories.get(&done.thread).cloned() {
                        self.directories.insert(child, directory);
                    }
                }
            }
            "execve" | "execveat" => {
                if done.outcome().is_success() {
                    for handle in self.tables.exec(done.thread) {
                        self.add(done.thread, done.at_ns, Action::Close { handle });
                    }
                }
            }
            "chdir" | "fchdir" => self.change_directory(name, done),
            _ => {
                if !self.on_names(name, done) && !self.on_descriptors(name, done) {
                    self.others(name, done);
                }
            }
        }
    }

    fn others(&mut self, name: &str, done: &Done<'_>) {
        if let Some((_, kind, made)) = MAKERS.iter().find(|(maker, _, _)| *maker == name) {
            self.made(done, kind, *made);
            self.skip(kind);
            return;
        }
        let is_mapping = matches!(name, "mmap" | "mmap2");
        if is_mapping {
            let (number, annotation) = descriptor(done.argument(4));
            let number = number.filter(|number| *number >= 0);
            let mapped =
                number.and_then(|number| self.look_up(done.thread, done.at_ns, number, annotation, name));
            if matches!(mapped, Some(Descriptor::File(_))) {
                self.skip("mmap of a file: what programs do to mapped memory is no system call");
            } else {
                self.skip(NOT_FILES);
            }
        } else if FILE_CALLS.contains(&name) {
            self.skip(&not_replayed(name));
        } else {
            self.skip(NOT_FILES);
        }
    }

    fn made(&mut self, done: &Done<'_>, kind: &'static str, made: Made) {
        if !done.outcome().is_success() {
            return;
        }
        let numbers: Vec<i32> = match made {
            Made::Answer => descriptor(done.answer.value).0.into_iter().collect(),
            Made::Pair(place) => {
                let inside = done.argument(place).trim_matches(['[', ']']);
                let words = line::arguments(inside);
                words.iter().filter_map(|word| descriptor(word).0).collect()
            }
        };
        let close_on_exec = done.arguments.iter().any(|argument| argument.contains("CLOEXEC"));
        for number in numbers {
            self.tables
                .insert(done.thread, number, Descriptor::Other(kind), close_on_exec);
        }
    }

    fn open(&mut self, done: &Done<'_>, directory: Option<&str>, path: &str, flags: &str) {
        let words = flags.trim_start_matches("{flags=");
        let words = words.split([',', '}']).next().unwrap_or(words);
        let outcome = done.outcome();
        let opened = descriptor(done.answer.value).0.filter(|number| *number >= 0);
        if words.contains("O_TMPFILE") {
            self.skip(&not_replayed("O_TMPFILE"));
            if let Some(number) = opened {
                let kind = Descriptor::Other("file without a name (O_TMPFILE)");
                self.tables.insert(done.thread, number, kind, false);
            }
            return;
        }
        let annotated = done.answer.annotation.filter(|path| path.starts_with('/'));
        let path = match annotated {
            Some(annotation) => Some(path_of_annotation(annotation)),
            None => self.path(done, directory, path),
        };
        let Some(path) = path else {
            self.skip("name that strace cut short or did not show");
            return;
        };
        let close_on_exec = words.contains("O_CLOEXEC");
        let other = done
            .answer
            .annotation
            .filter(|annotation| !annotation.starts_with('/'));
        let other = match other {
            Some(annotation) => Some(kind_of_annotation(annotation)),
            None => is_kernel_file(&path_of_bytes(&path)).then_some(KERNEL_FILE),
        };
        if let Some(what) = other {
            self.skip(what);
            if let Some(number) = opened {
                self.tables
                    .insert(done.thread, number, Descriptor::Other(what), close_on_exec);
            }
            return;
        }
        let trace = &mut self.collector.trace;
        let (name, handle) = (trace.name(&path_of_bytes(&path)), trace.new_handle());
        self.paths.insert(handle, path);
        let flags = OpenFlags::from_c_words(words);
        let outcome = if outcome.is_success() {
            Outcome::Done(0)
        } else {
            outcome
        };
        self.push(done, Action::Open { name, handle, flags }, outcome);
        if let Some(number) = opened {
            let kind = Descriptor::File(handle);
            let closed = self.tables.insert(done.thread, number, kind, close_on_exec);
            self.close_silently(done, closed);
        }
    }

    /// A number was given again: its close was not in the trace.
    fn close_silently(&mut self, done: &Done<'_>, closed: Closed) {
        if let Closed::Last(handle) = closed {
            self.add(done.thread, done.at_ns, Action::Close { handle });
        }
    }

    fn close(&mut self, done: &Done<'_>) {
        match done.closed {
            Some(Closed::Last(handle)) => {
                self.paths.remove(&handle);
                self.push(done, Action::Close { handle }, done.outcome());
            }
            Some(Closed::StillHeld) => self.skip("close of a descriptor that another process still has"),
            Some(Closed::Other(what)) => self.skip(what),
            Some(Closed::Unknown) | None => self.skip(UNKNOWN_DESCRIPTOR),
        }
    }

    fn close_range(&mut self, done: &Done<'_>) {
        let (first, last) = (line::number(done.argument(0)), line::number(done.argument(1)));
        let bound = |number: Option<i64>, other| {
            number.map_or(other, |number| i32::try_from(number).unwrap_or(other))
        };
        if !done.outcome().is_success() || done.argument(2).contains("CLOEXEC") {
            return;
        }
        for number in self
            .tables
            .open_between(done.thread, bound(first, 0), bound(last, i32::MAX))
        {
            let closed = self.tables.close(done.thread, number);
            self.close_silently(done, closed);
        }
    }

    fn duplicate(&mut self, done: &Done<'_>, close_on_exec: bool) {
        let Some(copy_number) = descriptor(done.answer.value).0.filter(|number| *number >= 0) else {
            self.skip(&not_replayed("dup that failed"));
            return;
        };
        match done.descriptor {
            Some(Descriptor::File(handle)) => {
                let (number, _) = descriptor(done.argument(0));
                if number == Some(copy_number) {
                    return;
                }
                let copy = self.collector.trace.new_handle();
                if let Some(path) = self.paths.get(&handle).cloned() {
                    self.paths.insert(copy, path);
                }
                let kind = Descriptor::File(copy);
                let closed = self.tables.insert(done.thread, copy_number, kind, close_on_exec);
                self.close_silently(done, closed);
                self.push(done, Action::Duplicate { handle, copy }, Outcome::Done(0));
            }
            Some(other) => {
                let closed = self.tables.insert(done.thread, copy_number, other, close_on_exec);
                self.close_silently(done, closed);
                self.file(done);
            }
            None => {
                let closed = self.tables.close(done.thread, copy_number);
                self.close_silently(done, closed);
                self.skip(UNKNOWN_DESCRIPTOR);
            }
        }
    }

    fn control(&mut self, name: &str, done: &Done<'_>) {
        match done.argument(1) {
            "F_DUPFD" => self.duplicate(done, false),
            "F_DUPFD_CLOEXEC" => self.duplicate(done, true),
            "F_SETFD" => {
                if let (Some(number), _) = descriptor(done.argument(0)) {
                    let is_set = done.argument(2).contains("FD_CLOEXEC");
                    self.tables.set_close_on_exec(done.thread, number, is_set);
                }
            }
            _ => self.skip(&not_replayed(name)),
        }
    }

    fn change_directory(&mut self, name: &str, done: &Done<'_>) {
        if !done.outcome().is_success() {
            return;
        }
        let path = match (name, done.descriptor) {
            ("chdir", _) => self.path(done, None, done.argument(0)),
            (_, Some(Descriptor::File(handle))) => self.paths.get(&handle).cloned(),
            _ => None,
        };
        if let Some(path) = path {
            self.directories.insert(done.thread, path);
        }
    }

    /// A path argument, absolute as far as the trace tells.
    fn path(&self, done: &Done<'_>, directory: Option<&str>, argument: &str) -> Option<Vec<u8>> {
        let path = line::string(argument)?;
        if path.starts_with(b"/") {
            return Some(path);
        }
        let base = match directory {
            None | Some("AT_FDCWD") => self.directories.get(&done.thread).cloned(),
            Some(argument) => {
                let (number, annotation) = descriptor(argument);
                let of_handle = match number.and_then(|number| self.tables.get(done.thread, number)) {
                    Some(Descriptor::File(handle)) => self.paths.get(&handle).cloned(),
                    _ => None,
                };
                let annotated = annotation
                    .filter(|path| path.starts_with('/'))
                    .map(path_of_annotation);
                annotated.or(of_handle)
            }
        };
        let mut whole = base.unwrap_or_default();
        whole.push(b'/');
        whole.extend_from_slice(&path);
        Some(whole)
    }

    fn name(&mut self, done: &Done<'_>, directory: Option<&str>, argument: &str) -> Option<Name> {
        let Some(path) = self.path(done, directory, argument) else {
            self.skip("name that strace cut short or did not show");
            return None;
        };
        let path = path_of_bytes(&path);
        if is_kernel_file(&path) {
            self.skip(KERNEL_FILE);
            return None;
        }
        Some(self.collector.trace.name(&path))
    }

    /// Calls on names. False when `name` is none of them.
    fn on_names(&mut self, name: &str, done: &Done<'_>) -> bool {
        let at = AT_CALLS.contains(&name);
        let (directory, first) = if at {
            (Some(done.argument(0)), 1)
        } else {
            (None, 0)
        };
        let outcome = match done.outcome() {
            Outcome::Done(_) => Outcome::Done(0),
            other => other,
        };
        let path = done.argument(first);
        let action = match name {
            "newfstatat" | "fstatat64" | "statx" if path == "\"\"" => {
                if let Some(handle) = self.file(done) {
                    self.push(done, Action::StatHandle { handle }, outcome);
                }
                return true;
            }
            "stat" | "lstat" | "stat64" | "lstat64" | "newfstatat" | "fstatat64" | "statx" => {
                self.name(done, directory, path).map(|name| Action::Stat { name })
            }
            "access" | "faccessat" | "faccessat2" => self
                .name(done, directory, path)
                .map(|name| Action::Access { name }),
            "unlinkat" if done.argument(2).contains("AT_REMOVEDIR") => self
                .name(done, directory, path)
                .map(|name| Action::RemoveDirectory { name }),
            "unlink" | "unlinkat" => self
                .name(done, directory, path)
                .map(|name| Action::Unlink { name }),
            "mkdir" | "mkdirat" => self
                .name(done, directory, path)
                .map(|name| Action::MakeDirectory { name }),
            "rmdir" => self
                .name(done, None, path)
                .map(|name| Action::RemoveDirectory { name }),
            "truncate" | "truncate64" => {
                let bytes = unsigned(done.argument(1));
                let name = self.name(done, None, path);
                name.zip(bytes)
                    .map(|(name, bytes)| Action::Truncate { name, bytes })
            }
            "renameat2" if done.argument(4).contains("EXCHANGE") => {
                self.skip(&not_replayed("RENAME_EXCHANGE"));
                return true;
            }
            "rename" | "link" | "renameat" | "renameat2" | "linkat" => {
                let (to_directory, to) = if at {
                    (Some(done.argument(2)), done.argument(3))
                } else {
                    (None, done.argument(1))
                };
                let from = self.name(done, directory, path);
                let to = self.name(done, to_directory, to);
                from.zip(to).map(|(from, to)| {
                    if name.starts_with("link") {
                        Action::Link { from, to }
                    } else {
                        Action::Rename { from, to }
                    }
                })
            }
            _ => return false,
        };
        if let Some(action) = action {
            self.push(done, action, outcome);
        }
        true
    }

    /// Calls on descriptors. False when `name` is none of them.
    fn on_descriptors(&mut self, name: &str, done: &Done<'_>) -> bool {
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

fn unsigned(argument: &str) -> Option<u64> {
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

/// Flags of `fallocate` as strace spells them, as Linux numbers them.
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
