//! Cases about the bytes of files, their sizes, times and extended attributes.

use vfs::{
    CopyRange, FallocateMode, FileSystem, FsError, Privileges, SeekFrom, SetAttr, SetTime, Timestamp,
    WriteMode, XattrFlags,
};

use super::{Case, Scene, plain};

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    vec![
        (
            "what_is_written_is_read_at_every_offset",
            what_is_written_is_read_at_every_offset,
        ),
        (
            "a_read_at_or_past_the_end_is_empty_and_one_across_it_is_short",
            read_across_the_end,
        ),
        ("a_gap_between_writes_reads_as_zeros", a_gap_reads_as_zeros),
        ("later_writes_win_where_writes_overlap", later_writes_win),
        ("size_is_right_after_every_write", size_is_right_after_every_write),
        (
            "offsets_beyond_four_gibibytes_hold_data",
            offsets_beyond_four_gibibytes,
        ),
        ("truncation_cuts_and_growing_again_shows_zeros", truncation_cuts),
        (
            "opening_with_truncation_empties_a_file_with_unflushed_writes",
            open_with_truncation,
        ),
        (
            "writes_through_one_handle_are_seen_through_another",
            two_handles_agree,
        ),
        ("appending_handles_write_at_the_end", appending_handles),
        (
            "a_write_through_a_read_only_handle_fails",
            write_through_read_only_handle,
        ),
        (
            "synchronous_and_direct_writes_mix_with_plain_ones",
            synchronous_and_plain_writes_mix,
        ),
        (
            "a_write_from_a_page_cache_ignores_append",
            page_cache_writes_ignore_append,
        ),
        ("times_that_are_set_stay_after_earlier_writes", times_stay_set),
        (
            "a_write_that_kills_privileges_drops_setuid",
            privileges_are_killed,
        ),
        (
            "data_outlives_the_last_name_while_a_handle_is_open",
            data_outlives_the_name,
        ),
        ("copies_see_and_make_unflushed_data", copies_are_coherent),
        (
            "allocation_changes_size_and_punching_leaves_zeros",
            allocation_and_punching,
        ),
        ("seeking_finds_data_just_written", seeking_finds_data),
        ("extended_attributes_keep_any_bytes", extended_attributes),
    ]
}

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    crate::prng::Prng::new(seed).bytes(length)
}

fn what_is_written_is_read_at_every_offset<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let data = pattern(300_000, 1);
    for (index, piece) in data.chunks(7_001).enumerate() {
        scene.write(file, u64::try_from(index * 7_001).unwrap_or(0), piece);
    }
    for (offset, length) in [
        (0, 300_000),
        (1, 10),
        (6_999, 5),
        (299_990, 10),
        (123_456, 77_777),
    ] {
        let found = scene.read(file, u64::try_from(offset).unwrap_or(0), length);
        assert!(
            found == data[offset..offset + length],
            "wrong bytes at {offset}, {length} bytes"
        );
    }
    scene.close(file);
}

fn read_across_the_end<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    assert_eq!(scene.read(file, 0, 10), b"");
    scene.write(file, 0, b"abcdef");
    assert_eq!(scene.read(file, 4, 10), b"ef");
    assert_eq!(scene.read(file, 6, 10), b"");
    assert_eq!(scene.read(file, 1 << 40, 10), b"");
}

fn a_gap_reads_as_zeros<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"head");
    scene.write(file, 100_000, b"tail");
    assert!(scene.read(file, 4, 99_996).iter().all(|byte| *byte == 0));
    assert_eq!(scene.read(file, 50_000, 10), [0; 10]);
    assert_eq!(scene.read(file, 99_998, 100), b"\0\0tail");
}

