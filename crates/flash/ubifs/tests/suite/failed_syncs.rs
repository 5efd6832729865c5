//! Failed syncs of an image, and failed commits before a sync: data that is not durable is reported as lost, all
//! other data becomes durable.

use std::sync::Arc;

use crate::support::faulty::{Class, Fault, FaultyVolume, Lasting, Outcome};
use crate::support::medium::{Medium, clock};
use crate::support::rig::SMALL;
use testkit::contract;
use testkit::prng::Prng;
use ubifs::{MountedWriter, OpenOptions, Writer};
use vfs::{FileSystem, FsError, Handle, Ino, OpenFlags};

/// A mount on a volume that can fail. Without an index cache, each search reads the index.
fn mount(medium: &Medium) -> (Arc<FaultyVolume>, MountedWriter) {
    let faulty = FaultyVolume::new(medium.volume().expect("it attaches"), None);
    let options = OpenOptions {
        index_cache_bytes: 0,
        ..OpenOptions::standard()
    };
    let writer = Writer::open(faulty.clone(), options).expect("it opens");
    (faulty, MountedWriter::new(writer, Box::new(|_| {}), clock()))
}

fn fault(class: Class, lasting: Lasting) -> Fault {
    Fault {
        class,
        operation: 0,
        outcome: Outcome::Nothing,
        lasting,
    }
}

/// Creates a file with content.
fn put(mount: &MountedWriter, name: &str, content: &[u8]) -> (Ino, Handle) {
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    let made = mount.create(
        &contract::caller(),
        Ino::ROOT,
        name.as_bytes(),
        contract::FILE,
        flags,
    );
    let (entry, opened) = made.expect("there is room");
    let file = (entry.ino, opened.handle);
    let written = mount.write(file.0, file.1, 0, content, contract::plain(libc::O_RDWR));
    assert_eq!(written, Ok(content.len()));
    file
}

fn has(mount: &MountedWriter, name: &str, content: &[u8]) -> bool {
    let found = mount.lookup(Ino::ROOT, name.as_bytes()).expect("it is there");
    let flags = OpenFlags(libc::O_RDONLY);
    let opened = mount
        .open(found.ino, flags, vfs::Privileges::Keep)
        .expect("it opens");
    let mut out = vec![0; content.len() + 1];
    let read = mount
        .read(found.ino, opened.handle, 0, &mut out)
        .expect("it can be read");
    out[..read] == *content
}

/// Earlier, nothing was buffered after a failed sync, so no loss was reported: closing a file succeeded, and an
/// unmount reported 0 lost bytes. The host drops data that it could not write, and its next sync succeeds.
#[test]
fn after_a_failed_sync_what_was_written_since_the_last_good_one_counts_as_lost() {
    let medium = Medium::formatted(SMALL, 1);
    let (faulty, mount) = mount(&medium);
    let kept = put(&mount, "kept", &Prng::new(1).bytes(5000));
    mount.fsync(kept.0, kept.1, false).expect("it is synced");
    assert_eq!(mount.statistics().unwritten_bytes, 0);
    let lost = put(&mount, "lost", &Prng::new(2).bytes(9000));
    faulty.fail(fault(Class::Settle, Lasting::Once));
    assert_eq!(mount.fsync(lost.0, lost.1, false), Err(FsError::Io));
    for what in ["at once", "after an unmount"] {
        let bytes = mount.statistics().unwritten_bytes;
        assert!((9000..14_000).contains(&bytes), "{what}: {bytes}");
        assert_eq!(mount.flush(lost.0, lost.1), Err(FsError::Io), "{what}");
        assert_eq!(
            mount.flush(kept.0, kept.1),
            Ok(()),
            "{what}: it was synced before"
        );
        assert_eq!(mount.fsync(kept.0, kept.1, false), Err(FsError::Io), "{what}");
        mount.close().expect_err("a sync failed");
    }
}

