//! Removed files: their space must be freed, and calls on them must keep working while they are open.

use vfs::{FileSystem, FsError, Ino, NewNode, OpenFlags, Privileges, RenameFlags, SetAttr, XattrFlags};

use crate::source::{Source, daemon, node};

/// Descriptors of this process that keep a removed file of `source` alive.
fn pinned(source: &Source) -> usize {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    names
        .filter_map(|name| std::fs::read_link(name.ok()?.path()).ok())
        .filter(|target| target.starts_with(source.path("")))
        .filter(|target| target.as_os_str().to_string_lossy().ends_with(" (deleted)"))
        .count()
}

#[test]
fn a_file_removed_behind_the_mount_keeps_no_space() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let (created, handle) = source.create("created");
    source.fs.release(created.ino, handle);
    std::fs::write(source.path("found"), "content").unwrap();
    let found = source.lookup("found").unwrap();
    let opened = source
        .fs
        .open(found.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    source.fs.release(found.ino, opened.handle);
    std::os::unix::fs::symlink("nowhere", source.path("link")).unwrap();
    let link = source.lookup("link").unwrap();
    assert_eq!(source.fs.readlink(link.ino).unwrap(), b"nowhere");

    for name in ["created", "found", "link"] {
        std::fs::remove_file(source.path(name)).unwrap();
    }
    assert_eq!(pinned(&source), 0);
    for ino in [created.ino, found.ino, link.ino] {
        assert_eq!(source.fs.getattr(ino, None), Err(FsError::Stale));
    }
    assert_eq!(
        source
            .fs
            .open(found.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
            .err(),
        Some(FsError::Stale)
    );
}

#[test]
fn ten_thousand_known_files_take_no_descriptors() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    let before = source.descriptors();
    let entries: Vec<_> = (0..10_000)
        .map(|number| {
            let name = number.to_string();
            std::fs::write(source.path(&name), "").unwrap();
            source.lookup(&name).unwrap()
        })
        .collect();
    assert_eq!(source.fs.counters().inodes_held, 10_001);
    assert_eq!(source.descriptors(), before);
    for (number, entry) in entries.iter().enumerate() {
        assert_eq!(source.lookup(&number.to_string()).unwrap().ino, entry.ino);
        source.fs.forget(entry.ino, 2);
    }
    assert_eq!(source.fs.counters().inodes_held, 1);
}

#[test]
fn an_open_file_without_a_name_works_until_its_last_handle_is_released() {
    let source = Source::new();
    let (entry, first) = source.create("file");
    source.fs.unlink(&daemon(), Ino::ROOT, b"file").unwrap();
    source.write((entry, first), 0, b"0123456789").unwrap();

    assert_eq!(source.fs.getattr(entry.ino, None).unwrap().nlink, 0);
    let change = SetAttr {
        size: Some(5),
        mode: Some(0o600),
        ..Default::default()
    };
    let attr = source.fs.setattr(entry.ino, None, &change).unwrap();
    assert_eq!((attr.size, attr.mode & 0o777), (5, 0o600));
    source
        .fs
        .setxattr(entry.ino, b"user.x", b"value", XattrFlags(0), false)
        .unwrap();
    assert_eq!(source.fs.getxattr(entry.ino, b"user.x").unwrap(), b"value");

    let second = source
        .fs
        .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    source.fs.release(entry.ino, first);
    assert_eq!(source.fs.getattr(entry.ino, None).unwrap().size, 5);
    assert_eq!(source.read((entry, second.handle), 0, 100).unwrap(), b"01234");
    source.fs.release(entry.ino, second.handle);
    if testkit::needs(&[testkit::Need::Root]) {
        assert_eq!(source.fs.getattr(entry.ino, None), Err(FsError::Stale));
    }
}

#[test]
fn a_fifo_without_a_name_stays_reachable() {
    let source = Source::new();
    let fifo = NewNode {
        mode: libc::S_IFIFO | 0o600,
        ..node(0)
    };
    let entry = source.fs.mknod(&daemon(), Ino::ROOT, b"fifo", fifo).unwrap();
    source.fs.unlink(&daemon(), Ino::ROOT, b"fifo").unwrap();
    assert_eq!(source.fs.getattr(entry.ino, None).unwrap().nlink, 0);
}

#[test]
fn a_file_keeps_its_inode_when_it_is_renamed_or_linked() {
    let source = Source::new();
    std::fs::write(source.path("one"), "content").unwrap();
    let entry = source.lookup("one").unwrap();
    source
        .fs
        .rename(
            &daemon(),
            (Ino::ROOT, b"one"),
            (Ino::ROOT, b"two"),
            RenameFlags(0),
        )
        .unwrap();
    assert_eq!(source.lookup("two").unwrap().ino, entry.ino);
    let linked = source.fs.link(entry.ino, Ino::ROOT, b"three").unwrap();
    assert_eq!((linked.ino, linked.attr.nlink), (entry.ino, 2));
    std::fs::remove_file(source.path("two")).unwrap();
    assert_eq!(source.fs.getattr(entry.ino, None).unwrap().nlink, 1);
    assert_eq!(source.lookup("three").unwrap().ino, entry.ino);
}

#[test]
fn a_lookup_during_an_exchange_of_names_finds_one_file_or_the_other() {
    let source = Source::new();
    std::fs::write(source.path("one"), "1").unwrap();
    std::fs::write(source.path("two"), "22").unwrap();
    let (one, two) = (source.path("one"), source.path("two"));
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, exchange).unwrap();
            }
        });
        for round in 0..20_000 {
            let entry = source.lookup("one").unwrap();
            let size = source.fs.getattr(entry.ino, None).unwrap().size;
            assert_eq!(size, entry.attr.size, "round {round}");
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(source.fs.counters().inodes_held, 3);
}
