//! A source with another mount of FUSE in it: its daemon gives inode numbers away, and may be slow to answer.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::Mounted;

const ALWAYS_ASKED: [&str; 4] = ["--passthrough", "off", "-o", "attr_timeout=0s,entry_timeout=0s"];

/// A bind mount, detached on drop.
struct Bound(PathBuf);

impl Drop for Bound {
    fn drop(&mut self) {
        // Best effort.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// A mount, and one with the first as `below` in its source, which ends first. `None`, with a printed reason, without root.
fn start() -> Option<(Mounted, Bound, Mounted)> {
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
        bound = Some(Bound(below));
    };
    let outer = Mounted::start_over(bind, &ALWAYS_ASKED)?;
    Some((inner, bound?, outer))
}

#[test]
fn a_file_replaced_below_a_source_that_is_a_mount_itself_is_another() {
    let Some((inner, _bound, outer)) = start() else {
        return;
    };
    let (file, shown) = (inner.source().join("file"), outer.mountpoint().join("below/file"));
    let mut numbers = HashSet::new();
    for number in 0..10 {
        fs::write(&file, format!("content {number}")).unwrap();
        numbers.insert(fs::metadata(&file).unwrap().ino());
        assert_eq!(fs::read_to_string(&shown).unwrap(), format!("content {number}"));
        fs::remove_file(&file).unwrap();
    }
    if numbers.len() == 10 {
        testkit::report_left_out("a file that gets the number of the one before");
    }
}

#[test]
fn looking_at_known_files_asks_the_file_system_below_for_no_more_than_they_need() {
    let Some((inner, _bound, outer)) = start() else {
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
    let asked = || {
        let stats = inner.stats();
        let operations = stats["session"]["operations"].as_array().unwrap().clone();
        let named = |name: &str| operations.iter().find(|one| one["operation"] == name).cloned();
        named("statfs").map_or(0, |one| one["count"].as_u64().unwrap())
    };
    look();
    let before = asked();
    look();
    assert_eq!(asked(), before);
}
