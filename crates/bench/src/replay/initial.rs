//! What must be there before the first call: directories and files that the trace finds and does not make.
//!
//! The calls are followed in the order of their start through a model of the names, the file sizes and the file
//! positions. A name that is used before anything makes it must exist; a file must be as long as the furthest read, or
//! seek from its end, that nothing written before explains. What only the traced machine could know (what was in a file
//! that the trace never reads, the size of one that it only appends to) is not invented.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use results::call_trace::{Action, Call, Handle, Layer, Name, Outcome, Trace, Whence};

use super::prepare::IMAGE;

/// Parts read within this distance are filled together.
const GRAIN_BYTES: u64 = 64 << 10;

/// A file up to this size is filled whole; a larger one only where it is read, and has holes elsewhere.
const WHOLE_BYTES: u64 = 64 << 20;

/// Files and directories to be made before the window. Paths are relative to the directory of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initial {
    /// Each after its parent.
    pub directories: BTreeSet<PathBuf>,
    /// Files.
    pub files: BTreeMap<PathBuf, InitialFile>,
    /// Bytes that the trace writes beyond what the files have.
    pub grown_bytes: u64,
}

/// A file to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitialFile {
    /// Its size.
    pub bytes: u64,
    /// Where it has data, as start and end, ascending and apart.
    pub filled: Vec<(u64, u64)>,
}

impl Initial {
    /// Bytes of data in all files.
    pub fn filled_bytes(&self) -> u64 {
        let parts = self.files.values().flat_map(|file| &file.filled);
        parts.map(|(start, end)| end - start).fold(0, u64::saturating_add)
    }

    /// An upper bound of the space that preparation and replay take.
    pub fn bytes_needed(&self) -> u64 {
        self.filled_bytes().saturating_add(self.grown_bytes)
    }

    /// Follows the calls of `trace`.
    pub fn of(trace: &Trace) -> Self {
        let mut model = Model::new(trace);
        for call in &trace.calls {
            model.follow(call);
        }
        model.finish(trace.layer)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Absent,
    Directory,
    File(usize),
}

#[derive(Clone, Debug, Default)]
struct FileModel {
    /// Where it was when the trace began; `None` when the trace made it.
    origin: Option<PathBuf>,
    /// It was there, as opposed to perhaps there.
    must_exist: bool,
    size: u64,
    initial_size: u64,
    reads: BTreeMap<u64, u64>,
    was_cut: bool,
    grown: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    position: usize,
    appends: bool,
}

struct Model<'trace> {
    trace: &'trace Trace,
    nodes: HashMap<PathBuf, Node>,
    files: Vec<FileModel>,
    initial_directories: BTreeSet<PathBuf>,
    /// Paths that the trace uses as directories anywhere.
    known_directories: HashSet<PathBuf>,
    /// Directories that were renamed so far, from and to.
    moved: Vec<(PathBuf, PathBuf)>,
    open: HashMap<Handle, Open>,
    /// File and position of each open file; duplicates share one.
    positions: Vec<(usize, u64)>,
    image: FileModel,
}

impl<'trace> Model<'trace> {
    fn new(trace: &'trace Trace) -> Self {
        Self {
            trace,
            nodes: HashMap::new(),
            files: Vec::new(),
            initial_directories: BTreeSet::new(),
            known_directories: directories_of(trace),
            moved: Vec::new(),
            open: HashMap::new(),
            positions: Vec::new(),
            image: FileModel::default(),
        }
    }

    fn follow(&mut self, call: &Call) {
        if let Outcome::Failed(errno) = call.outcome {
            self.follow_failure(call.action, errno);
            return;
        }
        match call.action {
            Action::Open { name, handle, flags } => {
                let path = self.path(name);
                let node = if flags.create {
                    self.created(&path, flags.exclusive)
                } else {
                    self.found(&path)
                };
                if let Node::File(file) = node {
                    if flags.truncate && flags.writes() {
                        self.files[file].resize(0);
                    }
                    let position = self.positions.len();
                    self.positions.push((file, 0));
                    let appends = flags.append;
                    self.open.insert(handle, Open { position, appends });
                }
            }
            Action::Close { handle } => {
                self.open.remove(&handle);
            }
            Action::Duplicate { handle, copy } => {
                if let Some(open) = self.open.get(&handle).copied() {
                    self.open.insert(copy, open);
                }
            }
            Action::Stat { name } | Action::Access { name } => {
                self.found(&self.path(name));
            }
            Action::Unlink { name } | Action::RemoveDirectory { name } => {
                let path = self.path(name);
                self.found(&path);
                self.nodes.insert(path, Node::Absent);
            }
            Action::Rename { from, to } => self.rename(&self.path(from), &self.path(to)),
            Action::Link { from, to } => {
                let (from, to) = (self.path(from), self.path(to));
                let node = self.found(&from);
                self.parents(&to);
                self.nodes.insert(to, node);
            }
            Action::MakeDirectory { name } => {
                let path = self.path(name);
                self.parents(&path);
                self.nodes.insert(path, Node::Directory);
            }
            Action::Truncate { name, bytes } => {
                if let Node::File(file) = self.found(&self.path(name)) {
                    self.files[file].resize(bytes);
                }
            }
            other => self.follow_data(other, call.outcome),
        }
    }

