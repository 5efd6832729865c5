//! Times, modes, extended attributes and names of files with buffered data.

use buffer::Flusher;
use rustix::time::{ClockId, clock_gettime};
use testkit::contract::{caller, plain};
use vfs::{FileSystem, FsError, Ino, Privileges, SetAttr, WriteMode, XattrFlags};

use crate::scene::{NEVER, Scene, small};
use crate::{CAPABILITY, RECORD, attr, patient};

/// Waits until the clock of file times has advanced.
fn let_the_clock_tick() {
    let now = || clock_gettime(ClockId::RealtimeCoarse);
    let before = now();
    while now() == before {
        std::thread::yield_now();
    }
}

#[test]
fn times_stay_as_they_were_told_when_the_data_is_written_out_and_when_the_file_is_closed() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let file = scene.create(b"file");
        let mut last = attr(&scene, file);
        for index in 0..20 {
            scene.write(file, index * 1000, &[1; 1000]);
            let told = attr(&scene, file);
            let_the_clock_tick();
            assert!(
                told.mtime >= last.mtime && told.ctime >= last.ctime,
                "{told:?} after {last:?}"
            );
            if index % 4 == 3 {
                scene.fsync(file).expect("nothing failed");
                let after = attr(&scene, file);
                assert_eq!(
                    (after.mtime, after.ctime),
                    (told.mtime, told.ctime),
                    "{flusher} flusher, {index}"
                );
            }
            last = told;
        }
        scene.flush(file).expect("nothing failed");
        scene.release(file);
        let entry = scene
            .buffered
            .lookup(Ino::ROOT, b"file")
            .expect("the file is there");
        assert_eq!(
            (entry.attr.mtime, entry.attr.ctime),
            (last.mtime, last.ctime),
            "{flusher} flusher"
        );
    }
}

#[test]
fn the_first_look_tells_the_times_that_the_source_has() {
    let scene = patient();
    let file = scene.create(b"file");
    scene.write(file, 0, b"all of it");
    let told = attr(&scene, file);
    let below = scene
        .buffered
        .inner()
        .getattr(file.ino, None)
        .expect("the file is there");
    assert_eq!(told, below);
}

#[test]
fn times_set_by_a_call_or_by_the_source_are_told_as_they_are() {
    let scene = patient();
    let file = scene.create(b"file");
    for index in 0..3 {
        scene.write(file, index * 10, &[1; 10]);
        attr(&scene, file);
    }
    let past = vfs::Timestamp {
        seconds: 1_000_000,
        nanoseconds: 5,
    };
    let change = SetAttr {
        mtime: Some(vfs::SetTime::At(past)),
        ..SetAttr::default()
    };
    let set = scene
        .buffered
        .setattr(file.ino, None, &change)
        .expect("times can be set");
    assert_eq!((set.mtime, attr(&scene, file).mtime), (past, past));
    scene.write(file, 30, b"more");
    let told = attr(&scene, file).mtime;
    assert!(told > past);
    scene.fsync(file).expect("nothing failed");
    assert_eq!(attr(&scene, file).mtime, told);
    let below = scene.buffered.inner();
    below.setattr(file.ino, None, &change).expect("times can be set");
    assert_eq!(attr(&scene, file).mtime, past, "a change of the source is hidden");
}

#[test]
fn a_write_to_a_file_of_the_future_brings_it_back_to_the_present() {
    let scene = patient();
    let file = scene.create(b"file");
    scene.write(file, 0, b"first");
    attr(&scene, file);
    let future = vfs::Timestamp {
        seconds: attr(&scene, file).mtime.seconds + 1000,
        nanoseconds: 0,
    };
    let change = SetAttr {
        mtime: Some(vfs::SetTime::At(future)),
        ..SetAttr::default()
    };
    scene
        .buffered
        .setattr(file.ino, None, &change)
        .expect("times can be set");
    scene.write(file, 5, b"second");
    assert!(attr(&scene, file).mtime < future);
}

#[test]
fn a_file_that_nobody_looks_at_is_never_asked_for_its_times() {
    let scene = patient();
    let file = scene.create(b"file");
    for index in 0..100 {
        scene.write(file, index * 4096, &[1; RECORD]);
        scene.fsync(file).expect("nothing failed");
    }
    assert_eq!(scene.faults.getattrs(), 0);
}

