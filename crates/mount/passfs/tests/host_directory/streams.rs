//! Long streams that bypass the page cache, mixed with operations that use it.

use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::Command;

use passfs::{PassConfig, PassFs};
use rustix::fs::IFlags;
use rustix::mm::{MapFlags, ProtFlags};
use vfs::{FileSystem, FsError, Ino, OpenFlags, Privileges, WriteMode};

use crate::snapshots::Btrfs;
use crate::source::{PLAIN, Source, daemon, node, write_mode};

const MIB: usize = 1 << 20;
/// Its kind in `statfs`.
const BTRFS: i64 = 0x9123_683e;

/// Memory at an address that is a multiple of 4096, filled with position-dependent bytes.
struct Aligned {
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(length: usize, seed: u64) -> Self {
        let mut room = vec![0; length + 4096];
        let mut random = fastrand::Rng::with_seed(seed);
        random.fill(&mut room);
        let start = room.as_ptr().addr().next_multiple_of(4096) - room.as_ptr().addr();
        Self { room, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.room.len() - 4096 + self.start]
    }
}

/// Handles stream after 1 MiB.
const STREAMING: PassConfig = PassConfig {
    stream_direct_after_bytes: Some(1 << 20),
    write_out_bytes: Some(1 << 19),
    ..PLAIN
};

/// A source with [`STREAMING`] handles, and whether its host has direct I/O.
fn source() -> (Source, bool) {
    let source = Source::with(STREAMING);
    let mut direct = std::fs::OpenOptions::new();
    direct.write(true).create(true).custom_flags(libc::O_DIRECT);
    let offered = direct.open(source.path("probe")).is_ok();
    let is_checksummed = rustix::fs::statfs(source.path("")).unwrap().f_type == BTRFS;
    (source, offered && !is_checksummed)
}

/// Linux makes direct writes of data with checksums through the page cache, and waits for the medium each time.
#[test]
fn a_stream_on_btrfs_is_direct_without_checksums_alone() {
    let folder = tempfile::tempdir().unwrap();
    let Some(btrfs) = Btrfs::on(folder.path()) else {
        return;
    };
    let source = Source::in_folder_with(folder, STREAMING);
    // Detached before its folder is removed.
    let _btrfs = btrfs;
    let data = Aligned::new(4 * MIB, 7);
    let direct_writes = |name: &str| {
        let before = source.fs.counters().direct_writes;
        let file = source.create(name);
        if name == "plain" {
            let file = std::fs::File::open(source.path(name)).unwrap();
            rustix::fs::ioctl_setflags(file, IFlags::NOCOW).unwrap();
        }
        for at in (0..4 * MIB).step_by(MIB) {
            let offset = u64::try_from(at).unwrap();
            source.write(file, offset, &data.bytes()[at..at + MIB]).unwrap();
        }
        assert!(std::fs::read(source.path(name)).unwrap() == data.bytes());
        source.fs.counters().direct_writes - before
    };
    assert_eq!(direct_writes("with checksums"), 0);
    assert_eq!(direct_writes("plain"), 3);
}

#[test]
fn a_stream_goes_past_the_page_cache_and_a_jump_ends_it() {
    let (source, offered) = source();
    let file = source.create("file");
    let data = Aligned::new(8 * MIB, 1);
    let direct_writes = || source.fs.counters().direct_writes;
    let write = |at: usize, length: usize| {
        let offset = u64::try_from(at).unwrap();
        let written = source
            .write(file, offset, &data.bytes()[at..at + length])
            .unwrap();
        assert_eq!(written, length);
    };
    write(0, MIB);
    assert_eq!(direct_writes(), 0, "not yet a stream");
    write(MIB, 2 * MIB);
    assert_eq!(direct_writes(), u64::from(offered));
    write(3 * MIB, 4096);
    assert_eq!(direct_writes(), u64::from(offered), "too small a piece");
    write(5 * MIB, MIB);
    assert_eq!(direct_writes(), u64::from(offered), "a jump");
    write(6 * MIB, 2 * MIB);
    assert_eq!(direct_writes(), 2 * u64::from(offered));
    assert_eq!(
        source.fs.counters().write_outs_started,
        2 + 2 * u64::from(!offered),
        "what went past the cache needs no write-out"
    );
    write(3 * MIB, 2 * MIB);
    assert_eq!(std::fs::read(source.path("file")).unwrap(), data.bytes());
}

