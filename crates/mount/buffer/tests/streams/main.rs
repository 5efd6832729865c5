//! Size, number and time of the writes below: coalescing, intervals, bounds, order.

mod appending;
mod host_directory;
#[path = "../scene/mod.rs"]
mod scene;

use std::sync::Arc;
use std::time::{Duration, Instant};

use buffer::{BufferConfig, Flusher};
use scene::{File, NEVER, Scene, small};
use testkit::contract::plain;
use vfs::{FileSystem, FsError, Ino, Privileges, WriteMode};

const MIB: u64 = 1 << 20;
/// Limit for events that take milliseconds: reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(20);

fn write_in_records(scene: &Scene, file: File, bytes: u64, record: usize) {
    let data = vec![0x5A; record];
    let mut offset = 0;
    while offset < bytes {
        scene.write(file, offset, &data);
        offset += u64::try_from(record).expect("a short record");
    }
}

#[test]
fn a_stream_in_512_kib_records_goes_down_in_whole_entries_of_2_mib() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(BufferConfig {
            flush_interval: NEVER,
            flusher,
            ..BufferConfig::default()
        });
        let file = scene.create(b"stream");
        write_in_records(&scene, file, 64 * MIB, 512 << 10);
        scene.fsync(file).expect("nothing failed");
        let writes = scene.faults.writes();
        assert_eq!(writes.len(), 32, "{flusher} flusher");
        assert!(
            writes.iter().all(|write| write.bytes == 2 << 20),
            "{flusher} flusher"
        );
        let stats = scene.buffered.stats();
        assert_eq!(
            (stats.writes_accepted, stats.backing_writes, stats.flushes.full),
            (128, 32, 32)
        );
    }
}

#[test]
fn the_same_stream_goes_down_record_by_record_without_a_buffer() {
    let scene = Scene::new(BufferConfig {
        flusher: Flusher::Off,
        ..BufferConfig::default()
    });
    let file = scene.create(b"stream");
    write_in_records(&scene, file, 8 * MIB, 512 << 10);
    assert_eq!(scene.faults.writes().len(), 16);
}

#[test]
fn a_stream_that_starts_anywhere_is_aligned_from_its_second_entry_on() {
    let scene = Scene::new(small(Flusher::Inline, NEVER));
    let file = scene.create(b"stream");
    for index in 0..50 {
        scene.write(file, 100 + index * 1000, &[1; 1000]);
    }
    let ends: Vec<u64> = scene
        .faults
        .writes()
        .iter()
        .map(|write| write.offset + u64::try_from(write.bytes).unwrap())
        .collect();
    assert_eq!(ends, [16 << 10, 32 << 10, 48 << 10]);
}

#[test]
fn a_write_larger_than_the_whole_buffer_is_taken_and_kept() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let file = scene.create(b"large");
        let data = testkit::prng::Prng::new(5).bytes(300_000);
        scene.write(file, 7, &data);
        assert!(scene.read(file, 7, 300_000) == data);
        assert!(scene.buffered.stats().bytes_buffered_max <= 64 << 10);
    }
}

#[test]
fn data_that_nobody_touches_goes_down_by_itself_after_the_interval() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(BufferConfig {
            flusher,
            ..BufferConfig::default()
        });
        for round in 0..2 {
            let file = scene.create(format!("left alone {round}").as_bytes());
            scene.write(file, 0, b"a little");
            assert!(
                scene.faults.wait_for_writes(round + 1, LIMIT),
                "{flusher} flusher, still buffered: {:?}",
                scene.buffered.stats()
            );
            scene.fsync(file).expect("nothing failed");
        }
        assert_eq!(scene.buffered.stats().flushes.interval, 2, "{flusher} flusher");
    }
}

/// The papers' variant without a flush thread.
#[test]
fn with_the_inline_flusher_writers_write_out_what_they_fill_themselves() {
    let scene = Scene::new(BufferConfig {
        flush_interval: NEVER,
        flusher: Flusher::Inline,
        ..BufferConfig::default()
    });
    let file = scene.create(b"stream");
    write_in_records(&scene, file, 16 * MIB, 512 << 10);
    let writes = scene.faults.writes();
    let own = std::thread::current().id();
    assert!(writes.len() == 8 && writes.iter().all(|write| write.thread == own));
}

