//! Cases about names: directories, links, renames, listings.

use vfs::{FileKind, FileSystem, FsError, FsResult, Ino, NewNode, OpenFlags, RenameFlags};

use super::{Case, Scene, caller};

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    vec![
        ("the_root_is_a_directory", the_root_is_a_directory),
        (
            "a_missing_name_is_not_found_and_a_long_one_too_long",
            missing_and_long_names,
        ),
        ("names_keep_any_bytes", names_keep_any_bytes),
        ("creating_never_opens_a_file_that_is_there", exclusive_creation),
        ("the_umask_applies_to_what_is_made", the_umask_applies),
        (
            "a_directory_counts_its_subdirectories",
            a_directory_counts_its_subdirectories,
        ),
        ("a_directory_that_is_not_empty_stays", a_full_directory_stays),
        (
            "files_and_directories_are_removed_by_their_own_calls",
            removal_by_kind,
        ),
        ("symbolic_links_keep_their_target", symbolic_links),
        ("hard_links_are_one_inode", hard_links),
        ("a_rename_replaces_and_keeps_the_inode", rename_replaces),
        (
            "a_rename_with_unflushed_writes_keeps_the_data",
            rename_keeps_unflushed_data,
        ),
        ("renames_that_make_no_sense_fail", rename_errors),
        ("a_rename_can_refuse_to_replace_or_exchange", rename_flags),
        ("special_files_are_made_as_asked", special_files),
        ("a_listing_names_everything_once_in_any_batch", listings),
        ("an_unnamed_file_has_no_name", unnamed_files),
        ("a_forgotten_inode_is_found_again_by_name", forgetting),
    ]
}

fn rename<F: FileSystem>(
    scene: &Scene<'_, F>,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    flags: u32,
) -> FsResult<()> {
    scene.file_system.rename(&caller(), from, to, RenameFlags(flags))
}

fn the_root_is_a_directory<F: FileSystem>(scene: &Scene<'_, F>) {
    assert_eq!(scene.attr(Ino::ROOT).kind(), FileKind::Directory);
    assert!(
        scene.list(Ino::ROOT, 100, false).is_empty(),
        "a fresh file system is not empty"
    );
}

fn missing_and_long_names<F: FileSystem>(scene: &Scene<'_, F>) {
    assert_eq!(
        scene.lookup(Ino::ROOT, b"missing").map(|_| ()),
        Err(FsError::NotFound)
    );
    assert_eq!(
        scene.lookup(Ino::ROOT, &[b'x'; 256]).map(|_| ()),
        Err(FsError::NameTooLong)
    );
    let file = scene.create(b"file");
    assert_eq!(
        scene.lookup(file.ino, b"below").map(|_| ()),
        Err(FsError::NotADirectory)
    );
}

fn names_keep_any_bytes<F: FileSystem>(scene: &Scene<'_, F>) {
    let odd: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let names: [&[u8]; 4] = [&odd, b"\xFF\xFE", b" ", b"new\nline"];
    for name in names {
        let file = scene.create(name);
        assert_eq!(scene.lookup(Ino::ROOT, name).map(|entry| entry.ino), Ok(file.ino));
    }
    let mut listed: Vec<_> = scene
        .list(Ino::ROOT, 2, false)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut expected = names.map(<[u8]>::to_vec).to_vec();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}

fn exclusive_creation<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"content");
    let create = |flags: i32| {
        let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT | flags);
        scene
            .file_system
            .create(&caller(), Ino::ROOT, b"file", super::FILE, flags)
    };
    assert_eq!(create(libc::O_EXCL).map(|_| ()), Err(FsError::Exists));
    // The kernel believed the name free, and has checked no rights on the file.
    assert_eq!(create(0).map(|_| ()), Err(FsError::Stale));
    assert_eq!(create(libc::O_TRUNC).map(|_| ()), Err(FsError::Stale));
    assert_eq!(scene.read(file, 0, 100), b"content");
    let made = scene
        .file_system
        .mkdir(&caller(), Ino::ROOT, b"file", super::DIRECTORY);
    assert_eq!(made.map(|_| ()), Err(FsError::Exists));
}

fn the_umask_applies<F: FileSystem>(scene: &Scene<'_, F>) {
    let node = |mode| NewNode {
        mode,
        umask: 0o027,
        rdev: 0,
    };
    let flags = OpenFlags(libc::O_RDWR | libc::O_CREAT);
    let node_of_file = node(libc::S_IFREG | 0o666);
    let made = scene
        .file_system
        .create(&caller(), Ino::ROOT, b"file", node_of_file, flags);
    assert_eq!(made.map(|(entry, _)| entry.attr.mode), Ok(libc::S_IFREG | 0o640));
    let made = scene
        .file_system
        .mkdir(&caller(), Ino::ROOT, b"dir", node(libc::S_IFDIR | 0o777));
    assert_eq!(made.map(|entry| entry.attr.mode), Ok(libc::S_IFDIR | 0o750));
}

