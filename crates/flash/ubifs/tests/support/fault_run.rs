//! A piece of the random script over a volume that fails, and all that has to hold then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};

use testkit::contract;
use ubi::Volume;
use ubifs::{Finding, MountedWriter, OpenOptions, Writer};
use vfs::{FileSystem, FsError, Handle, Ino, OpenFlags};

use super::fault_sweep::Trial;
use super::medium::{Medium, clock};
use super::script::{Script, Tree, readable_tree_of, tree_of};
use super::sweep::{Segment, Sweep};

/// What fails below a file system.
pub trait Faults {
    /// The operation that failed first.
    fn hit(&self) -> Option<String>;
    /// Nothing fails any more, but what broke for good.
    fn mend(&self);
    /// Reads so far.
    fn reads(&self) -> u64;
    /// Writes so far.
    fn writes(&self) -> u64;
    /// Whether reads fail, and nothing else.
    fn are_of_reads(&self) -> bool;
    /// Whether the code below panics.
    fn panic(&self) -> bool;
}

/// What came of faults.
#[derive(Debug, Default)]
pub struct Tally {
    pub faults: u64,
    /// Mounts that failed.
    pub mounts: u64,
    /// Calls that failed and changed nothing.
    pub calls: u64,
    /// File systems that became read-only.
    pub read_only: u64,
    /// Unmounts, or last syncs, that failed.
    pub ends: u64,
    /// Faults that no call noticed.
    pub unnoticed: u64,
}

impl Tally {
    /// What of it counts faults that were noticed.
    pub const fn noticed(&self) -> [u64; 4] {
        [self.mounts, self.calls, self.read_only, self.ends]
    }
}

/// What a run leaves.
pub struct Left {
    script: Script,
    /// Whether the unmount said that all is there.
    closed: bool,
    /// How many operations there were of each class that is counted.
    pub operations: [u64; 3],
    /// Reads until it was mounted.
    pub mount_reads: u64,
    /// LEBs that were collected.
    pub collected: u64,
}

/// Panics that a test puts in don't clutter its output.
pub fn hush() {
    static HUSHED: Once = Once::new();
    HUSHED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let told = panic.payload().downcast_ref::<String>();
            if !told.is_some_and(|told| told.starts_with("a test has")) {
                usual(panic);
            }
        }));
    });
}

impl Left {
    /// That of a run which did not even mount.
    pub fn unmounted(segment: &Segment) -> Self {
        Self {
            script: Script::after(&segment.script),
            closed: false,
            operations: [0; 3],
            mount_reads: 0,
            collected: 0,
        }
    }

    /// All is there that has to be.
    pub fn assert_explains(&self, found: &Tree, replay: &str) {
        let explained = match self.closed {
            true => self.script.recent(1).explain(found),
            false => self.script.explain(found),
        };
        if let Err(why) = explained {
            panic!("{replay}: on the medium: {why}");
        }
    }
}

/// A mounted file system over what fails.
struct Run<'a> {
    faults: &'a dyn Faults,
    volume: &'a dyn Volume,
    /// How to run it alone.
    replay: &'a str,
    script: Script,
    file_system: MountedWriter,
}

/// Makes a call that may panic where that is the fault: `None` then.
pub fn calling<T>(faults: &dyn Faults, call: impl FnOnce() -> T) -> Option<T> {
    match faults.panic() {
        true => catch_unwind(AssertUnwindSafe(call)).ok(),
        false => Some(call()),
    }
}

/// Mounts a volume below which something may fail, and runs a segment.
pub fn run<F>(
    trial: Trial<'_, F>,
    (volume, work): (Arc<dyn Volume>, &dyn Fn() -> Result<(), String>),
    faults: &dyn Faults,
) -> Left {
    let Trial {
        sweep,
        segment,
        replay,
        tally,
        ..
    } = trial;
    let mut left = Left::unmounted(segment);
    let options = OpenOptions {
        // Half of the segments read the index again and again.
        index_cache_bytes: if segment.number % 4 < 2 { 1 << 20 } else { 0 },
        ..OpenOptions::standard()
    };
    let writer = match calling(faults, || Writer::open(Arc::clone(&volume), options)) {
        Some(Ok(writer)) => writer,
        refused => {
            let why = refused.map(|opened| opened.err());
            assert!(faults.hit().is_some(), "{replay}: {why:?}");
            tally.mounts += 1;
            return left;
        }
    };
    left.mount_reads = faults.reads();
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let told = Arc::clone(&told);
        Box::new(move |finding: &Finding| told.lock().expect("no panic").push(finding.to_string()))
    };
    let mut run = Run {
        faults,
        volume: &*volume,
        replay,
        script: left.script,
        file_system: MountedWriter::new(writer, listener, clock()),
    };
    left.closed = run.finish(sweep, segment, work, tally);
    left.collected = run.file_system.statistics().collected_lebs;
    left.script = run.script;
    let told = told.lock().expect("no panic");
    assert!(told.is_empty() || faults.are_of_reads(), "{replay}: {told:?}");
    left
}

