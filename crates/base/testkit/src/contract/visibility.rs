//! Cases of the clause on size, times and extents: no call reveals that a layer delays writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::{Attr, FileSystem, FsError, Ino, SeekFrom, SetAttr, SetTime, Timestamp};

use super::{Case, File, Scene, cases};

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    cases![F:
        every_call_tells_the_same_size_and_times,
        looking_changes_no_time,
        writing_out_changes_no_time,
        a_change_of_mode_keeps_the_time_of_modification,
        a_time_that_is_set_stays_when_earlier_data_is_written_out,
        sizes_and_times_never_go_back_while_a_file_grows,
        a_file_with_data_has_blocks,
        data_is_never_called_a_hole,
    ]
}

/// The attributes that a query must not change.
fn shown(attr: &Attr) -> (u64, Timestamp, Timestamp) {
    (attr.size, attr.mtime, attr.ctime)
}

fn by_handle<F: FileSystem>(scene: &Scene<'_, F>, file: File) -> Attr {
    let attr = scene.file_system.getattr(file.ino, Some(file.handle));
    attr.expect("an open file has attributes")
}

fn by_name<F: FileSystem>(scene: &Scene<'_, F>, name: &[u8]) -> Attr {
    scene.lookup(Ino::ROOT, name).expect("the file is there").attr
}

fn by_listing<F: FileSystem>(scene: &Scene<'_, F>, name: &[u8]) -> Attr {
    let listed = scene.list(Ino::ROOT, 10, true);
    let named = listed.into_iter().find(|(listed, _)| listed == name);
    named
        .and_then(|(_, entry)| entry)
        .expect("the listing has it")
        .attr
}

/// A file of two pieces with a hole between them.
fn written<F: FileSystem>(scene: &Scene<'_, F>) -> File {
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 10_000]);
    scene.write(file, 50_000, &[2; 100]);
    file
}

fn every_call_tells_the_same_size_and_times<F: FileSystem>(scene: &Scene<'_, F>) {
    // Each of the calls is the first to query once.
    for first in 0..4 {
        let name = [b'0' + first];
        let file = scene.create(&name);
        scene.write(file, 0, &[1; 10_000]);
        scene.write(file, 50_000, &[2; 100]);
        let told = (0..4).map(|turn| {
            shown(&match (first + turn) % 4 {
                0 => scene.attr(file.ino),
                1 => by_handle(scene, file),
                2 => by_name(scene, &name),
                _ => by_listing(scene, &name),
            })
        });
        let told: Vec<_> = told.collect();
        assert_eq!(told[0].0, 50_100);
        assert!(
            told.iter().all(|one| *one == told[0]),
            "from call {first} on: {told:?}"
        );
    }
}

fn looking_changes_no_time<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = written(scene);
    let before = shown(&scene.attr(file.ino));
    let other = scene.open(file.ino, libc::O_RDONLY);
    assert_eq!(scene.read(other, 9_990, 10), [1; 10]);
    assert_eq!(shown(&by_name(scene, b"file")), before, "a read moved a time");
    let found = scene.file_system.lseek(file.ino, file.handle, SeekFrom::Data(0));
    assert_eq!(found, Ok(0));
    // The result does not matter.
    let _ = scene.file_system.listxattr(file.ino);
    let _ = scene.file_system.getxattr(file.ino, b"security.capability");
    assert!(scene.file_system.statfs(file.ino).is_ok());
    scene.close(other);
    assert_eq!(shown(&scene.attr(file.ino)), before, "looking moved a time");
}

fn writing_out_changes_no_time<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = written(scene);
    let before = shown(&scene.attr(file.ino));
    scene.write(file, 10_000, &[3; 1000]);
    let after = shown(&scene.attr(file.ino));
    assert!(
        after.1 >= before.1 && after.2 >= before.2,
        "a write moved a time back"
    );
    let flushed = scene.file_system.flush(file.ino, file.handle);
    assert_eq!(flushed, Ok(()));
    assert_eq!(shown(&scene.attr(file.ino)), after, "a flush moved a time");
    let synced = scene.file_system.fsync(file.ino, file.handle, false);
    assert_eq!(synced, Ok(()));
    assert_eq!(shown(&by_handle(scene, file)), after, "an fsync moved a time");
    scene.close(file);
    assert_eq!(
        shown(&by_name(scene, b"file")),
        after,
        "the last close moved a time"
    );
    assert_eq!(scene.file_system.sync(), Ok(()));
    assert_eq!(shown(&by_listing(scene, b"file")), after, "a sync moved a time");
}

