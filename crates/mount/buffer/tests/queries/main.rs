//! Queries of a file with buffered data are answered without writing it out.

mod metadata;
mod races;
#[path = "../scene/mod.rs"]
mod scene;

use std::time::Duration;

use buffer::{BufferConfig, Flusher};
use scene::{File, NEVER, Scene, small};
use testkit::contract::plain;
use testkit::prng::Prng;
use vfs::{Attr, DirEntry, DirSink, Entry, FileSystem, FsError, Ino, OpenFlags, Privileges, SeekFrom};

const RECORD: usize = 4096;
const CAPABILITY: &[u8] = b"security.capability";
/// Reached only by a failing test.
const LIMIT: Duration = Duration::from_secs(10);

/// The default buffer without flushes by time.
fn patient() -> Scene {
    Scene::new(BufferConfig {
        flush_interval: NEVER,
        ..BufferConfig::default()
    })
}

/// Number of backing writes for 512 writes of 4 KiB with `look` after each, fsynced.
fn backing_writes(scene: &Scene, look: impl Fn(&Scene, File, u64)) -> usize {
    let file = scene.create(b"file");
    for index in 0..512 {
        scene.write(
            file,
            index * 4096,
            &[u8::try_from(index % 251).expect("less than 251"); RECORD],
        );
        look(scene, file, (index + 1) * 4096);
    }
    scene.fsync(file).expect("nothing failed");
    let content = scene.read(file, 0, 1 << 22);
    assert_eq!(content.len(), 512 * RECORD);
    for (index, record) in content.chunks(RECORD).enumerate() {
        assert!(
            record.iter().all(|byte| usize::from(*byte) == index % 251),
            "record {index}"
        );
    }
    scene.faults.writes().len()
}

fn attr(scene: &Scene, file: File) -> Attr {
    let attr = scene.buffered.getattr(file.ino, Some(file.handle));
    attr.expect("an open file has attributes")
}

#[test]
fn a_look_at_the_attributes_after_each_write_costs_no_write() {
    let count = backing_writes(&patient(), |scene, file, end| {
        let attr = attr(scene, file);
        assert_eq!(attr.size, end);
        assert!(attr.blocks * 512 >= end, "{} blocks at {end} bytes", attr.blocks);
    });
    assert!(count <= 4, "{count} backing writes");
}

#[test]
fn a_read_of_the_head_after_each_write_costs_no_write() {
    let count = backing_writes(&patient(), |scene, file, _| {
        assert_eq!(scene.read(file, 0, RECORD), [0; RECORD]);
    });
    assert!(count <= 4, "{count} backing writes");
}

#[test]
fn a_read_of_the_last_record_after_each_write_costs_no_write() {
    let count = backing_writes(&patient(), |scene, file, end| {
        assert_eq!(scene.read(file, end - 4096, 2 * RECORD).len(), RECORD);
    });
    assert!(count <= 4, "{count} backing writes");
}

/// A sink for all names.
struct Everything(Vec<(Vec<u8>, Option<Entry>)>);

impl DirSink for Everything {
    fn fits(&self, _name_bytes: usize) -> bool {
        true
    }

    fn push(&mut self, name: &DirEntry<'_>, entry: Option<&Entry>) {
        self.0.push((name.name.to_vec(), entry.copied()));
    }
}

/// The calls of `ls -l`; returns the size of `file` in the listing and by its name.
fn list(scene: &Scene) -> (u64, u64) {
    let fs = &scene.buffered;
    let directory = fs.opendir(Ino::ROOT).expect("the root can be opened");
    let mut names = Everything(Vec::new());
    fs.readdir_plus(Ino::ROOT, directory, 0, &mut names)
        .expect("the root can be listed");
    fs.releasedir(Ino::ROOT, directory);
    let listed = names
        .0
        .iter()
        .find(|(name, _)| name == b"file")
        .and_then(|(_, entry)| *entry);
    let entry = fs.lookup(Ino::ROOT, b"file").expect("the file is there");
    assert_eq!(fs.getxattr(entry.ino, CAPABILITY), Err(FsError::NoData));
    assert_eq!(
        fs.getxattr(entry.ino, b"system.posix_acl_access"),
        Err(FsError::NoData)
    );
    assert_eq!(fs.listxattr(entry.ino), Ok(Vec::new()));
    (
        listed.expect("the listing has the file").attr.size,
        entry.attr.size,
    )
}

