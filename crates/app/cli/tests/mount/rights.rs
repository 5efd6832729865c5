//! Through root's mount a user gets no more rights than the kernel granted on the very file, while others change the
//! source.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Gid, Mode, OFlags, Uid, XattrFlags, lremovexattr, lsetxattr};
use rustix::io::Errno;

use crate::harness::{Mounted, NOBODY, in_a_thread_of_nobody};

/// The kernel keeps attributes for a minute: they are those before a change of the source.
const OUT_OF_DATE: &str = "allow_other,attr_timeout=60s,entry_timeout=60s";
const ACL: &str = "system.posix_acl_access";
const GROUP: u32 = 2000;
/// Time for the first success of a race on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// `user::rwx`, `user:NOBODY:rwx`, `group::---`, `mask::rwx`, `other::---`.
fn acl() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 7, NOBODY),
        (4, 0, u32::MAX),
        (0x10, 7, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Runs a test on a mount for all users with a sticky folder `shared`, open to all, in each mode that opens differently.
fn shared(test: impl Fn(&Path, &Path)) {
    shared_with("allow_other", test);
}

fn shared_with(options: &str, test: impl Fn(&Path, &Path)) {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    for mode in [&["--passthrough", "off"][..], &[]] {
        let mut arguments = vec!["-o", options];
        arguments.extend(mode);
        let Some(mounted) = Mounted::start(&arguments) else {
            return;
        };
        let root = mounted.mountpoint();
        fs::set_permissions(root.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::set_permissions(mounted.source(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::create_dir(mounted.source().join("shared")).unwrap();
        fs::set_permissions(mounted.source().join("shared"), PermissionsExt::from_mode(0o1777)).unwrap();
        test(&mounted.source().join("shared"), &root.join("shared"));
    }
}

fn make_roots_own(path: &Path) {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let made = options.open(path);
    if let Ok(mut file) = made {
        std::io::Write::write_all(&mut file, b"root's secret").unwrap();
    }
}

#[test]
fn the_maker_of_a_file_never_gets_one_that_another_user_made_meanwhile() {
    let time = Duration::from_secs(if testkit::is_full() { 60 } else { 2 });
    shared(|source, mount| {
        let stop = AtomicBool::new(false);
        let (mut opens, mut wins) = (0_u64, 0_u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let path = source.join("raced");
                while !stop.load(Ordering::Relaxed) {
                    make_roots_own(&path);
                    let _gone = fs::remove_file(&path);
                }
            });
            in_a_thread_of_nobody(|| {
                let started = Instant::now();
                while started.elapsed() < time || opens == 0 && started.elapsed() < PATIENCE {
                    let mut options = OpenOptions::new();
                    options.read(true).write(true).create(true).mode(0o600);
                    if let Ok(file) = options.open(mount.join("raced")) {
                        opens += 1;
                        wins += u64::from(file.metadata().is_ok_and(|found| found.uid() == 0));
                    }
                }
            });
            stop.store(true, Ordering::Relaxed);
        });
        assert!(opens > 0, "nothing was raced");
        assert_eq!(wins, 0, "of {opens} opens");
    });
}

#[test]
fn in_a_sticky_folder_no_user_removes_the_replacement_of_their_file() {
    shared(|source, mount| {
        in_a_thread_of_nobody(|| {
            for name in ["removed", "moved", "replaced", "by"] {
                // The kernel caches these names from here on.
                fs::write(mount.join(name), "nobody's").unwrap();
            }
        });
        for name in ["removed", "moved", "replaced"] {
            fs::remove_file(source.join(name)).unwrap();
            make_roots_own(&source.join(name));
        }
        in_a_thread_of_nobody(|| {
            assert!(fs::remove_file(mount.join("removed")).is_err());
            assert!(fs::rename(mount.join("moved"), mount.join("stolen")).is_err());
            assert!(fs::rename(mount.join("by"), mount.join("replaced")).is_err());
            fs::remove_file(mount.join("by")).unwrap();
        });
        for name in ["removed", "moved", "replaced"] {
            assert_eq!(fs::read(source.join(name)).unwrap(), b"root's secret");
        }
        assert!(!source.join("stolen").exists());
    });
}

#[test]
fn the_statistics_of_a_mount_are_for_its_owner_and_root() {
    shared(|_, mount| {
        let root = mount.parent().unwrap();
        let mut value = vec![0; 65536];
        let told =
            |value: &mut Vec<u8>| rustix::fs::getxattr(root, "user.tidegate.stats", value.as_mut_slice());
        assert!(told(&mut value).is_ok());
        in_a_thread_of_nobody(|| {
            assert_eq!(told(&mut value), Err(Errno::ACCESS));
        });
    });
}

/// Mode, owner and ACL of a file.
fn rights(path: &Path) -> (u32, u32, u32, bool) {
    let found = fs::symlink_metadata(path).unwrap();
    let has_acl = rustix::fs::getxattr(path, ACL, &mut [0_u8; 256][..]).is_ok();
    (found.mode() & 0o7777, found.uid(), found.gid(), has_acl)
}

#[test]
fn the_former_owner_of_a_file_gives_no_rights_on_it() {
    shared_with(OUT_OF_DATE, |source, mount| {
        fs::set_permissions(source, PermissionsExt::from_mode(0o755)).unwrap();
        let names = ["mode", "mode by descriptor", "acl", "group", "removed acl"];
        for name in names {
            fs::write(source.join(name), "nobody's program").unwrap();
            chown(source.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        lsetxattr(source.join("removed acl"), ACL, &acl(), XattrFlags::empty()).unwrap();
        in_a_thread_of_nobody(|| {
            for name in names {
                assert_eq!(fs::metadata(mount.join(name)).unwrap().uid(), NOBODY);
            }
        });
        let opened = fs::File::open(mount.join("mode by descriptor")).unwrap();
        for name in names {
            chown(source.join(name), Some(0), Some(0)).unwrap();
        }
        let before = names.map(|name| rights(&source.join(name)));
        in_a_thread_of_nobody(|| {
            let setuid = PermissionsExt::from_mode(0o6755);
            let refused = fs::set_permissions(mount.join("mode"), setuid);
            // The kernel has looked it up again.
            assert_eq!(Errno::from_io_error(&refused.unwrap_err()), Some(Errno::PERM));
            let setuid = Mode::from_raw_mode(0o6755);
            assert_eq!(rustix::fs::fchmod(&opened, setuid), Err(Errno::STALE));
            // The kernel has dropped what it knew.
            assert_eq!(opened.metadata().unwrap().uid(), 0);
            assert_eq!(rustix::fs::fchmod(&opened, setuid), Err(Errno::PERM));
            let refused = lsetxattr(mount.join("acl"), ACL, &acl(), XattrFlags::empty());
            assert_eq!(refused, Err(Errno::PERM));
            assert_eq!(lremovexattr(mount.join("removed acl"), ACL), Err(Errno::PERM));
            assert!(chown(mount.join("group"), None, Some(NOBODY)).is_err());
        });
        assert_eq!(names.map(|name| rights(&source.join(name))), before);
    });
}

/// Owners, members of groups and root change what they may.
#[test]
fn owners_change_rights_of_their_files_and_root_those_of_all() {
    shared(|source, mount| {
        fs::write(source.join("own"), "").unwrap();
        chown(source.join("own"), Some(NOBODY), Some(NOBODY)).unwrap();
        in_a_thread_of_nobody(|| {
            let own = mount.join("own");
            lsetxattr(&own, ACL, &acl(), XattrFlags::empty()).unwrap();
            lremovexattr(&own, ACL).unwrap();
            chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
            fs::set_permissions(&own, PermissionsExt::from_mode(0o6751)).unwrap();
        });
        assert_eq!(rights(&source.join("own")), (0o6751, NOBODY, NOBODY, false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
                rustix::thread::set_thread_groups(&[Gid::from_raw(GROUP)]).unwrap();
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
                chown(mount.join("own"), None, Some(GROUP)).unwrap();
                fs::set_permissions(mount.join("own"), PermissionsExt::from_mode(0o2755)).unwrap();
            });
        });
        assert_eq!(rights(&source.join("own")), (0o2755, NOBODY, GROUP, false));
        // A member no more.
        in_a_thread_of_nobody(|| {
            fs::set_permissions(mount.join("own"), PermissionsExt::from_mode(0o2755)).unwrap();
            assert!(chown(mount.join("own"), None, Some(GROUP + 1)).is_err());
        });
        assert_eq!(rights(&source.join("own")), (0o755, NOBODY, GROUP, false));
        chown(mount.join("own"), Some(1), Some(1)).unwrap();
        fs::set_permissions(mount.join("own"), PermissionsExt::from_mode(0o4711)).unwrap();
        assert_eq!(rights(&source.join("own")), (0o4711, 1, 1, false));
    });
}

#[test]
fn no_user_makes_a_program_of_a_group_in_a_folder_that_was_given_to_it() {
    shared_with(OUT_OF_DATE, |source, mount| {
        in_a_thread_of_nobody(|| assert!(fs::metadata(mount).unwrap().is_dir()));
        chown(source, None, Some(GROUP)).unwrap();
        fs::set_permissions(source, PermissionsExt::from_mode(0o3777)).unwrap();
        let mode = Mode::from_raw_mode(0o2755);
        in_a_thread_of_nobody(|| {
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
            rustix::fs::openat(CWD, mount.join("opened"), new, mode).unwrap();
            let kind = rustix::fs::FileType::RegularFile;
            rustix::fs::mknodat(CWD, mount.join("made"), kind, mode, 0).unwrap();
            let unnamed = rustix::fs::openat(CWD, mount, OFlags::TMPFILE | OFlags::RDWR, mode).unwrap();
            let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
            let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, by_descriptor, CWD, mount.join("linked"), follow).unwrap();
        });
        for name in ["opened", "made", "linked"] {
            let (mode, _, group, _) = rights(&source.join(name));
            assert_eq!((mode & 0o2000, group), (0, GROUP), "{name} has mode {mode:o}");
        }
    });
}

