//! A random script of calls to a mounted file system, and the states allowed after a power cut at any point in it.
//!
//! Names, links, modes and extended attributes go to one journal head in the order of the calls: after a cut they
//! match the state after some number of calls, including all synced ones. The interrupted call may or may not have
//! taken effect. Contents go to another head, block by block: each block matches some state since the last sync, and
//! the size is one that the blocks explain.

use std::collections::BTreeMap;
use std::sync::Arc;

use testkit::contract;
use testkit::prng::Prng;
use ubifs::MountedWriter;
use vfs::{
    DirEntry, DirSink, Entry, FileKind, FileSystem, FsError, FsResult, Handle, Ino, OpenFlags, Privileges,
    RenameFlags, SetAttr, WriteMode, XattrFlags,
};

/// Size of a data node's block, which a cut never tears.
const BLOCK: usize = 4096;
/// The root in the model.
const ROOT: u32 = 0;
const NOTE: &[u8] = b"user.note";

/// Type of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Link(Vec<u8>),
    Whiteout,
}

#[derive(Clone)]
struct File {
    kind: Kind,
    mode: u32,
    note: Option<Vec<u8>>,
    content: Arc<Vec<u8>>,
}

/// A directory of the model and a name in it.
type Name = (u32, String);

/// The expected state between two calls.
#[derive(Clone)]
struct Moment {
    names: BTreeMap<Name, u32>,
    files: BTreeMap<u32, File>,
    next: u32,
}

/// A file found under one path after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    kind: Kind,
    mode: u32,
    links: u32,
    note: Option<Vec<u8>>,
    content: Vec<u8>,
}

/// All paths.
pub type Tree = BTreeMap<String, Seen>;

impl Moment {
    fn fresh() -> Self {
        let root = File {
            kind: Kind::Directory,
            mode: 0o755,
            note: None,
            content: Arc::default(),
        };
        Self {
            names: BTreeMap::new(),
            files: BTreeMap::from([(ROOT, root)]),
            next: 1,
        }
    }

    fn add(&mut self, name: Name, kind: Kind, mode: u32) {
        let file = File {
            kind,
            mode,
            note: None,
            content: Arc::default(),
        };
        self.names.insert(name, self.next);
        self.files.insert(self.next, file);
        self.next += 1;
    }

    fn file(&mut self, id: u32) -> &mut File {
        self.files.get_mut(&id).expect("a name leads to it")
    }

    fn remove(&mut self, name: &Name) {
        self.names.remove(name);
    }

    fn links(&self, id: u32) -> u32 {
        let names = self.names.values().filter(|other| **other == id).count();
        u32::try_from(names).expect("few")
    }

    fn directories_in(&self, id: u32) -> u32 {
        let inside = self
            .names
            .iter()
            .filter(|((host, _), inside)| *host == id && self.files[*inside].kind == Kind::Directory);
        u32::try_from(inside.count()).expect("few")
    }

    fn is_empty(&self, id: u32) -> bool {
        !self.names.keys().any(|(host, _)| *host == id)
    }

    fn path(&self, (host, name): &Name) -> String {
        match self.names.iter().find(|(_, id)| *id == host) {
            Some((above, _)) if *host != ROOT => format!("{}/{name}", self.path(above)),
            _ => name.clone(),
        }
    }

    fn paths(&self) -> BTreeMap<String, u32> {
        self.names
            .iter()
            .map(|(name, id)| (self.path(name), *id))
            .collect()
    }

    fn content_bytes(&self) -> usize {
        self.files.values().map(|file| file.content.len()).sum()
    }
}

/// The script so far: the states after each call since the last sync, and that after the call in progress.
pub struct Script {
    moments: Vec<Moment>,
    content_bytes_max: usize,
    /// Calls that changed something.
    pub calls: u64,
}

impl Script {
    /// A script on an empty file system that limits the content to `content_bytes_max`.
    pub fn fresh(content_bytes_max: usize) -> Self {
        Self {
            moments: vec![Moment::fresh()],
            content_bytes_max,
            calls: 0,
        }
    }

    /// A script that continues from the last state of another.
    pub fn after(other: &Self) -> Self {
        Self {
            moments: vec![other.last().clone()],
            content_bytes_max: other.content_bytes_max,
            calls: 0,
        }
    }

    fn last(&self) -> &Moment {
        self.moments.last().expect("there is one always")
    }

