//! Reader of strace output. Understands `-f` for threads, `-ttt` for times, `-T` for durations and `-y` for the paths
//! of descriptors; all are optional. Without times, calls are spaced one microsecond apart.
//!
//! Descriptors are tracked through `fork`, `dup`, `exec` and `close`. Sockets, pipes and similar are recognised by
//! the call that created them, or by `-y`, and are dropped and counted, as are files of `/dev`, `/proc` and `/sys`.

mod calls;
mod descriptors;
mod line;
mod names;
mod transfers;

use std::collections::HashMap;
use std::io::BufRead;

use results::call_trace::{
    Action, Call, Closed, Descriptor, DescriptorTables, Handle, Layer, OpenFlags, Outcome, Trace,
};

use self::line::{Answer, Event, Line, Time, descriptor};
use super::{Collector, KERNEL_FILE, ReadOptions, TraceError, UNKNOWN_DESCRIPTOR, errno, is_kernel_file};
use crate::import::lines::Lines;

/// Spacing of calls without times.
const STEP_NS: u64 = 1000;

const DAY_NS: u64 = 86_400_000_000_000;

/// The thread of lines without a thread number.
const ONLY_THREAD: u32 = 0;

const OTHER_LINE: &str = "line that is no strace output";
const NEVER_RETURNED: &str = "call that did not return";

/// True for a line that holds a call.
pub fn looks_like(text: &str) -> bool {
    line::line(text).is_some_and(|line| !matches!(line.event, Event::Remark | Event::Exit))
}

pub fn parse(mut lines: Lines<impl BufRead>, options: ReadOptions) -> Result<Trace, TraceError> {
    let trace = Trace::new(Layer::SystemCalls, "strace");
    let mut tracer = Tracer::new(Collector::new(trace, options));
    let mut understood = false;
    while let Some(text) = lines.next()? {
        if text.trim().is_empty() {
            continue;
        }
        match line::line(text) {
            Some(line) => {
                understood |= !matches!(line.event, Event::Remark);
                tracer.line(&line);
            }
            None => tracer.skip(OTHER_LINE),
        }
    }
    if !understood {
        return Err(lines.broken("output of strace, such as `7 1700000000.000001 read(3, \"\", 4096) = 0`"));
    }
    Ok(tracer.finish())
}

/// A call in progress, with its descriptor as it was at the start: another thread may change that before the call
/// ends.
#[derive(Clone, Debug)]
struct Began {
    at_ns: u64,
    name: String,
    arguments: String,
    descriptor: Option<Descriptor>,
    closed: Option<Closed>,
    /// True for a `clone` whose child was already seen.
    has_child: bool,
}

/// A completed call.
struct Done<'line> {
    thread: u32,
    at_ns: u64,
    arguments: Vec<&'line str>,
    answer: Answer<'line>,
    /// The descriptor of the first argument when the call began.
    descriptor: Option<Descriptor>,
    closed: Option<Closed>,
}

impl Done<'_> {
    fn outcome(&self) -> Outcome {
        match (self.answer.error, line::number(self.answer.value)) {
            (Some(name), _) => errno::number_of(name).map_or(Outcome::Failed(libc::EIO), Outcome::Failed),
            (None, Some(value)) => u64::try_from(value).map_or(Outcome::Unknown, Outcome::Done),
            (None, None) => Outcome::Unknown,
        }
    }

    fn argument(&self, place: usize) -> &str {
        self.arguments.get(place).copied().unwrap_or_default()
    }
}

struct Tracer {
    collector: Collector,
    tables: DescriptorTables,
    /// Path of each handle, for names relative to it.
    paths: HashMap<Handle, Vec<u8>>,
    directories: HashMap<u32, Vec<u8>>,
    under_way: HashMap<u32, Began>,
    first_thread: Option<u32>,
    clock_ns: u64,
    base_ns: Option<u64>,
    days: u64,
}

impl Tracer {
    fn new(collector: Collector) -> Self {
        Self {
            collector,
            tables: DescriptorTables::new(),
            paths: HashMap::new(),
            directories: HashMap::new(),
            under_way: HashMap::new(),
            first_thread: None,
            clock_ns: 0,
            base_ns: None,
            days: 0,
        }
    }