#[test]
fn setuid_is_gone_as_soon_as_an_ordinary_user_has_written_and_stays_when_set_again() {
    let scene = patient();
    let file = scene.create(b"program");
    let set = |mode| {
        let change = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        scene
            .buffered
            .setattr(file.ino, None, &change)
            .expect("the mode can be set")
            .mode
            & 0o7777
    };
    assert_eq!(set(0o6755), 0o6755);
    attr(&scene, file);
    let mode = WriteMode {
        privileges: Privileges::Kill { gid: caller().gid },
        ..plain(libc::O_RDWR)
    };
    let patch = |at| {
        assert_eq!(
            scene.buffered.write(file.ino, file.handle, at, b"patch", mode),
            Ok(5)
        )
    };
    patch(0);
    attr(&scene, file);
    patch(5);
    assert_eq!(attr(&scene, file).mode & 0o7777, 0o755);
    let entry = scene
        .buffered
        .lookup(Ino::ROOT, b"program")
        .expect("the file is there");
    assert_eq!(entry.attr.mode & 0o7777, 0o755);
    assert_eq!(set(0o4700), 0o4700);
    scene.fsync(file).expect("nothing failed");
    assert_eq!(
        attr(&scene, file).mode & 0o7777,
        0o4700,
        "an older write took the new bit"
    );
}

#[test]
fn file_capabilities_are_gone_as_soon_as_an_ordinary_user_has_written() {
    let scene = patient();
    let file = scene.create(b"program");
    let fs = &scene.buffered;
    for name in [CAPABILITY, b"user.other"] {
        fs.setxattr(file.ino, name, b"value", XattrFlags(0), false)
            .expect("the attribute can be set");
    }
    scene.write(file, 0, b"by root");
    assert_eq!(fs.getxattr(file.ino, CAPABILITY).as_deref(), Ok(&b"value"[..]));
    let mode = WriteMode {
        privileges: Privileges::Kill { gid: 0 },
        ..plain(libc::O_RDWR)
    };
    assert_eq!(fs.write(file.ino, file.handle, 7, b"patched", mode), Ok(7));
    assert_eq!(fs.getxattr(file.ino, CAPABILITY), Err(FsError::NoData));
    assert_eq!(fs.listxattr(file.ino).as_deref(), Ok(&b"user.other\0"[..]));
    assert_eq!(fs.getxattr(file.ino, b"user.other").as_deref(), Ok(&b"value"[..]));
    // The two kinds of writes share no entry, and the full entry is written out by itself.
    assert!(scene.faults.writes().len() <= 1);
    fs.setxattr(file.ino, CAPABILITY, b"new", XattrFlags(0), false)
        .expect("the attribute can be set");
    scene.fsync(file).expect("nothing failed");
    assert_eq!(fs.getxattr(file.ino, CAPABILITY).as_deref(), Ok(&b"new"[..]));
}

#[test]
fn names_and_other_attributes_are_changed_without_writing_out() {
    let scene = patient();
    let file = scene.create(b"file");
    scene.write(file, 0, b"data");
    let fs = &scene.buffered;
    let linked = fs
        .link(file.ino, Ino::ROOT, b"second")
        .expect("a second name can be made");
    // The first attribute query of an open file writes it out.
    assert_eq!(linked.attr.size, 4);
    scene.write(file, 4, b"more");
    let entry = fs
        .link(file.ino, Ino::ROOT, b"third")
        .expect("a third name can be made");
    assert_eq!((entry.attr.size, entry.attr.nlink), (8, 3));
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    let changed = fs.setattr(file.ino, None, &mode).expect("the mode can be set");
    assert_eq!((changed.size, changed.mode & 0o777), (8, 0o600));
    fs.setxattr(file.ino, b"user.name", b"value", XattrFlags(0), false)
        .expect("an attribute can be set");
    let other = scene.open(file.ino);
    scene.release(other);
    assert_eq!(scene.faults.writes().len(), 1);
    assert_eq!(scene.read(file, 0, 100), b"datamore");
}
