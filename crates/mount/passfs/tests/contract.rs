//! The file system contract over a host directory and, as root, over a private ext4 its clauses on durability.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use passfs::{AccessTimes, PassConfig, PassFs};
use testkit::{Ext4, FaultyFs, OnExt4, contract};
use vfs::{FileSystem, Ino, OpenFlags};

/// With and without the options for streams.
fn configurations() -> [PassConfig; 2] {
    let plain = PassConfig {
        id_map: None,
        read_only: false,
        write_out_bytes: None,
        stream_direct_after_bytes: None,
        stream_direct_rate_min: 0,
        offer_backing: true,
        access_times: AccessTimes::OF_SOURCE,
    };
    let streams = PassConfig {
        write_out_bytes: Some(64 << 10),
        stream_direct_after_bytes: Some(128 << 10),
        ..plain.clone()
    };
    [plain, streams]
}

/// Opens a new directory in `parent`.
fn open_in(parent: &Path, config: &PassConfig) -> PassFs {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let folder = parent.join(MADE.fetch_add(1, Ordering::Relaxed).to_string());
    std::fs::create_dir(&folder).expect("a temporary folder takes folders");
    PassFs::open(&folder, config.clone()).expect("the folder is there")
}

#[test]
fn a_host_directory_keeps_the_contract() {
    let parent = tempfile::tempdir().unwrap();
    for config in configurations() {
        contract::run_all(|| open_in(parent.path(), &config));
    }
}

#[test]
fn a_host_directory_keeps_the_clause_on_errors() {
    let parent = tempfile::tempdir().unwrap();
    for config in configurations() {
        contract::run_errors(|| {
            let file_system = FaultyFs::new(open_in(parent.path(), &config));
            let faults = file_system.faults();
            (file_system, faults)
        });
    }
}

#[test]
fn a_host_directory_keeps_the_clauses_on_durability_and_sync() {
    let ext4 = match Ext4::new(48) {
        Ok(ext4) => ext4,
        Err(reason) => return testkit::report_left_out(&reason),
    };
    for config in configurations() {
        contract::run_durability(|| {
            OnExt4::new(&ext4, |folder| PassFs::open(folder, config.clone()).unwrap())
        });
    }
}

/// A copy of the medium can't show whether the device's own cache was flushed.
#[test]
fn each_synchronous_write_and_each_sync_tells_the_device_to_flush() {
    let ext4 = match Ext4::new(48) {
        Ok(ext4) => ext4,
        Err(reason) => return testkit::report_left_out(&reason),
    };
    let [config, _] = configurations();
    let file_system = open_in(ext4.folder(), &config);
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
    let made = file_system.create(&contract::caller(), Ino::ROOT, b"file", contract::FILE, flags);
    let (entry, opened) = made.unwrap();
    let write = |offset, flags: i32| {
        let mode = contract::plain(libc::O_RDWR | flags);
        file_system.write(entry.ino, opened.handle, offset, &[1; 4096], mode)
    };
    // Appending and overwriting.
    for flags in [libc::O_DSYNC, libc::O_SYNC] {
        let before = ext4.flushes();
        for number in 0..20 {
            assert_eq!(write(number % 10 * 4096, flags), Ok(4096));
        }
        let flushes = ext4.flushes() - before;
        assert!(flushes >= 20, "{flushes} flushes for 20 writes with {flags:o}");
    }
    let before = ext4.flushes();
    for _ in 0..10 {
        assert_eq!(write(0, 0), Ok(4096));
        assert_eq!(file_system.fsync(entry.ino, opened.handle, true), Ok(()));
    }
    let flushes = ext4.flushes() - before;
    assert!(flushes >= 10, "{flushes} flushes for 10 syncs");
    let before = ext4.flushes();
    for number in 0..20 {
        assert_eq!(write(number * 4096, 0), Ok(4096));
    }
    assert_eq!(ext4.flushes(), before, "canary: a plain write needs none");
}

/// Direct writes leave nothing in the page cache in any case, so only the device shows whether the flags reached it.
#[test]
fn a_synchronous_write_past_the_page_cache_tells_the_device_to_flush_too() {
    const PIECE: usize = 1 << 20;
    let ext4 = match Ext4::new(48) {
        Ok(ext4) => ext4,
        Err(reason) => return testkit::report_left_out(&reason),
    };
    let [_, config] = configurations();
    let file_system = open_in(ext4.folder(), &config);
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
    let made = file_system.create(&contract::caller(), Ino::ROOT, b"file", contract::FILE, flags);
    let (entry, opened) = made.unwrap();
    let room = vec![7; PIECE + 4096];
    let start = room.as_ptr().addr().next_multiple_of(4096) - room.as_ptr().addr();
    let mut offset = 0;
    let mut write = |flags: i32| {
        let mode = contract::plain(libc::O_RDWR | flags);
        let data = &room[start..start + PIECE];
        let written = file_system.write(entry.ino, opened.handle, offset, data, mode);
        assert_eq!(written, Ok(PIECE));
        offset += 1 << 20;
    };
    write(0);
    for flags in [libc::O_DSYNC, libc::O_SYNC] {
        let before = ext4.flushes();
        (0..8).for_each(|_| write(flags));
        let flushes = ext4.flushes() - before;
        assert!(
            flushes >= 8,
            "{flushes} flushes for 8 direct writes with {flags:o}"
        );
    }
    let direct = file_system.counters().direct_writes;
    assert!(direct >= 16, "canary: {direct} writes were direct");
}
