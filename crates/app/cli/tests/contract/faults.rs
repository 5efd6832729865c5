//! Programs on a mount with a failing source: a fault-injecting file system of this process, mounted as the source of the
//! mount under test. It stands for a disk with bad blocks, a full disk, a quota, and a host that reports errors at close,
//! as NFS does.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fuse::{MountConfig, Session, Switch};
use passfs::{AccessTimes, PassConfig, PassFs};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::TempDir;
use testkit::{Call, Faults, FaultyFs, Times};
use vfs::FsError;

use crate::mounted::{Mode, Mounted};
use crate::programs::both_ways;

/// A source that injects faults on request.
struct FaultySource {
    faults: Faults,
    session: Option<Session>,
    mountpoint: TempDir,
    /// The folder with its files.
    folder: TempDir,
}

impl FaultySource {
    fn mount() -> Self {
        let [folder, mountpoint] = [(); 2].map(|()| TempDir::new().expect("a temporary folder"));
        let below = PassConfig {
            id_map: None,
            read_only: false,
            write_out_bytes: None,
            stream_direct_after_bytes: None,
            stream_direct_rate_min: 0,
            offer_backing: false,
            access_times: AccessTimes::OF_SOURCE,
        };
        let below = PassFs::open(folder.path(), below).expect("the folder is there");
        let faulty = FaultyFs::new(below);
        let faults = faulty.faults();
        let config = MountConfig {
            source: "faulty".to_owned(),
            subtype: "tidegate-test".to_owned(),
            io_unit_bytes: None,
            writeback: Switch::Off,
            passthrough: Switch::Off,
            uring: Switch::Off,
            direct_io: Switch::On,
            threads: Some(2),
            poll: None,
            read_only: false,
            allow_other: true,
            posix_acl: true,
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
            coherence: fuse::Coherence::Timeout,
            opens: fuse::Opens::default(),
            kernel_options: Vec::new(),
        };
        let document = Box::new(|_: &_, _: &_| Vec::new());
        let session = Session::mount(
            Arc::new(faulty),
            mountpoint.path(),
            &config,
            document,
            Box::new(|_| {}),
        );
        Self {
            faults,
            session: Some(session.expect("root can mount")),
            mountpoint,
            folder,
        }
    }
}

impl Drop for FaultySource {
    fn drop(&mut self) {
        self.faults.heal();
        let session = self.session.take().expect("ended here alone");
        session.stopper().stop();
        // Ignored: a failure here would hide the test's own message.
        let _ = session.wait();
    }
}

/// The files of one mode, on the mount and on the source.
struct Scene {
    faults: Faults,
    root: PathBuf,
    below: PathBuf,
    mode: Mode,
}

impl Scene {
    /// Runs a program on the mount; on failure returns its error output.
    fn run(&self, script: &str) -> Result<(), String> {
        let output = Command::new("sh")
            .current_dir(&self.root)
            .args(["-c", script])
            .output();
        let output = output.expect("there is a shell");
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn new_file(&self, name: &str) -> File {
        both_ways(&self.root.join(name))
    }
}

fn errno(outcome: &io::Result<()>) -> Option<i32> {
    outcome.as_ref().err().and_then(io::Error::raw_os_error)
}

/// The error of a write or, if it succeeds, of the sync after it.
fn told(file: &File, data: &[u8], offset: u64) -> Option<i32> {
    errno(&file.write_all_at(data, offset).and_then(|()| file.sync_all()))
}

type FaultProgram = (&'static str, fn(&Scene));

const PROGRAMS: [FaultProgram; 6] = [
    ("a_read_error_reaches_programs_and_is_no_end_of_file", read_error),
    (
        "a_write_error_is_told_once_to_each_descriptor_and_to_no_other_file",
        write_error,
    ),
    (
        "writes_that_fail_for_ever_are_told_each_time_and_are_usable_again",
        write_errors_for_ever,
    ),
    ("a_failed_sync_is_told", sync_error),
    (
        "a_synchronous_write_that_cannot_be_made_durable_fails",
        synchronous_write_error,
    ),
    (
        "an_error_that_the_source_tells_at_close_is_told_at_close",
        close_error,
    ),
];

/// Runs each program in each mode; a failure names both.
#[test]
fn errors_of_the_source_reach_programs_in_every_mode() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let mut failed = Vec::new();
    for mode in Mode::ALL.iter().filter(|mode| mode.is_available()) {
        let source = FaultySource::mount();
        let held = TempDir::new().expect("a temporary folder");
        let mounted = Mounted::over(source.mountpoint.path(), mode, held, None);
        for (name, program) in PROGRAMS {
            let place = |root: &Path| root.join(name);
            fs::create_dir(place(source.folder.path())).expect("a temporary folder takes folders");
            let scene = Scene {
                faults: source.faults.clone(),
                root: place(mounted.root()),
                below: place(source.folder.path()),
                mode: *mode,
            };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program(&scene)));
            source.faults.heal();
            if outcome.is_err() {
                failed.push(format!(
                    "mode {}, clause errors: {}",
                    mode.name,
                    name.replace('_', " ")
                ));
            }
        }
    }
    assert!(failed.is_empty(), "the contract is broken: {failed:#?}");
}