fn later_writes_win<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 10_000]);
    scene.write(file, 5_000, &[2; 10_000]);
    scene.write(file, 2_000, &[3; 1_000]);
    scene.write(file, 3_000, &[4; 4_000]);
    let found = scene.read(file, 0, 20_000);
    let expected = [(1, 2_000), (3, 1_000), (4, 4_000), (2, 8_000)];
    let expected: Vec<u8> = expected
        .iter()
        .flat_map(|(byte, count)| vec![*byte; *count])
        .collect();
    assert!(found == expected, "overlapping writes came out in another order");
}

fn size_is_right_after_every_write<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let mut size = 0;
    for (offset, length) in [
        (0, 10_usize),
        (10, 5_000),
        (3, 10),
        (20_000, 1),
        (5_010, 100),
        (20_001, 70_000),
    ] {
        scene.write(file, offset, &vec![7; length]);
        size = size.max(offset + u64::try_from(length).unwrap_or(0));
        assert_eq!(scene.attr(file.ino).size, size);
        let by_handle = scene
            .file_system
            .getattr(file.ino, Some(file.handle))
            .map(|attr| attr.size);
        assert_eq!(by_handle, Ok(size));
    }
    scene.write(file, size, b"more");
    let entry = scene.lookup(vfs::Ino::ROOT, b"file").expect("the file is there");
    assert_eq!((entry.ino, entry.attr.size), (file.ino, size + 4));
    scene.write(file, size + 4, b"more");
    let listed = scene.list(vfs::Ino::ROOT, 10, true);
    let listed = listed[0].1.expect("a listing with attributes has them");
    assert_eq!(listed.attr.size, size + 8);
}

fn offsets_beyond_four_gibibytes<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let far = (5 << 30) + 123;
    scene.write(file, far, b"far ");
    scene.write(file, far + 4, b"away");
    assert_eq!(scene.read(file, far - 2, 100), b"\0\0far away");
    assert_eq!(scene.attr(file.ino).size, far + 8);
}

fn truncation_cuts<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, &[9; 10_000]);
    for size in [4_000, 12_000] {
        let change = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        let attr = scene
            .file_system
            .setattr(file.ino, Some(file.handle), &change)
            .expect("truncation works");
        assert_eq!(attr.size, size);
    }
    let found = scene.read(file, 0, 20_000);
    assert_eq!(found.len(), 12_000);
    assert!(found[..4_000].iter().all(|byte| *byte == 9) && found[4_000..].iter().all(|byte| *byte == 0));
}

fn open_with_truncation<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"old content");
    let other = scene.open(file.ino, libc::O_RDWR | libc::O_TRUNC);
    assert_eq!(scene.attr(file.ino).size, 0);
    scene.write(other, 0, b"new");
    assert_eq!(scene.read(file, 0, 100), b"new");
}

fn two_handles_agree<F: FileSystem>(scene: &Scene<'_, F>) {
    let one = scene.create(b"file");
    let other = scene.open(one.ino, libc::O_RDWR);
    scene.write(one, 0, b"0123456789");
    assert_eq!(scene.read(other, 0, 100), b"0123456789");
    scene.write(other, 5, b"abcde");
    scene.write(one, 10, b"!");
    assert_eq!(scene.read(one, 0, 100), b"01234abcde!");
    scene.close(one);
    assert_eq!(scene.read(other, 0, 100), b"01234abcde!");
    scene.close(other);
}

fn appending_handles<F: FileSystem>(scene: &Scene<'_, F>) {
    let plain_file = scene.create(b"file");
    let flags = libc::O_RDWR | libc::O_APPEND;
    let (one, other) = (
        scene.open(plain_file.ino, flags),
        scene.open(plain_file.ino, flags),
    );
    let mut expected = Vec::new();
    for (round, file) in [one, other, one, one, other].into_iter().enumerate() {
        let data = pattern(1_000 + round, 3);
        let end = u64::try_from(expected.len()).unwrap_or(0);
        let written = scene
            .file_system
            .write(file.ino, file.handle, end, &data, plain(flags));
        assert_eq!(written, Ok(data.len()));
        expected.extend_from_slice(&data);
    }
    scene.write(plain_file, 0, b"X");
    expected[0] = b'X';
    // The offset is only the caller's guess, and wrong here.
    let written = scene
        .file_system
        .write(one.ino, one.handle, 0, b"end", plain(flags));
    assert_eq!(written, Ok(3));
    expected.extend_from_slice(b"end");
    assert!(
        scene.read(plain_file, 0, 100_000) == expected,
        "appended data is not at the end"
    );
}

