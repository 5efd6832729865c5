//! A read-write mount behaves like every file system of this project, on one chip and on arrays: a long random script
//! against a model, filling up and emptying; `contract.rs` has the contract tests. Afterwards the medium is
//! consistent for us and for `fsck.ubifs`.
//!
//! `TIDEGATE_SEED` and `TIDEGATE_MODEL_STEPS` select another script.

use crate::support::medium::Medium;
use crate::support::rig::{SMALL, Shape};
use testkit::contract;
use testkit::lab::Fsck;
use testkit::model::{self, ModelRun};
use testkit::prng::Prng;
use vfs::{FileSystem, FsError, Handle, Ino, OpenFlags, Privileges, RenameFlags, SetAttr, WriteMode};

const SEED: u64 = 0x4D57;

/// Large enough for the contract and the model.
const ROOMY: Shape = Shape {
    page: 2048,
    pages: 64,
    blocks: 160,
    lebs: 140,
    fanout: 8,
    reserved_bytes: 0,
};

fn fsck() -> Option<Fsck> {
    Fsck::available().ok()
}

fn root(name: &[u8]) -> (Ino, &[u8]) {
    (Ino::ROOT, name)
}

/// Creates and opens a file.
fn create(file_system: &dyn FileSystem, name: &[u8]) -> (Ino, Handle) {
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    let made = file_system.create(&contract::caller(), Ino::ROOT, name, contract::FILE, flags);
    let (entry, opened) = made.expect("there is room for it");
    (entry.ino, opened.handle)
}

fn write(
    file_system: &dyn FileSystem,
    (ino, handle): (Ino, Handle),
    offset: u64,
    data: &[u8],
) -> Result<usize, FsError> {
    file_system.write(ino, handle, offset, data, contract::plain(libc::O_RDWR))
}

#[test]
fn a_random_script_of_several_threads_gives_what_the_model_gives() {
    let fsck = fsck();
    for members in [1, 2, 4] {
        let shape = match members {
            // The long variant has many steps on this medium and leaves more data.
            1 => Shape {
                blocks: 480,
                lebs: 450,
                ..ROOMY
            },
            _ => Shape {
                pages: 16,
                blocks: 320,
                lebs: 280,
                ..ROOMY
            },
        };
        let steps = if testkit::is_full() {
            // The model keeps all inodes: unlinked files stay until the end.
            12_000
        } else {
            2_400
        };
        let mut run = ModelRun::from_environment(
            SEED + members,
            steps,
            "TIDEGATE_SEED={seed} cargo test -p ubifs --test suite mounted_writer::random_script",
        );
        // A single thread makes failures reproducible.
        run.threads = if members == 1 { 4 } else { 1 };
        let medium = Medium::formatted(shape, usize::try_from(members).expect("few"));
        let file_system = medium.mount().expect("it mounts");
        model::run(&file_system, run);
        drop(file_system);
        medium.judge(fsck.as_ref(), &format!("{members} members, the process is gone"));
        let file_system = medium.mount().expect("it mounts");
        file_system.close().expect("it unmounts");
        medium.judge(fsck.as_ref(), &format!("{members} members"));
    }
}

