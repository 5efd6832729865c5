//! No call has more rights than the kernel has checked on the inode that it reaches: the source changes between the
//! check and the call.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitySet, capabilities, gettid, set_capabilities, set_keep_capabilities};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use vfs::{Caller, FileSystem, FsError, Ino, RenameFlags};

use crate::source::{Source, caller};

/// Runs `test` with another thread of this process, which has these ids and capabilities, as the caller.
fn beside(uid: u32, groups: &[u32], kept: CapabilitySet, test: impl FnOnce(Caller)) {
    let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
    let (number, numbers) = channel();
    let (done, waits) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (own_uid, own_gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
            set_thread_groups(&groups).unwrap();
            set_thread_res_gid(own_gid, own_gid, own_gid).unwrap();
            set_keep_capabilities(true).unwrap();
            set_thread_res_uid(own_uid, own_uid, own_uid).unwrap();
            let mut own = capabilities(None).unwrap();
            (own.effective, own.permitted) = (kept, kept);
            own.inheritable = CapabilitySet::empty();
            set_capabilities(None, own).unwrap();
            number.send(gettid()).unwrap();
            // Wait until the test has ended, also by a panic.
            let _ended = waits.recv();
        });
        let pid = u32::try_from(numbers.recv().unwrap().as_raw_nonzero().get()).unwrap();
        test(Caller { uid, gid: uid, pid });
        drop(done);
    });
}

/// A world-writable directory with the sticky bit, and a function that puts a user's file into it.
fn sticky(source: &Source) -> (Ino, impl Fn(&str, u32) + use<>) {
    let folder = source.path("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
    let put = move |name: &str, uid: u32| {
        fs::write(folder.join(name), name).unwrap();
        chown(folder.join(name), Some(uid), Some(uid)).unwrap();
    };
    (source.lookup("folder").unwrap().ino, put)
}

#[test]
fn power_over_the_files_of_others_is_that_of_a_process_with_the_ids_of_the_request() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (place, put) = sticky(&source);
    put("foreign", 4322);
    let unlink = |who: &Caller| source.fs.unlink(who, place, b"foreign");
    // This process may do everything, but is no longer the caller: it has started a setuid program, for example.
    let other = Caller {
        pid: std::process::id(),
        ..caller(4321, 4321)
    };
    assert_eq!(unlink(&other), Err(FsError::Stale));
    beside(4321, &[], CapabilitySet::CHOWN, |powerless| {
        assert_eq!(unlink(&powerless), Err(FsError::Stale));
    });
    // Root without that capability has no more rights than other users.
    fs::set_permissions(source.path("folder"), Permissions::from_mode(0o1777)).unwrap();
    chown(source.path("folder"), Some(4323), None).unwrap();
    beside(0, &[], CapabilitySet::CHOWN, |powerless| {
        assert_eq!(unlink(&powerless), Err(FsError::Stale));
    });
    beside(4321, &[], CapabilitySet::FOWNER, |able| {
        assert_eq!(unlink(&able), Ok(()));
    });
}

/// The daemon of an ordinary user, with `allow_other`. It owns the directory, so the host would allow it every removal.
#[test]
fn a_daemon_that_can_t_become_the_caller_keeps_the_rule_of_sticky_folders_itself() {
    const DAEMON: u32 = 4400;
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (place, put) = sticky(&source);
    chown(source.path("folder"), Some(DAEMON), None).unwrap();
    for name in ["own", "own too"] {
        put(name, 4321);
    }
    for name in ["foreign", "foreign too"] {
        put(name, 4322);
    }
    std::thread::scope(|scope| {
        let as_the_daemon = || {
            let id = Uid::from_raw(DAEMON);
            set_thread_res_uid(id, id, id).unwrap();
            let user = Caller {
                pid: 0,
                ..caller(4321, 4321)
            };
            let unlink = |who: &Caller, name: &str| source.fs.unlink(who, place, name.as_bytes());
            let rename = |from: &str, to: &str| {
                let (from, to) = ((place, from.as_bytes()), (place, to.as_bytes()));
                source.fs.rename(&user, from, to, RenameFlags(0))
            };
            assert_eq!(unlink(&user, "foreign"), Err(FsError::Stale));
            assert_eq!(rename("foreign", "stolen"), Err(FsError::Stale));
            assert_eq!(rename("own", "foreign"), Err(FsError::Stale));
            assert_eq!(rename("own", "mine"), Ok(()));
            assert_eq!(unlink(&user, "mine"), Ok(()));
            // Its own user, who owns the folder.
            assert_eq!(unlink(&caller(DAEMON, DAEMON), "foreign"), Ok(()));
        };
        scope.spawn(as_the_daemon).join().unwrap();
    });
    beside(0, &[], CapabilitySet::FOWNER, |root| {
        std::thread::scope(|scope| {
            let as_the_daemon = || {
                let id = Uid::from_raw(DAEMON);
                set_thread_res_uid(id, id, id).unwrap();
                assert_eq!(source.fs.unlink(&root, place, b"foreign too"), Ok(()));
            };
            scope.spawn(as_the_daemon).join().unwrap();
        });
    });
}

