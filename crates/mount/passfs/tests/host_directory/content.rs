//! Content of files: offsets, holes, space, copies, attributes that go with them.

use passfs::PassConfig;
use vfs::{
    CopyRange, FallocateMode, FileSystem, FsError, Ino, OpenFlags, Privileges, SeekFrom, SetAttr, SetTime,
    Timestamp, XattrFlags,
};

use crate::source::{PLAIN, Source, daemon};

const FOUR_GIB: u64 = 4 << 30;

#[test]
fn an_unlinked_open_file_stays_readable_and_writable() {
    let source = Source::new();
    let file = source.create("file");
    source.write(file, 0, b"before").unwrap();
    source.fs.unlink(&daemon(), Ino::ROOT, b"file").unwrap();
    source.write(file, 6, b" after").unwrap();
    assert_eq!(source.read(file, 0, 100).unwrap(), b"before after");
    assert_eq!(source.fs.getattr(file.0.ino, Some(file.1)).unwrap().nlink, 0);
    let again = source
        .fs
        .open(file.0.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)
        .unwrap();
    assert_eq!(source.read((file.0, again.handle), 0, 6).unwrap(), b"before");
}

#[test]
fn offsets_beyond_four_gib_are_kept() {
    let source = Source::new();
    let file = source.create("file");
    source.write(file, FOUR_GIB + 5, b"far").unwrap();
    assert_eq!(source.fs.getattr(file.0.ino, None).unwrap().size, FOUR_GIB + 8);
    assert_eq!(source.read(file, FOUR_GIB + 3, 100).unwrap(), b"\0\0far");
    assert_eq!(source.read(file, FOUR_GIB + 8, 100).unwrap(), b"");
}