fn a_directory_counts_its_subdirectories<F: FileSystem>(scene: &Scene<'_, F>) {
    let above = scene.mkdir(Ino::ROOT, b"above");
    let empty = scene.attr(above).nlink;
    scene.mkdir(above, b"one");
    scene.mkdir(above, b"two");
    let two_more = scene.attr(above).nlink;
    // Some file systems (btrfs) always report 1.
    assert!(
        two_more == empty + 2 || (empty, two_more) == (1, 1),
        "{empty} links became {two_more}"
    );
}

fn a_full_directory_stays<F: FileSystem>(scene: &Scene<'_, F>) {
    let above = scene.mkdir(Ino::ROOT, b"above");
    scene.mkdir(above, b"below");
    assert_eq!(
        scene.file_system.rmdir(&caller(), Ino::ROOT, b"above"),
        Err(FsError::NotEmpty)
    );
    assert_eq!(scene.file_system.rmdir(&caller(), above, b"below"), Ok(()));
    assert_eq!(scene.file_system.rmdir(&caller(), Ino::ROOT, b"above"), Ok(()));
    assert_eq!(
        scene.lookup(Ino::ROOT, b"above").map(|_| ()),
        Err(FsError::NotFound)
    );
}

fn removal_by_kind<F: FileSystem>(scene: &Scene<'_, F>) {
    scene.mkdir(Ino::ROOT, b"dir");
    scene.create(b"file");
    assert_eq!(
        scene.file_system.rmdir(&caller(), Ino::ROOT, b"file"),
        Err(FsError::NotADirectory)
    );
    let unlinked = scene.file_system.unlink(&caller(), Ino::ROOT, b"dir");
    assert!(
        matches!(unlinked, Err(FsError::IsADirectory | FsError::NotPermitted)),
        "{unlinked:?}"
    );
    assert_eq!(scene.file_system.unlink(&caller(), Ino::ROOT, b"file"), Ok(()));
    assert_eq!(
        scene.file_system.unlink(&caller(), Ino::ROOT, b"file"),
        Err(FsError::NotFound)
    );
}

fn symbolic_links<F: FileSystem>(scene: &Scene<'_, F>) {
    let target = b"../any/where\xFF";
    let entry = scene
        .file_system
        .symlink(&caller(), Ino::ROOT, b"link", target)
        .expect("a link can be made");
    assert_eq!(entry.attr.kind(), FileKind::Symlink);
    assert_eq!(scene.file_system.readlink(entry.ino).as_deref(), Ok(&target[..]));
    assert_eq!(entry.attr.size, u64::try_from(target.len()).unwrap_or(0));
}

fn hard_links<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"one");
    scene.write(file, 0, b"shared");
    let entry = scene
        .file_system
        .link(file.ino, Ino::ROOT, b"two")
        .expect("a second name can be made");
    assert_eq!((entry.ino, entry.attr.nlink, entry.attr.size), (file.ino, 2, 6));
    assert_eq!(
        scene.lookup(Ino::ROOT, b"two").map(|entry| entry.ino),
        Ok(file.ino)
    );
    assert_eq!(scene.file_system.unlink(&caller(), Ino::ROOT, b"one"), Ok(()));
    assert_eq!(scene.attr(file.ino).nlink, 1);
    let again = scene.open(entry.ino, libc::O_RDONLY);
    assert_eq!(scene.read(again, 0, 100), b"shared");
    assert_eq!(
        scene.file_system.link(file.ino, Ino::ROOT, b"two").map(|_| ()),
        Err(FsError::Exists)
    );
}

fn rename_replaces<F: FileSystem>(scene: &Scene<'_, F>) {
    let (moved, replaced) = (scene.create(b"from"), scene.create(b"to"));
    let dir = scene.mkdir(Ino::ROOT, b"dir");
    assert_eq!(rename(scene, (Ino::ROOT, b"from"), (Ino::ROOT, b"to"), 0), Ok(()));
    assert_eq!(
        scene.lookup(Ino::ROOT, b"to").map(|entry| entry.ino),
        Ok(moved.ino)
    );
    assert_eq!(
        scene.lookup(Ino::ROOT, b"from").map(|_| ()),
        Err(FsError::NotFound)
    );
    let gone = scene
        .file_system
        .getattr(replaced.ino, Some(replaced.handle))
        .map(|attr| attr.nlink);
    assert_eq!(gone, Ok(0));
    assert_eq!(rename(scene, (Ino::ROOT, b"to"), (dir, b"in"), 0), Ok(()));
    assert_eq!(scene.lookup(dir, b"in").map(|entry| entry.ino), Ok(moved.ino));
}

fn rename_keeps_unflushed_data<F: FileSystem>(scene: &Scene<'_, F>) {
    let (moved, replaced) = (scene.create(b"from"), scene.create(b"to"));
    scene.write(moved, 0, b"moved");
    scene.write(replaced, 0, b"replaced");
    assert_eq!(rename(scene, (Ino::ROOT, b"from"), (Ino::ROOT, b"to"), 0), Ok(()));
    let entry = scene.lookup(Ino::ROOT, b"to").expect("the file was moved here");
    assert_eq!(entry.attr.size, 5);
    let file = scene.open(entry.ino, libc::O_RDONLY);
    assert_eq!(scene.read(file, 0, 100), b"moved");
    assert_eq!(scene.read(replaced, 0, 100), b"replaced");
}