#[test]
fn an_entry_that_never_stops_growing_goes_down_all_the_same() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(BufferConfig {
            flusher,
            ..BufferConfig::default()
        });
        let file = scene.create(b"log");
        let started = Instant::now();
        let mut offset = 0;
        // Appending byte by byte never fills 2 MiB within eight intervals of 10 ms in a test build.
        while scene.faults.writes().is_empty() {
            assert!(
                started.elapsed() < LIMIT,
                "still buffered: {:?}",
                scene.buffered.stats()
            );
            scene.write(file, offset, b"x");
            offset += 1;
        }
        assert!(scene.buffered.stats().flushes.interval >= 1);
    }
}

/// A busy machine does not schedule a writer, or the throttle of the source holds it back, for longer than an entry may
/// be idle.
#[test]
fn a_stream_that_pauses_briefly_is_not_split() {
    let interval = Duration::from_millis(500);
    let scene = Scene::new(BufferConfig {
        flush_interval: interval,
        ..BufferConfig::default()
    });
    let file = scene.create(b"stream");
    let half = vec![7; 1 << 20];
    for number in 0..3 {
        scene.write(file, number * MIB, &half);
    }
    // An entry that is idle for two intervals is written out at the third check at the latest.
    scene.faults.wait_for_writes(2, interval * 4);
    assert_eq!(scene.faults.writes().len(), 1, "the second entry is half full");
    scene.write(file, 3 * MIB, &half);
    assert!(scene.faults.wait_for_writes(2, LIMIT));
    // Its end is passed on all the same.
    scene.write(file, 4 * MIB, &half);
    assert!(scene.faults.wait_for_writes(3, LIMIT));
    let lengths: Vec<_> = scene.faults.writes().iter().map(|write| write.bytes).collect();
    assert_eq!(lengths, [2 << 20, 2 << 20, 1 << 20]);
    assert_eq!(scene.buffered.stats().flushes.interval, 1);
}

#[test]
fn the_inline_flusher_writes_overdue_entries_at_the_next_write_to_any_file() {
    let scene = Scene::new(small(Flusher::Inline, Duration::from_millis(1)));
    let (idle, busy) = (scene.create(b"idle"), scene.create(b"busy"));
    scene.write(idle, 0, b"forgotten");
    let started = Instant::now();
    let mut offset = 0;
    while !scene.faults.writes().iter().any(|write| write.ino == idle.ino) {
        assert!(started.elapsed() < LIMIT, "still buffered");
        scene.write(busy, offset, b"x");
        offset += 1;
    }
}

#[test]
fn the_manager_does_not_wake_while_nothing_is_buffered() {
    let scene = Scene::new(small(Flusher::Thread, Duration::from_millis(1)));
    let file = scene.create(b"file");
    let rounds = || scene.buffered.stats().manager_rounds;
    let pause = |ms| {
        scene
            .faults
            .wait_for_writes(usize::MAX, Duration::from_millis(ms))
    };
    for round in 0..2 {
        scene.write(file, round, b"x");
        assert!(
            scene
                .faults
                .wait_for_writes(usize::try_from(round).unwrap() + 1, LIMIT)
        );
        let started = Instant::now();
        let mut before = rounds();
        while {
            pause(60);
            rounds() != before
        } {
            assert!(started.elapsed() < LIMIT, "the manager never sleeps");
            before = rounds();
        }
        pause(100);
        assert_eq!(rounds(), before, "woke up although nothing is buffered");
    }
}

#[test]
fn writers_wait_when_the_buffer_is_full_and_memory_stays_bounded() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let files = [scene.create(b"a"), scene.create(b"b")];
        scene.faults.close_gate();
        std::thread::scope(|scope| {
            for file in files {
                let scene = &scene;
                scope.spawn(move || write_in_records(scene, file, 512 << 10, 4096));
            }
            assert!(scene.faults.wait_at_gate(1, LIMIT), "nothing is being written");
            let started = Instant::now();
            while flusher == Flusher::Thread && scene.buffered.stats().entry_waits == 0 {
                assert!(started.elapsed() < LIMIT, "nobody waits for an entry");
                std::thread::yield_now();
            }
            scene.faults.open_gate();
        });
        files
            .into_iter()
            .for_each(|file| scene.fsync(file).expect("nothing failed"));
        let stats = scene.buffered.stats();
        assert!(stats.bytes_buffered_max <= 64 << 10, "{stats:?}");
        assert!(
            flusher == Flusher::Inline || stats.entry_waits > 0,
            "nobody waited: {stats:?}"
        );
        assert_eq!(scene.faults.overlaps(), 0);
        for file in files {
            assert!(scene.read(file, 0, 1 << 20) == vec![0x5A; 512 << 10]);
        }
    }
}

