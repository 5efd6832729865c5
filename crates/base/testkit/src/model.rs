//! Model test: random operations on a file system and on the model, compared step by step.
//!
//! Several threads work on one file system. Each owns a directory, has the same directory in its own [`MemFs`], makes
//! every call on both and compares the answers; so the outcome is known although the threads interleave arbitrarily. A
//! directory shared by all threads is worked on under a lock, one step at a time. After the last step every file is
//! compared in full.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use vfs::{
    Attr, CopyRange, FallocateMode, FileSystem, FsError, FsResult, Handle, Ino, OpenFlags, Privileges,
    RenameFlags, SeekFrom, SetAttr, Timestamp, WriteMode,
};

use crate::contract::{DIRECTORY, FILE, caller};
use crate::mem_fs::MemFs;
use crate::prng::Prng;

/// Names in each directory; few, so that they are often replaced and reused.
const NAMES: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
/// Maximum number of open handles in each directory.
const HANDLES_MAX: usize = 8;
/// Files stay below this, except for one step in a thousand that goes beyond 4 GiB.
const OFFSET_MAX: u64 = 256 << 10;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct ModelRun {
    /// Determines everything but the interleaving of the threads.
    pub seed: u64,
    /// Total number of steps, divided among the threads.
    pub steps: u64,
    /// Threads.
    pub threads: u64,
    /// Compare the positions of holes, too: for a file system that allocates in units of 4 KiB as the model does.
    pub compare_holes: bool,
    /// The command to replay; `{seed}` in it is replaced.
    pub replay: &'static str,
}

impl ModelRun {
    /// Steps from `TIDEGATE_MODEL_STEPS`, or else `steps`; the seed from `TIDEGATE_SEED`, or else `seed`.
    #[must_use]
    pub fn from_environment(seed: u64, steps: u64, replay: &'static str) -> Self {
        let number = |name| {
            std::env::var(name)
                .ok()
                .map(|text| text.parse().expect("a number"))
        };
        Self {
            seed: number("TIDEGATE_SEED").unwrap_or(seed),
            steps: number("TIDEGATE_MODEL_STEPS").unwrap_or(steps),
            threads: 4,
            compare_holes: true,
            replay,
        }
    }
}

/// Runs the model test on an empty file system. Panics at the first difference, with the seed and the command.
pub fn run<F: FileSystem>(file_system: &F, run: ModelRun) {
    let shared = Mutex::new(Twin::new(file_system, b"shared", run));
    std::thread::scope(|scope| {
        for number in 0..run.threads {
            let shared = &shared;
            scope.spawn(move || {
                let mut prng = Prng::named(run.seed, &format!("thread {number}"));
                let mut own = Twin::new(file_system, format!("thread {number}").as_bytes(), run);
                for step in 0..run.steps / run.threads {
                    if prng.chance(15) {
                        shared
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .step(&mut prng, step);
                    } else {
                        own.step(&mut prng, step);
                    }
                }
                own.finish();
            });
        }
    });
    shared
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .finish();
}

/// A handle in the file system under test and in the model.
#[derive(Clone, Copy)]
struct Pair {
    real: (Ino, Handle),
    model: (Ino, Handle),
    flags: i32,
}

/// A directory in the file system under test and its image in the model.
struct Twin<'a, F> {
    real: &'a F,
    model: MemFs,
    real_dir: Ino,
    model_dir: Ino,
    open: Vec<Pair>,
    /// End offset of the last write, which many writes continue.
    last_end: u64,
    /// Times of modification and change that queries have returned.
    told: HashMap<Ino, (Timestamp, Timestamp)>,
    run: ModelRun,
    doing: String,
}