/// The kernel has checked that the caller may write to the directory that it took for the moved one.
#[test]
fn a_folder_comes_into_another_one_only_by_who_may_write_to_it() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let make = |name: &str, mode: u32, uid: u32, gid: u32| {
        fs::create_dir(source.path(name)).unwrap();
        chown(source.path(name), Some(uid), Some(gid)).unwrap();
        fs::set_permissions(source.path(name), Permissions::from_mode(mode)).unwrap();
    };
    make("from", 0o777, 0, 0);
    make("to", 0o777, 0, 0);
    for (name, mode, uid, gid) in [
        ("root's", 0o755, 0, 0),
        ("own", 0o755, 4321, 4321),
        ("closed", 0o555, 4321, 4321),
        ("group's", 0o775, 0, 77),
    ] {
        make(&format!("from/{name}"), mode, uid, gid);
    }
    fs::write(
        source.path("from/file"),
        "root's file, in a folder of everybody's",
    )
    .unwrap();
    make("to/other", 0o755, 4321, 4321);
    let (from, to) = (
        source.lookup("from").unwrap().ino,
        source.lookup("to").unwrap().ino,
    );
    let rename = |who: &Caller, name: &str, new: &str, flags| {
        let (name, new) = (name.as_bytes(), new.as_bytes());
        source.fs.rename(who, (from, name), (to, new), RenameFlags(flags))
    };
    beside(4321, &[77], CapabilitySet::empty(), |user| {
        assert_eq!(rename(&user, "root's", "stolen", 0), Err(FsError::Stale));
        assert_eq!(
            rename(&user, "root's", "other", libc::RENAME_EXCHANGE),
            Err(FsError::Stale)
        );
        assert_eq!(rename(&user, "closed", "stolen", 0), Err(FsError::Stale));
        assert!(!source.path("to/stolen").exists());
        assert_eq!(rename(&user, "own", "own", 0), Ok(()));
        assert_eq!(rename(&user, "file", "file", 0), Ok(()));
        assert_eq!(rename(&user, "group's", "group's", 0), Ok(()));
    });
    beside(4321, &[], CapabilitySet::DAC_OVERRIDE, |able| {
        assert_eq!(rename(&able, "root's", "root's", 0), Ok(()));
    });
    assert_eq!(fs::metadata(source.path("to/root's")).unwrap().uid(), 0);
}

/// Duration of a test in which names are exchanged.
fn time() -> Duration {
    Duration::from_secs(if testkit::is_full() { 60 } else { 1 })
}

/// Exchanges the files that `put` creates at a name while `threads` look it up: the returned attributes belong to the
/// inode.
fn attributes_are_of_the_inode(threads: usize, put: impl Fn(&Path, u32) + Sync, remove: fn(&Path)) {
    let source = Source::new();
    let path = source.path("name");
    let stop = AtomicBool::new(false);
    let compared: u64 = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(18);
            for mode in [0o600, 0o644].into_iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                put(&path, mode);
                // Short enough to collide with a lookup; one in eight is long enough for a lookup and its comparison.
                let longest = if random.u8(..) < 32 { 300_000 } else { 3000 };
                for _ in 0..random.u32(0..longest) {
                    std::hint::spin_loop();
                }
                remove(&path);
            }
        });
        let look = || {
            let (started, mut compared) = (Instant::now(), 0);
            // A loaded machine may let one thread run alone for a second.
            while started.elapsed() < time() || compared == 0 && started.elapsed() < 60 * time() {
                let Ok(entry) = source.lookup("name") else {
                    continue;
                };
                if let Ok(attr) = source.fs.getattr(entry.ino, None) {
                    assert_eq!(
                        entry.attr.mode & 0o777,
                        attr.mode & 0o777,
                        "after {compared} that were right"
                    );
                    compared += 1;
                }
                source.fs.forget(entry.ino, 1);
            }
            compared
        };
        let looking: Vec<_> = (0..threads).map(|_| scope.spawn(look)).collect();
        let compared: Vec<_> = looking
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, Ordering::Relaxed);
        compared.into_iter().map(Result::unwrap).sum()
    });
    assert!(compared > 0, "nothing was raced");
}

/// File systems reuse the number of a removed file for the next one.
#[test]
fn a_lookup_tells_attributes_and_inode_of_one_file_while_the_name_changes_hands() {
    let put = |path: &Path, mode| {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        options.open(path).unwrap();
    };
    attributes_are_of_the_inode(1, put, |path| fs::remove_file(path).unwrap());
}

#[test]
fn a_lookup_tells_attributes_and_inode_of_one_folder_while_the_name_changes_hands() {
    let put = |path: &Path, mode| fs::DirBuilder::new().mode(mode).create(path).unwrap();
    attributes_are_of_the_inode(2, put, |path| fs::remove_dir(path).unwrap());
}