#[test]
fn fsync_of_a_file_ends_while_its_writer_waits_for_an_entry() {
    let scene = Scene::new(BufferConfig {
        buffer_bytes: 16 << 10,
        ..small(Flusher::Thread, NEVER)
    });
    let file = scene.create(b"file");
    std::thread::scope(|scope| {
        scope.spawn(|| write_in_records(&scene, file, 2 * MIB, 4096));
        scope.spawn(|| (0..50).for_each(|_| scene.fsync(file).expect("nothing failed")));
    });
    assert_eq!(scene.read(file, 0, 3 << 20).len(), 2 << 20);
}

#[test]
fn random_small_writes_soon_go_through_and_a_stream_is_buffered_again() {
    let scene = Scene::new(small(Flusher::Inline, NEVER));
    let file = scene.create(b"database");
    for index in 0..100_u64 {
        scene.write(file, (index * 37 % 100) * 8192, &[1; 512]);
    }
    let through = scene.buffered.stats().writes_through;
    assert!(through >= 90, "{through} of 100 random writes went through");
    for index in 0..100 {
        scene.write(file, 1_000_000 + index * 512, &[2; 512]);
    }
    assert!(
        scene.buffered.stats().writes_through <= through + 1,
        "the stream was not buffered"
    );
}

/// Number of writes below for 100 small ones by two handles in turn and 100 by one of them after that, with `flags`.
fn writes_of_two_handles(by_handle: bool, flags: i32) -> usize {
    let scene = Scene::new(small(Flusher::Inline, NEVER));
    if by_handle {
        scene.faults.keep_data_by_handle();
    }
    let made = scene.create(b"log");
    let files = [0, 1].map(|_| scene.open_with(made.ino, libc::O_RDWR | flags));
    let mut expected = Vec::new();
    let mut write = |file: File, byte: u8| {
        let at = u64::try_from(expected.len()).expect("a short file");
        let mode = plain(libc::O_RDWR | flags);
        let written = scene
            .buffered
            .write(file.ino, file.handle, at, &[byte; 100], mode);
        assert_eq!(written, Ok(100));
        expected.extend([byte; 100]);
    };
    for _ in 0..50 {
        write(files[0], 1);
        write(files[1], 2);
    }
    for _ in 0..100 {
        write(files[1], 3);
    }
    assert!(scene.read(files[0], 0, 30_000) == expected);
    for file in files {
        scene.fsync(file).expect("nothing failed");
    }
    scene.faults.writes().len()
}

#[test]
fn an_entry_has_data_of_one_handle_where_data_is_kept_by_handle() {
    for flags in [0, libc::O_APPEND] {
        assert_eq!(writes_of_two_handles(false, flags), 2, "flags {flags:#o}");
        let alone = writes_of_two_handles(true, flags);
        assert!((100..=101).contains(&alone), "{alone} writes, flags {flags:#o}");
    }
}

