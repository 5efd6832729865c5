//! A file workload with a faulty path, file system or device: it returns one clear error and leaves no files behind.
//! The conditions are real: small and read-only mounts, loop devices, a kernel that refuses.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::{
    AccessAdvice, BenchError, Cache, DeviceAccess, Engine, FileSpec, FinalSync, Mode, NoProgress, Pattern,
    Phase, Progress, Rate, Sharing, TimeLimit, WriteTarget, run,
};

const RECORD: u64 = 4096;

/// The name of the unavailable feature in a record if threads share the process's descriptor table.
const OWN_TABLE: &str = "a table of descriptors for each thread";

fn spec(directory: &Path, pattern: Pattern) -> FileSpec {
    FileSpec::plain(directory.to_owned(), pattern, RECORD, 64 * RECORD)
}

fn refused(spec: &FileSpec) -> String {
    run(spec, &NoProgress, &AtomicBool::new(false))
        .expect_err("the workload must be refused")
        .to_string()
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory exists").count()
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

fn says(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// A mount that ends with the test. `None`, with the reason printed, if this user cannot mount.
pub struct Mount {
    point: tempfile::TempDir,
}

impl Mount {
    pub fn new(arguments: &[&str]) -> Option<Self> {
        let point = temporary();
        let mounted = says(Command::new("mount").args(arguments).arg(point.path()));
        if mounted.is_none() {
            testkit::report_left_out(format!("mount {arguments:?} is not possible here"));
        }
        mounted.map(|_| Self { point })
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = says(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

/// A loop device on its own backing file.
struct Loop {
    device: PathBuf,
    backing: PathBuf,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new(bytes: u64, format: bool) -> Option<Self> {
        let directory = temporary();
        let backing = directory.path().join("backing");
        let file = fs::File::create(&backing).expect("the build directory is writable");
        file.set_len(bytes).expect("a sparse file fits");
        if format {
            says(
                Command::new("mkfs.ext4")
                    .args(["-q", "-O", "^has_journal"])
                    .arg(&backing),
            )?;
        }
        let device = says(Command::new("losetup").args(["--find", "--show"]).arg(&backing));
        if device.is_none() {
            testkit::report_left_out("no loop device can be made here");
        }
        Some(Self {
            device: device?.into(),
            backing,
            _directory: directory,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = says(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

#[test]
fn a_file_system_that_fills_up_in_the_middle_fails_the_run_and_is_left_empty() {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=4m", "none"]) else {
        return;
    };
    for engine in [Engine::Psync, Engine::IoUring { depth: 8 }] {
        for verify in [false, true] {
            let spec = FileSpec {
                engine,
                verify,
                time: Some(TimeLimit {
                    ramp_ns: 0,
                    run_ns: 60_000_000_000,
                }),
                ..spec(mount.path(), Pattern::Append)
            };
            let message = refused(&spec);
            assert!(
                message.starts_with("write of ") && message.contains("/data-0 at byte "),
                "{message}"
            );
            assert!(
                message.ends_with("No space left on device (os error 28)"),
                "{message}"
            );
            assert_eq!(entries(mount.path()), 0);
        }
    }
}

#[test]
fn a_workload_that_does_not_fit_is_refused_before_anything_is_made() {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=4m", "none"]) else {
        return;
    };
    let large = FileSpec {
        file_bytes: 4 << 20,
        ..spec(mount.path(), Pattern::SequentialWrite)
    };
    let message = refused(&large);
    assert!(
        message.contains("are free; choose a smaller file size"),
        "{message}"
    );
    // An append to an existing file needs the space twice.
    let twice = FileSpec {
        file_bytes: 2 << 20,
        write_target: WriteTarget::ExistingFile,
        ..spec(mount.path(), Pattern::Append)
    };
    assert!(refused(&twice).contains("are free; choose"));
    assert_eq!(entries(mount.path()), 0);
}

#[test]
fn a_read_only_file_system_is_named() {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "ro", "none"]) else {
        return;
    };
    let message = refused(&spec(mount.path(), Pattern::SequentialWrite));
    let start = format!("mkdir of {}", mount.path().display());
    assert!(message.starts_with(&start), "{message}");
    assert!(
        message.ends_with("Read-only file system (os error 30)"),
        "{message}"
    );
}

/// Removes the medium below the file system when the timed window has begun.
struct RemoveMedium<'run> {
    backing: &'run Path,
    done: AtomicBool,
}

impl Progress for RemoveMedium<'_> {
    fn advance(&self, phase: Phase, _done: u64, _total: u64) {
        if phase == Phase::Measure && !self.done.swap(true, Ordering::Relaxed) {
            let file = fs::File::options().write(true).open(self.backing);
            file.and_then(|file| file.set_len(0))
                .expect("the backing file is ours");
        }
    }
}

#[test]
fn a_device_that_goes_away_in_the_middle_is_one_error_with_its_place() {
    for engine in [Engine::Psync, Engine::IoUring { depth: 4 }] {
        let Some(device) = Loop::new(16 << 20, true) else {
            return;
        };
        let name = device.device.to_str().expect("device names are ASCII");
        let Some(mount) = Mount::new(&["-t", "ext4", "-o", "errors=continue", name]) else {
            return;
        };
        let spec = FileSpec {
            engine,
            mode: Mode::DIRECT,
            time: Some(TimeLimit {
                ramp_ns: 0,
                run_ns: 60_000_000_000,
            }),
            ..spec(mount.path(), Pattern::RandomRead)
        };
        let remove = RemoveMedium {
            backing: &device.backing,
            done: AtomicBool::new(false),
        };
        let error = run(&spec, &remove, &AtomicBool::new(false)).expect_err("the medium is gone");
        let message = error.to_string();
        assert!(
            message.starts_with("read of ") && message.contains("/data-0 at byte "),
            "{message}"
        );
        assert!(message.ends_with("Input/output error (os error 5)"), "{message}");
    }
}

#[test]
fn a_device_that_goes_away_under_a_mapping_is_an_error_too() {
    let Some(device) = Loop::new(16 << 20, true) else {
        return;
    };
    let name = device.device.to_str().expect("device names are ASCII");
    let Some(mount) = Mount::new(&["-t", "ext4", "-o", "errors=continue", name]) else {
        return;
    };
    // Slowly, so that most of the file is unread when the medium is removed, and without read-ahead.
    let spec = FileSpec {
        mode: Mode::MMAP,
        cache: Cache::Cold,
        advice: AccessAdvice::Random,
        rate: Some(Rate::OperationsPerSecond(100)),
        ..spec(mount.path(), Pattern::RandomRead)
    };
    let remove = RemoveMedium {
        backing: &device.backing,
        done: AtomicBool::new(false),
    };
    let error = run(&spec, &remove, &AtomicBool::new(false)).expect_err("the medium is gone");
    let message = error.to_string();
    assert!(message.starts_with("mapped read of "), "{message}");
    assert!(message.ends_with("Input/output error (os error 5)"), "{message}");
}

#[test]
fn a_block_device_is_only_used_when_that_is_said_and_it_is_free() {
    let Some(device) = Loop::new(4 << 20, true) else {
        return;
    };
    let plain = spec(&device.device, Pattern::RandomRead);
    let message = refused(&plain);
    assert!(
        message.contains("it is a block device") && message.contains("--device"),
        "{message}"
    );
    let writes = FileSpec {
        device: DeviceAccess::Read,
        ..spec(&device.device, Pattern::RandomWrite)
    };
    assert!(
        refused(&writes).contains("--destroy-data"),
        "{}",
        refused(&writes)
    );
    let large = FileSpec {
        device: DeviceAccess::Read,
        file_bytes: 8 << 20,
        ..plain.clone()
    };
    assert!(
        refused(&large).contains("the device has 4194304"),
        "{}",
        refused(&large)
    );
    let name = device.device.to_str().expect("device names are ASCII");
    let Some(mount) = Mount::new(&["-t", "ext4", name]) else {
        return;
    };
    let destroy = FileSpec {
        device: DeviceAccess::Destroy,
        ..plain
    };
    assert!(
        refused(&destroy).contains("it is in use (mounted"),
        "{}",
        refused(&destroy)
    );
    drop(mount);
}

#[test]
fn a_device_is_read_and_with_consent_overwritten_and_verified() {
    let Some(device) = Loop::new(4 << 20, false) else {
        return;
    };
    for mode in [Mode::BUFFERED, Mode::DIRECT, Mode::MMAP] {
        let read = FileSpec {
            device: DeviceAccess::Read,
            sharing: Sharing::Shared,
            threads: 2,
            mode,
            cache: Cache::AsIs,
            ..spec(&device.device, Pattern::RandomRead)
        };
        let outcome = run(&read, &NoProgress, &AtomicBool::new(false)).expect("the device can be read");
        assert_eq!(outcome.read.count, 128, "{mode}");
        let write = FileSpec {
            device: DeviceAccess::Destroy,
            final_sync: FinalSync::Timed,
            pattern: Pattern::Mixed { read_percent: 30 },
            verify: true,
            ..read
        };
        let outcome = run(&write, &NoProgress, &AtomicBool::new(false)).expect("the device can be written");
        assert_eq!(
            outcome.verified.expect("the spec verifies").records,
            128,
            "{mode}"
        );
        assert_eq!((outcome.kept_directory, outcome.leftover), (None, None));
    }
}

#[test]
fn a_device_that_another_program_claims_for_a_moment_is_waited_for() {
    let Some(device) = Loop::new(4 << 20, false) else {
        return;
    };
    let claim = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&device.device)
        .expect("nobody else uses it");
    let destroy = FileSpec {
        device: DeviceAccess::Destroy,
        ..spec(&device.device, Pattern::SequentialWrite)
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            drop(claim);
        });
        run(&destroy, &NoProgress, &AtomicBool::new(false)).expect("it is free after a moment");
    });
}