    /// Records the change of a call before it is made.
    fn begin(&mut self, change: impl FnOnce(&mut Moment)) {
        let mut moment = self.last().clone();
        change(&mut moment);
        let Moment { names, files, .. } = &mut moment;
        files.retain(|id, _| *id == ROOT || names.values().any(|named| named == id));
        self.moments.push(moment);
        self.calls += 1;
    }

    fn synced(&mut self) {
        self.moments.drain(..self.moments.len() - 1);
    }

    /// Ends the script with an unmount or a sync: everything must survive from here on.
    pub fn finish(&mut self, file_system: &MountedWriter, closes: bool) -> FsResult<()> {
        match closes {
            true => file_system.close().map_err(|_| FsError::Io)?,
            false => file_system.fsync(Ino::ROOT, Handle(0), false)?,
        }
        self.synced();
        Ok(())
    }

    fn pick(&self, prng: &mut Prng, wanted: impl Fn(&File) -> bool) -> Option<(Name, u32)> {
        let last = self.last();
        let all: Vec<_> = last
            .names
            .iter()
            .filter(|(_, id)| wanted(&last.files[*id]))
            .collect();
        (!all.is_empty()).then(|| {
            let (name, id) = prng.pick(&all);
            ((*name).clone(), **id)
        })
    }

    /// A random name for a file, which may exist.
    fn any_name(&self, prng: &mut Prng) -> Name {
        let host = match prng.chance(50) {
            true => self
                .pick(prng, |file| file.kind == Kind::Directory)
                .map(|(_, id)| id),
            false => None,
        };
        (host.unwrap_or(ROOT), format!("name-{}", prng.below(24)))
    }

    fn free_name(&self, prng: &mut Prng) -> Option<Name> {
        let name = self.any_name(prng);
        (!self.last().names.contains_key(&name)).then_some(name)
    }

    /// Fills the file system and overwrites half of it, so that garbage collection runs.
    pub fn prepare(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let bytes = self.content_bytes_max / 12;
        for number in 0..8 {
            let name = (ROOT, format!("ballast-{number}"));
            self.begin(|moment| moment.add(name.clone(), Kind::File, 0o644));
            create(file_system, &self.last().path(&name))?;
            let id = self.last().names[&name];
            let data = prng.bytes(bytes);
            self.write(file_system, (&name, id), 0, data, false)?;
        }
        for _ in 0..60 {
            if let Some((name, id)) = self.pick(prng, |file| file.kind == Kind::File) {
                let (at, length) = (prng.below_usize(bytes - 6000), 1 + prng.below_usize(6000));
                let data = prng.bytes(length);
                self.write(file_system, (&name, id), at, data, false)?;
            }
        }
        file_system.sync()?;
        self.synced();
        Ok(())
    }

    /// Makes one random call, or none if there is no suitable file.
    pub fn step(
        &mut self,
        file_system: &MountedWriter,
        prng: &mut Prng,
        work: &dyn Fn() -> Result<(), String>,
    ) -> FsResult<()> {
        let is_full = self.last().content_bytes() > self.content_bytes_max;
        match prng.below(100) {
            0..14 if !is_full => self.make(file_system, prng)?,
            14..40 if !is_full => self.overwrite(file_system, prng)?,
            40..47 => self.truncate(file_system, prng)?,
            47..55 => self.unlink(file_system, prng)?,
            55..58 => self.remove_directory(file_system, prng)?,
            58..70 => self.rename(file_system, prng)?,
            70..74 => self.link(file_system, prng)?,
            74..80 => self.annotate(file_system, prng)?,
            80..83 => self.change_mode(file_system, prng)?,
            83..86 => unnamed(file_system, prng)?,
            86..88 => work().map_err(|_| FsError::Io)?,
            _ if is_full => self.unlink(file_system, prng)?,
            _ => {
                match prng.chance(15) {
                    true => file_system.sync()?,
                    false => file_system.fsync(Ino::ROOT, Handle(0), false)?,
                }
                self.synced();
            }
        }
        Ok(())
    }

