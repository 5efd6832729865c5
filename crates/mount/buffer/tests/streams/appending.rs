//! Appended records: each reaches the file system below in one write, so that no other program's data can split it.

use buffer::Flusher;
use testkit::contract::plain;
use testkit::prng::Prng;
use vfs::FileSystem;

use crate::scene::{File, NEVER, Scene, small};

const APPEND: i32 = libc::O_RDWR | libc::O_APPEND;

fn append(scene: &Scene, file: File, guess: u64, data: &[u8]) {
    let written = scene
        .buffered
        .write(file.ino, file.handle, guess, data, plain(APPEND));
    assert_eq!(written, Ok(data.len()));
}

/// Appends records of these lengths, each at the kernel's end of file; returns their end offsets.
fn append_all(scene: &Scene, file: File, lengths: &[usize]) -> Vec<usize> {
    let mut end = 0;
    let append_one = |length: &usize| {
        let guess = u64::try_from(end).expect("small");
        append(scene, file, guess, &vec![1; *length]);
        end += length;
        end
    };
    lengths.iter().map(append_one).collect()
}

/// End offsets of the writes below to the file.
fn write_ends(scene: &Scene, file: File) -> Vec<usize> {
    let of_file = scene
        .faults
        .writes()
        .into_iter()
        .filter(|write| write.ino == file.ino);
    let ends = of_file.scan(0, |end, write| {
        assert!(write.appends);
        *end += write.bytes;
        Some(*end)
    });
    ends.collect()
}

#[test]
fn an_appended_record_comes_below_in_one_write_whatever_its_length() {
    const ENTRY: usize = 16 << 10;
    let mut prng = Prng::new(11);
    let mut random = || -> Vec<usize> {
        let length = |_| usize::try_from(1 + prng.below(20_000)).expect("small");
        (0..200).map(length).collect()
    };
    let lengths = [
        vec![1000; 100],
        vec![ENTRY - 1, 2, ENTRY - 2, 3, ENTRY, ENTRY, 1],
        vec![1, ENTRY + 1, 1, 5 * ENTRY, 1],
        random(),
        random(),
    ];
    for flusher in [Flusher::Thread, Flusher::Inline] {
        for lengths in &lengths {
            let scene = Scene::new(small(flusher, NEVER));
            let file = scene.open_with(scene.create(b"log").ino, APPEND);
            let records = append_all(&scene, file, lengths);
            scene.fsync(file).expect("no fault is set");
            let writes = write_ends(&scene, file);
            for end in &writes {
                let next = records.iter().position(|record| record >= end);
                assert!(
                    records.contains(end),
                    "{flusher} flusher: a write below ends at {end}, within record {next:?}"
                );
            }
            assert_eq!(writes.last(), records.last());
        }
    }
}

#[test]
fn small_records_still_share_entries() {
    let scene = Scene::new(small(Flusher::Inline, NEVER));
    let file = scene.open_with(scene.create(b"log").ino, APPEND);
    append_all(&scene, file, &[100; 1000]);
    scene.fsync(file).expect("no fault is set");
    // An entry of 16 KiB holds 163 records.
    assert_eq!(scene.faults.writes().len(), 7);
}

#[test]
fn records_stay_whole_where_several_files_take_all_entries() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        std::thread::scope(|scope| {
            for name in [b"1", b"2", b"3", b"4", b"5", b"6"] {
                let scene = &scene;
                scope.spawn(move || {
                    let file = scene.open_with(scene.create(name).ino, APPEND);
                    let records = append_all(scene, file, &[3000; 200]);
                    scene.fsync(file).expect("no fault is set");
                    let writes = write_ends(scene, file);
                    assert!(
                        writes.iter().all(|end| records.contains(end)),
                        "{flusher} flusher: {writes:?}"
                    );
                });
            }
        });
    }
}