#[test]
fn what_is_no_directory_is_named_with_what_it_is() {
    let directory = temporary();
    let file = directory.path().join("file");
    fs::write(&file, "mine").expect("it is writable");
    for (path, expected) in [
        (file.clone(), "it is a file, expected a directory"),
        (
            PathBuf::from("/dev/null"),
            "it is a character device, expected a directory",
        ),
        (PathBuf::new(), "directory: the path is empty"),
        (PathBuf::from("/nowhere/at-all"), "No such file or directory"),
    ] {
        let message = refused(&spec(&path, Pattern::SequentialWrite));
        assert!(message.contains(expected), "{}: {message}", path.display());
    }
    assert_eq!(fs::read_to_string(&file).expect("it is still there"), "mine");
    let no_device = FileSpec {
        device: DeviceAccess::Destroy,
        ..spec(&file, Pattern::SequentialWrite)
    };
    assert!(refused(&no_device).contains("it is a file, expected a block device"));
    assert_eq!(fs::read_to_string(&file).expect("it is still there"), "mine");
}

#[test]
fn a_directory_below_dev_is_a_directory_like_any_other() {
    if !Path::new("/dev/shm").is_dir() {
        testkit::report_left_out("there is no /dev/shm");
        return;
    }
    let directory = tempfile::tempdir_in("/dev/shm").expect("it is writable");
    let outcome = run(
        &spec(directory.path(), Pattern::SequentialWrite),
        &NoProgress,
        &AtomicBool::new(false),
    );
    assert_eq!(outcome.expect("it is a directory").write.count, 64);
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn a_name_in_use_is_left_alone_and_another_one_taken() {
    let directory = temporary();
    let name = format!(".tidegate-bench-{}-0", std::process::id());
    let theirs = directory.path().join(name);
    fs::create_dir(&theirs).expect("it is writable");
    fs::write(theirs.join("data-0"), "theirs").expect("it is writable");
    let spec = spec(directory.path(), Pattern::SequentialWrite);
    run(&spec, &NoProgress, &AtomicBool::new(false)).expect("there are other names");
    assert_eq!(
        fs::read_to_string(theirs.join("data-0")).expect("it is still there"),
        "theirs"
    );
    assert_eq!(entries(directory.path()), 1);
}

#[test]
fn absurd_amounts_are_refused_at_once() {
    let directory = temporary();
    let good = spec(directory.path(), Pattern::RandomWrite);
    let cases = [
        (
            FileSpec {
                threads: 10_000_000,
                ..good.clone()
            },
            "threads: 10000000, expected 1 to 1024",
        ),
        (
            FileSpec {
                file_bytes: 1000,
                ..good.clone()
            },
            "file size: 1000 bytes, which is smaller than one record of 4096 bytes",
        ),
        (
            FileSpec {
                record_bytes: 1 << 30,
                file_bytes: 1 << 30,
                threads: 1024,
                engine: Engine::IoUring { depth: 4096 },
                ..good.clone()
            },
            "more than half of the memory",
        ),
        (
            FileSpec {
                engine: Engine::IoUring { depth: 0 },
                ..good.clone()
            },
            "queue depth: 0, expected 1 to 4096",
        ),
        (
            FileSpec {
                overlap_percent: 100,
                ..good
            },
            "overlap: 100 %, expected 0 to 99",
        ),
    ];
    for (spec, expected) in cases {
        let message = refused(&spec);
        assert!(
            message.contains(expected),
            "`{message}` does not say `{expected}`"
        );
        assert_eq!(entries(directory.path()), 0);
    }
}

#[test]
fn what_stays_in_memory_is_not_called_cold() {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=16m", "none"]) else {
        return;
    };
    let cold = FileSpec {
        cache: Cache::Cold,
        ..spec(mount.path(), Pattern::RandomRead)
    };
    let outcome = run(&cold, &NoProgress, &AtomicBool::new(false)).expect("it runs, and says so");
    assert!(
        outcome.cache.is_warmer_than_asked(),
        "{}",
        outcome.cache.describe()
    );
    let message = refused(&FileSpec {
        cold_or_fail: true,
        ..cold
    });
    assert!(message.starts_with("the page cache is not cold: "), "{message}");
    assert_eq!(entries(mount.path()), 0);
}

