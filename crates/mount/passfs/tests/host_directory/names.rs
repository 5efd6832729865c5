//! Names: bytes, links, renames, removal, and names outside the source.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use vfs::{FileKind, FileSystem, FsError, Ino, NewNode, OpenFlags, Privileges, RenameFlags};

use crate::source::{PLAIN, Source, daemon, node};

#[test]
fn a_name_may_hold_any_bytes() {
    let source = Source::new();
    let name: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let made = source.fs.mkdir(&daemon(), Ino::ROOT, &name, node(0o755)).unwrap();
    let found = source.fs.lookup(Ino::ROOT, &name).unwrap();
    assert_eq!(made.ino, found.ino);
    assert!(source.path("").join(std::ffi::OsStr::from_bytes(&name)).is_dir());
}

#[test]
fn a_name_longer_than_the_host_takes_is_refused() {
    let source = Source::new();
    assert_eq!(
        source.fs.lookup(Ino::ROOT, &[b'x'; 256]).err(),
        Some(FsError::NameTooLong)
    );
    assert_eq!(
        source.fs.lookup(Ino::ROOT, &[b'x'; 5000]).err(),
        Some(FsError::NameTooLong)
    );
}

#[test]
fn hard_links_of_one_file_have_one_inode() {
    let source = Source::new();
    let (entry, _) = source.create("one");
    let linked = source.fs.link(entry.ino, Ino::ROOT, b"two").unwrap();
    assert_eq!((linked.ino, linked.attr.nlink), (entry.ino, 2));
    assert_eq!(source.lookup("two").unwrap().ino, entry.ino);
    std::fs::hard_link(source.path("one"), source.path("three")).unwrap();
    assert_eq!(source.lookup("three").unwrap().ino, entry.ino);
}

#[test]
fn a_symbolic_link_can_be_linked_and_is_not_followed() {
    let source = Source::new();
    let made = source
        .fs
        .symlink(&daemon(), Ino::ROOT, b"link", b"/etc/passwd")
        .unwrap();
    assert_eq!(made.attr.kind(), FileKind::Symlink);
    assert_eq!(source.fs.readlink(made.ino).unwrap(), b"/etc/passwd");
    let second = source.fs.link(made.ino, Ino::ROOT, b"second").unwrap();
    assert_eq!((second.ino, second.attr.kind()), (made.ino, FileKind::Symlink));
    let opened = source
        .fs
        .open(made.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep);
    assert_eq!(opened.err(), Some(FsError::TooManySymlinks));
}

#[test]
fn the_root_has_no_parent() {
    let source = Source::new();
    assert_eq!(source.lookup("..").unwrap().ino, Ino::ROOT);
    assert_eq!(source.lookup(".").unwrap().ino, Ino::ROOT);
}

#[test]
fn the_parent_of_a_directory_is_found_unless_it_left_the_source() {
    let source = Source::new();
    std::fs::create_dir_all(source.path("a/b")).unwrap();
    let a = source.lookup("a").unwrap();
    let b = source.fs.lookup(a.ino, b"b").unwrap();
    assert_eq!(source.fs.lookup(b.ino, b"..").unwrap().ino, a.ino);
    assert_eq!(source.fs.lookup(a.ino, b"..").unwrap().ino, Ino::ROOT);

    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::rename(source.path("a/b"), elsewhere.path().join("b")).unwrap();
    assert_eq!(source.fs.lookup(b.ino, b"..").err(), Some(FsError::Stale));
}

#[test]
fn a_rename_can_exchange_and_can_refuse_to_replace() {
    let source = Source::new();
    let one = source.create("one").0.ino;
    let two = source.create("two").0.ino;
    let rename = |flags| {
        source.fs.rename(
            &daemon(),
            (Ino::ROOT, b"one"),
            (Ino::ROOT, b"two"),
            RenameFlags(flags),
        )
    };
    assert_eq!(rename(libc::RENAME_NOREPLACE), Err(FsError::Exists));
    rename(libc::RENAME_EXCHANGE).unwrap();
    assert_eq!(
        (
            source.lookup("one").unwrap().ino,
            source.lookup("two").unwrap().ino
        ),
        (two, one)
    );
    rename(0).unwrap();
    assert_eq!(source.lookup("one").err(), Some(FsError::NotFound));
    assert_eq!(source.lookup("two").unwrap().ino, two);
}