impl Run<'_> {
    /// Returns whether it was unmounted, and all is there.
    fn finish(
        &mut self,
        sweep: Sweep,
        segment: &Segment,
        work: &dyn Fn() -> Result<(), String>,
        tally: &mut Tally,
    ) -> bool {
        let mut prng = sweep.stream(&format!("segment {}", segment.number));
        for _ in 0..sweep.steps {
            let (script, file_system) = (&mut self.script, &self.file_system);
            match calling(self.faults, || script.step(file_system, &mut prng, work)) {
                Some(Ok(())) => continue,
                Some(Err(FsError::Io)) => {}
                // The device had stopped before: this call is the first that writes.
                Some(Err(FsError::ReadOnly)) if self.volume.frozen().is_some() => {}
                Some(Err(error)) => panic!("{}: {error}", self.what()),
                None => {}
            }
            if self.file_system.statistics().failure.is_some() {
                tally.read_only += 1;
                self.assert_reads_go_on(2);
                self.assert_read_only();
                self.assert_reads_go_on(2);
                return false;
            }
            tally.calls += 1;
            match self.faults.are_of_reads() {
                true => self.go_on_after_a_failed_read(),
                // The work of the device met it: the next call that writes will say so.
                false => assert!(
                    self.volume.frozen().is_some(),
                    "{}: it goes on writing",
                    self.what()
                ),
            }
        }
        let closes = segment.number.is_multiple_of(2);
        let (script, file_system) = (&mut self.script, &self.file_system);
        match calling(self.faults, || script.finish(file_system, closes)) {
            Some(Ok(())) if closes => return true,
            Some(Ok(())) => {}
            Some(Err(_)) | None => {
                assert!(self.faults.hit().is_some(), "{}", self.what());
                tally.ends += 1;
            }
        }
        self.assert_reads_go_on(1);
        false
    }

    fn what(&self) -> String {
        format!("{}, {:?}", self.replay, self.faults.hit())
    }

    /// The call that met it changed nothing, or, where it wrote, a part of the file.
    fn go_on_after_a_failed_read(&mut self) {
        self.assert_readable_is_right();
        self.faults.mend();
        let found = self.tree();
        if let Err(why) = self.script.settle(&found) {
            panic!("{}: {why}", self.what());
        }
    }

    fn tree(&self) -> Tree {
        tree_of(&self.file_system).unwrap_or_else(|error| panic!("{}: {error}", self.what()))
    }

    /// While reads fail, what can be read is right, and what can't be says so.
    fn assert_readable_is_right(&self) {
        let Some((tree, unreadable)) = calling(self.faults, || readable_tree_of(&self.file_system)) else {
            return;
        };
        let mut paths = Vec::new();
        for (path, error) in unreadable {
            assert_eq!(error, FsError::Io, "{}: {path}", self.what());
            paths.push(path);
        }
        if let Err(why) = self.script.recent(2).explain_readable(&tree, &paths) {
            panic!("{}: while reads fail: {why}", self.what());
        }
    }

    /// Nothing is written any more, and each call says so.
    fn assert_read_only(&self) {
        let writes = self.faults.writes();
        let mount = &self.file_system;
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
        let made = mount.create(&contract::caller(), Ino::ROOT, b"late", contract::FILE, flags);
        assert_eq!(made.map(drop), Err(FsError::ReadOnly), "{}", self.what());
        let synced = [mount.fsync(Ino::ROOT, Handle(0), false), mount.sync()];
        assert_eq!(synced, [Err(FsError::Io); 2], "{}", self.what());
        assert!(mount.work().is_err() && mount.close().is_err(), "{}", self.what());
        let more = self.faults.writes() - writes;
        assert_eq!(more, 0, "{}: writes after it", self.what());
    }

    /// Reads give what so many of the last calls left, one of them.
    fn assert_reads_go_on(&self, calls: usize) {
        if self.faults.are_of_reads() {
            self.assert_readable_is_right();
            self.faults.mend();
        }
        if let Err(why) = self.script.recent(calls).explain(&self.tree()) {
            panic!("{}: {why}", self.what());
        }
    }
}

/// The medium is whole as it was left, and after its recovery, and all is there that has to be.
pub fn judge(medium: &Medium, left: &Left, replay: &str) {
    medium
        .copy()
        .judge(None, &format!("{replay}, before it is mounted"));
    let file_system = medium.mount().unwrap_or_else(|error| panic!("{replay}: {error}"));
    let found = tree_of(&file_system).unwrap_or_else(|error| panic!("{replay}: {error}"));
    left.assert_explains(&found, replay);
    let closed = file_system.close();
    closed.unwrap_or_else(|error| panic!("{replay}: {error}"));
    drop(file_system);
    medium.judge(None, replay);
}
