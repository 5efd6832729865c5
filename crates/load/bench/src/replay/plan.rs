//! Assigns calls to threads, and computes the dependencies between calls of different threads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use results::call_trace::{Action, Call, Handle, Name, Trace};

use super::dependencies::Dependency;
use super::initial::Initial;
use crate::error::BenchError;

/// The plan of a replay, computed before anything is touched.
#[derive(Debug)]
pub struct Plan {
    /// The initial state.
    pub initial: Initial,
    /// Calls of each replay thread, as ascending indexes into the trace.
    pub replay_threads: Vec<Vec<u32>>,
    /// Threads of the trace.
    pub traced_threads: u64,
    /// Number of resources used by more than one thread.
    pub resources: u32,
    /// Largest number of simultaneously open descriptors, in trace order.
    pub open_files_max: u64,
    needs: Vec<Dependency>,
    /// Index of each call's first dependency; one more entry than there are calls.
    starts: Vec<u32>,
}

impl Plan {
    /// Plans a trace whose calls are in order.
    ///
    /// # Errors
    /// If there are more calls or dependencies than can be counted.
    pub fn of(trace: &Trace) -> Result<Self, BenchError> {
        let count = u32::try_from(trace.calls.len()).map_err(|_| {
            let problem = format!("{} calls, expected at most 2^32", trace.calls.len());
            BenchError::spec("trace", problem)
        })?;
        let (replay_threads, lane_of_thread) = replay_threads(&trace.calls);
        let mut resources = Resources::new(trace);
        let mut uses = Vec::new();
        for call in &trace.calls {
            resources.uses_of(call, &mut uses);
            let replay_thread = lane_of_thread[&call.thread];
            for (resource, _) in &uses {
                resources.seen_by(*resource, replay_thread);
            }
        }
        let resources_shared = resources.number_shared();
        let mut counts = vec![Count::default(); index(resources_shared)];
        let mut needs = Vec::new();
        let mut starts = Vec::with_capacity(index(count) + 1);
        for call in &trace.calls {
            starts.push(start(&needs)?);
            resources.uses_of(call, &mut uses);
            for (resource, mode) in &uses {
                if let Some(resource) = resources.shared_number(*resource) {
                    let done = counts[index(resource)].next(*mode);
                    needs.push(Dependency { resource, done });
                }
            }
        }
        starts.push(start(&needs)?);
        Ok(Self {
            initial: Initial::of(trace),
            traced_threads: u64::try_from(lane_of_thread.len()).unwrap_or(u64::MAX),
            replay_threads,
            resources: resources_shared,
            open_files_max: open_files_max(&trace.calls),
            needs,
            starts,
        })
    }

    /// The dependencies that the call at `place` waits for, and whose resources it passes when it completes.
    pub fn needs(&self, place: u32) -> &[Dependency] {
        let place = index(place);
        &self.needs[index(self.starts[place])..index(self.starts[place + 1])]
    }
}

fn start(needs: &[Dependency]) -> Result<u32, BenchError> {
    u32::try_from(needs.len()).map_err(|_| BenchError::spec("trace", "more than 2^32 dependencies"))
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("it counts things in memory")
}

/// Assigns each traced thread a replay thread: a new one, or that of a thread whose last call came earlier.
fn replay_threads(calls: &[Call]) -> (Vec<Vec<u32>>, HashMap<u32, u32>) {
    let mut last_of_thread = HashMap::new();
    for (place, call) in (0_u32..).zip(calls) {
        last_of_thread.insert(call.thread, place);
    }
    let mut lane_of_thread = HashMap::new();
    let mut free: BinaryHeap<Reverse<(u32, u32)>> = BinaryHeap::new();
    let mut replay_threads: Vec<Vec<u32>> = Vec::new();
    for (place, call) in (0_u32..).zip(calls) {
        let replay_thread = *lane_of_thread.entry(call.thread).or_insert_with(|| {
            let replay_thread = match free.peek() {
                Some(Reverse((last, replay_thread))) if *last < place => {
                    let replay_thread = *replay_thread;
                    free.pop();
                    replay_thread
                }
                _ => {
                    replay_threads.push(Vec::new());
                    u32::try_from(replay_threads.len() - 1)
                        .expect("there are no more replay_threads than calls")
                }
            };
            free.push(Reverse((last_of_thread[&call.thread], replay_thread)));
            replay_thread
        });
        replay_threads[index(replay_thread)].push(place);
    }
    (replay_threads, lane_of_thread)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// May run concurrently with other calls of this mode.
    Shared,
    /// Exclusive: after all earlier calls, and before all later ones.
    Alone,
}

/// Calls on one resource so far, in trace order.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    all: u32,
    /// Calls up to and including the last exclusive one.
    until_alone: u32,
}