    fn finish(mut self) -> Trace {
        let open = u64::try_from(self.under_way.len()).unwrap_or(u64::MAX);
        self.collector.trace.skip_many(NEVER_RETURNED, open);
        self.collector.trace
    }

    fn skip(&mut self, reason: &str) {
        self.collector.trace.skip(reason);
    }

    fn line(&mut self, line: &Line<'_>) {
        if line.event == Event::Remark {
            return;
        }
        let at_ns = self.time(line.time);
        let thread = line.thread.unwrap_or(ONLY_THREAD);
        let first = *self.first_thread.get_or_insert(thread);
        if !self.tables.knows(thread) {
            self.adopt(first, thread);
        }
        match &line.event {
            Event::Call {
                name,
                arguments,
                answer,
            } => {
                let began = self.began(thread, at_ns, name, arguments);
                self.ended(thread, &began, answer);
            }
            Event::Unfinished { name, arguments } => {
                let began = self.began(thread, at_ns, name, arguments);
                self.under_way.insert(thread, began);
            }
            Event::Resumed {
                name,
                arguments,
                answer,
            } => match self.under_way.remove(&thread) {
                Some(mut began) if began.name == *name => {
                    began.arguments.push_str(arguments);
                    self.ended(thread, &began, answer);
                }
                _ => self.skip("end of a call whose beginning is missing"),
            },
            Event::Exit => {
                if self.under_way.remove(&thread).is_some() {
                    self.skip(NEVER_RETURNED);
                }
                for handle in self.tables.exit(thread) {
                    self.add(thread, at_ns, Action::Close { handle });
                }
            }
            Event::Remark => {}
        }
    }

    /// Assigns a thread not yet announced by a completed call to the oldest `clone` in progress. Without one (the
    /// trace has no process calls), it is most likely a thread of the traced program.
    fn adopt(&mut self, first: u32, thread: u32) {
        let makers = self.under_way.iter_mut().filter(|(_, began)| {
            !began.has_child && matches!(began.name.as_str(), "clone" | "clone3" | "fork" | "vfork")
        });
        let Some((parent, began)) = makers.min_by_key(|(_, began)| began.at_ns) else {
            self.tables.fork(first, thread, true);
            return;
        };
        began.has_child = true;
        let (parent, shares) = (*parent, began.arguments.contains("CLONE_FILES"));
        self.tables.fork(parent, thread, shares);
        if let Some(directory) = self.directories.get(&parent).cloned() {
            self.directories.insert(thread, directory);
        }
    }

    fn time(&mut self, time: Option<Time>) -> u64 {
        let ns = match time {
            Some(Time::Absolute(ns)) => ns,
            Some(Time::OfDay(ns)) => {
                let mut ns_in_all = ns.saturating_add(self.days.saturating_mul(DAY_NS));
                if ns_in_all.saturating_add(DAY_NS / 2) < self.clock_ns {
                    self.days += 1;
                    ns_in_all = ns_in_all.saturating_add(DAY_NS);
                }
                ns_in_all
            }
            Some(Time::Relative(ns)) => self.clock_ns.saturating_add(ns),
            None => self.clock_ns.saturating_add(STEP_NS),
        };
        self.clock_ns = ns;
        ns.saturating_sub(*self.base_ns.get_or_insert(ns))
    }

    fn began(&mut self, thread: u32, at_ns: u64, name: &str, arguments: &str) -> Began {
        let first = line::arguments(arguments).first().copied().unwrap_or_default();
        let (number, annotation) = descriptor(first);
        let found = number.and_then(|number| self.look_up(thread, at_ns, number, annotation, name));
        let closed = match (name, number) {
            ("close", Some(number)) => Some(self.tables.close(thread, number)),
            _ => None,
        };
        Began {
            at_ns,
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            descriptor: found,
            closed,
            has_child: false,
        }
    }