fn write_through_read_only_handle<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let reader = scene.open(file.ino, libc::O_RDONLY);
    let written = scene
        .file_system
        .write(reader.ino, reader.handle, 0, b"x", plain(libc::O_RDONLY));
    assert_eq!(written, Err(FsError::BadHandle));
    assert_eq!(scene.attr(file.ino).size, 0);
}

fn synchronous_and_plain_writes_mix<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 6_000]);
    let flags = libc::O_RDWR | libc::O_SYNC;
    let written = scene
        .file_system
        .write(file.ino, file.handle, 4_096, &[2; 4_096], plain(flags));
    assert_eq!(written, Ok(4_096));
    scene.write(file, 8_000, &[3; 500]);
    let found = scene.read(file, 0, 10_000);
    let expected = [(1, 4_096), (2, 3_904), (3, 500)];
    let expected: Vec<u8> = expected
        .iter()
        .flat_map(|(byte, count)| vec![*byte; *count])
        .collect();
    assert!(
        found == expected,
        "synchronous and plain writes came out in another order"
    );
}

fn page_cache_writes_ignore_append<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"0123456789");
    let flags = libc::O_RDWR | libc::O_APPEND;
    let appender = scene.open(file.ino, flags);
    let mode = WriteMode {
        from_page_cache: true,
        ..plain(flags)
    };
    let written = scene
        .file_system
        .write(appender.ino, appender.handle, 2, b"ab", mode);
    assert_eq!(written, Ok(2));
    assert_eq!(scene.read(file, 0, 100), b"01ab456789");
}

fn times_stay_set<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"content");
    let time = Timestamp {
        seconds: 1_234_567,
        nanoseconds: 0,
    };
    let change = SetAttr {
        mtime: Some(SetTime::At(time)),
        atime: Some(SetTime::At(time)),
        ..SetAttr::default()
    };
    scene
        .file_system
        .setattr(file.ino, Some(file.handle), &change)
        .expect("times can be set");
    scene
        .file_system
        .flush(file.ino, file.handle)
        .expect("no write failed");
    assert_eq!(scene.attr(file.ino).mtime, time);
    scene.write(file, 7, b"more");
    assert!(
        scene.attr(file.ino).mtime > time,
        "a write did not change the time of modification"
    );
}

fn privileges_are_killed<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let change = SetAttr {
        mode: Some(0o4755),
        ..SetAttr::default()
    };
    scene
        .file_system
        .setattr(file.ino, None, &change)
        .expect("the mode can be set");
    scene.write(file, 0, b"by a privileged user");
    assert_eq!(scene.attr(file.ino).mode & 0o7777, 0o4755);
    let mode = WriteMode {
        privileges: Privileges::Kill { gid: 0 },
        ..plain(libc::O_RDWR)
    };
    let written = scene
        .file_system
        .write(file.ino, file.handle, 20, b"by an ordinary one", mode);
    assert_eq!(written, Ok(18));
    assert_eq!(scene.attr(file.ino).mode & 0o7777, 0o755);
}

fn data_outlives_the_name<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"before ");
    scene
        .file_system
        .unlink(&super::caller(), vfs::Ino::ROOT, b"file")
        .expect("the name can be removed");
    scene.write(file, 7, b"after");
    assert_eq!(scene.read(file, 0, 100), b"before after");
    let attr = scene
        .file_system
        .getattr(file.ino, Some(file.handle))
        .expect("an open file has attributes");
    assert_eq!((attr.size, attr.nlink), (12, 0));
    scene.close(file);
}