/// At a limit that no device reaches every direct write is slow.
#[test]
fn a_stream_that_is_slow_past_the_page_cache_returns_to_it_and_is_written_out_early() {
    let source = Source::with(PassConfig {
        stream_direct_after_bytes: Some(1 << 20),
        stream_direct_rate_min: u64::MAX,
        write_out_bytes: Some(1 << 20),
        ..PLAIN
    });
    let (_, offered) = self::source();
    let file = source.create("file");
    let data = Aligned::new(12 * MIB, 5);
    for at in (0..12 * MIB).step_by(MIB) {
        let offset = u64::try_from(at).unwrap();
        source.write(file, offset, &data.bytes()[at..at + MIB]).unwrap();
    }
    let trials = 4 * u64::from(offered);
    let counters = source.fs.counters();
    assert_eq!(
        (counters.direct_writes, counters.write_outs_started),
        (trials, 12 - trials)
    );
    source.fs.fsync(file.0.ino, file.1, true).unwrap();
    assert!(std::fs::read(source.path("file")).unwrap() == data.bytes());
}

/// The page cache has no advantage for writes that wait for the medium in it, too.
#[test]
fn a_durable_stream_stays_direct_at_any_rate() {
    let source = Source::with(PassConfig {
        stream_direct_after_bytes: Some(1 << 20),
        stream_direct_rate_min: u64::MAX,
        ..PLAIN
    });
    let (_, offered) = self::source();
    let (entry, handle) = source.create("file");
    let data = Aligned::new(8 * MIB, 6);
    let mode = WriteMode {
        flags: OpenFlags(libc::O_WRONLY | libc::O_DSYNC),
        ..write_mode(Privileges::Keep)
    };
    for at in (0..8 * MIB).step_by(MIB) {
        let offset = u64::try_from(at).unwrap();
        let written = source
            .fs
            .write(entry.ino, handle, offset, &data.bytes()[at..at + MIB], mode);
        assert_eq!(written, Ok(MIB));
    }
    assert_eq!(source.fs.counters().direct_writes, 7 * u64::from(offered));
}

#[test]
fn direct_and_cached_writes_are_coherent_for_every_reader() {
    let (source, offered) = source();
    let file = source.create("file");
    let host = std::fs::File::options()
        .read(true)
        .write(true)
        .open(source.path("file"))
        .unwrap();
    let length = 6 * MIB + 1234;
    let data = Aligned::new(length, 2);
    host.set_len(u64::try_from(length).unwrap()).unwrap();
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing; the file keeps its length.
    let map = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            length,
            ProtFlags::READ,
            MapFlags::SHARED,
            host.as_fd(),
            0,
        )
    }
    .unwrap()
    .cast::<u8>();
    let mapped = || -> Vec<u8> {
        (0..length)
            // SAFETY: `at` is within the mapping, which lives until the end of the test.
            .map(|at| unsafe { map.add(at).read_volatile() })
            .collect()
    };
    // The cache holds clean and dirty pages of the range.
    assert!(mapped().iter().all(|byte| *byte == 0));
    host.write_all_at(&[0xaa; 5000], 3 << 20).unwrap();

    source.write(file, 0, &data.bytes()[..MIB]).unwrap();
    source.write(file, 1 << 20, &data.bytes()[MIB..]).unwrap();
    assert_eq!(source.fs.counters().direct_writes, u64::from(offered));
    assert!(mapped() == data.bytes(), "a mapping sees what was written");
    let mut read = vec![0; length];
    host.read_exact_at(&mut read, 0).unwrap();
    assert!(read == data.bytes(), "another descriptor reads what was written");
    assert!(source.read(file, 0, length + 1).unwrap() == data.bytes());

    source.write(file, (2 << 20) + 7, b"over it").unwrap();
    assert_eq!(source.read(file, (2 << 20) + 7, 7).unwrap(), b"over it");
    source.fs.fsync(file.0.ino, file.1, true).unwrap();
    // SAFETY: the mapping was made above with this length, and is no longer read.
    unsafe { rustix::mm::munmap(map.cast(), length) }.unwrap();
}

