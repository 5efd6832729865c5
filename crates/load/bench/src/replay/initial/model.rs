//! Model of the names, files and positions of a trace, updated call by call.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use results::call_trace::{Action, Call, Handle, Layer, Name, Outcome, Trace, Whence};

use super::Initial;
use super::file_model::FileModel;
use crate::replay::prepare::IMAGE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Absent,
    Directory,
    File(usize),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    position: usize,
    appends: bool,
}

pub(super) struct Model<'trace> {
    trace: &'trace Trace,
    nodes: HashMap<PathBuf, Node>,
    files: Vec<FileModel>,
    initial_directories: BTreeSet<PathBuf>,
    /// Paths that the trace uses as directories anywhere.
    known_directories: HashSet<PathBuf>,
    /// Directories renamed so far, from and to.
    moved: Vec<(PathBuf, PathBuf)>,
    open: HashMap<Handle, Open>,
    /// File and position of each open file; duplicates share one.
    positions: Vec<(usize, u64)>,
    image: FileModel,
}

impl<'trace> Model<'trace> {
    pub fn new(trace: &'trace Trace) -> Self {
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

    pub fn follow(&mut self, call: &Call) {
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

    /// The node at `path`; if the trace did not create one, it existed from the start.
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

    /// The node at `path`, created unless it exists: later reads show whether it did.
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

    /// The path, at the start of the trace, of a file that is at `path` now.
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

    pub fn finish(self, layer: Layer) -> Initial {
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
            // The image has its full length from the start, as a device does.
            image.initial_size = image.size;
            initial.grown_bytes = image.grown;
            initial.files.insert(PathBuf::from(IMAGE), image.into_initial());
        }
        initial
    }
}

/// Paths that calls use as directories: parents of a name, and names listed, opened, created or removed as
/// directories.
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