    fn make(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some(name) = self.free_name(prng) else {
            return Ok(());
        };
        let path = self.last().path(&name);
        match prng.below(8) {
            0 | 1 if name.0 == ROOT => {
                self.begin(|moment| moment.add(name, Kind::Directory, 0o755));
                let (parent, last) = parent_of(file_system, &path)?;
                let made = file_system.mkdir(&contract::caller(), parent, last, contract::DIRECTORY)?;
                file_system.forget(made.ino, 1);
            }
            2 => {
                let length = 1 + prng.below_usize(60);
                let target = vec![b'x'; length];
                self.begin(|moment| moment.add(name, Kind::Link(target.clone()), 0o777));
                let (parent, last) = parent_of(file_system, &path)?;
                let made = file_system.symlink(&contract::caller(), parent, last, &target)?;
                file_system.forget(made.ino, 1);
            }
            _ => {
                self.begin(|moment| moment.add(name, Kind::File, 0o644));
                create(file_system, &path)?;
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        file_system: &MountedWriter,
        (name, id): (&Name, u32),
        at: usize,
        data: Vec<u8>,
        is_synchronous: bool,
    ) -> FsResult<()> {
        let path = self.last().path(name);
        self.begin(|moment| {
            let content = Arc::make_mut(&mut moment.file(id).content);
            content.resize(content.len().max(at + data.len()), 0);
            content[at..at + data.len()].copy_from_slice(&data);
        });
        let flags = match is_synchronous {
            true => libc::O_RDWR | libc::O_DSYNC,
            false => libc::O_RDWR,
        };
        with_file(file_system, &path, flags, |ino, handle| {
            let mode: WriteMode = contract::plain(flags);
            let offset = u64::try_from(at).expect("small");
            match file_system.write(ino, handle, offset, &data, mode)? {
                written if written == data.len() => Ok(()),
                // Space is not short: an error occurred, which the next write would report.
                _ => Err(FsError::Io),
            }
        })?;
        if is_synchronous {
            self.synced();
        }
        Ok(())
    }

    fn overwrite(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((name, id)) = self.pick(prng, |file| file.kind == Kind::File) else {
            return Ok(());
        };
        let bytes = self.last().files[&id].content.len();
        let at = match prng.chance(40) {
            true => bytes,
            false => prng.below_usize(bytes + 6000),
        };
        let most = *prng.pick(&[200, 5000, 14_000]);
        let length = 1 + prng.below_usize(most);
        let data = match prng.chance(60) {
            true => prng.bytes(length),
            false => vec![b'a' + u8::try_from(prng.below(20)).expect("a letter"); length],
        };
        let is_synchronous = prng.chance(25);
        self.write(file_system, (&name, id), at, data, is_synchronous)
    }

    fn truncate(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((name, id)) = self.pick(prng, |file| file.kind == Kind::File) else {
            return Ok(());
        };
        let size = prng.below_usize(self.last().files[&id].content.len() + 5000);
        let path = self.last().path(&name);
        self.begin(|moment| Arc::make_mut(&mut moment.file(id).content).resize(size, 0));
        let change = SetAttr {
            size: Some(u64::try_from(size).expect("small")),
            ..SetAttr::default()
        };
        with_file(file_system, &path, libc::O_RDWR, |ino, handle| {
            file_system.setattr(ino, Some(handle), &change).map(drop)
        })
    }

    fn unlink(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((name, _)) = self.pick(prng, |file| file.kind != Kind::Directory) else {
            return Ok(());
        };
        let path = self.last().path(&name);
        let held = prng.chance(25).then(|| resolve(file_system, &path)).transpose()?;
        self.begin(|moment| moment.remove(&name));
        let (parent, last) = parent_of(file_system, &path)?;
        file_system.unlink(&contract::caller(), parent, last)?;
        if let Some(ino) = held
            && prng.chance(50)
        {
            // Otherwise the file stays open until the power cut.
            file_system.forget(ino, 1);
        }
        Ok(())
    }

    fn remove_directory(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((name, id)) = self.pick(prng, |file| file.kind == Kind::Directory) else {
            return Ok(());
        };
        if !self.last().is_empty(id) {
            return Ok(());
        }
        let path = self.last().path(&name);
        self.begin(|moment| moment.remove(&name));
        let (parent, last) = parent_of(file_system, &path)?;
        file_system.rmdir(&contract::caller(), parent, last)
    }

    fn rename(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((from, id)) = self.pick(prng, |_| true) else {
            return Ok(());
        };
        let is_directory = self.last().files[&id].kind == Kind::Directory;
        let mut to = self.any_name(prng);
        if is_directory {
            to.0 = ROOT;
        }
        let replaced = self.last().names.get(&to).copied();
        let other_is_directory = replaced.map(|id| self.last().files[&id].kind == Kind::Directory);
        let may_replace = replaced.is_none_or(|other| {
            other_is_directory == Some(is_directory) && other != id && self.last().is_empty(other)
        });
        // Links of the same file, and replacing a file by a directory, are left to other tests.
        if !may_replace {
            return Ok(());
        }
        let flags = match (replaced, prng.below(4)) {
            (Some(_), 0 | 1) => libc::RENAME_EXCHANGE,
            (_, 2) if !is_directory => libc::RENAME_WHITEOUT,
            _ => 0,
        };
        let (old, new) = (self.last().path(&from), self.last().path(&to));
        self.begin(|moment| {
            moment.remove(&from);
            let other = moment.names.insert(to, id);
            match (flags, other) {
                (libc::RENAME_EXCHANGE, Some(other)) => {
                    moment.names.insert(from, other);
                }
                (libc::RENAME_WHITEOUT, _) => moment.add(from, Kind::Whiteout, 0),
                _ => {}
            }
        });
        let (old_parent, old_name) = parent_of(file_system, &old)?;
        let (new_parent, new_name) = parent_of(file_system, &new)?;
        let (from, to) = ((old_parent, old_name), (new_parent, new_name));
        file_system.rename(&contract::caller(), from, to, RenameFlags(flags))
    }

    fn link(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let found = self.pick(prng, |file| file.kind == Kind::File);
        let (Some((old, id)), Some(new)) = (found, self.free_name(prng)) else {
            return Ok(());
        };
        let (old, path) = (self.last().path(&old), self.last().path(&new));
        self.begin(|moment| {
            moment.names.insert(new, id);
        });
        let ino = resolve(file_system, &old)?;
        let (parent, last) = parent_of(file_system, &path)?;
        let linked = file_system.link(ino, parent, last);
        file_system.forget(ino, if linked.is_ok() { 2 } else { 1 });
        linked.map(drop)
    }

    fn annotate(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((name, id)) = self.pick(prng, |file| matches!(file.kind, Kind::File | Kind::Directory))
        else {
            return Ok(());
        };
        let length = prng.below_usize(900);
        let removes = prng.chance(30) && self.last().files[&id].note.is_some();
        let value = (!removes).then(|| prng.bytes(length));
        let path = self.last().path(&name);
        self.begin(|moment| moment.file(id).note.clone_from(&value));
        let ino = resolve(file_system, &path)?;
        let changed = match &value {
            Some(value) => file_system.setxattr(ino, NOTE, value, XattrFlags(0), false),
            None => file_system.removexattr(ino, NOTE),
        };
        file_system.forget(ino, 1);
        changed
    }

    fn change_mode(&mut self, file_system: &MountedWriter, prng: &mut Prng) -> FsResult<()> {
        let Some((name, id)) = self.pick(prng, |file| file.kind == Kind::File) else {
            return Ok(());
        };
        let mode = 0o400 | u32::try_from(prng.below(0o400)).expect("a mode");
        let path = self.last().path(&name);
        self.begin(|moment| moment.file(id).mode = mode);
        let ino = resolve(file_system, &path)?;
        let change = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        let changed = file_system.setattr(ino, None, &change);
        file_system.forget(ino, 1);
        changed.map(drop)
    }

    /// The same script with only the last states: 1 for the state after all calls, 2 if the last one failed.
    pub fn recent(&self, moments: usize) -> Self {
        let from = self.moments.len().saturating_sub(moments);
        Self {
            moments: self.moments[from..].to_vec(),
            ..*self
        }
    }

    /// Continues after a failed call from the state found: the one before it or after it, with part of the data
    /// written.
    pub fn settle(&mut self, found: &Tree) -> Result<(), String> {
        let recent = self.recent(2);
        let number = recent.explain(found)?;
        let mut settled = recent.moments[number].clone();
        for (path, id) in settled.paths() {
            let content = &mut settled.file(id).content;
            if **content != found[&path].content {
                *content = Arc::new(found[&path].content.clone());
            }
        }
        if number + 1 < recent.moments.len() {
            self.moments.pop();
        }
        self.moments.push(settled);
        Ok(())
    }

    /// Returns the call since the last sync after which the tree is as found, or all mismatches.
    pub fn explain(&self, found: &Tree) -> Result<usize, String> {
        self.explain_readable(found, &[])
    }

    /// Like [`Self::explain`], with some paths, and everything below them, unreadable.
    pub fn explain_readable(&self, found: &Tree, unreadable: &[String]) -> Result<usize, String> {
        let mut why = String::new();
        for (number, moment) in self.moments.iter().enumerate() {
            match self.fits(number, moment, found, unreadable) {
                Ok(()) => return Ok(number),
                Err(reason) => why += &format!("\nas after call {number} since the last sync: {reason}"),
            }
        }
        Err(why)
    }

    fn fits(
        &self,
        number: usize,
        moment: &Moment,
        found: &Tree,
        unreadable: &[String],
    ) -> Result<(), String> {
        let expected = moment.paths();
        let is_readable = |path: &str| {
            let above = |failed: &String| {
                failed.is_empty()
                    || path
                        .strip_prefix(failed.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            !unreadable.iter().any(above)
        };
        let mut missing = expected.keys().filter(|path| !found.contains_key(*path));
        if let Some(path) = missing.find(|path| is_readable(path)) {
            return Err(format!("{path} is missing"));
        }
        for (path, seen) in found {
            let id = expected.get(path).ok_or_else(|| format!("{path} is there"))?;
            let file = &moment.files[id];
            let links = match file.kind {
                Kind::Directory => 2 + moment.directories_in(*id),
                _ => moment.links(*id),
            };
            let known = (&file.kind, file.mode, links, &file.note);
            let now = (&seen.kind, seen.mode, seen.links, &seen.note);
            if known != now {
                return Err(format!("{path} is {now:?}, not {known:?}"));
            }
            if file.kind == Kind::File {
                self.content_fits(number, *id, &seen.content)
                    .map_err(|why| format!("{path}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Whether content is possible for a file whose inode is that of state `number`.
    fn content_fits(&self, number: usize, id: u32, found: &[u8]) -> Result<(), String> {
        let all = || self.moments.iter().filter_map(|moment| moment.files.get(&id));
        let size = self.moments[number].files[&id].content.len();
        let largest = all().map(|file| file.content.len()).max().unwrap_or(0);
        if found.len() < size || found.len() > largest {
            return Err(format!("{} bytes, not {size} to {largest}", found.len()));
        }
        let wrong = (0..found.len().div_ceil(BLOCK)).find(|block| {
            // A failed write may leave blocks without extending the file.
            let bytes = BLOCK.min(found.len() - block * BLOCK);
            let known = block_of(found, *block);
            !all().any(|file| block_of(&file.content, *block)[..bytes] == known[..bytes])
        });
        match wrong {
            None => Ok(()),
            Some(block) => Err(format!("block {block} was never like that")),
        }
    }
}

/// A block of a content, padded with zeros.
fn block_of(content: &[u8], number: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let rest = content.get(number * BLOCK..).unwrap_or_default();
    let bytes = rest.len().min(BLOCK);
    block[..bytes].copy_from_slice(&rest[..bytes]);
    block
}

/// An unlinked file, which may still be open when power goes.
fn unnamed(file_system: &dyn FileSystem, prng: &mut Prng) -> FsResult<()> {
    let flags = OpenFlags(libc::O_RDWR);
    let (made, opened) = file_system.tmpfile(&contract::caller(), Ino::ROOT, contract::FILE, flags)?;
    let mode = contract::plain(libc::O_RDWR);
    file_system.write(made.ino, opened.handle, 0, &[9; 3000], mode)?;
    if prng.chance(50) {
        file_system.release(made.ino, opened.handle);
        file_system.forget(made.ino, 1);
    }
    Ok(())
}

fn create(file_system: &dyn FileSystem, path: &str) -> FsResult<()> {
    let (parent, name) = parent_of(file_system, path)?;
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    let (entry, opened) = file_system.create(&contract::caller(), parent, name, contract::FILE, flags)?;
    file_system.release(entry.ino, opened.handle);
    file_system.forget(entry.ino, 1);
    Ok(())
}

/// The parent directory of a path, which is not removed before the next call, and the last name.
fn parent_of<'a>(file_system: &dyn FileSystem, path: &'a str) -> FsResult<(Ino, &'a [u8])> {
    let Some((above, name)) = path.rsplit_once('/') else {
        return Ok((Ino::ROOT, path.as_bytes()));
    };
    let ino = resolve(file_system, above)?;
    file_system.forget(ino, 1);
    Ok((ino, name.as_bytes()))
}

/// The inode of a path; the caller has to forget it.
fn resolve(file_system: &dyn FileSystem, path: &str) -> FsResult<Ino> {
    let (parent, name) = parent_of(file_system, path)?;
    file_system.lookup(parent, name).map(|entry| entry.ino)
}

fn with_file<T>(
    file_system: &dyn FileSystem,
    path: &str,
    flags: i32,
    call: impl FnOnce(Ino, Handle) -> FsResult<T>,
) -> FsResult<T> {
    let ino = resolve(file_system, path)?;
    let opened = file_system.open(ino, OpenFlags(flags), Privileges::Keep)?;
    let called = call(ino, opened.handle);
    file_system.release(ino, opened.handle);
    file_system.forget(ino, 1);
    called
}

/// Names of a listing.
struct Names {
    names: Vec<String>,
    offset: u64,
    more: bool,
}

impl DirSink for Names {
    fn fits(&self, _: usize) -> bool {
        true
    }

    fn push(&mut self, name: &DirEntry<'_>, _: Option<&Entry>) {
        (self.offset, self.more) = (name.next_offset, true);
        if ![b".".as_slice(), b".."].contains(&name.name) {
            self.names.push(String::from_utf8_lossy(name.name).into_owned());
        }
    }
}

/// Lists all files; `Err` if any is unreadable.
pub fn tree_of(file_system: &dyn FileSystem) -> Result<Tree, String> {
    let (tree, unreadable) = readable_tree_of(file_system);
    match unreadable.into_iter().next() {
        None => Ok(tree),
        Some((path, error)) => Err(format!("/{path}: {error}")),
    }
}

/// Lists all readable files, and the paths that are not.
pub fn readable_tree_of(file_system: &dyn FileSystem) -> (Tree, Vec<(String, FsError)>) {
    let (mut tree, mut unreadable) = (Tree::new(), Vec::new());
    let mut pending = vec![String::new()];
    while let Some(directory) = pending.pop() {
        let mut names = Names {
            names: Vec::new(),
            offset: 0,
            more: true,
        };
        if let Err(error) = list(file_system, &directory, &mut names) {
            unreadable.push((directory.clone(), error));
        }
        for name in names.names {
            let path = match directory.as_str() {
                "" => name,
                above => format!("{above}/{name}"),
            };
            match seen(file_system, &path) {
                Ok(seen) => {
                    if seen.kind == Kind::Directory {
                        pending.push(path.clone());
                    }
                    tree.insert(path, seen);
                }
                Err(error) => unreadable.push((path, error)),
            }
        }
    }
    (tree, unreadable)
}

fn list(file_system: &dyn FileSystem, directory: &str, names: &mut Names) -> FsResult<()> {
    let ino = match directory {
        "" => Ino::ROOT,
        path => resolve(file_system, path)?,
    };
    let handle = file_system.opendir(ino)?;
    let mut listed = Ok(());
    // Like the kernel: until a call returns no entry.
    while listed.is_ok() && std::mem::take(&mut names.more) {
        listed = file_system.readdir(ino, handle, names.offset, names);
    }
    file_system.releasedir(ino, handle);
    if ino != Ino::ROOT {
        file_system.forget(ino, 1);
    }
    listed
}

fn seen(file_system: &dyn FileSystem, path: &str) -> FsResult<Seen> {
    let ino = resolve(file_system, path)?;
    let attr = file_system.getattr(ino, None)?;
    let note = match file_system.getxattr(ino, NOTE) {
        Ok(value) => Some(value),
        Err(FsError::NoData) => None,
        Err(error) => return Err(error),
    };
    let mut content = Vec::new();
    let kind = match attr.kind() {
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Link(file_system.readlink(ino)?),
        FileKind::Regular => {
            content = vec![0; usize::try_from(attr.size).expect("small")];
            let read = with_file(file_system, path, libc::O_RDONLY, |ino, handle| {
                file_system.read(ino, handle, 0, &mut content)
            })?;
            assert_eq!(read, content.len(), "{path}");
            Kind::File
        }
        _ => Kind::Whiteout,
    };
    file_system.forget(ino, 1);
    Ok(Seen {
        kind,
        mode: attr.mode & 0o7777,
        links: attr.nlink,
        note,
        content,
    })
}