#[test]
fn a_stream_at_an_odd_offset_writes_head_and_tail_through_the_cache() {
    let (source, offered) = source();
    let file = source.create("file");
    let data = Aligned::new(5 * MIB, 3);
    // Offset and address are both 100 beyond a block, as in a buffer whose entries end at multiples of their size.
    let begin = 100;
    let end = 5 * MIB - 33;
    source.write(file, 0, &data.bytes()[..begin]).unwrap();
    source
        .write(file, 100, &data.bytes()[begin..MIB + begin])
        .unwrap();
    let offset = u64::try_from(MIB + begin).unwrap();
    source
        .write(file, offset, &data.bytes()[MIB + begin..end])
        .unwrap();
    assert_eq!(source.fs.counters().direct_writes, u64::from(offered));
    assert!(std::fs::read(source.path("file")).unwrap() == data.bytes()[..end]);
}

/// An ext4 of 32 MiB on a loop device; unmounted when dropped, also by a panic.
struct SmallMedium {
    directory: tempfile::TempDir,
}

impl SmallMedium {
    /// `None` without root, loop devices or the tools.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let mountpoint = directory.path().join("mounted");
        std::fs::create_dir(&mountpoint).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let mounted = run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image))
            && run(Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&mountpoint));
        mounted.then_some(Self { directory })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
}

impl Drop for SmallMedium {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        drop(unmounted);
    }
}

#[test]
fn a_full_medium_cuts_a_stream_short_then_refuses_it_and_a_removal_behind_the_mount_frees_it() {
    let medium = testkit::needs(&[testkit::Need::Root])
        .then(SmallMedium::new)
        .flatten();
    let Some(medium) = medium else { return };
    let config = PassConfig {
        stream_direct_after_bytes: Some(1 << 20),
        ..PLAIN
    };
    let fs = PassFs::open(&medium.path(), config).unwrap();
    let free_at_first = fs.statfs(Ino::ROOT).unwrap().blocks_free;
    let flags = OpenFlags(libc::O_RDWR | libc::O_EXCL);
    let (entry, opened) = fs
        .create(&daemon(), Ino::ROOT, b"file", node(0o644), flags)
        .unwrap();
    let data = Aligned::new(40 * MIB, 4);
    let mut end = 0;
    let refused = loop {
        let piece = &data.bytes()[end..end + 2 * MIB];
        let offset = u64::try_from(end).unwrap();
        match fs.write(
            entry.ino,
            opened.handle,
            offset,
            piece,
            write_mode(Privileges::Keep),
        ) {
            Ok(0) => panic!("neither written nor refused"),
            Ok(written) => end += written,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, FsError::NoSpace);
    assert!(fs.counters().direct_writes > 0);
    fs.fsync(entry.ino, opened.handle, false).unwrap();
    assert!(std::fs::read(medium.path().join("file")).unwrap() == data.bytes()[..end]);

    fs.release(entry.ino, opened.handle);
    std::fs::remove_file(medium.path().join("file")).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.statfs(Ino::ROOT).unwrap().blocks_free, free_at_first);
    assert_eq!(fs.getattr(entry.ino, None), Err(FsError::Stale));
    drop(fs);
}
