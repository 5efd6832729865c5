//! Queries by several threads while a file grows and is written out: each sees at least the data acknowledged before
//! it, and never wrong bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::scene::{File, Scene, small};
use buffer::Flusher;
use testkit::contract::plain;
use testkit::is_full;
use testkit::prng::Prng;
use vfs::{FileSystem, SeekFrom};

/// The byte at an offset.
fn byte_at(offset: u64) -> u8 {
    u8::try_from((offset / 7 + offset / 4096) % 251).expect("less than 251")
}

fn content(start: u64, length: usize) -> Vec<u8> {
    (start..).take(length).map(byte_at).collect()
}

/// Runs every kind of query on `file`, of which `written` bytes are acknowledged, until `done`.
fn ask(scene: &Scene, file: File, written: &AtomicU64, done: &AtomicBool, mut prng: Prng) {
    let mut last = (0, vfs::Timestamp::default(), vfs::Timestamp::default());
    while !done.load(Ordering::Acquire) {
        let known = written.load(Ordering::Acquire);
        let attr = scene
            .buffered
            .getattr(file.ino, Some(file.handle))
            .expect("an open file has attributes");
        assert!(attr.size >= known, "{} bytes, {known} were written", attr.size);
        let seen = (attr.size, attr.mtime, attr.ctime);
        assert!(
            seen.0 >= last.0 && seen.1 >= last.1 && seen.2 >= last.2,
            "{seen:?} after {last:?}"
        );
        last = seen;

        let (offset, length) = match prng.chance(50) {
            true => (known.saturating_sub(prng.below(20_000)), 30_000),
            false => (prng.below(known + 1), 1 + prng.below_usize(40_000)),
        };
        let found = scene.read(file, offset, length);
        let least = known
            .saturating_sub(offset)
            .min(u64::try_from(length).expect("a short read"));
        let count = u64::try_from(found.len()).expect("a short read");
        assert!(count >= least, "{count} bytes at {offset}, {known} were written");
        assert!(
            found == content(offset, found.len()),
            "wrong bytes at {offset}, {known} were written"
        );

        if known > 0 {
            let hole = scene.buffered.lseek(file.ino, file.handle, SeekFrom::Hole(0));
            assert!(
                hole.is_ok_and(|hole| hole >= known),
                "{hole:?}, {known} were written"
            );
            let data = prng.below(known);
            assert_eq!(
                scene.buffered.lseek(file.ino, file.handle, SeekFrom::Data(data)),
                Ok(data)
            );
        }
    }
}

fn grow(flusher: Flusher, flags: i32, seed: u64) {
    let scene = Scene::new(small(flusher, Duration::from_millis(1)));
    let made = scene.create(b"file");
    let file = scene.open_with(made.ino, libc::O_RDWR | flags);
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let writes = if is_full() { 200_000 } else { 3_000 };
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let prng = Prng::named(seed, &format!("reader {reader}"));
            let (scene, written, done) = (&scene, &written, &done);
            scope.spawn(move || ask(scene, file, written, done, prng));
        }
        let mut prng = Prng::named(seed, "writer");
        let mut end = 0;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..writes {
                let data = content(end, 1 + prng.below_usize(3_000));
                let mode = plain(libc::O_RDWR | flags);
                let count = scene.buffered.write(file.ino, file.handle, end, &data, mode);
                assert_eq!(count, Ok(data.len()));
                end += u64::try_from(data.len()).expect("a short write");
                written.store(end, Ordering::Release);
                if prng.chance(2) {
                    scene.fsync(file).expect("nothing failed");
                }
            }
        }));
        done.store(true, Ordering::Release);
        outcome.expect("every write is taken");
    });
    let end = written.into_inner();
    let length = usize::try_from(end).expect("a short file");
    assert!(
        scene.read(file, 0, length + 1) == content(0, length),
        "seed {seed}"
    );
    assert_eq!(scene.faults.overlaps(), 0);
}

#[test]
fn a_growing_file_is_seen_as_it_was_acknowledged() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        grow(flusher, 0, 21);
    }
}

#[test]
fn a_file_that_is_appended_to_is_seen_as_it_was_acknowledged() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        grow(flusher, libc::O_APPEND, 22);
    }
}