fn rename_errors<F: FileSystem>(scene: &Scene<'_, F>) {
    scene.create(b"file");
    let dir = scene.mkdir(Ino::ROOT, b"dir");
    let below = scene.mkdir(dir, b"below");
    let root = |name: &'static [u8]| (Ino::ROOT, name);
    assert_eq!(
        rename(scene, root(b"missing"), root(b"to"), 0),
        Err(FsError::NotFound)
    );
    assert_eq!(
        rename(scene, root(b"dir"), (below, b"in"), 0),
        Err(FsError::Invalid)
    );
    assert_eq!(
        rename(scene, root(b"file"), root(b"dir"), 0),
        Err(FsError::IsADirectory)
    );
    assert_eq!(
        rename(scene, root(b"dir"), root(b"file"), 0),
        Err(FsError::NotADirectory)
    );
    scene.mkdir(Ino::ROOT, b"other");
    assert_eq!(
        rename(scene, root(b"other"), root(b"dir"), 0),
        Err(FsError::NotEmpty)
    );
}

fn rename_flags<F: FileSystem>(scene: &Scene<'_, F>) {
    let (one, other) = (scene.create(b"one"), scene.create(b"other"));
    let root = |name: &'static [u8]| (Ino::ROOT, name);
    match rename(scene, root(b"one"), root(b"other"), libc::RENAME_NOREPLACE) {
        Err(FsError::Invalid | FsError::NotSupported) => return,
        refused => assert_eq!(refused, Err(FsError::Exists)),
    }
    assert_eq!(
        rename(scene, root(b"one"), root(b"third"), libc::RENAME_NOREPLACE),
        Ok(())
    );
    match rename(scene, root(b"third"), root(b"other"), libc::RENAME_EXCHANGE) {
        Err(FsError::Invalid | FsError::NotSupported) => {}
        exchanged => {
            assert_eq!(exchanged, Ok(()));
            assert_eq!(
                scene.lookup(Ino::ROOT, b"other").map(|entry| entry.ino),
                Ok(one.ino)
            );
            assert_eq!(
                scene.lookup(Ino::ROOT, b"third").map(|entry| entry.ino),
                Ok(other.ino)
            );
        }
    }
}

fn special_files<F: FileSystem>(scene: &Scene<'_, F>) {
    for (name, bits) in [
        (&b"fifo"[..], libc::S_IFIFO),
        (b"socket", libc::S_IFSOCK),
        (b"file", libc::S_IFREG),
    ] {
        let node = NewNode {
            mode: bits | 0o600,
            umask: 0,
            rdev: 0,
        };
        match scene.file_system.mknod(&caller(), Ino::ROOT, name, node) {
            Err(FsError::NotSupported | FsError::NotPermitted) => {}
            made => assert_eq!(made.map(|entry| entry.attr.mode), Ok(bits | 0o600)),
        }
    }
}

fn listings<F: FileSystem>(scene: &Scene<'_, F>) {
    let dir = scene.mkdir(Ino::ROOT, b"dir");
    let mut expected: Vec<Vec<u8>> = (0..100)
        .map(|number| format!("name {number}").into_bytes())
        .collect();
    for name in &expected {
        scene.mkdir(dir, name);
    }
    expected.sort();
    for batch in [1, 7, 1000] {
        for with_entries in [false, true] {
            let mut listed = scene.list(dir, batch, with_entries);
            for (name, entry) in &listed {
                assert!(!with_entries || entry.is_some(), "a name came without its entry");
                if let Some(entry) = entry {
                    assert_eq!(scene.lookup(dir, name).map(|entry| entry.ino), Ok(entry.ino));
                }
            }
            listed.sort_by(|(one, _), (other, _)| one.cmp(other));
            let names: Vec<_> = listed.into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, expected, "in batches of {batch}, entries {with_entries}");
        }
    }
}

fn unnamed_files<F: FileSystem>(scene: &Scene<'_, F>) {
    let flags = OpenFlags(libc::O_RDWR);
    match scene
        .file_system
        .tmpfile(&caller(), Ino::ROOT, super::FILE, flags)
    {
        Err(FsError::NotSupported | FsError::IsADirectory) => {}
        Err(error) => panic!("an unnamed file: {error}"),
        Ok((entry, opened)) => {
            let file = super::File {
                ino: entry.ino,
                handle: opened.handle,
            };
            scene.write(file, 0, b"no name");
            assert_eq!(scene.read(file, 0, 100), b"no name");
            assert!(scene.list(Ino::ROOT, 100, false).is_empty());
            scene.close(file);
        }
    }
}

fn forgetting<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, b"kept");
    scene.close(file);
    scene.file_system.forget(file.ino, 1);
    let entry = scene.lookup(Ino::ROOT, b"file").expect("the file is still there");
    assert_eq!(entry.attr.size, 4);
    let again = scene.open(entry.ino, libc::O_RDONLY);
    assert_eq!(scene.read(again, 0, 10), b"kept");
}
