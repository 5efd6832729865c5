//! Whether an open reports content cached at an earlier close as still valid.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vfs::{FileSystem, OpenFlags, Privileges};

use crate::source::Source;

/// A source whose file system writes pages out, on a host that tells of dirty pages. `None`, with a printed reason, if the build
/// directory is on none.
fn source() -> Option<Source> {
    /// ext4, xfs, btrfs by their `statfs` magic.
    const SUITED: [i64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let is_suited = SUITED.contains(&rustix::fs::statfs(folder.path()).unwrap().f_type);
    let file = tempfile::tempfile_in(folder.path()).unwrap();
    if !is_suited || testkit::CachedPages::of(&file).is_none() {
        testkit::report_left_out(
            "data kept over opens: it needs Linux 6.5 and a build directory on ext4, xfs or btrfs",
        );
        return None;
    }
    Some(Source::in_folder(folder))
}

fn valid(source: &Source, entry: &vfs::Entry) -> bool {
    let opened = source
        .fs
        .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    let kept = source.fs.cache_still_valid(entry.ino, opened.handle);
    source.fs.release(entry.ino, opened.handle);
    kept
}

/// Writes the file out, and waits until its last change is clearly in the past of the host's clock.
fn age(source: &Source, name: &str) {
    std::fs::File::open(source.path(name))
        .unwrap()
        .sync_all()
        .unwrap();
    let changed = std::fs::metadata(source.path(name)).unwrap();
    let seconds = u64::try_from(changed.ctime()).unwrap();
    let nanoseconds = u32::try_from(changed.ctime_nsec()).unwrap();
    let past = UNIX_EPOCH + Duration::new(seconds, nanoseconds) + Duration::from_millis(2130);
    while let Ok(left) = past.duration_since(SystemTime::now()) {
        std::thread::sleep(left);
    }
}

#[test]
fn the_first_open_vouches_for_nothing_and_the_second_does() {
    let Some(source) = source() else {
        return;
    };
    std::fs::write(source.path("file"), b"content").unwrap();
    age(&source, "file");
    let entry = source.lookup("file").unwrap();
    assert!(!valid(&source, &entry));
    assert!(valid(&source, &entry));
}

#[test]
fn a_change_behind_the_mount_voids_caches_once() {
    let Some(source) = source() else {
        return;
    };
    let path = source.path("file");
    std::fs::write(&path, b"content").unwrap();
    age(&source, "file");
    let entry = source.lookup("file").unwrap();
    valid(&source, &entry);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(b"CONTENT")
        .unwrap();
    assert!(!valid(&source, &entry), "same size, another time");
    age(&source, "file");
    valid(&source, &entry);
    assert!(valid(&source, &entry));
}

#[test]
fn content_is_kept_again_from_the_second_open_after_our_own_writes() {
    let Some(source) = source() else {
        return;
    };
    let file = source.create("file");
    source.write(file, 0, b"content").unwrap();
    age(&source, "file");
    source.fs.flush(file.0.ino, file.1).unwrap();
    assert!(!valid(&source, &file.0));
    assert!(valid(&source, &file.0));
    source.write(file, 0, b"more").unwrap();
    assert!(!valid(&source, &file.0));
}

#[test]
fn a_change_behind_the_mount_is_not_covered_by_the_end_of_a_writer() {
    let Some(source) = source() else {
        return;
    };
    let file = source.create("file");
    source.write(file, 0, b"content").unwrap();
    age(&source, "file");
    valid(&source, &file.0);
    assert!(valid(&source, &file.0));
    let times = std::fs::metadata(source.path("file")).unwrap();
    let behind = std::fs::File::options()
        .write(true)
        .open(source.path("file"))
        .unwrap();
    (&behind).write_all(b"CONTENT").unwrap();
    behind.set_modified(times.modified().unwrap()).unwrap();
    age(&source, "file");
    source.fs.flush(file.0.ino, file.1).unwrap();
    source.fs.release(file.0.ino, file.1);
    assert!(!valid(&source, &file.0));
}

#[test]
fn no_open_keeps_content_before_the_one_that_found_a_change_is_released() {
    let Some(source) = source() else {
        return;
    };
    std::fs::write(source.path("file"), b"content").unwrap();
    age(&source, "file");
    let entry = source.lookup("file").unwrap();
    let open = || {
        source
            .fs
            .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
            .unwrap()
    };
    let kept = |opened: &vfs::Opened| source.fs.cache_still_valid(entry.ino, opened.handle);
    let (first, second) = (open(), open());
    assert!(!kept(&first) && !kept(&second));
    source.fs.release(entry.ino, first.handle);
    assert!(kept(&open()));
}

/// Under passthrough nobody asks.
#[test]
fn an_open_that_nobody_asked_about_proves_nothing() {
    let Some(source) = source() else {
        return;
    };
    std::fs::write(source.path("file"), b"content").unwrap();
    age(&source, "file");
    let entry = source.lookup("file").unwrap();
    for _ in 0..2 {
        let flags = OpenFlags(libc::O_RDONLY);
        let unasked = source.fs.open(entry.ino, flags, Privileges::Keep).unwrap();
        source.fs.release(entry.ino, unasked.handle);
    }
    assert!(!valid(&source, &entry));
    assert!(valid(&source, &entry));
    std::fs::write(source.path("file"), b"CONTENT").unwrap();
    age(&source, "file");
    let flags = OpenFlags(libc::O_RDONLY);
    let unasked = source.fs.open(entry.ino, flags, Privileges::Keep).unwrap();
    source.fs.release(entry.ino, unasked.handle);
    assert!(!valid(&source, &entry), "nobody told the kernel of the change");
}

/// Stores twice to a page of `file`: the second store moves none of its times, as the page is dirty.
fn store_twice(file: &std::fs::File, between: impl FnOnce()) {
    let bytes = 4096;
    let (protection, flags) = (
        rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
        rustix::mm::MapFlags::SHARED,
    );
    // SAFETY: a new mapping at a place of the kernel's choice; only this function uses it, within its length.
    unsafe {
        let mapping = rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0).unwrap();
        mapping.cast::<u8>().write_volatile(b'1');
        between();
        mapping.cast::<u8>().write_volatile(b'2');
        rustix::mm::munmap(mapping, bytes).unwrap();
    }
}

#[test]
fn a_store_through_a_mapping_that_moves_no_time_voids_caches() {
    let folders = [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"]
        .into_iter()
        .filter_map(|folder| tempfile::tempdir_in(folder).ok());
    for folder in folders {
        let source = Source::in_folder(folder);
        let path = source.path("file");
        std::fs::write(&path, [b'0'; 4096]).unwrap();
        age(&source, "file");
        let entry = source.lookup("file").unwrap();
        valid(&source, &entry);
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let mut times = None;
        store_twice(&file, || {
            valid(&source, &entry);
            times = Some(file.metadata().unwrap());
        });
        let (before, after) = (times.unwrap(), file.metadata().unwrap());
        let times_of = |of: &std::fs::Metadata| (of.ctime(), of.ctime_nsec(), of.mtime(), of.mtime_nsec());
        if times_of(&before) != times_of(&after) {
            testkit::report_left_out("stores that leave no trace: the page was written out in between");
            continue;
        }
        assert_eq!(std::fs::read(&path).unwrap()[0], b'2');
        assert!(!valid(&source, &entry), "{}", path.display());
    }
}
