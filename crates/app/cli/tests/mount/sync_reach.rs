//! Reach of `sync`: the kernel does not pass it on to an ordinary FUSE mount, and the guide promises something else
//! instead.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};

use crate::harness::Mounted;

fn wait_a_little() {
    let pause = Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    assert_eq!(poll(&mut [], Some(&pause)), Ok(0));
}

/// Queried without a child process: closing its copies of our descriptors would flush.
fn document(mounted: &Mounted) -> serde_json::Value {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(mounted.mountpoint(), "user.tidegate.stats", &mut value[..])
        .expect("the mount answers");
    serde_json::from_slice(&value[..length]).expect("a document in JSON")
}

fn entries_in_use(mounted: &Mounted) -> u64 {
    document(mounted)["buffer"]["entries_in_use"]
        .as_u64()
        .expect("the document counts entries")
}

fn operations_named(mounted: &Mounted, name: &str) -> u64 {
    let document = document(mounted);
    let operations = document["session"]["operations"].as_array();
    let operation = operations
        .expect("a list")
        .iter()
        .find(|row| row["operation"] == name);
    operation.map_or(0, |row| row["count"].as_u64().expect("it is a number"))
}

/// The promise of docs/guide/mount.md for `sync`: the buffer writes everything to the source by itself, within reach of
/// `sync`.
#[test]
fn buffered_data_is_in_the_source_soon_where_sync_reaches_it() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off"]) else {
        return;
    };
    let file = File::create(mounted.mountpoint().join("file")).unwrap();
    file.write_all_at(&[9; 300_000], 0).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while entries_in_use(&mounted) > 0 {
        assert!(Instant::now() < until, "the buffer does not empty itself");
        wait_a_little();
    }
    // The descriptor is still open: neither a close nor an fsync wrote anything.
    let below = mounted.source().join("file");
    assert_eq!(std::fs::read(&below).unwrap(), vec![9; 300_000]);
    rustix::fs::syncfs(File::open(mounted.source()).unwrap()).unwrap();
    drop(file);
}

/// The reason why the promise is not about `sync` itself: no request arrives.
#[test]
fn sync_of_the_mount_sends_no_request() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off", "--flush-interval", "30s"]) else {
        return;
    };
    // A child that another test starts closes its copies of our descriptors, and each close flushes: then again.
    let held_back = (0..100).any(|attempt| {
        let name = format!("file-{attempt}");
        let file = File::create(mounted.mountpoint().join(&name)).unwrap();
        let flushes = operations_named(&mounted, "flush");
        file.write_all_at(b"held back", 0).unwrap();
        rustix::fs::syncfs(File::open(mounted.mountpoint()).unwrap()).unwrap();
        assert_eq!(operations_named(&mounted, "syncfs"), 0);
        let in_use = entries_in_use(&mounted);
        if operations_named(&mounted, "flush") != flushes {
            return false;
        }
        assert_eq!(in_use, 1, "this kernel tells FUSE of syncfs: document it");
        file.sync_all().unwrap();
        let below = std::fs::read(mounted.source().join(&name)).unwrap();
        assert_eq!(below, b"held back");
        true
    });
    assert!(held_back, "each attempt was disturbed by a flush");
}