/// Makes the kernel refuse a call to this thread and those that it starts, as a container's filter does.
fn forbid(call: libc::c_long, errno: i32) -> bool {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let call = u32::try_from(call).expect("call numbers are small");
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        statement(LOAD_NUMBER, 0, 0, 0),
        statement(JUMP_IF_EQUAL, 0, 1, call),
        statement(
            RETURN,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | u32::try_from(errno).expect("errno is positive"),
        ),
        statement(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: 4,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: both calls change only this thread; the filter's program lives until the second one returns.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    }
}

#[test]
fn a_kernel_that_refuses_rings_is_one_error_that_names_the_other_engine() {
    for (errno, expected) in [
        (libc::EPERM, "it is not allowed here"),
        (libc::ENOSYS, "this kernel has none"),
    ] {
        let answer = std::thread::spawn(move || {
            if !forbid(libc::SYS_io_uring_setup, errno) {
                return None;
            }
            let directory = temporary();
            let spec = FileSpec {
                engine: Engine::IoUring { depth: 4 },
                threads: 3,
                ..spec(directory.path(), Pattern::RandomRead)
            };
            let error = run(&spec, &NoProgress, &AtomicBool::new(false)).expect_err("there is no ring");
            assert!(matches!(error, BenchError::Ring { .. }), "{error}");
            assert_eq!(entries(directory.path()), 0);
            Some(error.to_string())
        });
        let Some(message) = answer.join().expect("the thread ends") else {
            testkit::report_left_out("no filter can be set here");
            return;
        };
        assert!(
            message.contains(expected) && message.contains("choose the engine psync"),
            "{message}"
        );
    }
}

/// Names of the threads that have a file below `directory` open when the workers are ready, including the caller's.
struct Holders<'run> {
    directory: &'run Path,
    found: Mutex<Vec<String>>,
}