#[test]
fn a_long_listing_beside_a_stream_costs_no_write() {
    let count = backing_writes(&patient(), |scene, _, end| {
        assert_eq!(list(scene), (end, end));
    });
    assert!(count <= 8, "{count} backing writes");
}

#[test]
fn a_log_of_appended_lines_with_a_look_after_each_goes_down_in_few_writes() {
    let scene = patient();
    let (line, flags) = ([b'x'; 100], libc::O_RDWR | libc::O_APPEND);
    let made = scene.create(b"log");
    let log = scene.open_with(made.ino, flags);
    for index in 0..5000 {
        let end = index * 100;
        assert_eq!(
            scene
                .buffered
                .write(log.ino, log.handle, end, &line, plain(flags)),
            Ok(100)
        );
        assert_eq!(attr(&scene, log).size, end + 100);
    }
    let count = scene.faults.writes().len();
    assert!(count <= 2, "{count} backing writes");
    assert!(scene.read(log, 0, 1 << 20) == vec![b'x'; 500_000]);
}

#[test]
fn what_the_source_got_meanwhile_stands_before_what_was_appended() {
    let scene = patient();
    let made = scene.create(b"log");
    scene.write(made, 0, b"first ");
    attr(&scene, made);
    assert_eq!(scene.faults.writes().len(), 1, "the first look writes out");
    let flags = libc::O_RDWR | libc::O_APPEND;
    let log = scene.open_with(made.ino, flags);
    let append = |at, data: &[u8]| {
        assert_eq!(
            scene.buffered.write(log.ino, log.handle, at, data, plain(flags)),
            Ok(data.len())
        );
    };
    let host = |data: &[u8]| {
        let below = scene.buffered.inner();
        let opened = below
            .open(log.ino, OpenFlags(flags), Privileges::Keep)
            .expect("the file can be opened");
        assert_eq!(
            below.write(log.ino, opened.handle, 0, data, plain(flags)),
            Ok(data.len())
        );
        below.release(log.ino, opened.handle);
    };
    append(6, b"second ");
    assert_eq!(attr(&scene, log).size, 13);
    host(b"host ");
    append(13, b"third ");
    assert_eq!(attr(&scene, log).size, 24);
    append(24, b"fourth ");
    host(b"again ");
    assert_eq!(list_size(&scene, b"log"), 37);
    append(37, b"fifth");
    host(b"host");
    assert_eq!(scene.read(log, 30, 100), b"fourth hostfifth");
    assert_eq!(
        scene.read(log, 0, 100),
        b"first host second third again fourth hostfifth"
    );
}

fn list_size(scene: &Scene, name: &[u8]) -> u64 {
    let fs = &scene.buffered;
    let directory = fs.opendir(Ino::ROOT).expect("the root can be opened");
    let mut names = Everything(Vec::new());
    fs.readdir_plus(Ino::ROOT, directory, 0, &mut names)
        .expect("the root can be listed");
    fs.releasedir(Ino::ROOT, directory);
    let found = names
        .0
        .iter()
        .find(|(other, _)| other == name)
        .and_then(|(_, entry)| *entry);
    found.expect("the listing has the file").attr.size
}

/// The result of `ask` while no write below can end. Fails, instead of blocking for ever, if `ask` waits for one.
fn while_writes_wait<T: Send>(scene: &Scene, ask: impl FnOnce() -> T + Send) -> T {
    scene.faults.close_gate();
    let (answer, answered) = std::sync::mpsc::channel();
    let found = std::thread::scope(|scope| {
        scope.spawn(move || answer.send(ask()));
        let found = answered.recv_timeout(LIMIT);
        scene.faults.open_gate();
        found
    });
    found.expect("a question waits until data has been written out")
}

