//! Translation of system calls in strace output to replay actions, and handling of calls that are not file
//! operations.

use results::call_trace::{Action, Descriptor, Outcome};

use super::line::{self, descriptor};
use super::{Done, Tracer, not_replayed};

const NOT_FILES: &str = "call that is no operation on files";

/// File-related calls that a replay omits.
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

/// Calls that create a descriptor that is not a file: name of the call, kind of object, and location of the numbers.
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
    /// The descriptor is the return value.
    Answer,
    /// The argument at this index holds both descriptors, as `[3, 4]`.
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
}
