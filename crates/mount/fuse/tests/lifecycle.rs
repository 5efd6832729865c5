//! Sessions whose file system fails, and their end after a panic in it, on real mounts. Without `/dev/fuse` and root the tests
//! print that and pass.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fuse::{MountConfig, MountError, Session, Switch};
use testkit::{Call, Faults, FaultyFs, MemFs, Times};
use vfs::FsError;

/// More than the sum of the session's limits.
const LIMIT: Duration = Duration::from_secs(60);

/// A mount of a model file system in this process.
struct Served {
    folder: tempfile::TempDir,
    faults: Faults,
    /// The result of [`Session::wait`].
    outcome: Receiver<Result<(), MountError>>,
    /// Closed last: closing a file of a session that does not end would block for ever.
    open: Vec<File>,
}

impl Served {
    /// `None`, with a reason printed, if this process can't mount.
    fn start(threads: u16, writeback: Switch, uring: Switch) -> Option<Self> {
        Self::start_polling(threads, writeback, uring, None)
    }

    fn start_polling(threads: u16, writeback: Switch, uring: Switch, poll: Option<Duration>) -> Option<Self> {
        if !testkit::needs(&[testkit::Need::Root, testkit::Need::FUSE]) {
            return None;
        }
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let file_system = FaultyFs::new(MemFs::with_valid_caches());
        let faults = file_system.faults();
        let config = MountConfig {
            source: "model".to_owned(),
            subtype: "tidegate-test".to_owned(),
            io_unit_bytes: None,
            writeback,
            passthrough: Switch::Off,
            uring,
            direct_io: Switch::Auto,
            threads: Some(threads),
            poll,
            read_only: false,
            allow_other: false,
            posix_acl: true,
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
            coherence: fuse::Coherence::Timeout,
            opens: fuse::Opens::default(),
            kernel_options: Vec::new(),
        };
        let document = Box::new(|_: &_, _: &_| Vec::new());
        let session = Session::mount(
            Arc::new(file_system),
            folder.path(),
            &config,
            document,
            Box::new(|_| {}),
        )
        .expect("root mounts on a folder of its own");
        let (sender, outcome) = channel();
        std::thread::spawn(move || sender.send(session.wait()));
        Some(Self {
            folder,
            faults,
            outcome,
            open: Vec::new(),
        })
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn ended(&self) -> Result<(), MountError> {
        self.outcome
            .recv_timeout(LIMIT)
            .expect("the session does not end")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.faults.open_gate();
        if is_mounted(self.folder.path()) {
            // The session did not end, so this process waits for itself and no signal can end it: abort the connection.
            let script = "mkdir $0.control && mount -t fusectl none $0.control
                number=$(awk -v place=$0 '$5 == place { split($3, number, \":\"); print number[2] }' /proc/self/mountinfo)
                echo 1 > $0.control/$number/abort
                umount -l $0 $0.control; rmdir $0.control";
            let _ = std::process::Command::new("sh")
                .args(["-c", script])
                .arg(self.folder.path())
                .output();
        }
    }
}

/// The result of `call`, which may block for ever if the session is broken.
fn within_limit<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, outcome) = channel();
    std::thread::spawn(move || sender.send(call()));
    outcome
        .recv_timeout(LIMIT)
        .expect("a call on the mount does not return")
}

fn is_mounted(mountpoint: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    table.contains(&format!(" {} ", mountpoint.display()))
}

/// Makes a lookup panic and checks the answer.
fn panic_once(served: &Served) {
    served
        .faults
        .after_lookup(|| panic!("the file system of this test gives up"));
    let path = served.path("another");
    let error = within_limit(|| fs::metadata(path)).expect_err("the request that met the panic succeeded");
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}

#[test]
fn a_panic_answers_its_request_and_ends_the_mount_with_an_error() {
    let Some(served) = Served::start(2, Switch::Off, Switch::Off) else {
        return;
    };
    fs::write(served.path("file"), "before").unwrap();
    panic_once(&served);
    let error = served.ended().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(!is_mounted(served.folder.path()));
}