/// The same for a failure after a commit.
#[test]
fn a_sync_that_fails_after_a_commit_counts_too() {
    let medium = Medium::formatted(SMALL, 1);
    let (faulty, mount) = mount(&medium);
    let lost = put(&mount, "lost", &Prng::new(3).bytes(3000));
    faulty.fail(fault(Class::Settle, Lasting::ForEver));
    assert_eq!(mount.sync(), Err(FsError::Io));
    assert_eq!(mount.flush(lost.0, lost.1), Err(FsError::Io));
    assert!(mount.statistics().unwritten_bytes > 3000);
}

/// Earlier, data written before an error stayed in the host's page cache, and nothing told whether it became durable.
#[test]
fn an_error_that_ends_writing_syncs_what_was_written() {
    for is_lost in [false, true] {
        let medium = Medium::formatted(SMALL, 1);
        let (faulty, mount) = mount(&medium);
        let file = put(&mount, "file", &Prng::new(4).bytes(20_000));
        let before = faulty.done(Class::Settle);
        if is_lost {
            // The sync after the first error fails.
            faulty.fail(fault(Class::Settle, Lasting::ForEver));
            assert_eq!(mount.work().is_err(), is_lost);
        } else {
            faulty.fail(fault(Class::Write, Lasting::ForEver));
            mount.work().expect_err("the medium fails");
        }
        assert_eq!(faulty.done(Class::Settle), before + 1, "it is synced once");
        let bytes = mount.statistics().unwritten_bytes;
        assert_eq!(bytes > 20_000, is_lost, "{bytes}");
        assert_eq!(
            mount.flush(file.0, file.1),
            Err(FsError::Io),
            "some is buffered or lost"
        );
    }
}

/// Earlier, a failed commit ended the background work: written data was not synced in this and all later rounds.
#[test]
fn a_commit_that_fails_keeps_nothing_from_being_synced() {
    let medium = Medium::formatted(SMALL, 1);
    let (faulty, mount) = mount(&medium);
    // An index of several nodes, so that a commit has to read some.
    for number in 0..40 {
        put(&mount, &format!("old-{number}"), &[1; 30]);
    }
    mount.sync().expect("it commits");
    let mut contents = Vec::new();
    loop {
        let statistics = mount.statistics();
        if statistics.journal_bytes > statistics.journal_bytes_max / 2 {
            break;
        }
        let content = Prng::new(u64::try_from(contents.len()).expect("few")).bytes(4000);
        put(&mount, &format!("new-{}", contents.len()), &content);
        contents.push(content);
    }
    let last = put(&mount, "last", b"last");
    let (commits, syncs) = (mount.statistics().commits, faulty.done(Class::Settle));
    faulty.fail(fault(Class::Read, Lasting::ForEver));
    mount.work().expect_err("a commit reads the index");
    assert_eq!(mount.statistics().commits, commits);
    assert_eq!(
        mount.statistics().failure,
        None,
        "a read that failed ends nothing"
    );
    assert_eq!(
        faulty.done(Class::Settle),
        syncs + 1,
        "what was written is synced"
    );
    assert_eq!(mount.statistics().unwritten_bytes, 0, "all was written");
    mount.sync().expect_err("a commit reads the index");
    // Another write, and the end of the mount.
    let more = mount.write(last.0, last.1, 0, b"most", contract::plain(libc::O_RDWR));
    faulty.mend();
    if more.is_err() {
        let written = mount.write(last.0, last.1, 0, b"most", contract::plain(libc::O_RDWR));
        assert_eq!(written, Ok(4));
    }
    let syncs = faulty.done(Class::Settle);
    faulty.fail(fault(Class::Read, Lasting::ForEver));
    mount.close().expect_err("a commit reads the index");
    assert_eq!(
        faulty.done(Class::Settle),
        syncs + 1,
        "what was written is synced"
    );
    assert_eq!(mount.statistics().unwritten_bytes, 0, "all was written");
    drop(mount);
    medium.judge(None, "left in the middle");
    let after = medium.mount().expect("it mounts");
    assert!(has(&after, "last", b"most"));
    for (number, content) in contents.iter().enumerate() {
        assert!(has(&after, &format!("new-{number}"), content), "{number}");
    }
}