fn copies_are_coherent<F: FileSystem>(scene: &Scene<'_, F>) {
    let (from, to) = (scene.create(b"from"), scene.create(b"to"));
    scene.write(from, 0, b"0123456789");
    scene.write(to, 0, b"..............");
    let copy = CopyRange {
        source: (from.ino, from.handle),
        source_offset: 2,
        target: (to.ino, to.handle),
        target_offset: 4,
        length: 5,
        privileges: Privileges::Keep,
    };
    match scene.file_system.copy_file_range(&copy) {
        Err(FsError::NotSupported | FsError::CrossDevice) => {}
        copied => {
            assert_eq!(copied, Ok(5));
            assert_eq!(scene.read(to, 0, 100), b"....23456.....");
        }
    }
}

fn allocation_and_punching<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, &[5; 20_000]);
    let fallocate = |mode: i32, offset, length| {
        let done = scene.file_system.fallocate(
            file.ino,
            file.handle,
            FallocateMode(mode),
            offset,
            length,
            Privileges::Keep,
        );
        assert!(
            matches!(done, Ok(()) | Err(FsError::NotSupported)),
            "fallocate({mode}): {done:?}"
        );
        done.is_ok()
    };
    if fallocate(
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        4_000,
        10_000,
    ) {
        let found = scene.read(file, 0, 30_000);
        let zeros = |range: std::ops::Range<usize>| found[range].iter().all(|byte| *byte == 0);
        assert!(found.len() == 20_000 && zeros(4_000..14_000) && found[3_999] == 5 && found[14_000] == 5);
    }
    if fallocate(libc::FALLOC_FL_KEEP_SIZE, 0, 100_000) {
        assert_eq!(scene.attr(file.ino).size, 20_000);
    }
    if fallocate(0, 0, 30_000) {
        assert_eq!(scene.attr(file.ino).size, 30_000);
        assert_eq!(scene.read(file, 19_999, 3), [5, 0, 0]);
    }
}

fn seeking_finds_data<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 1 << 20, &[1; 4_096]);
    let seek = |from| scene.file_system.lseek(file.ino, file.handle, from);
    let data = seek(SeekFrom::Data(0));
    // A file system without holes reports everything as data.
    assert!(
        matches!(data, Ok(offset) if offset <= 1 << 20),
        "data is at 1 MiB, found {data:?}"
    );
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4_096));
    assert_eq!(seek(SeekFrom::Data(2 << 20)), Err(FsError::NoSuchDevice));
}

fn extended_attributes<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    let set = |value: &[u8], flags| {
        scene
            .file_system
            .setxattr(file.ino, b"user.name", value, XattrFlags(flags), false)
    };
    if set(b"\0\xFF", 0) == Err(FsError::NotSupported) {
        return;
    }
    assert_eq!(
        scene.file_system.getxattr(file.ino, b"user.name").as_deref(),
        Ok(&b"\0\xFF"[..])
    );
    assert_eq!(set(b"x", libc::XATTR_CREATE), Err(FsError::Exists));
    assert_eq!(set(b"", libc::XATTR_REPLACE), Ok(()));
    assert_eq!(
        scene.file_system.getxattr(file.ino, b"user.name").as_deref(),
        Ok(&b""[..])
    );
    let names = scene
        .file_system
        .listxattr(file.ino)
        .expect("names can be listed");
    assert!(names.split(|byte| *byte == 0).any(|name| name == b"user.name"));
    assert_eq!(scene.file_system.removexattr(file.ino, b"user.name"), Ok(()));
    assert_eq!(
        scene.file_system.getxattr(file.ino, b"user.name"),
        Err(FsError::NoData)
    );
    assert_eq!(set(b"x", libc::XATTR_REPLACE), Err(FsError::NoData));
}