impl<'run> Holders<'run> {
    const fn of(directory: &'run Path) -> Self {
        Self {
            directory,
            found: Mutex::new(Vec::new()),
        }
    }

    fn now(&self) -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").expect("/proc is mounted");
        let mut names: Vec<String> = tasks
            .flatten()
            .filter(|task| holds_open(&task.path().join("fd"), self.directory))
            .map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default())
            .map(|name| name.trim().to_owned())
            .collect();
        names.sort();
        names
    }
}

fn holds_open(table: &Path, directory: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(table) else {
        return false;
    };
    let mut files = descriptors
        .flatten()
        .filter_map(|one| fs::read_link(one.path()).ok());
    files.any(|file| file.starts_with(directory))
}

impl Progress for Holders<'_> {
    fn advance(&self, phase: Phase, done: u64, _total: u64) {
        // The first report of the phase comes when all workers wait at the start barrier.
        let mut found = self.found.lock().expect("nobody panicked");
        if phase == Phase::Measure && done == 0 && found.is_empty() {
            *found = self.now();
        }
    }
}

#[test]
fn each_worker_alone_has_its_files_open_and_nobody_after_the_run() {
    for engine in [Engine::Psync, Engine::IoUring { depth: 4 }] {
        for mode in [Mode::BUFFERED, Mode::MMAP] {
            if engine != Engine::Psync && mode.is_mapped() {
                continue;
            }
            let directory = temporary();
            let holders = Holders::of(directory.path());
            let spec = FileSpec {
                engine,
                mode,
                threads: 2,
                cache: Cache::Warm,
                ..spec(directory.path(), Pattern::RandomRead)
            };
            let outcome = run(&spec, &holders, &AtomicBool::new(false)).expect("the workload runs");
            if let Some(absent) = outcome
                .window
                .absent
                .iter()
                .find(|absent| absent.what == OWN_TABLE)
            {
                testkit::report_left_out(format!("{OWN_TABLE}: {}", absent.reason));
                return;
            }
            let found = holders.found.lock().expect("nobody panicked");
            assert_eq!(*found, ["bench-0", "bench-1"], "{engine:?} {mode}");
            assert_eq!(holders.now(), [""; 0], "{engine:?} {mode}");
        }
    }
}