    fn follow_data(&mut self, action: Action, outcome: Outcome) {
        let moved = |bytes: u64| outcome.value().unwrap_or(bytes);
        match action {
            Action::Read { handle, bytes } => self.read_on(handle, moved(bytes)),
            Action::Write { handle, bytes } => self.write_on(handle, moved(bytes)),
            Action::Copy { from, to, bytes } => {
                self.read_on(from, moved(bytes));
                self.write_on(to, moved(bytes));
            }
            Action::ReadAt {
                handle,
                bytes,
                offset,
            } => {
                if let Some(file) = self.file(handle) {
                    file.read(offset, moved(bytes));
                }
            }
            Action::WriteAt {
                handle,
                bytes,
                offset,
            } => {
                if let Some(file) = self.file(handle) {
                    file.write(offset, moved(bytes));
                }
            }
            Action::Seek {
                handle,
                offset,
                whence,
            } => self.seek(handle, offset, whence, outcome),
            Action::TruncateHandle { handle, bytes } => {
                if let Some(file) = self.file(handle) {
                    file.resize(bytes);
                }
            }
            Action::Allocate {
                handle,
                mode,
                offset,
                bytes,
            } => {
                if let Some(file) = self.file(handle).filter(|_| mode == 0) {
                    file.write(offset, bytes);
                }
            }
            Action::BlockRead { offset, bytes } => self.image.read(offset, bytes),
            Action::BlockWrite { offset, bytes } => self.image.write(offset, bytes),
            Action::BlockDiscard { offset, bytes } => {
                self.image.size = self.image.size.max(offset.saturating_add(bytes));
            }
            _ => {}
        }
    }

    fn follow_failure(&mut self, action: Action, errno: i32) {
        const NO_ENTRY: i32 = libc::ENOENT;
        const EXISTS: i32 = libc::EEXIST;
        match (action, errno) {
            (
                Action::Open { name, .. }
                | Action::Stat { name }
                | Action::Access { name }
                | Action::Unlink { name }
                | Action::RemoveDirectory { name }
                | Action::Truncate { name, .. }
                | Action::Rename { from: name, .. },
                NO_ENTRY,
            ) => {
                let path = self.path(name);
                self.nodes.entry(path).or_insert(Node::Absent);
            }
            (Action::MakeDirectory { name }, EXISTS) => {
                let path = self.path(name);
                self.known_directories.insert(path.clone());
                self.found(&path);
            }
            (Action::Open { name, .. } | Action::Link { to: name, .. }, EXISTS) => {
                self.found(&self.path(name));
            }
            _ => {}
        }
    }

    fn path(&self, name: Name) -> PathBuf {
        let path = self.trace.path(name).unwrap_or(Path::new("."));
        path.to_owned()
    }

    /// Something exists at `path`: what it is, made to be there from the start when nothing made it.
    fn found(&mut self, path: &Path) -> Node {
        if path == Path::new(".") {
            return Node::Directory;
        }
        if let Some(node) = self.nodes.get(path) {
            if let Node::File(file) = *node {
                self.files[file].must_exist = true;
            }
            return *node;
        }
        self.parents(path);
        let origin = self.origin(path);
        let node = if self.known_directories.contains(path) {
            self.initial_directories.insert(origin);
            Node::Directory
        } else {
            self.files.push(FileModel {
                origin: Some(origin),
                must_exist: true,
                ..FileModel::default()
            });
            Node::File(self.files.len() - 1)
        };
        self.nodes.insert(path.to_owned(), node);
        node
    }

