//! Errors of acknowledged writes: reported on every handle that was open, at closes until an fsync, and on no other.

mod scene;

use buffer::{BufferConfig, Flusher};
use scene::{File, NEVER, Scene, small};
use std::time::{Duration, Instant};

use testkit::MemFs;
use vfs::{FileSystem, FsError, FsResult, OpenFlags, Privileges, SetAttr};

/// Reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Flush,
    Fsync,
}

/// Results of a handle's calls, in order.
type Answers = Vec<(Call, FsResult<()>)>;

/// Two files, three handles, all kinds of flushes.
fn script(scene: &Scene) -> Vec<(File, Answers)> {
    let (one, other) = (scene.create(b"one"), scene.create(b"other"));
    let handles = [one, scene.open(one.ino), other];
    let mut told: Vec<(File, Answers)> = handles.map(|file| (file, Vec::new())).to_vec();
    for round in 0..3 {
        let base = round * 200_000;
        for index in 0..10 {
            scene.write(one, base + index * 4096, &[1; 4096]);
            scene.write(other, base + index * 3000, &[2; 3000]);
        }
        // Overlapping and scattered writes.
        scene.write(one, base + 100, &[3; 5000]);
        scene.read(one, base, 10);
        scene.write(one, base + 150_000, &[4; 100]);
        told[1].1.push((Call::Flush, scene.flush(handles[1])));
        scene.write(other, base + 150_000, &[5; 20_000]);
        told[2].1.push((Call::Fsync, scene.fsync(other)));
    }
    for (file, calls) in &mut told {
        calls.extend([
            (Call::Fsync, scene.fsync(*file)),
            (Call::Flush, scene.flush(*file)),
            (Call::Fsync, scene.fsync(*file)),
        ]);
    }
    told
}

/// True if the results of a handle whose file failed once are success, then the error at each close and once at an
/// fsync, then success.
fn told_as_promised(calls: &Answers, error: FsError) -> bool {
    let Some(begin) = calls.iter().position(|(_, answer)| answer.is_err()) else {
        return false;
    };
    let Some(end) = (begin..calls.len()).find(|place| calls[*place].0 == Call::Fsync) else {
        return false;
    };
    let told = calls[begin..=end].iter().all(|(_, answer)| *answer == Err(error));
    told && calls[end + 1..].iter().all(|(_, answer)| answer.is_ok())
}

#[test]
fn an_error_at_any_flush_is_told_to_each_handle_of_its_file_at_closes_until_an_fsync() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let dry_run = Scene::new(small(flusher, NEVER));
        script(&dry_run);
        let flushes = dry_run.faults.writes().len();
        assert!(flushes > 15, "the sweep below would test little");
        for error in [FsError::Io, FsError::NoSpace, FsError::Quota] {
            for number in 0..flushes {
                let context = format!("{flusher} flusher, {error:?} at write {number}");
                let scene = Scene::new(small(flusher, NEVER));
                scene.faults.fail_write(number, error);
                let told = script(&scene);
                let failed = scene
                    .faults
                    .writes()
                    .iter()
                    .find(|write| write.injected.is_some())
                    .map(|write| write.ino);
                let mut errors_told = 0;
                for (file, calls) in told {
                    if Some(file.ino) == failed {
                        assert!(told_as_promised(&calls, error), "{context}, {file:?}: {calls:?}");
                        errors_told += 1;
                    } else {
                        assert!(
                            calls.iter().all(|(_, answer)| answer.is_ok()),
                            "{context}: {calls:?}"
                        );
                    }
                    let later = scene.open(file.ino);
                    assert_eq!(scene.fsync(later), Ok(()), "{context}: a later handle");
                    scene.write(later, 0, b"usable");
                    assert_eq!(scene.fsync(later), Ok(()), "{context}: after it");
                    assert_eq!(scene.read(later, 0, 6), b"usable", "{context}");
                }
                let stats = scene.buffered.stats();
                assert_eq!(stats.errors_reported, errors_told, "{context}");
                assert_eq!(
                    (stats.errors_pending, stats.errors_unclaimed),
                    (0, 0),
                    "{context}"
                );
            }
        }
    }
}

#[test]
fn entries_behind_a_failed_one_are_still_written() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    scene.faults.fail_write(0, FsError::Io);
    scene.write(file, 0, &[1; 100]);
    scene.write(file, 10_000, &[2; 100]);
    assert_eq!(scene.fsync(file), Err(FsError::Io));
    assert_eq!(scene.read(file, 10_000, 200), [2; 100]);
    assert_eq!(scene.read(file, 0, 100), [0; 100]);
}

#[test]
fn two_failures_between_two_calls_are_one_error_and_the_next_is_told_by_the_write_itself() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    scene.faults.fail_inode(file.ino, FsError::Io);
    scene.write(file, 0, b"one");
    scene.write(file, 100, b"two");
    assert_eq!(scene.fsync(file), Err(FsError::Io));
    assert_eq!(scene.fsync(file), Ok(()));
    assert_eq!(scene.try_write(file, 0, b"three"), Err(FsError::Io));
    assert_eq!(
        scene.fsync(file),
        Ok(()),
        "an error told to the writer was told again"
    );
    assert_eq!(scene.flush(file), Ok(()));
}

