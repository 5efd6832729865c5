//! Errors of writes that were acknowledged: told to every handle that was open, at closes until an fsync, and to no other.

mod scene;

use buffer::{BufferConfig, Flusher};
use scene::{File, NEVER, Scene, small};
use testkit::MemFs;
use vfs::{FsError, FsResult};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Flush,
    Fsync,
}

/// What a handle was told, call by call.
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
        // Overlapping and elsewhere.
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

/// The answers of a handle whose file failed once: fine, then the error at each close and once at an fsync, then fine.
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
fn two_failures_between_two_calls_are_one_error_and_the_next_failure_another() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    scene.faults.fail_inode(file.ino, FsError::Io);
    scene.write(file, 0, b"one");
    scene.write(file, 100, b"two");
    assert_eq!(scene.fsync(file), Err(FsError::Io));
    assert_eq!(scene.fsync(file), Ok(()));
    scene.write(file, 0, b"three");
    assert_eq!(scene.fsync(file), Err(FsError::Io));
    assert_eq!(scene.flush(file), Ok(()));
}

/// A thread that starts a program makes copies of all descriptors for a moment; closing them told the error to nobody.
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
fn after_no_space_writes_fail_at_once_until_there_is_room() {
    let scene = Scene::new(small(Flusher::Thread, NEVER));
    let file = scene.create(b"file");
    scene.write(file, 0, b"acknowledged");
    scene.faults.fail_all(FsError::NoSpace);
    assert_eq!(scene.fsync(file), Err(FsError::NoSpace));
    assert!(scene.buffered.stats().degraded);
    assert_eq!(scene.try_write(file, 0, b"more"), Err(FsError::NoSpace));
    assert_eq!(
        scene.try_write(scene.create(b"other"), 0, b"more"),
        Err(FsError::NoSpace)
    );
    assert_eq!(
        scene.fsync(file),
        Ok(()),
        "an error told to the writer was told again"
    );
    scene.faults.heal();
    scene.write(file, 0, b"through");
    assert!(!scene.buffered.stats().degraded);
    let through = scene.buffered.stats().writes_through;
    scene.write(file, 7, b" and buffered");
    assert_eq!(scene.buffered.stats().writes_through, through);
    assert_eq!(scene.read(file, 0, 100), b"through and buffered");
}

#[test]
fn on_a_full_file_system_what_is_acknowledged_after_the_first_error_is_kept() {
    let scene = Scene::over(MemFs::with_capacity(256 << 10), small(Flusher::Inline, NEVER));
    let file = scene.create(b"file");
    let mut told = false;
    let mut kept = Vec::new();
    for index in 0..128_u64 {
        let data = [u8::try_from(index).unwrap(); 4096];
        // Every fourth one overwrites, which a full file system still can.
        let offset = if index % 4 == 3 { 0 } else { index * 4096 };
        let written = scene.try_write(file, offset, &data);
        if told && written == Ok(4096) {
            kept.retain(|(at, _)| *at != offset);
            kept.push((offset, data));
        }
        told |= written.is_err() || scene.buffered.stats().degraded;
    }
    assert!(told && !kept.is_empty(), "the file system never filled up");
    for (offset, data) in kept {
        assert_eq!(
            scene.read(file, offset, 4096),
            data,
            "acknowledged and lost at {offset}"
        );
    }
    assert!(
        scene.buffered.stats().degraded,
        "overwriting in place is no sign of room"
    );
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
