//! More inodes than descriptors. In a separate process, as all threads share the limit.

use std::path::Path;

use passfs::{PassConfig, PassFs};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use vfs::{FileSystem, FsError, Ino, OpenFlags, Privileges};

const LIMIT: u64 = 256;
const FILES: u32 = 1_000;

/// Lowers the limit permanently: without `CAP_SYS_RESOURCE` it can't be raised again.
fn open_with_few_descriptors(source: &Path) -> PassFs {
    let limit = Rlimit {
        current: Some(LIMIT),
        maximum: Some(LIMIT),
    };
    rustix::process::setrlimit(Resource::Nofile, limit).expect("lowering is always allowed");
    let mut sets = capabilities(None).expect("capget has no way to fail");
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    set_capabilities(None, sets).expect("giving up is always allowed");
    let config = PassConfig {
        id_map: None,
        read_only: false,
        access_times: passfs::AccessTimes::OF_SOURCE,
        write_out_bytes: None,
        stream_direct_after_bytes: None,
        stream_direct_rate_min: 0,
        offer_backing: false,
    };
    PassFs::open(source, config).expect("the source is there")
}

#[test]
fn roots_daemon_holds_more_inodes_than_it_may_have_descriptors() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        std::fs::write(directory.path().join(number.to_string()), number.to_string()).unwrap();
    }
    let fs = open_with_few_descriptors(directory.path());
    let lookup = |number: u32| fs.lookup(Ino::ROOT, number.to_string().as_bytes());

    let entries: Vec<_> = (0..FILES).map(|number| lookup(number).unwrap()).collect();
    for (number, entry) in (0..FILES).zip(&entries) {
        assert_eq!(lookup(number).unwrap().ino, entry.ino, "one file, one inode");
        let opened = fs
            .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
            .unwrap();
        let mut content = [0; 8];
        let read = fs.read(entry.ino, opened.handle, 0, &mut content).unwrap();
        assert_eq!(&content[..read], number.to_string().as_bytes());
        fs.release(entry.ino, opened.handle);
    }

    // The host reuses the numbers of removed files; inodes referenced only by handle are distinguished.
    for number in 0..FILES {
        std::fs::remove_file(directory.path().join(number.to_string())).unwrap();
    }
    for number in 0..FILES {
        std::fs::write(directory.path().join(number.to_string()), "new").unwrap();
    }
    let old: std::collections::HashSet<_> = entries.iter().map(|entry| entry.ino).collect();
    for number in 0..FILES {
        let entry = lookup(number).unwrap();
        assert!(!old.contains(&entry.ino), "file {number} is another one");
        assert_eq!(fs.getattr(entry.ino, None).unwrap().size, 3);
    }
    let last = entries.last().unwrap();
    assert_eq!(fs.getattr(last.ino, None).err(), Some(FsError::Stale));
    for entry in &entries {
        fs.forget(entry.ino, 2);
    }
    assert_eq!(lookup(0).unwrap().attr.size, 3);
    assert_eq!(fs.counters().inodes_held, u64::from(FILES) + 1);
}
