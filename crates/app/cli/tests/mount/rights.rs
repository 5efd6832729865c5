//! Through root's mount a user gets no more rights than the kernel granted on the very file, while others change the
//! source.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Mounted, in_a_thread_of_nobody};

/// Runs a test on a mount for all users with a sticky folder `shared`, open to all, in each mode that opens differently.
fn shared(test: impl Fn(&Path, &Path)) {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    for mode in [&["--passthrough", "off"][..], &[]] {
        let mut arguments = vec!["-o", "allow_other"];
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
                while started.elapsed() < time {
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
            assert_eq!(told(&mut value), Err(rustix::io::Errno::ACCESS));
        });
    });
}