#[test]
fn a_full_file_system_says_so_keeps_what_it_has_and_is_usable_once_files_go() {
    let fsck = fsck();
    let mut media = vec![(1, SMALL), (2, SMALL)];
    if testkit::is_full() {
        media.extend([(1, ROOMY), (4, ROOMY)]);
    }
    for (members, shape) in media {
        let medium = Medium::formatted(shape, members);
        let file_system = medium.mount().expect("it mounts");
        let mut prng = Prng::named(SEED, "fill");
        let mut rounds = Vec::new();
        for round in 0..3 {
            let mut files = Vec::new();
            'full: for number in 0.. {
                let name = format!("file-{round}-{number}").into_bytes();
                let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
                let made = file_system.create(&contract::caller(), Ino::ROOT, &name, contract::FILE, flags);
                let (ino, handle) = match made {
                    Ok((entry, opened)) => (entry.ino, opened.handle),
                    Err(FsError::NoSpace) => break,
                    Err(error) => panic!("round {round}: {error}"),
                };
                let mut content = Vec::new();
                let mut is_full = false;
                while content.len() < 300_000 {
                    let data = prng.bytes(20_000);
                    match write(
                        &file_system,
                        (ino, handle),
                        u64::try_from(content.len()).expect("small"),
                        &data,
                    ) {
                        Ok(written) => content.extend_from_slice(&data[..written]),
                        Err(FsError::NoSpace) => {
                            is_full = true;
                            break;
                        }
                        Err(error) => panic!("round {round}: {error}"),
                    }
                }
                file_system.release(ino, handle);
                files.push((name, content));
                if is_full {
                    break 'full;
                }
            }
            let bytes: usize = files.iter().map(|(_, content)| content.len()).sum();
            rounds.push(bytes);
            let said = file_system.statfs(Ino::ROOT).expect("it has figures");
            assert!(
                said.blocks_available * 4096 <= u64::from(2 * shape.page * shape.pages).max(64 << 10),
                "{said:?}, and nothing can be written"
            );
            for (name, content) in &files {
                let entry = file_system.lookup(Ino::ROOT, name).expect("it was made");
                assert_eq!(entry.attr.size, u64::try_from(content.len()).expect("small"));
                let opened = file_system.open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep);
                let handle = opened.expect("it opens").handle;
                let mut out = vec![0; content.len()];
                assert_eq!(
                    file_system.read(entry.ino, handle, 0, &mut out),
                    Ok(content.len())
                );
                assert!(out == *content, "round {round}: another content");
                file_system.release(entry.ino, handle);
                file_system.forget(entry.ino, 2);
                let removed = file_system.unlink(&contract::caller(), Ino::ROOT, name);
                assert_eq!(removed, Ok(()), "round {round}: a full file system lets files go");
            }
        }
        assert!(
            rounds.iter().all(|bytes| *bytes > rounds[0] * 9 / 10),
            "less room each time: {rounds:?}"
        );
        file_system.close().expect("it unmounts");
        medium.judge(fsck.as_ref(), "filled and emptied");
    }
}

#[test]
fn space_that_is_overwritten_is_collected_while_files_are_open() {
    let medium = Medium::formatted(SMALL, 1);
    let file_system = medium.mount().expect("it mounts");
    let mut prng = Prng::named(SEED, "overwrite");
    let files: Vec<_> = (0..6)
        .map(|number| create(&file_system, format!("file-{number}").as_bytes()))
        .collect();
    let mut contents = vec![vec![0_u8; 40_000]; files.len()];
    for (file, content) in files.iter().zip(&contents) {
        assert_eq!(write(&file_system, *file, 0, content), Ok(content.len()));
    }
    // Ten times the size of the medium.
    for round in 0..1500 {
        let number = prng.below_usize(files.len());
        let (at, bytes) = (prng.below_usize(36_000), 1 + prng.below_usize(4000));
        let data = prng.bytes(bytes);
        let written = write(
            &file_system,
            files[number],
            u64::try_from(at).expect("small"),
            &data,
        );
        assert_eq!(written, Ok(bytes), "round {round}");
        contents[number][at..at + bytes].copy_from_slice(&data);
    }
    let statistics = file_system.statistics();
    assert!(
        statistics.collected_lebs > 10 && statistics.commits > 10,
        "{statistics:?}"
    );
    for ((ino, handle), content) in files.iter().zip(&contents) {
        let mut out = vec![0; content.len()];
        assert_eq!(file_system.read(*ino, *handle, 0, &mut out), Ok(content.len()));
        assert!(out == *content);
    }
    file_system.close().expect("it unmounts");
    medium.judge(fsck().as_ref(), "overwritten");
}