/// The kernel takes the answer only from the descriptor that the request was read from.
#[test]
fn a_panic_answers_a_request_that_was_found_by_polling() {
    let Some(served) = Served::start_polling(1, Switch::Off, Switch::Off, Some(fuse::POLL_MAX)) else {
        return;
    };
    // Enough of them, so quickly, that the worker polls.
    for _ in 0..1000 {
        fs::metadata(served.path("missing")).unwrap_err();
    }
    panic_once(&served);
    let error = served.ended().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// In a run of quick requests one worker serves all, and the others wait until it does not return.
#[test]
fn a_request_that_never_returns_holds_up_no_other_in_a_run_that_one_worker_serves() {
    let Some(served) = Served::start_polling(4, Switch::Off, Switch::Off, Some(fuse::POLL_MAX)) else {
        return;
    };
    let look = |count: u32| {
        let path = served.path("missing");
        within_limit(move || (0..count).for_each(|_| drop(fs::metadata(&path).unwrap_err())))
    };
    for _ in 0..3 {
        look(2000);
        let (release, released) = channel::<()>();
        let (stuck, is_stuck) = channel();
        served.faults.after_lookup(move || {
            stuck.send(()).unwrap();
            let _ = released.recv();
        });
        let path = served.path("stuck");
        let stuck_call = std::thread::spawn(move || fs::metadata(path));
        is_stuck.recv_timeout(LIMIT).unwrap();
        let begun = std::time::Instant::now();
        look(100);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
        drop(release);
        stuck_call.join().unwrap().unwrap_err();
    }
}

/// The kernel keeps the data of a write that failed, and every open says that what it keeps is valid.
#[test]
fn after_a_write_that_failed_an_open_shows_what_the_file_has() {
    let Some(served) = Served::start(2, Switch::On, Switch::Off) else {
        return;
    };
    let path = served.path("file");
    fs::write(&path, "kept").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    served.faults.fail(Call::Write, Times::ForEver, FsError::Io);
    file.write_all_at(b"LOST", 0).unwrap();
    let told = file.sync_all().unwrap_err();
    assert_eq!(told.raw_os_error(), Some(libc::EIO));
    served.faults.heal();
    drop(file);
    for _ in 0..2 {
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(b"new!", 0)
        .unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new!");
}

/// `ENOTSUPP` is reserved for the kernel, but some file systems leak it.
#[test]
fn an_error_number_that_no_reply_can_carry_is_an_io_error_and_ends_nothing() {
    let Some(served) = Served::start(2, Switch::Off, Switch::Off) else {
        return;
    };
    fs::write(served.path("file"), "before").unwrap();
    served.faults.fail(Call::Read, Times::ForEver, FsError::Host(524));
    let path = served.path("file");
    let error = within_limit(move || fs::read(path)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    served.faults.heal();
    assert_eq!(fs::read(served.path("file")).unwrap(), b"before");
    rustix::mount::unmount(served.folder.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    served.ended().unwrap();
}

#[test]
fn the_last_worker_is_replaced_so_that_what_the_kernel_holds_back_is_written() {
    let Some(mut served) = Served::start(1, Switch::On, Switch::Off) else {
        return;
    };
    let file = File::create(served.path("file")).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    served.open.push(file);
    assert!(
        served.faults.writes().is_empty(),
        "the kernel wrote it back already"
    );
    panic_once(&served);
    served.ended().unwrap_err();
    let written: usize = served.faults.writes().iter().map(|write| write.bytes).sum();
    assert_eq!(written, 8192, "the kernel's dirty pages were not written");
}

#[test]
fn a_request_that_never_returns_does_not_hold_up_the_end_after_a_panic() {
    let Some(served) = Served::start(2, Switch::Off, Switch::Off) else {
        return;
    };
    let file = File::create(served.path("file")).unwrap();
    served.faults.close_gate();
    let writer = std::thread::spawn(move || file.write_all_at(b"never acknowledged", 0));
    assert!(served.faults.wait_for_writes(1, LIMIT));
    panic_once(&served);
    served.ended().unwrap_err();
    served.faults.open_gate();
    // The late answer may or may not reach the writer before the end; either way the writer returns.
    let _ = within_limit(|| writer.join());
}

#[test]
fn a_panic_in_a_ring_worker_ends_the_mount_too() {
    let enabled = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if enabled.is_ok_and(|text| text.trim() != "Y") {
        testkit::report_left_out("io_uring: /sys/module/fuse/parameters/enable_uring is not Y");
        return;
    }
    let Some(served) = Served::start(2, Switch::Off, Switch::On) else {
        return;
    };
    fs::write(served.path("file"), "before").unwrap();
    panic_once(&served);
    let error = served.ended().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(!is_mounted(served.folder.path()));
}