/// A thread that starts a program briefly has copies of all descriptors; closing them reported the error to no one.
#[test]
fn a_close_of_a_copy_of_the_descriptor_takes_no_error_from_the_writer() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    scene.faults.fail_write(0, FsError::Io);
    scene.write(file, 0, b"one");
    assert_eq!(scene.flush(file), Err(FsError::Io));
    assert_eq!(scene.flush(file), Err(FsError::Io));
    assert_eq!(scene.fsync(file), Err(FsError::Io));
    assert_eq!(scene.fsync(file), Ok(()));
    let stats = scene.buffered.stats();
    assert_eq!((stats.errors_reported, stats.errors_pending), (1, 0));
}

#[test]
fn after_no_space_writes_go_through_until_as_much_was_allocated_as_the_buffer_holds() {
    for error in [FsError::NoSpace, FsError::Quota] {
        let scene = Scene::new(small(Flusher::Thread, NEVER));
        let file = scene.create(b"file");
        scene.write(file, 0, b"acknowledged");
        scene.faults.fail_all(error);
        assert_eq!(scene.fsync(file), Err(error));
        assert!(scene.buffered.stats().degraded);
        assert_eq!(scene.try_write(file, 0, b"more"), Err(error));
        let other = scene.create(b"other");
        assert_eq!(scene.try_write(other, 0, b"more"), Err(error));
        assert_eq!(
            scene.fsync(file),
            Ok(()),
            "an error told to the writer was told again"
        );
        scene.faults.heal();
        for _ in 0..100 {
            scene.write(file, 0, &[1; 4096]);
        }
        assert!(
            scene.buffered.stats().degraded,
            "overwriting in place is no sign of room"
        );
        for index in 1..16 {
            scene.write(file, index * 4096, &[1; 4096]);
        }
        let stats = scene.buffered.stats();
        assert!(!stats.degraded);
        scene.write(file, 16 * 4096, b"buffered");
        assert_eq!(
            scene.buffered.stats().writes_through,
            stats.writes_through,
            "{error:?}"
        );
        assert_eq!(scene.read(file, 16 * 4096, 100), b"buffered");
    }
}

/// Two files at the limit, parts of which are removed now and then. statfs does not report a quota.
#[test]
fn at_a_limit_nothing_is_acknowledged_and_lost_after_the_first_error() {
    let full = [
        || (FsError::NoSpace, MemFs::with_capacity(256 << 10)),
        || (FsError::Quota, MemFs::with_quota(256 << 10)),
    ];
    for (flusher, full) in [Flusher::Thread, Flusher::Inline]
        .into_iter()
        .flat_map(|flusher| full.map(|full| (flusher, full)))
    {
        let (error, below) = full();
        let scene = Scene::over(below, small(flusher, NEVER));
        let files = [scene.create(b"one"), scene.create(b"other")];
        let mut written = [Vec::new(), Vec::new()];
        let (mut told, mut begun) = (0, false);
        for round in 0..200_usize {
            let (file, content) = (files[round % 2], &mut written[round % 2]);
            let data = [u8::try_from(round).expect("a byte"); 4096];
            if round % 10 == 9 && told > 0 {
                // Less than the buffer holds, so that it is no proof of space.
                let size = content.len().saturating_sub(8 << 10);
                let change = SetAttr {
                    size: Some(u64::try_from(size).expect("a short file")),
                    ..SetAttr::default()
                };
                scene
                    .buffered
                    .setattr(file.ino, None, &change)
                    .expect("a file can be cut");
                content.truncate(size);
            }
            let end = u64::try_from(content.len()).expect("a short file");
            match scene.try_write(file, end, &data) {
                Ok(4096) => content.extend_from_slice(&data),
                Ok(short) => panic!("{short} bytes of a block were written"),
                Err(found) => {
                    assert_eq!(found, error);
                    told += 1;
                }
            }
            if scene.buffered.stats().errors_recorded > 0 && !std::mem::replace(&mut begun, true) {
                // Data in the buffer at the first error is lost, and the loss reported. From here on nothing is lost.
                for (file, content) in files.iter().zip(&mut written) {
                    let _ = scene.fsync(*file);
                    *content = scene.read(*file, 0, 1 << 20);
                }
            }
        }
        assert!(told > 10, "{flusher} flusher, {error:?}: the limit was never met");
        let recorded = scene.buffered.stats().errors_recorded;
        assert!(
            recorded <= 4,
            "{recorded} entries were lost, and the buffer has 4"
        );
        for (file, content) in files.iter().zip(&written) {
            let _ = scene.fsync(*file);
            assert!(
                scene.read(*file, 0, 1 << 20) == *content,
                "{flusher} flusher, {error:?}: what was acknowledged after the first error is not there"
            );
        }
    }
}