#[test]
fn files_without_a_name_live_until_they_are_closed_and_not_longer() {
    let medium = Medium::formatted(SMALL, 1);
    let file_system = medium.mount().expect("it mounts");
    let held = create(&file_system, b"held");
    assert_eq!(write(&file_system, held, 0, &[5; 9000]), Ok(9000));
    file_system
        .unlink(&contract::caller(), Ino::ROOT, b"held")
        .expect("it has that name");
    // It is an orphan in a commit, and in the journal behind it.
    file_system.sync().expect("it commits");
    assert_eq!(write(&file_system, held, 9000, &[6; 9000]), Ok(9000));
    let unnamed = file_system.tmpfile(
        &contract::caller(),
        Ino::ROOT,
        contract::FILE,
        OpenFlags(libc::O_RDWR),
    );
    let (unnamed, opened) = unnamed.expect("there is room for it");
    let file = (unnamed.ino, opened.handle);
    assert_eq!(write(&file_system, file, 0, b"unnamed"), Ok(7));
    assert_eq!(file_system.statistics().orphans, 2);
    file_system.fsync(held.0, held.1, false).expect("it syncs");
    let cut = medium.copy();

    let linked = file_system.link(unnamed.ino, Ino::ROOT, b"named");
    assert_eq!(linked.map(|entry| entry.attr.nlink), Ok(1));
    file_system.release(held.0, held.1);
    file_system.forget(held.0, 1);
    assert_eq!(file_system.getattr(held.0, None).map(|_| ()), Err(FsError::Stale));
    assert_eq!(file_system.statistics().orphans, 0);
    file_system.close().expect("it unmounts");
    medium.judge(fsck().as_ref(), "closed");
    let file_system = medium.mount().expect("it mounts");
    let named = file_system.lookup(Ino::ROOT, b"named").expect("it has a name");
    assert_eq!((named.ino, named.attr.size), (unnamed.ino, 7));

    // Power went while both were open.
    let file_system = cut.mount().expect("it mounts");
    for ino in [held.0, unnamed.ino] {
        assert_eq!(file_system.getattr(ino, None).map(|_| ()), Err(FsError::Stale));
    }
    drop(file_system);
    cut.judge(fsck().as_ref(), "power went");
}

#[test]
fn names_change_places_and_leave_whiteouts_in_one_step() {
    let medium = Medium::formatted(SMALL, 1);
    let file_system = medium.mount().expect("it mounts");
    let caller = contract::caller();
    let directory = file_system
        .mkdir(&caller, Ino::ROOT, b"directory", contract::DIRECTORY)
        .expect("there is room for it")
        .ino;
    let file = create(&file_system, b"file");
    let rename = |from, to, flags| file_system.rename(&caller, from, to, RenameFlags(flags));
    let below = file_system
        .mkdir(&caller, directory, b"below", contract::DIRECTORY)
        .expect("there is room for it")
        .ino;
    let links = |ino| file_system.getattr(ino, None).expect("it is there").nlink;
    assert_eq!((links(Ino::ROOT), links(directory)), (3, 3));
    assert_eq!(
        rename(root(b"file"), (directory, b"below"), libc::RENAME_EXCHANGE),
        Ok(())
    );
    assert_eq!((links(Ino::ROOT), links(directory)), (4, 2));
    let found = |parent, name: &[u8]| file_system.lookup(parent, name).map(|entry| entry.ino);
    assert_eq!(found(Ino::ROOT, b"file"), Ok(below));
    assert_eq!(found(directory, b"below"), Ok(file.0));
    assert_eq!(
        rename(root(b"directory"), (directory, b"below"), libc::RENAME_EXCHANGE),
        Err(FsError::Invalid)
    );
    assert_eq!(
        rename((directory, b"below"), root(b"moved"), libc::RENAME_WHITEOUT),
        Ok(())
    );
    let whiteout = file_system
        .lookup(directory, b"below")
        .expect("a whiteout is left");
    assert_eq!((whiteout.attr.mode, whiteout.attr.rdev), (libc::S_IFCHR, 0));
    assert_eq!(found(Ino::ROOT, b"moved"), Ok(file.0));
    assert_eq!(
        rename(root(b"moved"), root(b"file"), libc::RENAME_NOREPLACE),
        Err(FsError::Exists)
    );
    file_system.close().expect("it unmounts");
    medium.judge(fsck().as_ref(), "renamed");
}