/// The owner changes at the moment of the call, when no attribute is out of date.
#[test]
fn a_file_that_changes_its_owner_gets_no_rights_from_the_former_one_meanwhile() {
    let time = Duration::from_secs(if testkit::is_full() { 60 } else { 1 });
    shared_with("allow_other,attr_timeout=0s,entry_timeout=0s", |source, mount| {
        let stop = AtomicBool::new(false);
        let (mut turns, mut wins, mut changes) = (0_u64, 0_u64, 0_u64);
        let calls = AtomicU64::new(0);
        let (in_source, through) = (source.join("taken"), mount.join("taken"));
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let mut random = testkit::prng::Prng::new(18);
                while !stop.load(Ordering::Relaxed) {
                    let _gone = fs::remove_file(&in_source);
                    make_roots_own(&in_source);
                    chown(&in_source, Some(NOBODY), Some(NOBODY)).unwrap();
                    (0..random.below(20_000)).for_each(|_| std::hint::spin_loop());
                    // On a busy machine the caller may have had no turn at all.
                    let (asked, since) = (calls.load(Ordering::Relaxed), Instant::now());
                    while turns % 8 == 0
                        && calls.load(Ordering::Relaxed) < asked + 2
                        && since.elapsed() < Duration::from_millis(100)
                    {
                        std::thread::yield_now();
                    }
                    chown(&in_source, Some(0), Some(0)).unwrap();
                    let _no_acl = lremovexattr(&in_source, ACL);
                    fs::set_permissions(&in_source, PermissionsExt::from_mode(0o600)).unwrap();
                    (0..20_000).for_each(|_| std::hint::spin_loop());
                    turns += 1;
                    wins += u64::from(rights(&in_source) != (0o600, 0, 0, false));
                }
            });
            in_a_thread_of_nobody(|| {
                let started = Instant::now();
                while started.elapsed() < time || changes == 0 && started.elapsed() < PATIENCE {
                    calls.fetch_add(1, Ordering::Relaxed);
                    let made = fs::set_permissions(&through, PermissionsExt::from_mode(0o4777));
                    let set = lsetxattr(&through, ACL, &acl(), XattrFlags::empty());
                    changes += u64::from(made.is_ok()) + u64::from(set.is_ok());
                }
            });
            stop.store(true, Ordering::Relaxed);
            taking.join().unwrap();
        });
        assert!(turns > 0 && changes > 0, "{turns} turns, {changes} changes");
        assert_eq!(wins, 0, "of {turns} turns, beside {changes} changes");
    });
}

/// For a `chown` that changes nothing the kernel sends what it sends before a write to a setuid file.
#[test]
fn a_change_of_nothing_clears_no_bit_of_another_user_s_file_or_of_a_folder() {
    shared(|source, mount| {
        for (name, owner) in [("of root", 0), ("own", NOBODY)] {
            fs::write(source.join(name), "program").unwrap();
            chown(source.join(name), Some(owner), Some(owner)).unwrap();
            fs::set_permissions(source.join(name), PermissionsExt::from_mode(0o6755)).unwrap();
        }
        let folder = source.join("folder");
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(NOBODY), Some(GROUP)).unwrap();
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o2777)).unwrap();
        chown(mount.join("folder"), None, None).unwrap();
        in_a_thread_of_nobody(|| {
            for name in ["of root", "own", "folder"] {
                let _may_be_refused = chown(mount.join(name), None, None);
            }
            let default = "system.posix_acl_default";
            lsetxattr(mount.join("folder"), default, &acl(), XattrFlags::empty()).unwrap();
        });
        let modes = ["of root", "own", "folder"].map(|name| rights(&source.join(name)).0);
        assert_eq!(modes, [0o6755, 0o755, 0o2777], "{modes:?}");
    });
}
