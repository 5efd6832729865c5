//! Access times under the rule given at mount.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use passfs::{AccessTimeRule, AccessTimes, PassConfig};
use vfs::{FileSystem, Ino, OpenFlags, Privileges};

use crate::source::{PLAIN, Source};

/// Whether a read through a source with this rule changes this access time.
fn access_time_moves(rule: AccessTimeRule, accessed: SystemTime) -> bool {
    let source = Source::with(PassConfig {
        access_times: AccessTimes {
            rule: Some(rule),
            spare_directories: false,
        },
        ..PLAIN
    });
    let path = source.path("file");
    std::fs::write(&path, b"content").unwrap();
    let times = std::fs::FileTimes::new()
        .set_accessed(accessed)
        .set_modified(accessed - Duration::from_secs(60));
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_times(times)
        .unwrap();
    let before = path.metadata().unwrap();

    let entry = source.fs.lookup(Ino::ROOT, b"file").unwrap();
    let opened = source
        .fs
        .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    let mut out = [0; 7];
    source.fs.read(entry.ino, opened.handle, 0, &mut out).unwrap();
    let after = path.metadata().unwrap();
    assert_eq!(&out, b"content");
    (before.atime(), before.atime_nsec()) != (after.atime(), after.atime_nsec())
}

const HOUR: Duration = Duration::from_secs(3600);

fn two_days_ago() -> SystemTime {
    SystemTime::now() - 48 * HOUR
}

/// Newer than any change of the file, so that `relatime` leaves it.
fn an_hour_ahead() -> SystemTime {
    SystemTime::now() + HOUR
}

#[test]
fn noatime_leaves_an_old_access_time_alone() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    assert!(!access_time_moves(AccessTimeRule::Never, two_days_ago()));
}

#[test]
fn strictatime_moves_the_access_time_with_each_read() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    assert!(access_time_moves(AccessTimeRule::Always, an_hour_ahead()));
}

#[test]
fn relatime_moves_only_an_access_time_that_is_old() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    assert!(access_time_moves(AccessTimeRule::Relative, two_days_ago()));
    assert!(!access_time_moves(AccessTimeRule::Relative, an_hour_ahead()));
}
