//! Directory listings: completeness and stability over seeks and removals.

use std::collections::BTreeSet;

use vfs::{DirEntry, DirSink, Entry, FileKind, FileSystem, Handle, Ino};

use crate::source::Source;

const NAMES: usize = 5_000;

#[derive(Default)]
struct Names {
    room: usize,
    taken: Vec<(String, u64)>,
    entries: Vec<Option<Entry>>,
}

impl Names {
    fn with_room(room: usize) -> Self {
        Self {
            room,
            ..Self::default()
        }
    }
}

impl DirSink for Names {
    fn fits(&self, _name_bytes: usize) -> bool {
        self.taken.len() < self.room
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        assert!(matches!(name.kind, FileKind::Regular | FileKind::Directory));
        self.taken
            .push((String::from_utf8(name.name.to_vec()).unwrap(), name.next_offset));
        self.entries.push(entry.copied());
    }
}

fn list(source: &Source, handle: Handle, offset: u64, room: usize) -> Vec<(String, u64)> {
    let mut names = Names::with_room(room);
    source.fs.readdir(Ino::ROOT, handle, offset, &mut names).unwrap();
    names.taken
}

fn list_to_end(source: &Source, handle: Handle, mut offset: u64, room: usize) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    loop {
        let some = list(source, handle, offset, room);
        let Some(last) = some.last() else { return all };
        offset = last.1;
        all.extend(some);
    }
}

fn full_source() -> (Source, Handle) {
    let source = Source::new();
    for number in 0..NAMES {
        std::fs::File::create(source.path(&format!("name-{number}"))).unwrap();
    }
    let handle = source.fs.opendir(Ino::ROOT).unwrap();
    (source, handle)
}

#[test]
fn a_listing_in_pieces_has_each_name_once() {
    let (source, handle) = full_source();
    let listed = list_to_end(&source, handle, 0, 37);
    let distinct: BTreeSet<_> = listed.iter().map(|(name, _)| name).collect();
    assert_eq!((listed.len(), distinct.len()), (NAMES + 2, NAMES + 2));
}

#[test]
fn a_listing_continues_the_same_from_any_earlier_offset() {
    let (source, handle) = full_source();
    let listed = list_to_end(&source, handle, 0, 1000);
    for start in [0, 1, 17, 2500, NAMES, NAMES + 1] {
        let tail = list_to_end(&source, handle, listed[start].1, 300);
        assert_eq!(tail, listed[start + 1..], "from the offset after name {start}");
    }
}

#[test]
fn names_that_stay_are_listed_once_while_others_are_removed() {
    let (source, handle) = full_source();
    let (mut offset, mut seen) = (0, Vec::new());
    loop {
        let some = list(&source, handle, offset, 20);
        let Some(last) = some.last() else { break };
        offset = last.1;
        for (name, _) in some
            .iter()
            .filter(|(name, _)| name.starts_with("name"))
            .step_by(2)
        {
            std::fs::remove_file(source.path(name)).unwrap();
        }
        seen.extend(some);
    }
    let distinct: BTreeSet<_> = seen.iter().map(|(name, _)| name).collect();
    assert_eq!((seen.len(), distinct.len()), (NAMES + 2, NAMES + 2));
}

#[test]
fn a_rewound_listing_shows_names_made_since() {
    let source = Source::new();
    let handle = source.fs.opendir(Ino::ROOT).unwrap();
    assert_eq!(list_to_end(&source, handle, 0, 100).len(), 2);
    source.create("new");
    assert_eq!(list_to_end(&source, handle, 0, 100).len(), 3);
}

#[test]
fn a_listing_with_entries_counts_each_but_dot_and_dot_dot() {
    let source = Source::new();
    let made = source.create("file").0;
    let handle = source.fs.opendir(Ino::ROOT).unwrap();
    let mut names = Names::with_room(100);
    source.fs.readdir_plus(Ino::ROOT, handle, 0, &mut names).unwrap();
    for ((name, _), entry) in names.taken.iter().zip(&names.entries) {
        let expected = (name == "file").then_some(made.ino);
        assert_eq!(entry.map(|entry| entry.ino), expected, "{name}");
    }
    source.fs.forget(made.ino, 1);
    assert!(
        source.fs.getattr(made.ino, None).is_ok(),
        "the listing counted it once more"
    );
    source.fs.releasedir(Ino::ROOT, handle);
    assert_eq!(
        source.fs.readdir(Ino::ROOT, handle, 0, &mut names).err(),
        Some(vfs::FsError::BadHandle)
    );
}

#[test]
fn a_name_that_vanished_while_listed_comes_without_an_entry() {
    let source = Source::new();
    source.create("one");
    source.create("two");
    let handle = source.fs.opendir(Ino::ROOT).unwrap();
    // Makes the host read the names ahead.
    let first = list(&source, handle, 0, 1);
    std::fs::remove_file(source.path("one")).unwrap();
    std::fs::remove_file(source.path("two")).unwrap();
    let mut names = Names::with_room(100);
    source
        .fs
        .readdir_plus(Ino::ROOT, handle, first[0].1, &mut names)
        .unwrap();
    assert_eq!(names.taken.len(), 3);
    assert!(names.entries.iter().all(Option::is_none));
}