    /// A file is made at `path` unless it is there: whether it is shows in what is read from it.
    fn created(&mut self, path: &Path, exclusive: bool) -> Node {
        match self.nodes.get(path) {
            Some(Node::Absent) | None => {}
            Some(node) => return *node,
        }
        if self.known_directories.contains(path) || path == Path::new(".") {
            return self.found(path);
        }
        self.parents(path);
        let is_unknown = !self.nodes.contains_key(path);
        let origin = (is_unknown && !exclusive).then(|| self.origin(path));
        self.files.push(FileModel {
            origin,
            ..FileModel::default()
        });
        let node = Node::File(self.files.len() - 1);
        self.nodes.insert(path.to_owned(), node);
        node
    }

    fn parents(&mut self, path: &Path) {
        let mut missing = Vec::new();
        for parent in path.ancestors().skip(1) {
            if parent.as_os_str().is_empty() || self.nodes.get(parent) == Some(&Node::Directory) {
                break;
            }
            missing.push(parent.to_owned());
        }
        for parent in missing.into_iter().rev() {
            let origin = self.origin(&parent);
            self.initial_directories.insert(origin);
            self.nodes.insert(parent, Node::Directory);
        }
    }

    /// Where something that is at `path` was when the trace began.
    fn origin(&self, path: &Path) -> PathBuf {
        let mut origin = path.to_owned();
        for (from, to) in self.moved.iter().rev() {
            if let Ok(rest) = origin.strip_prefix(to) {
                origin = from.join(rest);
            }
        }
        origin
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let node = self.found(from);
        self.parents(to);
        if node == Node::Directory {
            let below: Vec<PathBuf> = self
                .nodes
                .keys()
                .filter(|path| path.starts_with(from) && *path != from)
                .cloned()
                .collect();
            for path in below {
                if let (Some(node), Ok(rest)) = (self.nodes.remove(&path), path.strip_prefix(from)) {
                    self.nodes.insert(to.join(rest), node);
                }
            }
            self.moved.push((from.to_owned(), to.to_owned()));
        }
        self.nodes.insert(from.to_owned(), Node::Absent);
        self.nodes.insert(to.to_owned(), node);
    }

    fn file(&mut self, handle: Handle) -> Option<&mut FileModel> {
        let open = self.open.get(&handle)?;
        let (file, _) = self.positions[open.position];
        Some(&mut self.files[file])
    }

    fn read_on(&mut self, handle: Handle, bytes: u64) {
        let Some(open) = self.open.get(&handle) else {
            return;
        };
        let (file, position) = &mut self.positions[open.position];
        self.files[*file].read(*position, bytes);
        *position = position.saturating_add(bytes);
    }

    fn write_on(&mut self, handle: Handle, bytes: u64) {
        let Some(open) = self.open.get(&handle) else {
            return;
        };
        let (file, position) = &mut self.positions[open.position];
        let file = &mut self.files[*file];
        let offset = if open.appends { file.size } else { *position };
        file.write(offset, bytes);
        *position = offset.saturating_add(bytes);
    }

    fn seek(&mut self, handle: Handle, offset: i64, whence: Whence, outcome: Outcome) {
        let Some(open) = self.open.get(&handle) else {
            return;
        };
        let (file, position) = &mut self.positions[open.position];
        let file = &mut self.files[*file];
        let answer = outcome.value();
        if let (Whence::End, Some(reached)) = (whence, answer) {
            let size = i64::try_from(reached)
                .ok()
                .and_then(|reached| reached.checked_sub(offset));
            file.must_have(size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0));
        }
        let computed = match whence {
            Whence::Start | Whence::Data | Whence::Hole => u64::try_from(offset).unwrap_or(0),
            Whence::Current => position.saturating_add_signed(offset),
            Whence::End => file.size.saturating_add_signed(offset),
        };
        *position = answer.unwrap_or(computed);
    }

    fn finish(self, layer: Layer) -> Initial {
        let mut initial = Initial {
            directories: self.initial_directories,
            ..Initial::default()
        };
        for file in self.files {
            initial.grown_bytes = initial.grown_bytes.saturating_add(file.grown);
            let is_there = file.initial_size > 0 || file.must_exist;
            if let (true, Some(origin)) = (is_there, file.origin.clone()) {
                let directory = initial.directories.contains(&origin);
                if !directory {
                    initial.files.insert(origin, file.into_initial());
                }
            }
        }
        if layer == Layer::Block {
            let mut image = self.image;
            // The image is there at its full length from the start, as a device is.
            image.initial_size = image.size;
            initial.grown_bytes = image.grown;
            initial.files.insert(PathBuf::from(IMAGE), image.into_initial());
        }
        initial
    }
}

