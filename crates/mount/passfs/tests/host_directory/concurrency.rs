//! Many threads at once.

use std::os::unix::fs::MetadataExt;

use vfs::{FileSystem, FsError, Ino};

use crate::source::{Source, caller};

const SEED: u64 = 0x70a5_5f50;

#[test]
fn lookups_and_forgets_from_many_threads_leave_nothing_behind() {
    let source = Source::new();
    for number in 0..16 {
        std::fs::write(source.path(&number.to_string()), number.to_string()).unwrap();
    }
    let idle = source.descriptors();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let source = &source;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(SEED + thread);
                for round in 0..2_000 {
                    let number = random.u32(0..16).to_string();
                    let entry = source.lookup(&number).unwrap();
                    let size = source.fs.getattr(entry.ino, None).map(|attr| attr.size);
                    let expected = Ok(u64::try_from(number.len()).unwrap());
                    assert_eq!(size, expected, "seed {SEED:#x}, thread {thread}, round {round}");
                    source.fs.forget(entry.ino, 1);
                }
            });
        }
    });
    assert_eq!(source.descriptors(), idle);
    assert_eq!(source.fs.counters().inodes_held, 1);
}

#[test]
fn ids_of_creating_calls_do_not_leak_between_threads_or_calls() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let source = Source::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let source = &source;
            scope.spawn(move || {
                for round in 0..100_u32 {
                    let user = caller(1000 * (thread + 1) + round % 3, 500 * (thread + 1) + round % 2);
                    let name = format!("{thread}-{round}");
                    let umask = 0o777 & ((thread << 6) | (round % 8));
                    let node = vfs::NewNode {
                        mode: 0o777,
                        umask,
                        rdev: 0,
                    };
                    source.fs.mkdir(&user, Ino::ROOT, name.as_bytes(), node).unwrap();
                    let made = std::fs::symlink_metadata(source.path(&name)).unwrap();
                    assert_eq!((made.uid(), made.gid()), (user.uid, user.gid), "{name}");
                    assert_eq!(made.mode() & 0o777, 0o777 & !umask, "{name}");
                }
            });
        }
    });
    let untouched = std::fs::File::create(source.path("by-this-thread"))
        .unwrap()
        .metadata()
        .unwrap();
    assert_eq!(untouched.uid(), 0);
}

#[test]
fn threads_that_write_one_file_at_their_own_offsets_lose_nothing() {
    let source = Source::new();
    let file = source.create("file");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let source = &source;
            scope.spawn(move || {
                for block in 0..64 {
                    let offset = (block * 4 + u64::from(thread)) * 1000;
                    assert_eq!(source.write(file, offset, &[thread + 1; 1000]), Ok(1000));
                }
            });
        }
    });
    let content = source.read(file, 0, 1 << 20).unwrap();
    assert_eq!(content.len(), 256_000);
    for (block, bytes) in content.chunks(1000).enumerate() {
        let writer = u8::try_from(block % 4 + 1).unwrap();
        assert!(bytes.iter().all(|byte| *byte == writer), "block {block}");
    }
}

#[test]
fn a_stale_inode_is_refused_while_others_come_and_go() {
    let source = Source::new();
    let (entry, handle) = source.create("file");
    source.fs.release(entry.ino, handle);
    source.fs.forget(entry.ino, 1);
    for number in 0..100 {
        source.create(&number.to_string());
    }
    assert_eq!(source.fs.getattr(entry.ino, None).err(), Some(FsError::Stale));
}
