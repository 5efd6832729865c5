//! Single faults below a writer, and regressions that they caused: reads that failed permanently, half-done
//! operations, lost names.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::support::faulty::{Class, Fault, FaultyVolume, Lasting, Outcome};
use crate::support::medium::{Medium, clock};
use crate::support::rig::SMALL;
use testkit::contract;
use testkit::prng::Prng;
use ubifs::format::name_hash_r5;
use ubifs::{MountedWriter, OpenOptions, Writer};
use vfs::{FileSystem, FsError, FsResult, Handle, Ino, OpenFlags, Privileges, XattrFlags};

/// A mount on a volume that can fail. With so small an index cache, most searches read the index.
fn mount(medium: &Medium) -> (Arc<FaultyVolume>, MountedWriter) {
    mount_with_cache(medium, 0)
}

fn mount_with_cache(medium: &Medium, index_cache_bytes: u64) -> (Arc<FaultyVolume>, MountedWriter) {
    let (volume, _) = medium.attached().expect("it attaches");
    let faulty = FaultyVolume::new(volume, None);
    let options = OpenOptions {
        index_cache_bytes,
        ..OpenOptions::standard()
    };
    let writer = Writer::open(faulty.clone(), options).expect("it opens");
    (faulty, MountedWriter::new(writer, Box::new(|_| {}), clock()))
}

fn once(class: Class, operation: u64, outcome: Outcome) -> Fault {
    Fault {
        class,
        operation,
        outcome,
        lasting: Lasting::Once,
    }
}

fn for_ever(class: Class) -> Fault {
    Fault {
        class,
        operation: 0,
        outcome: Outcome::Nothing,
        lasting: Lasting::ForEver,
    }
}

fn create(file_system: &dyn FileSystem, name: &[u8]) -> FsResult<(Ino, Handle)> {
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    let made = file_system.create(&contract::caller(), Ino::ROOT, name, contract::FILE, flags)?;
    Ok((made.0.ino, made.1.handle))
}

fn write(file_system: &dyn FileSystem, file: (Ino, Handle), offset: u64, data: &[u8]) -> FsResult<usize> {
    file_system.write(file.0, file.1, offset, data, contract::plain(libc::O_RDWR))
}

fn content(file_system: &dyn FileSystem, name: &[u8], bytes: usize) -> FsResult<Vec<u8>> {
    let ino = file_system.lookup(Ino::ROOT, name)?.ino;
    let opened = file_system.open(ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)?;
    let mut out = vec![0; bytes];
    let read = file_system.read(ino, opened.handle, 0, &mut out)?;
    out.truncate(read);
    file_system.release(ino, opened.handle);
    file_system.forget(ino, 1);
    Ok(out)
}

fn sync(file_system: &dyn FileSystem) -> FsResult<()> {
    file_system.fsync(Ino::ROOT, Handle(0), false)
}

/// A name and the content of its file.
type Named = (Vec<u8>, Vec<u8>);

/// Files with content, committed, so that the index has them all, and some that are only in the journal.
fn prepared() -> (Medium, Vec<Named>) {
    let medium = Medium::formatted(SMALL, 1);
    let (_, file_system) = mount(&medium);
    let mut files = Vec::new();
    for number in 0..30 {
        let name = format!("file-{number}").into_bytes();
        let data = Prng::new(number).bytes(700 * usize::try_from(number).expect("few"));
        let file = create(&file_system, &name).expect("there is room");
        write(&file_system, file, 0, &data).expect("there is room");
        file_system
            .setxattr(file.0, b"user.note", &name, XattrFlags(0), false)
            .expect("there is room");
        if number == 20 {
            file_system.sync().expect("it commits");
        }
        files.push((name, data));
    }
    sync(&file_system).expect("it is written");
    (medium, files)
}

fn assert_all_read(file_system: &dyn FileSystem, files: &[Named], what: &str) {
    for (name, data) in files {
        let found = content(file_system, name, data.len() + 1);
        assert!(
            found.as_ref() == Ok(data),
            "{what}: {}: {:?}",
            name.escape_ascii(),
            found.map(|_| ())
        );
    }
}