#[test]
fn flags_forbid_changes_until_they_are_taken_back() {
    const SET_FLAGS: u32 = 0x4008_6602;
    let medium = Medium::formatted(SMALL, 1);
    let file_system = medium.mount().expect("it mounts");
    let file = create(&file_system, b"file");
    let set = |flags: u32| file_system.ioctl(file.0, file.1, SET_FLAGS, &flags.to_le_bytes(), 0);
    set(0x10).expect("it can be immutable");
    assert_eq!(
        file_system.unlink(&contract::caller(), Ino::ROOT, b"file"),
        Err(FsError::NotPermitted)
    );
    let shorter = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    let cut = file_system.setattr(file.0, None, &shorter);
    assert_eq!(cut.map(|_| ()), Err(FsError::NotPermitted));
    assert_eq!(set(0x4000_0000).map(|_| ()), Err(FsError::NotSupported));
    set(0).expect("it can be taken back");
    assert_eq!(
        file_system.unlink(&contract::caller(), Ino::ROOT, b"file"),
        Ok(())
    );
}

#[test]
fn what_is_flagged_to_be_synced_is_there_after_a_power_cut() {
    const SET_FLAGS: u32 = 0x4008_6602;
    let medium = Medium::formatted(SMALL, 1);
    let file_system = medium.mount().expect("it mounts");
    let caller = contract::caller();
    let mkdir = |name: &[u8]| {
        let made = file_system.mkdir(&caller, Ino::ROOT, name, contract::DIRECTORY);
        made.expect("there is room for it").ino
    };
    let (flagged, plain) = (mkdir(b"flagged"), mkdir(b"plain"));
    let set = |ino, flags: u32| file_system.ioctl(ino, Handle(0), SET_FLAGS, &flags.to_le_bytes(), 0);
    set(flagged, 0x1_0000).expect("directories can be so");
    let make = |parent, name: &[u8]| {
        let made = file_system.mknod(&caller, parent, name, contract::FILE);
        made.expect("there is room for it").ino
    };
    make(flagged, b"old");
    let renamed = file_system.rename(&caller, (flagged, b"old"), (flagged, b"new"), RenameFlags(0));
    assert_eq!(renamed, Ok(()));
    let file = make(flagged, b"file");
    set(file, 0x08).expect("files can be so");
    let mode = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    file_system.setattr(file, None, &mode).expect("it can change");
    make(plain, b"lost");
    let after = medium.copy().mount().expect("it mounts");
    assert_eq!(after.lookup(flagged, b"old").map(|_| ()), Err(FsError::NotFound));
    after.lookup(flagged, b"new").expect("it was synced");
    let found = after.lookup(flagged, b"file").expect("it was synced");
    assert_eq!(found.attr.mode & 0o777, 0o600);
    assert_eq!(after.lookup(plain, b"lost").map(|_| ()), Err(FsError::NotFound));
}

#[test]
fn the_reserve_is_left_to_root() {
    let shape = Shape {
        reserved_bytes: 150_000,
        ..SMALL
    };
    let medium = Medium::formatted(shape, 1);
    let file_system = medium.mount().expect("it mounts");
    let file = create(&file_system, b"file");
    let data = Prng::named(SEED, "reserve").bytes(4096);
    let fill = |start: u64, privileges| {
        let mode = WriteMode {
            privileges,
            ..contract::plain(libc::O_RDWR)
        };
        let mut offset = start;
        loop {
            match file_system.write(file.0, file.1, offset, &data, mode) {
                Ok(written) => offset += u64::try_from(written).expect("small"),
                Err(error) => return (error, offset),
            }
        }
    };
    let said = file_system.statfs(Ino::ROOT).expect("it has figures");
    assert_eq!(
        said.blocks_free - said.blocks_available,
        150_000_u64.div_ceil(4096)
    );
    let (error, first) = fill(0, Privileges::Kill { gid: 5 });
    assert_eq!(error, FsError::NoSpace);
    let said = file_system.statfs(Ino::ROOT).expect("it has figures");
    assert!(said.blocks_available < 16, "{said:?}");
    let (error, second) = fill(first, Privileges::Keep);
    assert_eq!(error, FsError::NoSpace);
    assert!(second - first > 100_000, "{first}, {second}");
    file_system.close().expect("it unmounts");
    medium.judge(fsck().as_ref(), "filled into the reserve");
}