fn a_change_of_mode_keeps_the_time_of_modification<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = written(scene);
    let before = scene.attr(file.ino);
    let change = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let changed = scene.file_system.setattr(file.ino, None, &change);
    let changed = changed.expect("the mode can be set");
    assert_eq!((changed.size, changed.mtime), (before.size, before.mtime));
    assert!(changed.ctime >= before.ctime);
    scene.close(file);
    assert_eq!(shown(&by_name(scene, b"file")), shown(&changed));
}

fn a_time_that_is_set_stays_when_earlier_data_is_written_out<F: FileSystem>(scene: &Scene<'_, F>) {
    let time = Timestamp {
        seconds: 1_234_567,
        nanoseconds: 0,
    };
    for handle_is_named in [true, false] {
        let name = if handle_is_named { b"1" } else { b"2" };
        let file = scene.create(name);
        scene.write(file, 0, &[1; 10_000]);
        let change = SetAttr {
            mtime: Some(SetTime::At(time)),
            ..SetAttr::default()
        };
        let handle = handle_is_named.then_some(file.handle);
        let changed = scene.file_system.setattr(file.ino, handle, &change);
        assert_eq!(changed.map(|attr| (attr.size, attr.mtime)), Ok((10_000, time)));
        let synced = scene.file_system.fsync(file.ino, file.handle, false);
        assert_eq!(synced, Ok(()));
        assert_eq!(scene.attr(file.ino).mtime, time);
        scene.close(file);
        assert_eq!(by_name(scene, name).mtime, time);
    }
}

/// One thread writes, two query.
fn sizes_and_times_never_go_back_while_a_file_grows<F: FileSystem>(scene: &Scene<'_, F>) {
    const RECORD: u64 = 3_000;
    let file = scene.create(b"file");
    let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let look = |attributes: &dyn Fn() -> Attr| {
        let mut last = (0, Timestamp::default(), Timestamp::default());
        while !over.load(Ordering::Acquire) {
            let at_least = done.load(Ordering::Acquire);
            let told = shown(&attributes());
            let at_most = begun.load(Ordering::Acquire);
            assert!(
                (at_least..=at_most).contains(&told.0),
                "{} bytes are told of {at_least} to {at_most}",
                told.0
            );
            let forward = told.0 >= last.0 && told.1 >= last.1 && told.2 >= last.2;
            assert!(forward, "{told:?} was told after {last:?}");
            last = told;
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| look(&|| scene.attr(file.ino)));
        scope.spawn(|| look(&|| by_name(scene, b"file")));
        for _ in 0..150 {
            begun.fetch_add(RECORD, Ordering::AcqRel);
            scene.write(file, done.load(Ordering::Acquire), &[7; 3_000]);
            done.fetch_add(RECORD, Ordering::AcqRel);
        }
        over.store(true, Ordering::Release);
    });
    scene.close(file);
}

/// Programs that copy files (tar, cp) treat one without blocks as a single hole.
fn a_file_with_data_has_blocks<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 100_000]);
    for attr in [scene.attr(file.ino), by_name(scene, b"file")] {
        assert!(attr.blocks > 0, "a file of {} bytes has no blocks", attr.size);
    }
}

fn data_is_never_called_a_hole<F: FileSystem>(scene: &Scene<'_, F>) {
    const SIZE: u64 = 1_000_100;
    let file = scene.create(b"file");
    let seek = |from| scene.file_system.lseek(file.ino, file.handle, from);
    let pieces = [(0, 4096_u64), (300_000, 1), (600_001, 70_000), (1_000_000, 100)];
    for (start, length) in [pieces[2], pieces[0], pieces[3], pieces[1]] {
        scene.write(file, start, &vec![1; usize::try_from(length).expect("small")]);
        // Seeking between the writes must not lose any of them.
        assert!(seek(SeekFrom::Data(start)) == Ok(start), "data begins at {start}");
    }
    let (mut at, mut holes) = (0, Vec::new());
    while at < SIZE {
        let hole = seek(SeekFrom::Hole(at)).expect("a hole, or the end as one");
        let data = match seek(SeekFrom::Data(hole)) {
            Err(FsError::NoSuchDevice) => SIZE,
            found => found.expect("data, or none behind"),
        };
        assert!(hole >= at && data >= hole, "{at}, {hole}, {data}");
        holes.push(hole..data);
        at = data.max(hole + 1);
    }
    for (start, length) in pieces {
        let overlaps = holes
            .iter()
            .any(|hole| hole.start < start + length && start < hole.end);
        assert!(
            !overlaps,
            "{start}+{length} was written and is in one of {holes:?}"
        );
    }
    assert_eq!(seek(SeekFrom::Hole(SIZE)), Err(FsError::NoSuchDevice));
    assert_eq!(seek(SeekFrom::Data(SIZE)), Err(FsError::NoSuchDevice));
}