impl FileModel {
    fn read(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        if bytes == 0 || self.was_cut {
            return;
        }
        if end > self.size {
            self.must_have(end);
        }
        let end = end.min(self.initial_size.max(self.size));
        if end > offset {
            insert_range(&mut self.reads, offset / GRAIN_BYTES * GRAIN_BYTES, end);
        }
    }

    /// The file has at least `size` bytes, and if nothing written explains it, it had them from the start.
    fn must_have(&mut self, size: u64) {
        if size > self.size && !self.was_cut {
            self.initial_size = self.initial_size.max(size);
            self.size = size;
        }
    }

    fn write(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        if end > self.size && bytes > 0 {
            self.grown = self.grown.saturating_add(bytes.min(end - self.size));
            self.size = end;
        }
    }

    fn resize(&mut self, size: u64) {
        // What is read beyond was never in the file that the trace found.
        self.was_cut |= size < self.size || size == 0;
        self.size = size;
    }

    fn into_initial(self) -> InitialFile {
        let bytes = self.initial_size;
        let filled = if bytes == 0 {
            Vec::new()
        } else if bytes <= WHOLE_BYTES {
            vec![(0, bytes)]
        } else {
            let clipped = self.reads.into_iter().map(|(start, end)| (start, end.min(bytes)));
            clipped.filter(|(start, end)| start < end).collect()
        };
        InitialFile { bytes, filled }
    }
}

/// Adds a range to ranges that are kept ascending and apart.
fn insert_range(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    let (mut start, mut end) = (start, end);
    while let Some((&before, &until)) = ranges.range(..=end).next_back() {
        if until < start {
            break;
        }
        ranges.remove(&before);
        start = start.min(before);
        end = end.max(until);
    }
    ranges.insert(start, end);
}