#[test]
fn a_run_goes_on_where_a_table_of_its_own_is_forbidden_and_says_so() {
    let directory = temporary();
    let spec = spec(directory.path(), Pattern::SequentialWrite);
    let answer = std::thread::spawn(move || {
        forbid(libc::SYS_close_range, libc::EPERM).then(|| run(&spec, &NoProgress, &AtomicBool::new(false)))
    });
    let Some(outcome) = answer.join().expect("the thread ends") else {
        testkit::report_left_out("no filter can be set here");
        return;
    };
    let outcome = outcome.expect("the workload runs");
    let absent = outcome
        .window
        .absent
        .iter()
        .find(|absent| absent.what == OWN_TABLE);
    let reason = &absent.expect("it is said").reason;
    assert!(reason.starts_with("Operation not permitted"), "{reason}");
    assert_eq!(outcome.write.count, 64);
}

#[test]
fn a_file_system_can_be_unmounted_at_once_after_a_run_of_any_end() {
    for (end, stops, fills_up) in [
        ("done", false, false),
        ("stopped", true, false),
        ("No space left on device (os error 28)", false, true),
    ] {
        let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=4m", "none"]) else {
            return;
        };
        let spec = FileSpec {
            threads: 3,
            time: fills_up.then_some(TimeLimit {
                ramp_ns: 0,
                run_ns: 60_000_000_000,
            }),
            ..spec(mount.path(), Pattern::Append)
        };
        let found = match run(&spec, &NoProgress, &AtomicBool::new(stops)) {
            Ok(outcome) if outcome.complete => "done".to_owned(),
            Ok(_) => "stopped".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(found.ends_with(end), "{found}");
        let unmounted = says(Command::new("umount").arg(mount.path()));
        assert!(unmounted.is_some(), "{end}: something is open");
    }
}
