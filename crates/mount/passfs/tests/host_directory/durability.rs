//! Durability that a write asks for (`O_SYNC`, `O_DSYNC` and their `RWF_` forms), by the state of the host's page cache.

use std::fs::File;

use passfs::{PassConfig, PassFs};
use vfs::{CopyRange, FallocateMode, FileSystem, Ino, OpenFlags, Privileges, WriteMode};

use crate::source::{PLAIN, Source, write_mode};

const MIB: usize = 1 << 20;

/// Pages of the file that are not on the medium yet; `None` where the kernel does not tell.
fn pages_not_written(file: &File) -> Option<u64> {
    testkit::CachedPages::of(file).map(|pages| pages.not_written())
}

/// `None`, recorded as left out, where dirty pages can't be seen: an old kernel, or a host without a medium (tmpfs).
fn source_with_visible_dirt(config: PassConfig) -> Option<Source> {
    let source = Source::with(config);
    let file = source.create("plain");
    source.write(file, 0, &[1; 4096]).unwrap();
    if pages_not_written(&File::open(source.path("plain")).unwrap()) == Some(1) {
        return Some(source);
    }
    testkit::report_left_out("dirty pages can't be seen here");
    None
}

fn mode(flags: i32) -> WriteMode {
    WriteMode {
        flags: OpenFlags(libc::O_RDWR | flags),
        ..write_mode(Privileges::Keep)
    }
}

#[test]
fn a_synchronous_write_leaves_nothing_in_the_page_cache_to_write() {
    let streams = PassConfig {
        stream_direct_after_bytes: Some(1 << 20),
        ..PLAIN
    };
    for config in [PLAIN, streams] {
        let Some(source) = source_with_visible_dirt(config.clone()) else {
            return;
        };
        for flags in [libc::O_DSYNC, libc::O_SYNC, libc::O_SYNC | libc::O_APPEND] {
            let name = format!("file {flags:o}");
            let (entry, handle) = source.create(&name);
            let file = File::open(source.path(&name)).unwrap();
            let mut offset = 0;
            for length in [1, 4096, 5000, 3 * MIB, 2 * MIB] {
                let written = source
                    .fs
                    .write(entry.ino, handle, offset, &vec![7; length], mode(flags));
                assert_eq!(written, Ok(length), "{length} bytes with {flags:o}");
                let left = pages_not_written(&file);
                assert_eq!(left, Some(0), "{length} bytes with {flags:o}, {config:?}");
                offset += u64::try_from(length).unwrap();
            }
            assert_eq!(file.metadata().unwrap().len(), offset);
        }
    }
}

#[test]
fn pages_written_back_from_a_cache_above_are_not_synced_one_by_one() {
    let Some(source) = source_with_visible_dirt(PLAIN) else {
        return;
    };
    let (entry, handle) = source.create("file");
    let mode = WriteMode {
        from_page_cache: true,
        ..mode(libc::O_SYNC)
    };
    source.fs.write(entry.ino, handle, 0, &[7; 4096], mode).unwrap();
    let file = File::open(source.path("file")).unwrap();
    assert_eq!(pages_not_written(&file), Some(1));
}

#[test]
fn allocating_and_copying_through_a_synchronous_descriptor_leaves_nothing_to_write() {
    let Some(source) = source_with_visible_dirt(PLAIN) else {
        return;
    };
    let from = source.create("from");
    source.write(from, 0, &[7; 10_000]).unwrap();
    for flags in [0, libc::O_DSYNC, libc::O_SYNC] {
        let name = format!("to {flags:o}");
        let entry = source.create(&name).0;
        let flags = OpenFlags(libc::O_RDWR | flags);
        let handle = source.fs.open(entry.ino, flags, Privileges::Keep).unwrap().handle;
        let left = || pages_not_written(&File::open(source.path(&name)).unwrap());
        let expected = |dirty| Some(if flags.has(libc::O_DSYNC) { 0 } else { dirty });
        let copy = CopyRange {
            source: (from.0.ino, from.1),
            source_offset: 0,
            target: (entry.ino, handle),
            target_offset: 0,
            length: 10_000,
            privileges: Privileges::Keep,
        };
        assert_eq!(source.fs.copy_file_range(&copy), Ok(10_000));
        assert_eq!(left(), expected(3), "copied with {flags:?}");
        let zero = FallocateMode(libc::FALLOC_FL_ZERO_RANGE);
        let zeroed = source
            .fs
            .fallocate(entry.ino, handle, zero, 100, 1_000, Privileges::Keep);
        assert_eq!(zeroed, Ok(()));
        assert_eq!(left(), expected(3), "zeroed with {flags:?}");
    }
}

/// Files of /proc take plain writes only: there `pwritev2` refuses each of its flags. They also have nothing to sync.
#[test]
fn a_host_that_refuses_flags_of_writes_is_written_to_without_them() {
    let path = "/proc/self/coredump_filter";
    let filter = || u32::from_str_radix(std::fs::read_to_string(path).unwrap().trim_end(), 16).unwrap();
    let fs = PassFs::open("/proc/self".as_ref(), PLAIN).unwrap();
    let entry = fs.lookup(Ino::ROOT, b"coredump_filter").unwrap();
    let opened = fs
        .open(entry.ino, OpenFlags(libc::O_RDWR), Privileges::Keep)
        .unwrap();
    let before = filter();
    let cases = [
        libc::O_DSYNC,
        libc::O_SYNC,
        libc::O_APPEND,
        libc::O_SYNC | libc::O_APPEND,
    ];
    for (flags, value) in cases.into_iter().zip(1..) {
        let text = format!("{value:#x}");
        let written = fs.write(entry.ino, opened.handle, 0, text.as_bytes(), mode(flags));
        assert_eq!(written, Ok(text.len()), "flags {flags:o}");
        assert_eq!(filter(), value, "flags {flags:o}");
    }
    std::fs::write(path, format!("{before:#x}")).unwrap();
}
