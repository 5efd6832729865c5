//! A source with another mount of FUSE in it: its daemon gives inode numbers away, and may be slow to answer.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

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
    let mut bind = Command::new("mount");
    let (outer, bound) = start_over(bind.arg("--bind").arg(inner.mountpoint()), &ALWAYS_ASKED)?;
    Some((inner, outer, bound))
}

/// A mount over what `mount`, a command that ends with the place, shows as the folder `below` of the source.
fn start_over(mount: &mut Command, arguments: &[&str]) -> Option<(Mounted, Detached)> {
    let mut bound = None;
    let prepare = |source: &Path| {
        let below = source.join("below");
        fs::create_dir(&below).unwrap();
        assert!(mount.arg(&below).status().unwrap().success());
        bound = Some(Detached(below));
    };
    let outer = Mounted::start_over(prepare, arguments)?;
    Some((outer, bound?))
}

#[test]
fn a_file_replaced_below_a_source_that_is_a_mount_itself_is_another() {
    let Some((inner, outer, _bound)) = start() else {
        return;
    };
    let (file, shown) = (inner.source().join("file"), outer.mountpoint().join("below/file"));
    // Other tests take free numbers of the same file system: it may be many files until one comes again.
    let (mut numbers, mut again) = (HashSet::new(), 0);
    let give_up = Instant::now() + Duration::from_secs(20);
    while again < 10 && Instant::now() < give_up {
        let content = format!("content {again} {}", numbers.len());
        fs::write(&file, &content).unwrap();
        again += usize::from(!numbers.insert(fs::metadata(&file).unwrap().ino()));
        assert_eq!(fs::read_to_string(&shown).unwrap(), content);
        fs::remove_file(&file).unwrap();
    }
    if again == 0 {
        testkit::report_left_out("a file that gets the number of one before");
    }
}

/// A mount over `kept` as bindfs shows it, a file system of libfuse that goes by paths, as the folder `below` of the source.
fn start_over_bindfs(kept: &Path, options: &str, arguments: &[&str]) -> Option<(Mounted, Detached)> {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::Program("bindfs")]) {
        return None;
    }
    start_over(Command::new("bindfs").args(["-o", options]).arg(kept), arguments)
}

const FORGETFUL: &str = "allow_other,attr_timeout=0,entry_timeout=0";