/// Earlier, the index was replaced by a placeholder while a commit wrote the new one, and not restored: after one
/// failed write every read returned `EIO`, although the medium was intact.
#[test]
fn a_commit_that_fails_anywhere_leaves_every_file_readable() {
    let (medium, files) = prepared();
    let mut failed = 0;
    for operation in 0.. {
        let medium = medium.copy();
        let (faulty, file_system) = mount(&medium);
        for (name, _) in &files[..3] {
            file_system
                .removexattr(
                    file_system.lookup(Ino::ROOT, name).expect("it is there").ino,
                    b"user.note",
                )
                .expect("it is there");
        }
        faulty.fail(once(Class::Write, operation, Outcome::Nothing));
        let committed = file_system.sync();
        let Some(hit) = faulty.hit() else { break };
        assert_eq!(committed, Err(FsError::Io), "{hit}");
        assert_all_read(&file_system, &files, &hit);
        file_system.close().expect_err("a commit failed");
        assert_all_read(&file_system, &files, &hit);
        drop(file_system);
        let after = medium.mount().unwrap_or_else(|error| panic!("{hit}: {error}"));
        assert_all_read(&after, &files, &format!("{hit}, mounted again"));
        failed += 1;
    }
    assert!(failed >= 8, "only {failed} writes");
}

/// Earlier, an operation looked up the nodes it replaces after writing the new ones: a failed read then left half of
/// it in memory, to be written by the next commit, although the call promised no change.
#[test]
fn a_call_that_meets_a_failed_read_changes_nothing() {
    type Call = fn(&MountedWriter, Ino) -> FsResult<()>;
    let calls: [(&str, Call); 4] = [
        ("unlink", |mount, _| {
            mount.unlink(&contract::caller(), Ino::ROOT, b"file-5")
        }),
        ("rename over", |mount, _| {
            let (from, to) = ((Ino::ROOT, &b"file-6"[..]), (Ino::ROOT, &b"file-5"[..]));
            mount.rename(&contract::caller(), from, to, vfs::RenameFlags(0))
        }),
        ("truncate", |mount, ino| {
            let shorter = vfs::SetAttr {
                size: Some(1000),
                ..vfs::SetAttr::default()
            };
            mount.setattr(ino, None, &shorter).map(drop)
        }),
        ("setxattr", |mount, ino| {
            mount.setxattr(ino, b"user.note", &[1; 90], XattrFlags(0), false)
        }),
    ];
    let (medium, files) = prepared();
    let mut failed = 0;
    for (what, call) in calls {
        for operation in 0.. {
            let medium = medium.copy();
            let (faulty, file_system) = mount(&medium);
            let entry = file_system.lookup(Ino::ROOT, b"file-5").expect("it is there");
            file_system.forget(entry.ino, 1);
            faulty.fail(once(Class::Read, operation, Outcome::Nothing));
            let called = call(&file_system, entry.ino);
            let Some(hit) = faulty.hit() else { break };
            let what = format!("{what}, {hit}");
            if called.is_err() {
                assert_eq!(called, Err(FsError::Io), "{what}");
                assert_all_read(&file_system, &files, &what);
                let note = file_system.getxattr(entry.ino, b"user.note");
                assert_eq!(note, Ok(b"file-5".to_vec()), "{what}");
                assert_eq!(file_system.getattr(entry.ino, None), Ok(entry.attr), "{what}");
                failed += 1;
            }
            // Everything continues as if nothing had happened.
            create(&file_system, b"late").unwrap_or_else(|error| panic!("{what}: {error}"));
            file_system
                .close()
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            medium.judge(None, &what);
        }
    }
    assert!(failed >= 5, "only {failed} calls failed");
}

/// Earlier, a lock poisoned by a panic was taken as if nothing had happened, and the writer continued with half a
/// change in memory.
#[test]
fn after_a_panic_in_a_change_nothing_is_written_and_reads_go_on() {
    let (medium, files) = prepared();
    let (faulty, file_system) = mount(&medium);
    let file = create(&file_system, b"late").expect("there is room");
    faulty.fail(once(Class::Write, 0, Outcome::Panic));
    let panicked = catch_unwind(AssertUnwindSafe(|| write(&file_system, file, 0, &[7; 9000])));
    assert!(panicked.is_err(), "{panicked:?}");
    let writes = faulty.done(Class::Write);
    assert_eq!(
        file_system.unlink(&contract::caller(), Ino::ROOT, b"file-1"),
        Err(FsError::ReadOnly)
    );
    assert_eq!(write(&file_system, file, 0, b"x"), Err(FsError::ReadOnly));
    assert_eq!(sync(&file_system), Err(FsError::Io));
    file_system.close().expect_err("it panicked");
    assert_eq!(faulty.done(Class::Write), writes, "it was written to");
    assert_all_read(&file_system, &files, "after a panic");
    drop(file_system);
    medium.judge(None, "after a panic");
    assert_all_read(&medium.mount().expect("it mounts"), &files, "mounted again");
}