/// Paths that calls use as directories: above another name, listed, opened, made or removed as one.
fn directories_of(trace: &Trace) -> HashSet<PathBuf> {
    let mut found: HashSet<PathBuf> = trace
        .names()
        .flat_map(|path| path.ancestors().skip(1))
        .filter(|path| !path.as_os_str().is_empty())
        .map(Path::to_owned)
        .collect();
    let mut opened: HashMap<Handle, Name> = HashMap::new();
    for call in trace.calls.iter().filter(|call| call.outcome.is_success()) {
        let directory = match call.action {
            Action::Open { name, handle, flags } => {
                opened.insert(handle, name);
                flags.directory.then_some(name)
            }
            Action::List { handle } => opened.get(&handle).copied(),
            Action::MakeDirectory { name } | Action::RemoveDirectory { name } => Some(name),
            _ => None,
        };
        if let Some(path) = directory.and_then(|name| trace.path(name)) {
            found.insert(path.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::call_trace::OpenFlags;

    struct Script {
        trace: Trace,
    }

    impl Script {
        fn new() -> Self {
            Self {
                trace: Trace::new(Layer::SystemCalls, "test"),
            }
        }

        fn call(&mut self, action: Action, outcome: Outcome) {
            self.trace.push(0, 0, action);
            self.trace.calls.last_mut().unwrap().outcome = outcome;
        }

        fn name(&mut self, path: &str) -> Name {
            self.trace.name(Path::new(path))
        }

        fn open(&mut self, path: &str, flags: OpenFlags) -> Handle {
            let (name, handle) = (self.name(path), self.trace.new_handle());
            self.call(Action::Open { name, handle, flags }, Outcome::Unknown);
            handle
        }

        fn initial(&self) -> Initial {
            Initial::of(&self.trace)
        }
    }

    fn sizes(initial: &Initial) -> Vec<(&str, u64)> {
        let files = initial.files.iter();
        files
            .map(|(path, file)| (path.to_str().unwrap(), file.bytes))
            .collect()
    }

    #[test]
    fn a_file_that_is_read_has_the_size_of_the_furthest_read() {
        let mut script = Script::new();
        let handle = script.open("/data/a", OpenFlags::READ);
        script.call(
            Action::Read {
                handle,
                bytes: 65_536,
            },
            Outcome::Done(1000),
        );
        script.call(
            Action::ReadAt {
                handle,
                bytes: 100,
                offset: 4000,
            },
            Outcome::Unknown,
        );
        script.call(Action::Read { handle, bytes: 500 }, Outcome::Unknown);
        let initial = script.initial();
        assert_eq!(sizes(&initial), [("data/a", 4100)]);
        assert_eq!(initial.directories, BTreeSet::from([PathBuf::from("data")]));
        assert_eq!(initial.filled_bytes(), 4100);
    }

    #[test]
    fn what_the_trace_writes_itself_is_not_prepared() {
        let mut script = Script::new();
        let handle = script.open("a", OpenFlags::READ_WRITE.creating());
        script.call(Action::Write { handle, bytes: 100 }, Outcome::Unknown);
        script.call(
            Action::ReadAt {
                handle,
                bytes: 100,
                offset: 0,
            },
            Outcome::Unknown,
        );
        assert_eq!(sizes(&script.initial()), []);
        assert_eq!(script.initial().grown_bytes, 100);
        script.call(
            Action::ReadAt {
                handle,
                bytes: 100,
                offset: 50,
            },
            Outcome::Unknown,
        );
        assert_eq!(sizes(&script.initial()), [("a", 150)]);
    }

    #[test]
    fn a_truncated_file_needs_nothing() {
        let mut script = Script::new();
        let handle = script.open("a", OpenFlags::READ_WRITE.creating().truncating());
        script.call(Action::Read { handle, bytes: 100 }, Outcome::Unknown);
        assert_eq!(script.initial(), Initial::default());
    }

    #[test]
    fn names_that_were_missing_stay_missing_and_those_found_are_there() {
        let mut script = Script::new();
        let (journal, other) = (script.name("db-journal"), script.name("other"));
        script.call(Action::Access { name: journal }, Outcome::Failed(libc::ENOENT));
        script.call(Action::Stat { name: other }, Outcome::Done(0));
        script.open("db-journal", OpenFlags::READ_WRITE.creating());
        assert_eq!(sizes(&script.initial()), [("other", 0)]);
    }

    #[test]
    fn a_file_found_in_a_renamed_directory_was_in_the_old_one() {
        let mut script = Script::new();
        let (from, to) = (script.name("old"), script.name("new"));
        script.name("old/x");
        script.call(Action::Rename { from, to }, Outcome::Done(0));
        let handle = script.open("new/a", OpenFlags::READ);
        script.call(Action::Read { handle, bytes: 7 }, Outcome::Unknown);
        let initial = script.initial();
        assert_eq!(sizes(&initial), [("old/a", 7)]);
        assert_eq!(initial.directories, BTreeSet::from([PathBuf::from("old")]));
    }

    #[test]
    fn a_directory_that_is_listed_is_a_directory() {
        let mut script = Script::new();
        let handle = script.open("d", OpenFlags::READ);
        script.call(Action::List { handle }, Outcome::Done(48));
        let made = script.name("e");
        script.call(Action::MakeDirectory { name: made }, Outcome::Done(0));
        script.open("e/f", OpenFlags::WRITE.creating());
        let initial = script.initial();
        assert_eq!(initial.directories, BTreeSet::from([PathBuf::from("d")]));
        assert_eq!(sizes(&initial), []);
    }

    #[test]
    fn a_seek_from_the_end_tells_the_size() {
        let mut script = Script::new();
        let handle = script.open("a", OpenFlags::WRITE);
        let (offset, whence) = (-10, Whence::End);
        script.call(
            Action::Seek {
                handle,
                offset,
                whence,
            },
            Outcome::Done(90),
        );
        assert_eq!(sizes(&script.initial()), [("a", 100)]);
    }

    #[test]
    fn a_large_image_has_data_only_where_it_is_read() {
        let mut trace = Trace::new(Layer::Block, "test");
        trace.push(
            0,
            0,
            Action::BlockRead {
                offset: 1 << 30,
                bytes: 4096,
            },
        );
        trace.push(
            0,
            1,
            Action::BlockWrite {
                offset: 2 << 30,
                bytes: 4096,
            },
        );
        let initial = Initial::of(&trace);
        let image = &initial.files[Path::new(IMAGE)];
        assert_eq!(image.bytes, (2 << 30) + 4096);
        assert_eq!(image.filled, [(1 << 30, (1 << 30) + 4096)]);
        assert!(initial.bytes_needed() < 1 << 20);
    }

    #[test]
    fn ranges_stay_apart() {
        let mut ranges = BTreeMap::new();
        for (start, end) in [(10, 20), (30, 40), (20, 25), (0, 5), (24, 31), (50, 60)] {
            insert_range(&mut ranges, start, end);
        }
        assert_eq!(Vec::from_iter(ranges), [(0, 5), (10, 40), (50, 60)]);
    }
}