#[test]
fn a_rename_can_leave_a_whiteout() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    source.create("one");
    let flags = RenameFlags(libc::RENAME_WHITEOUT);
    source
        .fs
        .rename(&daemon(), (Ino::ROOT, b"one"), (Ino::ROOT, b"two"), flags)
        .unwrap();
    let left = std::fs::symlink_metadata(source.path("one")).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0);
}

#[test]
fn special_files_are_made_with_their_numbers() {
    let source = Source::new();
    let fifo = NewNode {
        mode: libc::S_IFIFO | 0o600,
        umask: 0,
        rdev: 0,
    };
    let made = source.fs.mknod(&daemon(), Ino::ROOT, b"fifo", fifo).unwrap();
    assert_eq!(made.attr.kind(), FileKind::Fifo);
    assert_eq!(
        source
            .fs
            .open(made.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
            .err(),
        Some(FsError::NotSupported)
    );
    if testkit::needs(&[testkit::Need::Root]) {
        // Major 259, minor 4660 in the kernel's 32-bit encoding.
        let rdev = 0x0011_0334;
        let device = NewNode {
            mode: libc::S_IFBLK | 0o600,
            umask: 0,
            rdev,
        };
        let made = source.fs.mknod(&daemon(), Ino::ROOT, b"device", device).unwrap();
        assert_eq!((made.attr.kind(), made.attr.rdev), (FileKind::BlockDevice, rdev));
    }
}

#[test]
fn removing_needs_the_right_kind_and_an_empty_directory() {
    let source = Source::new();
    source.create("file");
    std::fs::create_dir_all(source.path("full/inner")).unwrap();
    assert_eq!(
        source.fs.rmdir(&daemon(), Ino::ROOT, b"file"),
        Err(FsError::NotADirectory)
    );
    assert_eq!(
        source.fs.unlink(&daemon(), Ino::ROOT, b"full"),
        Err(FsError::IsADirectory)
    );
    assert_eq!(
        source.fs.rmdir(&daemon(), Ino::ROOT, b"full"),
        Err(FsError::NotEmpty)
    );
    source.fs.unlink(&daemon(), Ino::ROOT, b"file").unwrap();
    assert_eq!(source.lookup("file").err(), Some(FsError::NotFound));
}

#[test]
fn a_file_replaced_behind_the_mount_gets_another_inode() {
    let source = Source::new();
    let (before, _handle) = source.create("file");
    std::fs::write(source.path("other"), b"x").unwrap();
    std::fs::rename(source.path("other"), source.path("file")).unwrap();
    let after = source.lookup("file").unwrap();
    assert_ne!(before.ino, after.ino);
    assert_eq!(
        source.fs.getattr(before.ino, None).unwrap().nlink,
        0,
        "the old one is still open"
    );
}

#[test]
fn forgotten_inodes_give_their_descriptors_back() {
    let source = Source::new();
    let idle = source.descriptors();
    for number in 0..50 {
        std::fs::create_dir(source.path(&number.to_string())).unwrap();
    }
    let entries: Vec<_> = (0..50)
        .map(|number| source.lookup(&number.to_string()).unwrap())
        .collect();
    assert_eq!(source.descriptors(), idle + 50);
    assert_eq!(source.fs.counters().inodes_held, 51);
    for entry in &entries {
        source.fs.forget(entry.ino, 1);
    }
    assert_eq!(source.descriptors(), idle);
    assert_eq!(
        source.fs.getattr(entries[0].ino, None).err(),
        Some(FsError::Stale)
    );
}

#[test]
fn a_failed_call_keeps_no_descriptor() {
    let source = Source::new();
    source.create("file");
    let before = (source.descriptors(), source.fs.counters());
    assert!(source.lookup("missing").is_err());
    assert!(
        source
            .fs
            .mkdir(&daemon(), Ino::ROOT, b"file", node(0o755))
            .is_err()
    );
    assert!(source.create_as(&daemon(), Ino::ROOT, "file", 0o644).is_err());
    let missing = source
        .fs
        .rename(&daemon(), (Ino::ROOT, b"no"), (Ino::ROOT, b"yes"), RenameFlags(0));
    assert_eq!(missing, Err(FsError::NotFound));
    assert_eq!((source.descriptors(), source.fs.counters()), before);
}

#[test]
fn create_opens_nothing_that_is_there() {
    let source = Source::new();
    std::fs::write(source.path("file"), b"content").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", source.path("link")).unwrap();
    let before = source.descriptors();
    for name in [&b"file"[..], b"link"] {
        let flags = OpenFlags(libc::O_RDWR | libc::O_TRUNC);
        let met = source.fs.create(&daemon(), Ino::ROOT, name, node(0o600), flags);
        assert_eq!(met.err(), Some(FsError::Stale));
    }
    assert_eq!(source.descriptors(), before);
    assert_eq!(std::fs::read(source.path("file")).unwrap(), b"content");
}

#[test]
fn an_unnamed_file_can_be_given_a_name() {
    let source = Source::new();
    let flags = OpenFlags(libc::O_RDWR);
    let (entry, opened) = source
        .fs
        .tmpfile(&daemon(), Ino::ROOT, node(0o640), flags)
        .unwrap();
    assert_eq!(entry.attr.nlink, 0);
    source.write((entry, opened.handle), 0, b"kept").unwrap();
    source.fs.link(entry.ino, Ino::ROOT, b"named").unwrap();
    assert_eq!(std::fs::read(source.path("named")).unwrap(), b"kept");

    let flags = OpenFlags(libc::O_RDWR | libc::O_EXCL);
    let (private, _) = source
        .fs
        .tmpfile(&daemon(), Ino::ROOT, node(0o640), flags)
        .unwrap();
    assert_eq!(
        source.fs.link(private.ino, Ino::ROOT, b"never").err(),
        Some(FsError::NotFound)
    );
}

#[test]
fn a_read_only_source_answers_each_change_with_read_only() {
    let source = Source::with(passfs::PassConfig {
        read_only: true,
        ..PLAIN
    });
    std::fs::write(source.path("file"), b"content").unwrap();
    let entry = source.lookup("file").unwrap();
    let refused = Some(FsError::ReadOnly);
    assert_eq!(
        source.create_as(&daemon(), Ino::ROOT, "new", 0o644).err(),
        refused
    );
    assert_eq!(
        source.fs.mkdir(&daemon(), Ino::ROOT, b"new", node(0o755)).err(),
        refused
    );
    assert_eq!(
        source.fs.symlink(&daemon(), Ino::ROOT, b"new", b"x").err(),
        refused
    );
    assert_eq!(source.fs.unlink(&daemon(), Ino::ROOT, b"file").err(), refused);
    assert_eq!(source.fs.link(entry.ino, Ino::ROOT, b"new").err(), refused);
    assert_eq!(
        source
            .fs
            .open(entry.ino, OpenFlags(libc::O_WRONLY), Privileges::Keep)
            .err(),
        refused
    );
    assert_eq!(
        source
            .fs
            .open(entry.ino, OpenFlags(libc::O_TRUNC), Privileges::Keep)
            .err(),
        refused
    );
    let change = vfs::SetAttr {
        mode: Some(0o600),
        ..Default::default()
    };
    assert_eq!(source.fs.setattr(entry.ino, None, &change).err(), refused);
    assert_eq!(source.fs.removexattr(entry.ino, b"user.x").err(), refused);
    let opened = source
        .fs
        .open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    assert_eq!(source.read((entry, opened.handle), 0, 9).unwrap(), b"content");
}