impl<'a, F: FileSystem> Twin<'a, F> {
    fn new(real: &'a F, name: &[u8], run: ModelRun) -> Self {
        let model = MemFs::new();
        let make = |made: FsResult<vfs::Entry>| made.expect("a directory of the run's own").ino;
        let real_dir = make(real.mkdir(&caller(), Ino::ROOT, name, DIRECTORY));
        let model_dir = make(model.mkdir(&caller(), Ino::ROOT, name, DIRECTORY));
        Self {
            real,
            model,
            real_dir,
            model_dir,
            open: Vec::new(),
            last_end: 0,
            told: HashMap::new(),
            run,
            doing: String::new(),
        }
    }

    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, real: &T, model: &T) {
        let seed = self.run.seed;
        assert!(
            real == model,
            "{}: the file system says {real:?}, the model {model:?} (seed {seed}); replay with: {}",
            self.doing,
            self.run.replay.replace("{seed}", &seed.to_string()),
        );
    }

    /// One random operation, with a query of its file's size.
    fn step(&mut self, prng: &mut Prng, step: u64) {
        let kind = prng.below(100);
        self.doing = format!("step {step}, kind {kind}");
        if self.open.is_empty() || kind < 6 {
            self.open_or_create(prng);
        }
        let Some(pair) = (!self.open.is_empty()).then(|| *prng.pick(&self.open)) else {
            return;
        };
        match kind {
            0..6 => {}
            6..40 => self.write(prng, pair),
            40..62 => self.read(prng, pair),
            62..67 => self.change(prng, pair),
            67..72 => self.fallocate(prng, pair),
            72..75 => self.seek(prng, pair),
            75..79 => self.copy(prng, pair),
            79..84 => self.sync(prng, pair),
            84..90 => self.close(prng),
            90..93 => self.unlink(prng),
            93..96 => self.rename(prng),
            96..98 => self.link(prng, pair),
            _ => self.look_up(prng),
        }
        if self.open.iter().any(|open| open.real == pair.real) && prng.chance(30) {
            self.look(pair);
        }
    }

    /// Compares attributes. Times can't be predicted, but they never go back.
    fn look(&mut self, pair: Pair) {
        let real = self.real.getattr(pair.real.0, Some(pair.real.1));
        let model = self.model.getattr(pair.model.0, Some(pair.model.1));
        let facts = |attr: &FsResult<Attr>| attr.map(|attr| (attr.size, attr.nlink, attr.mode));
        self.same(&facts(&real), &facts(&model));
        let (Ok(real), Ok(model)) = (real, model) else {
            return;
        };
        if self.run.compare_holes {
            let least = real.blocks.min(model.blocks);
            self.same(&("blocks", least), &("blocks", model.blocks));
        }
        let times = (real.mtime, real.ctime);
        let told = self.told.insert(pair.real.0, times).unwrap_or(times);
        let later = (told.0.max(times.0), told.1.max(times.1));
        self.same(&("times", times), &("times", later));
    }

    fn open_or_create(&mut self, prng: &mut Prng) {
        if self.open.len() >= HANDLES_MAX {
            self.close(prng);
        }
        let name = *prng.pick(&NAMES);
        let mut flags = *prng.pick(&[
            libc::O_RDWR,
            libc::O_RDWR,
            libc::O_RDWR | libc::O_APPEND,
            libc::O_RDONLY,
        ]);
        if prng.chance(15) && flags != libc::O_RDONLY {
            flags |= libc::O_TRUNC;
        }
        let create = OpenFlags(flags | libc::O_CREAT);
        let make = |fs: &dyn FileSystem, dir| fs.create(&caller(), dir, name, FILE, create);
        let (real, model) = (make(self.real, self.real_dir), make(&self.model, self.model_dir));
        let size = |made: &FsResult<(vfs::Entry, vfs::Opened)>| made.map(|(entry, _)| entry.attr.size);
        self.same(&size(&real), &size(&model));
        if let (Ok((real, real_open)), Ok((model, model_open))) = (real, model) {
            let (real, model) = ((real.ino, real_open.handle), (model.ino, model_open.handle));
            self.open.push(Pair { real, model, flags });
        }
    }

    fn offset(&self, prng: &mut Prng) -> u64 {
        match prng.below(1000) {
            0 => (4 << 30) + prng.below(OFFSET_MAX),
            1..500 if self.last_end < OFFSET_MAX => self.last_end,
            1..700 => prng.below(OFFSET_MAX / 4096) * 4096,
            _ => prng.below(OFFSET_MAX),
        }
    }

    fn length(prng: &mut Prng) -> usize {
        let limit = *prng.pick(&[16, 512, 4096, 4096, 20_000, 70_000]);
        1 + prng.below_usize(limit)
    }

    fn write(&mut self, prng: &mut Prng, pair: Pair) {
        let (offset, length) = (self.offset(prng), Self::length(prng));
        let more = *prng.pick(&[0, 0, 0, 0, 0, 0, 0, 0, libc::O_SYNC, libc::O_DIRECT]);
        let mode = WriteMode {
            flags: OpenFlags(pair.flags | more),
            privileges: killed(prng.chance(20)),
            from_page_cache: prng.chance(10) && pair.flags & libc::O_APPEND == 0,
        };
        let data = prng.bytes(length);
        self.doing = format!("{}: write of {length} bytes at {offset}, {mode:?}", self.doing);
        // The kernel's guess for an append is usually the end of the file.
        let mut offset = offset;
        if pair.flags & libc::O_APPEND != 0 && prng.chance(80) {
            offset = self.model.getattr(pair.model.0, None).map_or(0, |attr| attr.size);
        }
        let real = self.real.write(pair.real.0, pair.real.1, offset, &data, mode);
        let model = self.model.write(pair.model.0, pair.model.1, offset, &data, mode);
        self.same(&real, &model);
        self.last_end = offset + u64::try_from(length).expect("a short write");
    }

    fn read(&mut self, prng: &mut Prng, pair: Pair) {
        if pair.flags & libc::O_ACCMODE == libc::O_WRONLY {
            return;
        }
        let (offset, length) = (self.offset(prng), Self::length(prng));
        self.doing = format!("{}: read of {length} bytes at {offset}", self.doing);
        self.compare_range(pair, offset, length);
    }

    fn compare_range(&self, pair: Pair, offset: u64, length: usize) {
        let (mut real, mut model) = (vec![1; length], vec![1; length]);
        let real_count = self.real.read(pair.real.0, pair.real.1, offset, &mut real);
        let model_count = self.model.read(pair.model.0, pair.model.1, offset, &mut model);
        self.same(&real_count, &model_count);
        if let Some(at) = (0..length).find(|at| real[*at] != model[*at]) {
            self.same(&("byte", at, real[at]), &("byte", at, model[at]));
        }
    }

    fn change(&mut self, prng: &mut Prng, pair: Pair) {
        let change = if prng.chance(30) {
            SetAttr {
                mode: Some(*prng.pick(&[0o644, 0o4755, 0o6755, 0o600])),
                ..SetAttr::default()
            }
        } else {
            SetAttr {
                size: Some(prng.below(OFFSET_MAX)),
                privileges: killed(prng.chance(50)),
                ..SetAttr::default()
            }
        };
        self.doing = format!("{}: {change:?}", self.doing);
        let (real, model) = if pair.flags & libc::O_ACCMODE == libc::O_RDONLY {
            (None, None)
        } else {
            (Some(pair.real.1), Some(pair.model.1))
        };
        let real = self.real.setattr(pair.real.0, real, &change);
        let model = self.model.setattr(pair.model.0, model, &change);
        let facts = |attr: FsResult<Attr>| attr.map(|attr| (attr.size, attr.mode));
        self.same(&facts(real), &facts(model));
    }

    fn fallocate(&mut self, prng: &mut Prng, pair: Pair) {
        if pair.flags & libc::O_ACCMODE == libc::O_RDONLY {
            return;
        }
        let mode = *prng.pick(&[
            libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_KEEP_SIZE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
            0,
        ]);
        let in_blocks = mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0;
        let unit = if in_blocks { 4096 } else { 1 };
        let (offset, length) = (
            prng.below(OFFSET_MAX / unit) * unit,
            (1 + prng.below(40_960 / unit)) * unit,
        );
        self.doing = format!(
            "{}: fallocate({mode:#x}) of {length} bytes at {offset}",
            self.doing
        );
        let mode = FallocateMode(mode);
        let real = self
            .real
            .fallocate(pair.real.0, pair.real.1, mode, offset, length, Privileges::Keep);
        if real == Err(FsError::NotSupported) {
            return;
        }
        self.same(
            &real,
            &self
                .model
                .fallocate(pair.model.0, pair.model.1, mode, offset, length, Privileges::Keep),
        );
    }

    fn seek(&mut self, prng: &mut Prng, pair: Pair) {
        if !self.run.compare_holes {
            return;
        }
        let offset = self.offset(prng);
        let from = if prng.chance(50) {
            SeekFrom::Data(offset)
        } else {
            SeekFrom::Hole(offset)
        };
        self.doing = format!("{}: seek {from:?}", self.doing);
        let real = self.real.lseek(pair.real.0, pair.real.1, from);
        self.same(&real, &self.model.lseek(pair.model.0, pair.model.1, from));
    }

    fn copy(&mut self, prng: &mut Prng, target: Pair) {
        let source = *prng.pick(&self.open);
        let ends = target.flags & (libc::O_ACCMODE | libc::O_APPEND);
        if ends != libc::O_RDWR || source.model.0 == target.model.0 {
            return;
        }
        let (source_offset, target_offset) = (prng.below(OFFSET_MAX), prng.below(OFFSET_MAX));
        let length = 1 + prng.below(60_000);
        self.doing = format!(
            "{}: copy of {length} bytes, {source_offset} to {target_offset}",
            self.doing
        );
        let copy = |source, target| CopyRange {
            source,
            source_offset,
            target,
            target_offset,
            length,
            privileges: Privileges::Keep,
        };
        let real = self.real.copy_file_range(&copy(source.real, target.real));
        if matches!(real, Err(FsError::NotSupported | FsError::CrossDevice)) {
            return;
        }
        self.same(
            &real,
            &self.model.copy_file_range(&copy(source.model, target.model)),
        );
    }

    fn sync(&mut self, prng: &mut Prng, pair: Pair) {
        self.doing = format!("{}: sync", self.doing);
        let real = match prng.below(8) {
            0 => self.real.sync(),
            1..4 => self.real.flush(pair.real.0, pair.real.1),
            other => self.real.fsync(pair.real.0, pair.real.1, other < 6),
        };
        self.same(&real, &Ok(()));
    }

    fn close(&mut self, prng: &mut Prng) {
        let pair = self.open.swap_remove(prng.below_usize(self.open.len()));
        self.doing = format!("{}: close", self.doing);
        self.same(&self.real.flush(pair.real.0, pair.real.1), &Ok(()));
        self.real.release(pair.real.0, pair.real.1);
        self.model.release(pair.model.0, pair.model.1);
    }

    fn unlink(&mut self, prng: &mut Prng) {
        let name = *prng.pick(&NAMES);
        self.doing = format!("{}: unlink", self.doing);
        let real = self.real.unlink(&caller(), self.real_dir, name);
        self.same(&real, &self.model.unlink(&caller(), self.model_dir, name));
    }

    fn rename(&mut self, prng: &mut Prng) {
        let (from, to) = (*prng.pick(&NAMES), *prng.pick(&NAMES));
        self.doing = format!("{}: rename", self.doing);
        let rename = |fs: &dyn FileSystem, dir| fs.rename(&caller(), (dir, from), (dir, to), RenameFlags(0));
        self.same(
            &rename(self.real, self.real_dir),
            &rename(&self.model, self.model_dir),
        );
    }

    fn link(&mut self, prng: &mut Prng, pair: Pair) {
        let name = *prng.pick(&NAMES);
        self.doing = format!("{}: link", self.doing);
        // A host can't give a removed file a name again (linkat of a deleted file).
        if self
            .model
            .getattr(pair.model.0, None)
            .is_ok_and(|attr| attr.nlink == 0)
        {
            return;
        }
        let facts = |made: FsResult<vfs::Entry>| made.map(|entry| (entry.attr.size, entry.attr.nlink));
        let real = facts(self.real.link(pair.real.0, self.real_dir, name));
        self.same(&real, &facts(self.model.link(pair.model.0, self.model_dir, name)));
    }

    fn look_up(&mut self, prng: &mut Prng) {
        let name = *prng.pick(&NAMES);
        self.doing = format!("{}: lookup", self.doing);
        let (real, model) = (
            self.real.lookup(self.real_dir, name),
            self.model.lookup(self.model_dir, name),
        );
        let facts = |made: &FsResult<vfs::Entry>| made.map(|entry| (entry.attr.size, entry.attr.nlink));
        self.same(&facts(&real), &facts(&model));
        if let (Ok(real), Ok(model)) = (real, model) {
            self.real.forget(real.ino, 1);
            self.model.forget(model.ino, 1);
        }
    }

    /// Closes everything and compares every file in full, through new handles.
    fn finish(mut self) {
        let mut prng = Prng::new(self.run.seed);
        while !self.open.is_empty() {
            self.close(&mut prng);
        }
        for name in NAMES {
            let open = |fs: &dyn FileSystem, dir| -> FsResult<((Ino, Handle), u64)> {
                let entry = fs.lookup(dir, name)?;
                let opened = fs.open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)?;
                Ok(((entry.ino, opened.handle), entry.attr.size))
            };
            self.doing = format!("the end: {}", name.escape_ascii());
            let (real, model) = (open(self.real, self.real_dir), open(&self.model, self.model_dir));
            self.same(&real.map(|(_, size)| size), &model.map(|(_, size)| size));
            if let (Ok((real, size)), Ok((model, _))) = (real, model) {
                let pair = Pair {
                    real,
                    model,
                    flags: libc::O_RDONLY,
                };
                let near = usize::try_from(size.min(2 * OFFSET_MAX)).expect("bounded");
                self.compare_range(pair, 0, near);
                self.compare_range(pair, size.saturating_sub(OFFSET_MAX), near);
                self.real.release(real.0, real.1);
            }
        }
    }
}

/// Group 0, so that the owner of files that the model creates is in their group.
const fn killed(yes: bool) -> Privileges {
    if yes {
        Privileges::Kill { gid: 0 }
    } else {
        Privileges::Keep
    }
}