#[test]
fn a_file_that_can_not_be_written_loses_one_entry_and_others_none() {
    let scene = Scene::new(small(Flusher::Inline, NEVER));
    let (broken, whole) = (scene.create(b"broken"), scene.create(b"whole"));
    scene.faults.fail_inode(broken.ino, FsError::Io);
    let mut acknowledged = 0;
    for index in 0..100 {
        if scene.try_write(broken, index * 4096, &[1; 4096]).is_ok() {
            acknowledged += 4096;
        }
        scene.write(whole, index * 4096, &[2; 4096]);
    }
    assert!(
        acknowledged <= 16 << 10,
        "{acknowledged} bytes were acknowledged and lost"
    );
    assert_eq!(scene.fsync(broken), Err(FsError::Io));
    assert_eq!(scene.fsync(whole), Ok(()));
    assert!(!scene.buffered.stats().degraded);
    let writes = scene.faults.writes();
    let of_whole = writes.iter().filter(|write| write.ino == whole.ino).count();
    assert!(
        of_whole <= 100 / 4 + 1,
        "{of_whole} writes: the whole file was not buffered"
    );
}

/// As on vfat. Streams reach the limit within an entry, and programs that write at any offset skip over it.
#[test]
fn what_a_file_system_can_not_hold_is_told_to_the_writer() {
    const LIMIT: u64 = (4 << 30) - 1;
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        scene.faults.limit_file_size(LIMIT);
        let file = scene.create(b"file");
        let mut end = (4 << 30) - 100_000;
        let told = loop {
            match scene.try_write(file, end, &[1; 1000]) {
                Ok(1000) => end += 1000,
                other => break other,
            }
        };
        assert_eq!(told, Err(FsError::FileTooBig), "{flusher} flusher");
        assert_eq!(end, (4 << 30) - 1000, "{flusher} flusher");
        for round in 0..50 {
            scene.write(file, round * 100, &[2; 100]);
            let far = scene.try_write(file, 5 << 30, &[3; 100]);
            assert_eq!(far, Err(FsError::FileTooBig), "{flusher} flusher");
        }
        assert_eq!(scene.fsync(file), Ok(()), "{flusher} flusher");
        assert_eq!(scene.buffered.stats().errors_recorded, 0);
    }
}

/// The thread that writes out panics below: the manager's, or the writer's own.
#[test]
fn a_panic_below_loses_its_entry_and_nobody_waits_for_it() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let file = scene.create(b"file");
        scene.faults.panic_at_write(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| scene.write(file, 0, &[1; 16 << 10]));
            assert_eq!(writer.join().is_err(), flusher == Flusher::Inline);
        });
        assert!(scene.faults.wait_for_writes(1, LIMIT));
        scene.buffered.drain();
        assert_eq!(scene.fsync(file), Err(FsError::Io), "{flusher} flusher");
        let stats = scene.buffered.stats();
        assert_eq!(
            (stats.entries_in_use, stats.bytes_buffered),
            (0, 0),
            "{flusher} flusher"
        );
        // Without the manager, writers write out the entries that they fill.
        for index in 0..64 {
            scene.write(file, index * 4096, &[2; 4096]);
        }
        assert_eq!(scene.fsync(file), Ok(()), "{flusher} flusher");
        assert!(
            scene.read(file, 0, 1 << 20) == vec![2; 64 << 12],
            "{flusher} flusher"
        );
        let started = Instant::now();
        let full_entry_goes_down_at_once = || {
            scene.fsync(file).expect("nothing more failed");
            let before = scene.faults.writes().len();
            scene.write(file, 0, &[2; 16 << 10]);
            scene.faults.writes().len() > before
        };
        while !full_entry_goes_down_at_once() {
            assert!(started.elapsed() < LIMIT, "{flusher} flusher: nobody writes out");
        }
        scene.flush(file).expect("nothing more failed");
        scene.release(file);
    }
}

/// A page cache above may hold the lost data, which is not in the file.
#[test]
fn the_open_after_a_loss_voids_caches_once() {
    let scene = Scene::over(MemFs::with_valid_caches(), small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    let is_valid = || {
        let flags = OpenFlags(libc::O_RDONLY);
        let opened = scene.buffered.open(file.ino, flags, Privileges::Keep);
        let opened = opened.expect("the file can be opened");
        let is_valid = scene.buffered.cache_still_valid(file.ino, opened.handle);
        scene.buffered.release(file.ino, opened.handle);
        is_valid
    };
    assert!(is_valid());
    scene.faults.fail_write(0, FsError::Io);
    scene.write(file, 0, b"lost");
    scene.release(file);
    assert!(!is_valid());
    assert!(is_valid());
}

#[test]
fn an_error_that_nobody_asked_for_is_counted() {
    let scene = Scene::new(BufferConfig {
        flush_interval: NEVER,
        ..BufferConfig::default()
    });
    let file = scene.create(b"file");
    scene.faults.fail_all(FsError::Io);
    scene.write(file, 0, b"lost");
    scene.buffered.drain();
    assert_eq!(scene.buffered.stats().errors_pending, 1);
    scene.release(file);
    let stats = scene.buffered.stats();
    assert_eq!(
        (
            stats.errors_recorded,
            stats.errors_pending,
            stats.errors_unclaimed
        ),
        (1, 0, 1)
    );
}