/// Earlier, a collection moved the readable nodes and unmapped the LEB with the others.
#[test]
fn a_collection_keeps_a_leb_of_which_a_part_cannot_be_read() {
    const FILES: usize = 24;
    let start = Medium::formatted(SMALL, 1);
    for spoiled in (0..FILES).step_by(5) {
        let medium = start.copy();
        let (faulty, file_system) = mount_with_cache(&medium, 1 << 20);
        let mut files = Vec::new();
        for number in 0..FILES {
            let name = format!("file-{number}").into_bytes();
            let file = create(&file_system, &name).expect("there is room");
            let data = Prng::new(u64::try_from(number).expect("few")).bytes(12_000);
            write(&file_system, file, 0, &data).expect("there is room");
            files.push((name, data, file));
        }
        file_system.sync().expect("it commits");
        let _ = content(&file_system, b"file-0", 1).expect("the index is cached");
        // The next read is that of a block of this file.
        faulty.fail(Fault {
            lasting: Lasting::ForEverThere,
            ..once(Class::Read, 0, Outcome::Done)
        });
        let read = content(&file_system, &files[spoiled].0, 4096);
        assert_eq!(read, Err(FsError::Io), "{:?}", faulty.hit());
        let mut prng = Prng::new(7);
        for _ in 0..400 {
            let number = prng.below_usize(FILES);
            let (_, data, file) = &mut files[number];
            if number != spoiled {
                let new = prng.bytes(8192);
                write(&file_system, *file, 0, &new).expect("there is room");
                data[..8192].copy_from_slice(&new);
            }
        }
        let statistics = file_system.statistics();
        assert_eq!(statistics.unreadable_lebs, 1, "{statistics:?}");
        assert!(statistics.collected_lebs > 0, "{statistics:?}");
        faulty.mend();
        let files: Vec<_> = files.into_iter().map(|(name, data, _)| (name, data)).collect();
        assert_all_read(&file_system, &files, "it can be read again");
        file_system.close().expect("it unmounts");
        drop(file_system);
        medium.judge(None, "collected");
        assert_all_read(&medium.mount().expect("it mounts"), &files, "mounted again");
    }
}

/// Finds two names with the same hash.
fn twins() -> (Vec<u8>, Vec<u8>) {
    let mut seen = HashMap::new();
    let mut prng = Prng::new(2);
    for _ in 0..1 << 20 {
        let name = format!("{:016x}", prng.next_u64()).into_bytes();
        if let Some(other) = seen.insert(name_hash_r5(&name), name.clone()) {
            return (other, name);
        }
    }
    unreachable!("32 bits have twins among a million")
}

/// Names with the same hash share a key. If the node of one was unreadable while a commit changed the other, it was
/// taken for gone and left out of the index.
#[test]
fn a_name_is_kept_when_it_cannot_be_read_while_another_of_its_hash_changes() {
    let (first, second) = twins();
    let medium = Medium::formatted(SMALL, 1);
    let (_, file_system) = mount(&medium);
    create(&file_system, &first).expect("there is room");
    file_system.close().expect("it unmounts");
    drop(file_system);
    for outcome in [Outcome::Nothing, Outcome::Done] {
        for operation in 0.. {
            let medium = medium.copy();
            let (faulty, file_system) = mount(&medium);
            faulty.fail(once(Class::Read, operation, outcome));
            let created = create(&file_system, &second);
            let committed = file_system.sync();
            let Some(hit) = faulty.hit() else { break };
            let what = format!("{outcome:?}, {hit}: {:?}, {committed:?}", created.map(drop));
            file_system
                .close()
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(file_system);
            let after = medium.mount().unwrap_or_else(|error| panic!("{what}: {error}"));
            after
                .lookup(Ino::ROOT, &first)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(after);
            medium.judge(None, &what);
        }
    }
}