/// Each name of a file has a handle of its own there.
#[test]
fn hard_links_below_a_source_that_goes_by_paths_are_one_file() {
    let kept = tempfile::TempDir::new().unwrap();
    fs::write(kept.path().join("one"), "content").unwrap();
    fs::hard_link(kept.path().join("one"), kept.path().join("other")).unwrap();
    let Some((outer, _bound)) = start_over_bindfs(kept.path(), FORGETFUL, &ALWAYS_ASKED) else {
        return;
    };
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

/// Such a server may keep what is written by descriptor, and open another file by the same path later.
#[test]
fn a_stream_below_a_source_with_a_server_has_one_descriptor() {
    let Some((inner, outer, _bound)) = start() else {
        return;
    };
    let write = || {
        let mut file = fs::File::create(outer.mountpoint().join("below/stream")).unwrap();
        for _ in 0..16 {
            file.write_all(&vec![1; 2 << 20]).unwrap();
        }
        file.sync_all().unwrap();
    };
    let requests = requests_of(&inner, write);
    assert_eq!(requests.get("create"), Some(&1), "{requests:?}");
    // The kernel makes another open to ask for the flags of chattr(1).
    assert!(requests.get("open") <= requests.get("ioctl"), "{requests:?}");
    assert_eq!(
        fs::metadata(inner.source().join("stream")).unwrap().len(),
        32 << 20
    );
}

/// A server may tell an error, or store data, only by the descriptor that wrote it.
#[test]
fn data_of_two_descriptors_below_a_source_with_a_server_is_written_by_both() {
    let Some((inner, outer, _bound)) = start() else {
        return;
    };
    for appends in [false, true] {
        let name = format!("file {appends}");
        fs::write(inner.source().join(&name), "").unwrap();
        let open = || {
            let mut options = fs::OpenOptions::new();
            options.write(true).append(appends);
            options
                .open(outer.mountpoint().join("below").join(&name))
                .unwrap()
        };
        let [first, second] = [open(), open()];
        let write = || {
            first.write_all_at(b"first", 0).unwrap();
            second.write_all_at(b"second", 5).unwrap();
            second.sync_all().unwrap();
        };
        assert_eq!(requests_of(&inner, write).get("write"), Some(&2), "{name}");
        let content = fs::read_to_string(inner.source().join(&name)).unwrap();
        assert_eq!(content, "firstsecond");
    }
}

#[test]
fn names_changed_below_a_source_that_goes_by_paths_lead_to_their_files() {
    let kept = tempfile::TempDir::new().unwrap();
    let Some((outer, _bound)) = start_over_bindfs(kept.path(), FORGETFUL, &ALWAYS_ASKED) else {
        return;
    };
    let below = outer.mountpoint().join("below");
    let read = |name: &str| fs::read_to_string(below.join(name)).unwrap();
    for folder in ["x", "y", "now", "next"] {
        fs::create_dir(kept.path().join(folder)).unwrap();
    }
    let rename = |from: &str, to: &str| fs::rename(kept.path().join(from), kept.path().join(to)).unwrap();
    for (name, content) in [
        ("x/file", "1"),
        ("y/file", "2"),
        ("now/file", "old"),
        ("next/file", "new"),
    ] {
        fs::write(kept.path().join(name), content).unwrap();
        assert_eq!(read(name), content);
    }
    rename("x/file", "z");
    rename("y/file", "x/file");
    rename("z", "y/file");
    assert_eq!([read("x/file"), read("y/file")], ["2", "1"]);
    rename("now", "before");
    rename("next", "now");
    assert_eq!([read("before/file"), read("now/file")], ["old", "new"]);
    fs::remove_dir_all(below.join("before")).unwrap();
    assert_eq!(fs::read_to_string(kept.path().join("now/file")).unwrap(), "new");
    assert!(!kept.path().join("before").exists());
}

#[test]
fn a_file_below_a_source_that_goes_by_paths_is_found_by_the_name_that_is_left() {
    let kept = tempfile::TempDir::new().unwrap();
    let Some((outer, _bound)) = start_over_bindfs(kept.path(), "allow_other", &[]) else {
        return;
    };
    let below = outer.mountpoint().join("below");
    let [first, second] = ["first", "second"].map(|name| below.join(name));
    for round in 0..3 {
        let content = format!("content {round}");
        fs::write(&first, &content).unwrap();
        fs::hard_link(&first, &second).unwrap();
        fs::remove_file(&first).unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), content);
        fs::remove_file(&second).unwrap();
    }
}

#[test]
fn lines_appended_below_a_source_with_a_server_and_through_the_mount_are_all_kept() {
    for arguments in [
        &[][..],
        &["--passthrough", "off"],
        &["--passthrough", "off", "--flusher", "off"],
    ] {
        let kept = tempfile::TempDir::new().unwrap();
        let log = kept.path().join("log");
        fs::write(&log, "").unwrap();
        let Some((outer, _bound)) = start_over_bindfs(kept.path(), "allow_other", arguments) else {
            return;
        };
        let open = |path: &Path| fs::OpenOptions::new().append(true).open(path).unwrap();
        let mut appenders = [open(&log), open(&outer.mountpoint().join("below/log"))];
        for round in 0..20 {
            for (number, appender) in appenders.iter_mut().enumerate() {
                appender
                    .write_all(format!("{number} {round}\n").as_bytes())
                    .unwrap();
                appender.sync_all().unwrap();
            }
        }
        let found = fs::read_to_string(&log).unwrap();
        assert_eq!(found.lines().count(), 40, "{arguments:?}: {found}");
        fs::rename(&log, kept.path().join("log.1")).unwrap();
        fs::write(&log, "new").unwrap();
        writeln!(appenders[1], "last").unwrap();
        appenders[1].sync_all().unwrap();
        let old = fs::read_to_string(kept.path().join("log.1")).unwrap();
        assert_eq!(old, format!("{found}last\n"), "{arguments:?}");
    }
}
