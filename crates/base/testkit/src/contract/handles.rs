//! Cases of the clause on handles: they refer to their file, whatever happens to its names and to other handles.

use vfs::{FileSystem, FsError, Ino, RenameFlags, SetAttr};

use super::{Case, File, Scene, caller, cases};

pub fn cases<F: FileSystem>() -> Vec<Case<F>> {
    cases![F:
        a_handle_writes_to_its_file_after_another_took_the_name,
        a_recreated_name_is_another_file,
        an_exchange_of_names_leaves_handles_on_their_files,
        a_rename_of_the_folder_leaves_handles_on_their_files,
        a_file_without_a_name_can_be_cut_synced_and_read,
        closing_one_handle_leaves_what_others_write,
        what_is_written_to_a_backing_file_is_seen_by_every_handle,
    ]
}

fn rename<F: FileSystem>(scene: &Scene<'_, F>, from: &[u8], to: &[u8], flags: u32) -> Result<(), FsError> {
    let (from, to) = ((Ino::ROOT, from), (Ino::ROOT, to));
    scene.file_system.rename(&caller(), from, to, RenameFlags(flags))
}

/// Reads the file of a name through a new handle.
fn content<F: FileSystem>(scene: &Scene<'_, F>, name: &[u8]) -> Vec<u8> {
    let entry = scene.lookup(Ino::ROOT, name).expect("the name is there");
    let file = scene.open(entry.ino, libc::O_RDONLY);
    let bytes = scene.read(file, 0, 1000);
    scene.close(file);
    bytes
}

fn a_handle_writes_to_its_file_after_another_took_the_name<F: FileSystem>(scene: &Scene<'_, F>) {
    let (old, new) = (scene.create(b"name"), scene.create(b"temporary"));
    scene.write(old, 0, b"old ");
    scene.write(new, 0, b"new ");
    assert_eq!(rename(scene, b"temporary", b"name", 0), Ok(()));
    scene.write(old, 4, b"and more of it");
    scene.write(new, 4, b"too");
    assert_eq!(content(scene, b"name"), b"new too");
    assert_eq!(scene.read(old, 0, 100), b"old and more of it");
    scene.close(old);
    assert_eq!(content(scene, b"name"), b"new too");
    scene.close(new);
    assert_eq!(content(scene, b"name"), b"new too");
}

fn a_recreated_name_is_another_file<F: FileSystem>(scene: &Scene<'_, F>) {
    let old = scene.create(b"name");
    scene.write(old, 0, b"of the old one");
    assert_eq!(scene.file_system.unlink(&caller(), Ino::ROOT, b"name"), Ok(()));
    let new = scene.create(b"name");
    assert_ne!(old.ino, new.ino);
    assert_eq!(scene.attr(new.ino).size, 0);
    scene.write(new, 0, b"new");
    scene.write(old, 14, b"!");
    assert_eq!(content(scene, b"name"), b"new");
    assert_eq!(scene.read(old, 0, 100), b"of the old one!");
    scene.close(old);
    assert_eq!(content(scene, b"name"), b"new");
}

fn an_exchange_of_names_leaves_handles_on_their_files<F: FileSystem>(scene: &Scene<'_, F>) {
    let (one, other) = (scene.create(b"one"), scene.create(b"other"));
    scene.write(one, 0, b"first ");
    scene.write(other, 0, b"second ");
    match rename(scene, b"one", b"other", libc::RENAME_EXCHANGE) {
        Err(FsError::Invalid | FsError::NotSupported) => return,
        exchanged => assert_eq!(exchanged, Ok(())),
    }
    scene.write(one, 6, b"file");
    scene.write(other, 7, b"file");
    assert_eq!(content(scene, b"other"), b"first file");
    assert_eq!(content(scene, b"one"), b"second file");
}

fn a_rename_of_the_folder_leaves_handles_on_their_files<F: FileSystem>(scene: &Scene<'_, F>) {
    let folder = scene.mkdir(Ino::ROOT, b"folder");
    let flags = vfs::OpenFlags(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL);
    let made = scene
        .file_system
        .create(&caller(), folder, b"file", super::FILE, flags);
    let (entry, opened) = made.expect("a new file can be made");
    let file = File {
        ino: entry.ino,
        handle: opened.handle,
    };
    scene.write(file, 0, b"before ");
    assert_eq!(rename(scene, b"folder", b"moved", 0), Ok(()));
    scene.write(file, 7, b"after");
    let found = scene.lookup(folder, b"file").expect("it went with its folder");
    assert_eq!((found.ino, found.attr.size), (file.ino, 12));
    assert_eq!(scene.read(file, 0, 100), b"before after");
}

fn a_file_without_a_name_can_be_cut_synced_and_read<F: FileSystem>(scene: &Scene<'_, F>) {
    let file = scene.create(b"file");
    scene.write(file, 0, &[5; 10_000]);
    assert_eq!(scene.file_system.unlink(&caller(), Ino::ROOT, b"file"), Ok(()));
    let change = SetAttr {
        size: Some(7_000),
        ..SetAttr::default()
    };
    let cut = scene.file_system.setattr(file.ino, Some(file.handle), &change);
    assert_eq!(cut.map(|attr| (attr.size, attr.nlink)), Ok((7_000, 0)));
    scene.write(file, 7_000, &[6; 100]);
    let synced = scene.file_system.fsync(file.ino, file.handle, false);
    assert_eq!(synced, Ok(()));
    let again = scene.read(file, 6_999, 1_000);
    assert_eq!((again.len(), again[0], again[1]), (101, 5, 6));
    scene.close(file);
}

fn closing_one_handle_leaves_what_others_write<F: FileSystem>(scene: &Scene<'_, F>) {
    let one = scene.create(b"file");
    let (other, third) = (
        scene.open(one.ino, libc::O_RDWR),
        scene.open(one.ino, libc::O_WRONLY),
    );
    scene.write(one, 0, b"one ");
    scene.write(other, 4, b"other ");
    scene.write(third, 10, b"third ");
    scene.close(one);
    scene.write(other, 16, b"again");
    scene.close(third);
    assert_eq!(scene.read(other, 0, 100), b"one other third again");
    scene.close(other);
    assert_eq!(content(scene, b"file"), b"one other third again");
}

fn what_is_written_to_a_backing_file_is_seen_by_every_handle<F: FileSystem>(scene: &Scene<'_, F>) {
    let (one, other) = {
        let one = scene.create(b"file");
        (one, scene.open(one.ino, libc::O_RDWR))
    };
    let Some(backing) = scene.file_system.backing_file(other.ino, other.handle) else {
        return;
    };
    scene.write(one, 0, b"by a call ");
    // As the kernel does before it lets data bypass this file system.
    let flushed = scene.file_system.flush(one.ino, one.handle);
    assert_eq!(flushed, Ok(()));
    let written = rustix::io::pwrite(&*backing, b"past it", 10);
    assert_eq!(written, Ok(7));
    assert_eq!(scene.read(one, 0, 100), b"by a call past it");
    assert_eq!(scene.attr(one.ino).size, 17);
    scene.write(one, 17, b", and by a call");
    assert_eq!(scene.read(other, 0, 100), b"by a call past it, and by a call");
}
