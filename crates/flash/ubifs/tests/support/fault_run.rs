//! Runs a segment of the random script over a failing volume, and checks all invariants.

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

/// A source of faults below a file system.
pub trait Faults {
    /// The operation that failed first.
    fn hit(&self) -> Option<String>;
    /// Ends the faults, except for permanent damage.
    fn mend(&self);
    /// Number of reads so far.
    fn reads(&self) -> u64;
    /// Number of writes so far.
    fn writes(&self) -> u64;
    /// Whether only reads fail.
    fn are_of_reads(&self) -> bool;
    /// Whether the fault is a panic of the code below.
    fn panic(&self) -> bool;
}

/// Consequences of the faults.
#[derive(Debug, Default)]
pub struct Tally {
    pub faults: u64,
    /// Failed mounts.
    pub mounts: u64,
    /// Failed calls without effect.
    pub calls: u64,
    /// File systems that became read-only.
    pub read_only: u64,
    /// Failed unmounts or final syncs.
    pub ends: u64,
    /// Faults that no call reported.
    pub unnoticed: u64,
}

impl Tally {
    /// Counts of the reported faults, by consequence.
    pub const fn noticed(&self) -> [u64; 4] {
        [self.mounts, self.calls, self.read_only, self.ends]
    }
}

/// State after a run.
pub struct Left {
    script: Script,
    /// Whether the unmount succeeded, so that everything must be there.
    closed: bool,
    /// Number of operations in each class counted.
    pub operations: [u64; 3],
    /// Number of reads during the mount.
    pub mount_reads: u64,
    /// Number of LEBs collected.
    pub collected: u64,
}

/// Suppresses the output of panics that a test injects.
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
    /// State after a run that failed to mount.
    pub fn unmounted(segment: &Segment) -> Self {
        Self {
            script: Script::after(&segment.script),
            closed: false,
            operations: [0; 3],
            mount_reads: 0,
            collected: 0,
        }
    }

    /// Asserts that everything that must be there is there.
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

/// A file system mounted over a faulty volume.
struct Run<'a> {
    faults: &'a dyn Faults,
    volume: &'a dyn Volume,
    /// How to run this fault again.
    replay: &'a str,
    script: Script,
    file_system: MountedWriter,
}

/// Makes a call; returns `None` if it panics and the fault is a panic.
pub fn calling<T>(faults: &dyn Faults, call: impl FnOnce() -> T) -> Option<T> {
    match faults.panic() {
        true => catch_unwind(AssertUnwindSafe(call)).ok(),
        false => Some(call()),
    }
}

/// Mounts a faulty volume and runs a segment.
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
        // Half of the segments run without an index cache.
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
    /// Runs the segment. Returns whether the unmount succeeded, so that everything must be there.
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
                // The device had already stopped; this call is the first to write.
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
                // Background work of the device hit the fault; the next write will report it.
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

    /// Checks that the failed call had no effect, or wrote only part of the file.
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

    /// Asserts that readable files are correct and all others fail with `EIO` while reads fail.
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

    /// Asserts that nothing is written any more and that each call reports it.
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

    /// Asserts that reads return the state after one of the last `calls` calls.
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

/// Asserts that the medium is consistent before and after its recovery, and that everything that must be there is
/// there.
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
