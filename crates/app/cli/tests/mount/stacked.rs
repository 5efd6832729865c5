//! A source with another mount of FUSE in it: its daemon gives inode numbers away, and may be slow to answer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{Detached, Mounted};
use crate::requests::requests_of;

const ALWAYS_ASKED: [&str; 4] = ["--passthrough", "off", "-o", "attr_timeout=0s,entry_timeout=0s"];

/// A mount, one with the first as `below` in its source, and that place, to be dropped from the last to the first. `None`,
/// with a printed reason, without root.
fn start() -> Option<(Mounted, Mounted, Detached)> {
    if !testkit::needs(&[testkit::Need::Root]) {
        return None;
    }
    let inner = Mounted::start(&ALWAYS_ASKED)?;
    let mut bound = None;
    let bind = |source: &Path| {
        let below = source.join("below");
        fs::create_dir(&below).unwrap();
        let mut mount = Command::new("mount");
        let done = mount.arg("--bind").arg(inner.mountpoint()).arg(&below).status();
        assert!(done.unwrap().success());
        bound = Some(Detached(below));
    };
    let outer = Mounted::start_over(bind, &ALWAYS_ASKED)?;
    Some((inner, outer, bound?))
}

#[test]
fn a_file_replaced_below_a_source_that_is_a_mount_itself_is_another() {
    let Some((inner, outer, _bound)) = start() else {
        return;
    };
    let (file, shown) = (inner.source().join("file"), outer.mountpoint().join("below/file"));
    let mut numbers = Vec::new();
    for number in 0..20 {
        fs::write(&file, format!("content {number}")).unwrap();
        numbers.push(fs::metadata(&file).unwrap().ino());
        assert_eq!(fs::read_to_string(&shown).unwrap(), format!("content {number}"));
        fs::remove_file(&file).unwrap();
    }
    if numbers.windows(2).all(|pair| pair[0] != pair[1]) {
        testkit::report_left_out("a file that gets the number of the one before");
    }
}

/// Each name of a file has a handle of its own there, as in every file system of libfuse that goes by paths.
#[test]
fn hard_links_below_a_source_that_goes_by_paths_are_one_file() {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::Program("bindfs")]) {
        return;
    }
    let kept = tempfile::TempDir::new().unwrap();
    fs::write(kept.path().join("one"), "content").unwrap();
    fs::hard_link(kept.path().join("one"), kept.path().join("other")).unwrap();
    let mut bound = None;
    let bind = |source: &Path| {
        let below = source.join("below");
        fs::create_dir(&below).unwrap();
        let options = "allow_other,attr_timeout=0,entry_timeout=0";
        let mut mount = Command::new("bindfs");
        let done = mount.args(["-o", options]).arg(kept.path()).arg(&below).status();
        assert!(done.unwrap().success());
        bound = Some(Detached(below));
    };
    let Some(outer) = Mounted::start_over(bind, &ALWAYS_ASKED) else {
        return;
    };
    let _bound = bound;
    let below = outer.mountpoint().join("below");
    let opened: Vec<_> = ["one", "other"]
        .iter()
        .cycle()
        .take(20)
        .map(|name| fs::File::open(below.join(name)).unwrap())
        .collect();
    opened[0].lock().unwrap();
    for another in &opened[1..] {
        assert!(another.try_lock().is_err(), "two have the lock of one file");
    }
    let known = outer.stats()["backing"]["inodes_held"].as_u64();
    assert!(
        known < Some(6),
        "{known:?} inodes for a root, a folder and a file"
    );
}

#[test]
fn looking_at_known_files_asks_the_file_system_below_for_no_more_than_they_need() {
    let Some((inner, outer, _bound)) = start() else {
        return;
    };
    for number in 0..100 {
        fs::write(inner.source().join(number.to_string()), "").unwrap();
    }
    let look = || {
        for number in 0..100 {
            fs::metadata(outer.mountpoint().join("below").join(number.to_string())).unwrap();
        }
    };
    look();
    assert_eq!(requests_of(&inner, look).get("statfs"), None);
}