impl Count {
    /// Number of calls that must complete before the next one, which has `mode`.
    fn next(&mut self, mode: Mode) -> u32 {
        let before = match mode {
            Mode::Shared => self.until_alone,
            Mode::Alone => self.all,
        };
        self.all += 1;
        if mode == Mode::Alone {
            self.until_alone = self.all;
        }
        before
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Resource {
    Handle(Handle),
    /// The file position shared by a handle and its duplicates, identified by the first of them.
    Position(Handle),
    Name(Name),
}

#[derive(Clone, Copy, Debug)]
enum Users {
    One(u32),
    /// More than one thread; the resource's number.
    More(u32),
}

struct Resources {
    users: HashMap<Resource, Users>,
    shared: u32,
    first_handle: HashMap<Handle, Handle>,
    /// For each name, the directories above it that are created, removed or renamed.
    above: HashMap<Name, Vec<Name>>,
}

impl Resources {
    fn new(trace: &Trace) -> Self {
        let mut first_handle = HashMap::new();
        let mut changed: HashSet<Name> = HashSet::new();
        for call in &trace.calls {
            match call.action {
                Action::Duplicate { handle, copy } => {
                    let first = *first_handle.get(&handle).unwrap_or(&handle);
                    first_handle.insert(copy, first);
                }
                Action::MakeDirectory { name } | Action::RemoveDirectory { name } => {
                    changed.insert(name);
                }
                Action::Rename { from, to } => changed.extend([from, to]),
                _ => {}
            }
        }
        Self {
            users: HashMap::new(),
            shared: 0,
            first_handle,
            above: names_above(trace, &changed),
        }
    }

    fn seen_by(&mut self, resource: Resource, replay_thread: u32) {
        let users = self.users.entry(resource).or_insert(Users::One(replay_thread));
        if matches!(users, Users::One(first) if *first != replay_thread) {
            *users = Users::More(self.shared);
            self.shared += 1;
        }
    }

    const fn number_shared(&self) -> u32 {
        self.shared
    }

    fn shared_number(&self, resource: Resource) -> Option<u32> {
        match self.users.get(&resource) {
            Some(Users::More(number)) => Some(*number),
            Some(Users::One(_)) | None => None,
        }
    }

    /// Replaces `uses` with the resources that the call uses, and their modes.
    fn uses_of(&self, call: &Call, uses: &mut Vec<(Resource, Mode)>) {
        uses.clear();
        match call.action {
            Action::Open { name, handle, flags } => {
                let changes = flags.create || flags.truncate;
                self.use_name(name, if changes { Mode::Alone } else { Mode::Shared }, uses);
                add(uses, Resource::Handle(handle), Mode::Alone);
            }
            Action::Close { handle }
            | Action::TruncateHandle { handle, .. }
            | Action::Allocate { handle, .. } => add(uses, Resource::Handle(handle), Mode::Alone),
            Action::Duplicate { handle, copy } => {
                add(uses, Resource::Handle(handle), Mode::Shared);
                add(uses, Resource::Handle(copy), Mode::Alone);
            }
            Action::Read { handle, .. }
            | Action::Write { handle, .. }
            | Action::Seek { handle, .. }
            | Action::List { handle } => self.use_position(handle, uses),
            Action::Copy { from, to, .. } => {
                self.use_position(from, uses);
                if from != to {
                    self.use_position(to, uses);
                }
            }
            Action::ReadAt { handle, .. }
            | Action::WriteAt { handle, .. }
            | Action::Fsync { handle }
            | Action::Fdatasync { handle }
            | Action::SyncRange { handle, .. }
            | Action::StatHandle { handle } => add(uses, Resource::Handle(handle), Mode::Shared),
            Action::Stat { name } | Action::Access { name } => self.use_name(name, Mode::Shared, uses),
            Action::Truncate { name, .. }
            | Action::Unlink { name }
            | Action::MakeDirectory { name }
            | Action::RemoveDirectory { name } => self.use_name(name, Mode::Alone, uses),
            Action::Rename { from, to } | Action::Link { from, to } => {
                self.use_name(from, Mode::Alone, uses);
                self.use_name(to, Mode::Alone, uses);
            }
            Action::BlockRead { .. }
            | Action::BlockWrite { .. }
            | Action::BlockDiscard { .. }
            | Action::BlockFlush => {}
        }
    }

    fn use_position(&self, handle: Handle, uses: &mut Vec<(Resource, Mode)>) {
        let first = *self.first_handle.get(&handle).unwrap_or(&handle);
        add(uses, Resource::Handle(handle), Mode::Shared);
        add(uses, Resource::Position(first), Mode::Alone);
    }

    fn use_name(&self, name: Name, mode: Mode, uses: &mut Vec<(Resource, Mode)>) {
        for above in self.above.get(&name).into_iter().flatten() {
            add(uses, Resource::Name(*above), Mode::Shared);
        }
        add(uses, Resource::Name(name), mode);
    }
}

/// A call counts once per resource, in the stricter mode: a second dependency on it would wait for the call itself.
fn add(uses: &mut Vec<(Resource, Mode)>, resource: Resource, mode: Mode) {
    match uses.iter_mut().find(|(used, _)| *used == resource) {
        Some((_, used)) if mode == Mode::Alone => *used = mode,
        Some(_) => {}
        None => uses.push((resource, mode)),
    }
}

fn names_above(trace: &Trace, changed: &HashSet<Name>) -> HashMap<Name, Vec<Name>> {
    let by_path: HashMap<PathBuf, Name> = changed
        .iter()
        .filter_map(|name| Some((trace.path(*name)?.to_owned(), *name)))
        .collect();
    if by_path.is_empty() {
        return HashMap::new();
    }
    let all = (0_u32..).map(Name).zip(trace.names());
    all.filter_map(|(name, path): (Name, &Path)| {
        let above: Vec<Name> = path
            .ancestors()
            .skip(1)
            .filter_map(|parent| by_path.get(parent).copied())
            .collect();
        (!above.is_empty()).then_some((name, above))
    })
    .collect()
}

fn open_files_max(calls: &[Call]) -> u64 {
    let (mut open, mut most) = (0_u64, 0);
    for call in calls.iter().filter(|call| call.outcome.is_success()) {
        match call.action {
            Action::Open { .. } | Action::Duplicate { .. } => open += 1,
            Action::Close { .. } => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::call_trace::{Layer, OpenFlags};

    fn needs(trace: &Trace) -> Vec<Vec<u32>> {
        let plan = Plan::of(trace).unwrap();
        (0..u32::try_from(trace.calls.len()).unwrap())
            .map(|place| plan.needs(place).iter().map(|need| need.done).collect())
            .collect()
    }

    #[test]
    fn a_thread_alone_needs_nobody() {
        let mut trace = Trace::new(Layer::SystemCalls, "test");
        let (name, handle) = (trace.name(Path::new("a")), trace.new_handle());
        let flags = OpenFlags::WRITE.creating();
        trace.push(7, 0, Action::Open { name, handle, flags });
        trace.push(7, 1, Action::Close { handle });
        assert_eq!(needs(&trace), [Vec::<u32>::new(), Vec::new()]);
    }

    #[test]
    fn a_close_waits_for_every_use_and_uses_wait_for_the_open_only() {
        let mut trace = Trace::new(Layer::SystemCalls, "test");
        let (name, handle) = (trace.name(Path::new("a")), trace.new_handle());
        let flags = OpenFlags::READ;
        trace.push(1, 0, Action::Open { name, handle, flags });
        for (thread, at) in [(2, 1), (3, 2), (1, 3)] {
            let (bytes, offset) = (1, 0);
            trace.push(
                thread,
                at,
                Action::ReadAt {
                    handle,
                    bytes,
                    offset,
                },
            );
        }
        trace.push(2, 4, Action::Close { handle });
        assert_eq!(needs(&trace), [[0], [1], [1], [1], [4]]);
    }

    #[test]
    fn calls_that_move_one_position_follow_each_other_through_duplicates() {
        let mut trace = Trace::new(Layer::SystemCalls, "test");
        let (handle, copy) = (trace.new_handle(), trace.new_handle());
        trace.push(1, 0, Action::Duplicate { handle, copy });
        trace.push(1, 1, Action::Write { handle, bytes: 1 });
        trace.push(
            2,
            2,
            Action::Write {
                handle: copy,
                bytes: 1,
            },
        );
        trace.push(1, 3, Action::Write { handle, bytes: 1 });
        // Only one thread uses `handle`; two use the position, and the copy.
        assert_eq!(needs(&trace), [vec![0], vec![0], vec![1, 1], vec![2]]);
    }

    #[test]
    fn a_file_in_a_directory_waits_for_it_to_be_made_and_a_removal_for_the_file() {
        let mut trace = Trace::new(Layer::SystemCalls, "test");
        let (directory, file) = (trace.name(Path::new("d")), trace.name(Path::new("d/f")));
        trace.push(1, 0, Action::MakeDirectory { name: directory });
        trace.push(2, 1, Action::Stat { name: file });
        trace.push(1, 2, Action::RemoveDirectory { name: directory });
        assert_eq!(needs(&trace), [[0], [1], [2]]);
    }

    #[test]
    fn threads_that_never_meet_share_a_lane() {
        let mut trace = Trace::new(Layer::Block, "test");
        for (thread, at) in [(1, 0), (2, 1), (1, 2), (3, 3), (2, 4), (4, 5)] {
            trace.push(thread, at, Action::BlockFlush);
        }
        let plan = Plan::of(&trace).unwrap();
        assert_eq!(plan.replay_threads, [vec![0, 2, 3, 5], vec![1, 4]]);
        assert_eq!(plan.traced_threads, 4);
    }
}