#[test]
fn data_and_holes_are_found() {
    let source = Source::new();
    let file = source.create("file");
    source.write(file, 1 << 20, &[1; 4096]).unwrap();
    let seek = |from| source.fs.lseek(file.0.ino, file.1, from);
    assert_eq!(seek(SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
    assert_eq!(seek(SeekFrom::Data((1 << 20) + 4096)), Err(FsError::NoSuchDevice));
}

#[test]
fn space_can_be_allocated_and_punched() {
    let source = Source::new();
    let file = source.create("file");
    source.write(file, 0, &[7; 16384]).unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    source
        .fs
        .fallocate(
            file.0.ino,
            file.1,
            FallocateMode(punch),
            4096,
            4096,
            Privileges::Keep,
        )
        .unwrap();
    assert_eq!(source.read(file, 4095, 3).unwrap(), [7, 0, 0]);
    assert_eq!(source.fs.lseek(file.0.ino, file.1, SeekFrom::Hole(0)), Ok(4096));
    source
        .fs
        .fallocate(file.0.ino, file.1, FallocateMode(0), 0, 1 << 20, Privileges::Keep)
        .unwrap();
    assert_eq!(source.fs.getattr(file.0.ino, None).unwrap().size, 1 << 20);
    let senseless = source.fs.fallocate(
        file.0.ino,
        file.1,
        FallocateMode(libc::FALLOC_FL_PUNCH_HOLE),
        0,
        4096,
        Privileges::Keep,
    );
    assert_eq!(senseless, Err(FsError::NotSupported));
}

#[test]
fn ranges_are_copied_between_files() {
    let source = Source::new();
    let (from, to) = (source.create("from"), source.create("to"));
    source.write(from, 0, b"0123456789").unwrap();
    let copy = CopyRange {
        source: (from.0.ino, from.1),
        source_offset: 2,
        target: (to.0.ino, to.1),
        target_offset: 1,
        length: u64::MAX >> 1,
        privileges: Privileges::Keep,
    };
    assert_eq!(source.fs.copy_file_range(&copy), Ok(8));
    assert_eq!(source.read(to, 0, 100).unwrap(), b"\x0023456789");
}

#[test]
fn a_write_appends_or_goes_direct_by_its_own_flags_and_not_by_those_of_the_open() {
    let source = Source::new();
    let (entry, handle) = source.create("file");
    source.write((entry, handle), 0, b"abcdef").unwrap();
    let flags = OpenFlags(libc::O_WRONLY | libc::O_APPEND | libc::O_DIRECT | libc::O_NOATIME);
    let opened = source.fs.open(entry.ino, flags, Privileges::Keep).unwrap();
    source.write((entry, opened.handle), 1, b"X").unwrap();
    assert_eq!(source.read((entry, opened.handle), 0, 100).unwrap(), b"aXcdef");
}

#[test]
fn truncation_works_with_and_without_a_handle() {
    let source = Source::new();
    let file = source.create("file");
    source.write(file, 0, b"0123456789").unwrap();
    let size = |size| SetAttr {
        size: Some(size),
        ..Default::default()
    };
    assert_eq!(
        source
            .fs
            .setattr(file.0.ino, Some(file.1), &size(5))
            .unwrap()
            .size,
        5
    );
    assert_eq!(source.fs.setattr(file.0.ino, None, &size(7)).unwrap().size, 7);
    assert_eq!(source.read(file, 0, 100).unwrap(), b"01234\0\0");
    assert_eq!(
        source.fs.setattr(Ino::ROOT, None, &size(7)).err(),
        Some(FsError::IsADirectory)
    );
    source
        .fs
        .open(
            file.0.ino,
            OpenFlags(libc::O_WRONLY | libc::O_TRUNC),
            Privileges::Keep,
        )
        .unwrap();
    assert_eq!(source.fs.getattr(file.0.ino, None).unwrap().size, 0);
}

#[test]
fn times_are_set_also_before_the_epoch_and_on_symbolic_links() {
    let source = Source::new();
    let (file, _) = source.create("file");
    let old = Timestamp {
        seconds: -5,
        nanoseconds: 500_000_000,
    };
    let change = SetAttr {
        mtime: Some(SetTime::At(old)),
        ..Default::default()
    };
    let attr = source.fs.setattr(file.ino, None, &change).unwrap();
    assert_eq!((attr.mtime, attr.atime), (old, file.attr.atime));
    let link = source
        .fs
        .symlink(&daemon(), Ino::ROOT, b"link", b"nowhere")
        .unwrap();
    assert_eq!(source.fs.setattr(link.ino, None, &change).unwrap().mtime, old);
    let now = SetAttr {
        mtime: Some(SetTime::Now),
        ..Default::default()
    };
    assert!(source.fs.setattr(file.ino, None, &now).unwrap().mtime > file.attr.btime.unwrap_or(old));
}

#[test]
fn extended_attributes_of_all_sizes_come_back() {
    let source = Source::new();
    let (file, _) = source.create("file");
    for length in [0, 1, 600, 3000] {
        let value = vec![0xa5; length];
        source
            .fs
            .setxattr(file.ino, b"user.x", &value, XattrFlags(0), false)
            .unwrap();
        assert_eq!(source.fs.getxattr(file.ino, b"user.x").unwrap(), value);
    }
    assert!(
        source
            .fs
            .listxattr(file.ino)
            .unwrap()
            .windows(7)
            .any(|name| name == b"user.x\0")
    );
    let create = source
        .fs
        .setxattr(file.ino, b"user.x", b"", XattrFlags(libc::XATTR_CREATE), false);
    assert_eq!(create, Err(FsError::Exists));
    source.fs.removexattr(file.ino, b"user.x").unwrap();
    assert_eq!(source.fs.getxattr(file.ino, b"user.x"), Err(FsError::NoData));
}

#[test]
fn a_symbolic_link_has_extended_attributes_of_its_own() {
    let source = Source::new();
    std::fs::write(source.path("target"), b"").unwrap();
    let link = source
        .fs
        .symlink(&daemon(), Ino::ROOT, b"link", b"target")
        .unwrap();
    let refused = source
        .fs
        .setxattr(link.ino, b"user.x", b"1", XattrFlags(0), false);
    assert_eq!(refused, Err(FsError::NotPermitted));
    if testkit::needs(&[testkit::Need::Root]) {
        source
            .fs
            .setxattr(link.ino, b"trusted.x", b"1", XattrFlags(0), false)
            .unwrap();
        assert_eq!(source.fs.getxattr(link.ino, b"trusted.x").unwrap(), b"1");
        let target = source.lookup("target").unwrap();
        assert_eq!(source.fs.getxattr(target.ino, b"trusted.x"), Err(FsError::NoData));
    }
}

#[test]
fn inode_flags_are_read_and_set_on_files_and_directories() {
    /// `FS_NODUMP_FL`: the owner may set it, and it has no other effect.
    const NODUMP: u32 = 0x40;
    let source = Source::new();
    let file = source.create("file");
    let directory = source.fs.opendir(Ino::ROOT).unwrap();
    for (ino, handle) in [(file.0.ino, file.1), (Ino::ROOT, directory)] {
        source
            .fs
            .ioctl(ino, handle, 0x4008_6602, &NODUMP.to_ne_bytes(), 0)
            .unwrap();
        let reply = source.fs.ioctl(ino, handle, 0x8008_6601, &[], 4).unwrap();
        let flags = u32::from_ne_bytes(reply.data.try_into().unwrap());
        assert_eq!(flags & NODUMP, NODUMP);
        assert_eq!(
            source
                .fs
                .ioctl(ino, handle, 0x801c_581f, &[], 28)
                .unwrap()
                .data
                .len(),
            28
        );
        assert_eq!(
            source.fs.ioctl(ino, handle, 0x5401, &[], 64).err(),
            Some(FsError::NotATerminal)
        );
    }
}

#[test]
fn a_released_handle_is_refused_also_after_its_slot_was_taken_again() {
    let source = Source::new();
    let first = source.create("first");
    source.fs.release(first.0.ino, first.1);
    for number in 0..20 {
        source.create(&number.to_string());
    }
    assert_eq!(source.read(first, 0, 1).err(), Some(FsError::BadHandle));
    assert_eq!(source.fs.counters().open_handles, 20);
}

#[test]
fn the_backing_file_is_offered_only_where_it_was_asked_for() {
    use std::os::fd::AsFd;
    let source = Source::with(PassConfig {
        offer_backing: true,
        ..PLAIN
    });
    let file = source.create("file");
    let backing = source.fs.backing_file(file.0.ino, file.1).unwrap();
    rustix::io::pwrite(backing.as_fd(), b"direct", 0).unwrap();
    assert_eq!(source.read(file, 0, 100).unwrap(), b"direct");
    let plain = Source::new();
    let file = plain.create("file");
    assert!(plain.fs.backing_file(file.0.ino, file.1).is_none());
}

#[test]
fn write_out_starts_after_the_bytes_that_were_asked_for_and_everything_is_counted() {
    let source = Source::with(PassConfig {
        write_out_bytes: Some(8192),
        ..PLAIN
    });
    let file = source.create("file");
    for block in 0..6 {
        source.write(file, block * 4096, &[3; 4096]).unwrap();
    }
    source.read(file, 0, 100).unwrap();
    source.fs.fsync(file.0.ino, file.1, true).unwrap();
    let counters = source.fs.counters();
    assert_eq!(
        (
            counters.writes,
            counters.written_bytes,
            counters.write_outs_started
        ),
        (6, 24576, 3)
    );
    assert_eq!(
        (counters.reads, counters.read_bytes, counters.fsyncs),
        (1, 100, 1)
    );
}

#[test]
fn space_is_reported_as_the_host_does() {
    let source = Source::new();
    let shown = source.fs.statfs(Ino::ROOT).unwrap();
    let host = rustix::fs::statvfs(source.path("")).unwrap();
    assert_eq!((shown.blocks, shown.files), (host.f_blocks, host.f_files));
    assert_eq!(u64::from(shown.name_max), host.f_namemax);
    source.fs.sync().unwrap();
}