#[test]
fn an_entry_can_be_seen_until_it_has_been_written() {
    for flusher in [Flusher::Thread, Flusher::Inline] {
        let scene = Scene::new(small(flusher, NEVER));
        let file = scene.create(b"file");
        let data = Prng::new(9).bytes(16 << 10);
        scene.write(file, 0, &data[..10_000]);
        attr(&scene, file);
        scene.write(file, 10_000, &data[10_000..16_000]);
        let (pieces, size, hole) = while_writes_wait(&scene, || {
            std::thread::scope(|scope| {
                // This write fills the entry.
                scope.spawn(|| scene.write(file, 16_000, &data[16_000..]));
                assert!(scene.faults.wait_at_gate(1, LIMIT), "nothing is being written");
                let hole = scene.buffered.lseek(file.ino, file.handle, SeekFrom::Hole(0));
                let pieces = (scene.read(file, 0, 20_000), scene.read(file, 9_990, 100));
                let size = attr(&scene, file).size;
                scene.faults.open_gate();
                (pieces, size, hole)
            })
        });
        assert!(
            pieces == (data.clone(), data[9_990..10_090].to_vec()),
            "{flusher} flusher"
        );
        assert_eq!((size, hole), (16 << 10, Ok(16 << 10)), "{flusher} flusher");
        assert!(scene.read(file, 0, 20_000) == data, "{flusher} flusher");
    }
}

#[test]
fn a_read_joins_what_is_below_with_what_is_buffered() {
    let scene = patient();
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 10_000]);
    scene.fsync(file).expect("nothing failed");
    let expected = [
        (1, 3_000),
        (2, 500),
        (3, 1_000),
        (1, 5_500),
        (0, 10_000),
        (4, 5_000),
    ];
    let expected: Vec<u8> = expected
        .iter()
        .flat_map(|(byte, count)| vec![*byte; *count])
        .collect();
    while_writes_wait(&scene, || {
        scene.write(file, 3_000, &[2; 1_000]);
        scene.write(file, 3_500, &[3; 1_000]);
        scene.write(file, 20_000, &[4; 5_000]);
        for (offset, length) in [
            (0, 30_000),
            (2_999, 2),
            (3_400, 200),
            (4_499, 2),
            (9_990, 20),
            (9_990, 15_000),
            (24_000, 5_000),
        ] {
            let end = expected.len().min(offset + length);
            let found = scene.read(file, u64::try_from(offset).expect("small"), length);
            assert!(found == expected[offset..end], "{length} bytes at {offset}");
        }
        assert_eq!(scene.read(file, 25_000, 10), b"");
    });
    assert!(scene.read(file, 0, 30_000) == expected);
}

#[test]
fn another_handle_reads_what_is_buffered_and_one_without_leave_to_read_reads_nothing() {
    let scene = patient();
    let file = scene.create(b"file");
    scene.write(file, 0, b"shared");
    let reader = scene.open_with(file.ino, libc::O_RDONLY);
    assert_eq!(scene.read(reader, 0, 100), b"shared");
    let writer = scene.open_with(file.ino, libc::O_WRONLY);
    let mut out = [0; 10];
    let refused = scene.buffered.read(writer.ino, writer.handle, 0, &mut out);
    assert_eq!(refused, Err(FsError::BadHandle));
    assert_eq!(scene.faults.writes().len(), 0);
}

#[test]
fn data_and_holes_are_found_where_they_will_be() {
    let scene = patient();
    let file = scene.create(b"file");
    scene.write(file, 0, &[1; 5_000]);
    scene.fsync(file).expect("nothing failed");
    let seeks: Vec<_> = (0..26)
        .flat_map(|step| [SeekFrom::Data(step * 4_100), SeekFrom::Hole(step * 4_100)])
        .collect();
    let answers = || -> Vec<_> {
        seeks
            .iter()
            .map(|from| scene.buffered.lseek(file.ino, file.handle, *from))
            .collect()
    };
    let buffered = while_writes_wait(&scene, || {
        scene.write(file, 100_000, &[2; 3_000]);
        scene.write(file, 30_000, &[3; 100]);
        answers()
    });
    scene.fsync(file).expect("nothing failed");
    for ((from, before), after) in seeks.iter().zip(buffered).zip(answers()) {
        assert_eq!(before, after, "{from:?}");
    }
}