/// Results of each call once the file system is read-only.
#[test]
fn after_a_failed_write_each_call_says_so_and_statistics_name_the_place() {
    let (medium, files) = prepared();
    let (faulty, file_system) = mount(&medium);
    assert_eq!(file_system.statistics().failure, None);
    let synced = create(&file_system, b"synced").expect("there is room");
    write(&file_system, synced, 0, b"synced").expect("there is room");
    sync(&file_system).expect("it is written");
    let unsynced = create(&file_system, b"unsynced").expect("there is room");
    write(&file_system, unsynced, 0, b"buffered").expect("it is buffered");
    faulty.fail(for_ever(Class::Write));
    // The background work is the first to encounter the error.
    file_system.work().expect_err("the medium fails");
    let failure = file_system.statistics().failure.expect("there is one");
    assert!(
        failure.contains("LEB ") && failure.contains("offset "),
        "{failure}"
    );

    assert_eq!(file_system.fsync(unsynced.0, unsynced.1, false), Err(FsError::Io));
    assert_eq!(
        file_system.fsync(unsynced.0, unsynced.1, true),
        Err(FsError::Io),
        "each time"
    );
    assert_eq!(file_system.sync(), Err(FsError::Io));
    assert_eq!(
        file_system.flush(unsynced.0, unsynced.1),
        Err(FsError::Io),
        "close(2) of what is not there"
    );
    assert_eq!(
        file_system.flush(synced.0, synced.1),
        Ok(()),
        "close(2) of what is"
    );
    assert_eq!(write(&file_system, synced, 0, b"more"), Err(FsError::ReadOnly));
    assert_eq!(create(&file_system, b"new").map(drop), Err(FsError::ReadOnly));
    assert_eq!(
        file_system.unlink(&contract::caller(), Ino::ROOT, b"file-1"),
        Err(FsError::ReadOnly)
    );
    let opened = file_system.open(synced.0, OpenFlags(libc::O_WRONLY), Privileges::Keep);
    assert_eq!(opened.map(drop), Err(FsError::ReadOnly));
    assert_eq!(
        content(&file_system, b"unsynced", 20),
        Ok(b"buffered".to_vec()),
        "reads go on"
    );
    assert_all_read(&file_system, &files, "reads go on");
    let closed = file_system.close().expect_err("not all was written").to_string();
    assert!(closed.contains(&*failure), "{closed}");
    assert_eq!(
        file_system.statistics().failure,
        Some(failure),
        "the first one stays"
    );
    drop(file_system);
    medium.judge(None, "read-only");
    let after = medium.mount().expect("it mounts");
    assert_eq!(content(&after, b"synced", 20), Ok(b"synced".to_vec()));
}

/// Earlier, background work left its writes in the host's page cache, where a host crash loses them, until the next
/// explicit sync.
#[test]
fn the_work_beside_a_mount_syncs_what_was_written_and_nothing_else() {
    let (medium, _) = prepared();
    let (faulty, file_system) = mount(&medium);
    let syncs = || faulty.done(Class::Settle);
    file_system.work().expect("it works");
    let before = syncs();
    file_system.work().expect("it works");
    assert_eq!(syncs(), before, "nothing was written");
    let file = create(&file_system, b"new").expect("there is room");
    file_system.work().expect("it works");
    assert_eq!(syncs(), before + 1, "a name was written");
    // Until it commits.
    let commits = file_system.statistics().commits;
    let mut rounds = 1;
    while file_system.statistics().commits == commits {
        write(&file_system, file, rounds * 4096, &Prng::new(rounds).bytes(4096)).expect("there is room");
        file_system.work().expect("it works");
        rounds += 1;
        // A commit syncs before it writes the master node.
        let committed = file_system.statistics().commits - commits;
        assert_eq!(syncs(), before + rounds + committed, "round {rounds}");
    }
    assert!(rounds > 2, "{rounds}");
    sync(&file_system).expect("it works");
    let before = syncs();
    file_system.work().expect("it works");
    assert_eq!(syncs(), before, "an fsync left nothing to do");
    write(&file_system, file, 0, b"more").expect("there is room");
    faulty.fail(once(Class::Settle, 0, Outcome::Nothing));
    file_system.work().expect_err("the sync fails");
    assert_eq!(write(&file_system, file, 0, b"x"), Err(FsError::ReadOnly));
}