    /// Resolves a descriptor number. One whose opening is not in the trace is opened here if `-y` gives its path.
    fn look_up(
        &mut self,
        thread: u32,
        at_ns: u64,
        number: i32,
        annotation: Option<&str>,
        call: &str,
    ) -> Option<Descriptor> {
        if let Some(found) = self.tables.get(thread, number) {
            return Some(found);
        }
        let annotation = annotation?;
        let found = if annotation.starts_with('/') {
            let path = path_of_annotation(annotation);
            if is_kernel_file(&super::path_of_bytes(&path)) {
                Descriptor::Other(KERNEL_FILE)
            } else {
                let flags = if call.starts_with("getdents") || call == "fchdir" || call.ends_with("at") {
                    OpenFlags {
                        directory: true,
                        ..OpenFlags::READ
                    }
                } else {
                    OpenFlags::READ_WRITE
                };
                let handle = self.open_at(thread, at_ns, &path, flags);
                self.skip("descriptor opened before the trace began, and opened here at its first use");
                Descriptor::File(handle)
            }
        } else {
            Descriptor::Other(kind_of_annotation(annotation))
        };
        self.tables.insert(thread, number, found, false);
        Some(found)
    }

    fn open_at(&mut self, thread: u32, at_ns: u64, path: &[u8], flags: OpenFlags) -> Handle {
        let trace = &mut self.collector.trace;
        let name = trace.name(&super::path_of_bytes(path));
        let handle = trace.new_handle();
        self.paths.insert(handle, path.to_vec());
        self.add(thread, at_ns, Action::Open { name, handle, flags });
        handle
    }

    fn ended(&mut self, thread: u32, began: &Began, answer: &Answer<'_>) {
        if answer.value == "?" && !began.name.starts_with("exit") {
            self.skip(NEVER_RETURNED);
            return;
        }
        let done = Done {
            thread,
            at_ns: began.at_ns,
            arguments: line::arguments(&began.arguments),
            answer: *answer,
            descriptor: began.descriptor,
            closed: began.closed,
        };
        self.call(&began.name, &done);
    }

    /// Adds a call that is not in the strace output.
    fn add(&mut self, thread: u32, at_ns: u64, action: Action) {
        self.collector.push(Call {
            thread,
            at_ns,
            recorded_duration_ns: None,
            outcome: Outcome::Unknown,
            action,
        });
    }

    fn push(&mut self, done: &Done<'_>, action: Action, outcome: Outcome) {
        self.collector.push(Call {
            thread: done.thread,
            at_ns: done.at_ns,
            recorded_duration_ns: done.answer.duration_ns,
            outcome,
            action,
        });
    }

    /// The file of the first argument; anything else is counted as dropped.
    fn file(&mut self, done: &Done<'_>) -> Option<Handle> {
        match done.descriptor {
            Some(Descriptor::File(handle)) => Some(handle),
            Some(Descriptor::Other(what)) => {
                self.skip(what);
                None
            }
            None => {
                self.skip(UNKNOWN_DESCRIPTOR);
                None
            }
        }
    }
}

fn path_of_annotation(annotation: &str) -> Vec<u8> {
    let path = annotation.strip_suffix("(deleted)").unwrap_or(annotation);
    line::unescaped(path.trim_end())
}

fn kind_of_annotation(annotation: &str) -> &'static str {
    const KINDS: [(&str, &str); 12] = [
        ("pipe:", "pipe"),
        ("socket:", "socket"),
        ("TCP", "socket"),
        ("UDP", "socket"),
        ("UNIX", "socket"),
        ("NETLINK", "socket"),
        ("anon_inode:[eventfd]", "event counter"),
        ("anon_inode:[eventpoll]", "epoll"),
        ("anon_inode:[timerfd]", "timer"),
        ("anon_inode:[signalfd]", "signal descriptor"),
        ("anon_inode:inotify", "inotify"),
        ("anon_inode:", "anonymous descriptor"),
    ];
    let found = KINDS.iter().find(|(prefix, _)| annotation.starts_with(prefix));
    found.map_or("descriptor that is no file", |(_, kind)| kind)
}

/// Reason for a dropped call, including its name, so that the summary shows each call separately.
fn not_replayed(name: &str) -> String {
    format!("{name} is not replayed")
}