#[test]
fn a_durable_or_direct_write_comes_below_at_once_behind_what_the_file_has_buffered_with_its_flags() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let (file, other) = (scene.create(b"file"), scene.create(b"other"));
        scene.write(other, 0, &[9; 100]);
        let flags = [
            libc::O_DSYNC,
            libc::O_SYNC,
            libc::O_DIRECT,
            libc::O_DIRECT | libc::O_DSYNC,
            libc::O_APPEND | libc::O_SYNC,
        ];
        let mut expected = Vec::new();
        for (index, flags) in (0..).zip(flags) {
            let flags = flags | libc::O_RDWR;
            scene.write(file, index * 200, &[1; 100]);
            let written =
                scene
                    .buffered
                    .write(file.ino, file.handle, index * 200 + 100, &[2; 100], plain(flags));
            assert_eq!(written, Ok(100));
            expected.extend([(index * 200, plain(0)), (index * 200 + 100, plain(flags))]);
        }
        let found: Vec<_> = scene
            .faults
            .writes()
            .iter()
            .map(|write| (write.offset, write.durability, write.appends))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(offset, mode)| (*offset, mode.durability(), mode.appends()))
            .collect();
        assert_eq!(found, expected, "{flusher} flusher");
        assert_eq!(scene.buffered.stats().writes_through, 5);
        scene.faults.fail_all(FsError::Io);
        let written = scene.buffered.write(
            file.ino,
            file.handle,
            0,
            b"lost",
            plain(libc::O_RDWR | libc::O_DSYNC),
        );
        assert_eq!(written, Err(FsError::Io));
    }
}

#[test]
fn writes_that_drop_privileges_do_not_share_an_entry_with_others() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"setuid");
    scene.write(file, 0, b"privileged");
    let mode = WriteMode {
        privileges: Privileges::Kill { gid: 0 },
        ..plain(libc::O_RDWR)
    };
    assert_eq!(
        scene.buffered.write(file.ino, file.handle, 10, b"ordinary", mode),
        Ok(8)
    );
    scene.fsync(file).expect("nothing failed");
    let writes: Vec<_> = scene
        .faults
        .writes()
        .iter()
        .map(|write| (write.offset, write.bytes))
        .collect();
    assert_eq!(writes, [(0, 10), (10, 8)]);
}

#[test]
fn dropping_the_buffer_writes_everything_out() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let (one, other) = (scene.create(b"one"), scene.create(b"other"));
        scene.write(one, 0, &[1; 20_000]);
        scene.write(other, 0, &[2; 100]);
        let faults = scene.faults.clone();
        drop(scene);
        let bytes: usize = faults.writes().iter().map(|write| write.bytes).sum();
        assert_eq!(bytes, 20_100, "{flusher} flusher");
    }
}

#[test]
fn data_goes_down_before_the_handle_that_wrote_it_is_released() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let file = scene.create(b"file");
        let other = scene.open(file.ino);
        scene.write(file, 0, b"by the first handle");
        scene.release(other);
        assert_eq!(scene.faults.writes().len(), 0, "the other handle wrote nothing");
        scene.release(file);
        assert_eq!(scene.faults.writes().len(), 1, "{flusher} flusher");
        assert_eq!(scene.buffered.stats().errors_recorded, 0, "{flusher} flusher");
    }
}

#[test]
fn the_cause_of_a_flush_is_counted() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    let mut at = 0;
    let mut write = || {
        scene.write(file, at, &[1; 100]);
        at += 100;
    };
    write();
    scene.flush(file).expect("nothing failed");
    write();
    scene.fsync(file).expect("nothing failed");
    write();
    scene
        .buffered
        .getattr(file.ino, None)
        .expect("the file has attributes");
    write();
    let other = scene.open_with(file.ino, libc::O_RDWR | libc::O_TRUNC);
    scene.release(other);
    write();
    scene.buffered.sync().expect("nothing failed");
    let flushes = scene.buffered.stats().flushes;
    let found = [
        flushes.close,
        flushes.fsync,
        flushes.query,
        flushes.other,
        flushes.drain,
    ];
    assert_eq!(found, [1; 5], "{flushes:?}");
}

/// The size below is read before the data arrives there, and the buffer is read after the data has left it.
#[test]
fn a_lookup_tells_of_data_that_is_written_out_while_it_is_under_way() {
    let scene = Arc::new(Scene::new(small(Flusher::Inline, NEVER)));
    for (name, ends) in [(b"synced".as_slice(), false), (b"closed", true)] {
        let file = scene.create(name);
        scene.write(file, 0, b"12345");
        let writer = Arc::clone(&scene);
        scene.faults.after_lookup(move || match ends {
            true => writer.release(file),
            false => writer.fsync(file).expect("no fault is set"),
        });
        let entry = scene.buffered.lookup(Ino::ROOT, name).expect("it is there");
        assert_eq!(entry.attr.size, 5, "{ends}");
    }
}