fn read_error(scene: &Scene) {
    let content = vec![7; 1_000_000];
    fs::write(scene.below.join("file"), &content).expect("there is room");
    scene.faults.fail(Call::Read, Times::ForEver, FsError::Io);
    let file = File::open(scene.root.join("file")).expect("it is there");
    for offset in [0, 500_000, 999_999] {
        let mut out = vec![0; 4096];
        let read = file.read_at(&mut out, offset);
        assert_eq!(
            errno(&read.map(drop)),
            Some(Errno::IO.raw_os_error()),
            "at {offset}"
        );
    }
    let copied = scene
        .run("cp file copy")
        .expect_err("cp believes that it has all of it");
    assert!(copied.contains("Input/output error"), "{copied}");
    scene
        .run("cat file > /dev/null")
        .expect_err("cat believes that it has all of it");
    scene.faults.heal();
    assert!(fs::read(scene.root.join("file")).expect("healed") == content);
    assert_eq!(file.metadata().expect("it is open").len(), 1_000_000);
}

fn write_error(scene: &Scene) {
    for (number, error) in [FsError::Io, FsError::NoSpace, FsError::Quota]
        .into_iter()
        .enumerate()
    {
        let (one, two) = (format!("one-{number}"), format!("two-{number}"));
        let (file, other) = (scene.new_file(&one), scene.new_file(&two));
        let second = scene.new_file(&one);
        other.write_all_at(b"fine", 0).expect("there is room");
        other.sync_all().expect("it can be synced");
        scene.faults.fail(Call::Write, Times::Once, error);
        let written = file.write_all_at(&[1; 5_000], 0);
        if written.is_ok() {
            assert_eq!(
                errno(&file.sync_all()),
                Some(error.errno()),
                "{error:?} was not told"
            );
            assert_eq!(
                errno(&second.sync_all()),
                Some(error.errno()),
                "{error:?}: the second descriptor"
            );
        } else {
            assert_eq!(errno(&written), Some(error.errno()));
        }
        assert_eq!(errno(&file.sync_all()), None, "{error:?} was told twice");
        assert_eq!(errno(&second.sync_all()), None, "{error:?} was told twice");
        assert_eq!(
            errno(&other.sync_all()),
            None,
            "{error:?} was told to another file"
        );
        assert_eq!(told(&file, b"usable", 0), None, "{error:?}");
        assert_eq!(
            &fs::read(scene.below.join(&one)).expect("it is there")[..6],
            b"usable"
        );
    }
}

fn write_errors_for_ever(scene: &Scene) {
    let file = scene.new_file("file");
    assert_eq!(told(&file, &[1; 5_000], 0), None);
    scene.faults.fail(Call::Write, Times::ForEver, FsError::NoSpace);
    for round in 0..3 {
        let full = Some(Errno::NOSPC.raw_os_error());
        assert_eq!(told(&file, &[2; 5_000], 0), full, "round {round}");
    }
    scene.faults.heal();
    assert_eq!(told(&file, &[3; 5_000], 0), None);
    assert!(fs::read(scene.below.join("file")).expect("it is there") == [3; 5_000]);
}

fn sync_error(scene: &Scene) {
    let file = scene.new_file("file");
    file.write_all_at(b"content", 0).expect("there is room");
    scene.faults.fail(Call::Sync, Times::Once, FsError::Io);
    assert_eq!(errno(&file.sync_all()), Some(Errno::IO.raw_os_error()));
    assert_eq!(errno(&file.sync_all()), None);
    scene.faults.fail(Call::Sync, Times::ForEver, FsError::Io);
    file.write_all_at(b"more", 7).expect("there is room");
    for _ in 0..2 {
        assert_eq!(errno(&file.sync_data()), Some(Errno::IO.raw_os_error()));
    }
}

fn synchronous_write_error(scene: &Scene) {
    let flags = i32::try_from(OFlags::DSYNC.bits()).expect("a small number");
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags)
        .open(scene.root.join("file"));
    let file = opened.expect("the file can be made");
    file.write_all_at(b"first", 0).expect("there is room");
    scene.faults.fail(Call::Sync, Times::ForEver, FsError::Io);
    let written = file.write_all_at(b"second", 5);
    assert_eq!(
        errno(&written),
        Some(Errno::IO.raw_os_error()),
        "a write that is not durable was acknowledged"
    );
    scene.faults.heal();
    file.write_all_at(b"third", 5).expect("healed");
}

/// NFS reports a server's error at close, and `dd` checks the result of close.
fn close_error(scene: &Scene) {
    let write = "dd if=/dev/zero of=file bs=4k count=4 conv=notrunc status=none";
    scene.run(write).expect("nothing fails yet");
    scene.faults.fail(Call::Flush, Times::ForEver, FsError::Io);
    let refused = scene.run(write).expect_err("the close succeeded");
    assert!(
        refused.contains("Input/output error"),
        "mode {}: {refused}",
        scene.mode.name
    );
    scene.faults.heal();
    scene.run(write).expect("healed");
}
