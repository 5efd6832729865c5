//! Outputs as other processes see them: the content of the name during and after each write, and planted traps.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use outfile::{OutFile, Readers, Unfinished, partial_name};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("listed");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn is_root() -> bool {
    testkit::needs(&[testkit::Need::Root])
}

#[test]
fn a_file_has_its_name_when_it_is_whole() {
    let folder = folder();
    let path = folder.path().join("result");
    fs::write(&path, "old").expect("written");
    let mut output = OutFile::create(&path, Unfinished::Remove).expect("made");
    output.write_all(b"new").expect("written");
    assert_eq!(fs::read(&path).expect("there"), b"old");
    assert_eq!(names(folder.path()).len(), 2);
    output.finish().expect("renamed");
    assert_eq!(fs::read(&path).expect("there"), b"new");
    assert_eq!(names(folder.path()), ["result"]);
}

#[test]
fn an_unfinished_file_goes_or_stays_as_was_asked_for() {
    let folder = folder();
    let path = folder.path().join("result");
    drop(OutFile::create(&path, Unfinished::Remove).expect("made"));
    assert_eq!(names(folder.path()), Vec::<String>::new());
    let mut output = OutFile::create(&path, Unfinished::Keep).expect("made");
    output.write_all(b"half").expect("written");
    assert_eq!(output.path(), partial_name(&path));
    drop(output);
    assert_eq!(fs::read(partial_name(&path)).expect("kept"), b"half");
    let again = OutFile::create(&path, Unfinished::Keep).expect("an earlier one is replaced");
    again.finish().expect("renamed");
    assert_eq!(names(folder.path()), ["result"]);
}

#[test]
fn names_of_every_length_that_a_folder_takes_can_be_written() {
    let folder = folder();
    for (letter, bytes) in [("a", 247), ("a", 248), ("a", 255), ("\u{e9}", 254), ("b", 255)] {
        let name = letter.repeat(bytes / letter.len());
        let path = folder.path().join(&name);
        for unfinished in [Unfinished::Keep, Unfinished::Remove] {
            let output = OutFile::create(&path, unfinished).expect("made");
            if unfinished == Unfinished::Keep {
                assert_eq!(output.path(), partial_name(&path));
                assert!(partial_name(&path).to_string_lossy().ends_with(".partial"));
            }
            output.finish().expect("renamed");
            assert_eq!(names(folder.path()), [name.as_str()]);
        }
        fs::remove_file(&path).expect("it is there");
    }
    // Two that begin alike.
    let paths = ["c", "d"].map(|end| folder.path().join("a".repeat(254) + end));
    assert_ne!(partial_name(&paths[0]), partial_name(&paths[1]));
    let error = OutFile::create(&folder.path().join("a".repeat(256)), Unfinished::Keep)
        .and_then(OutFile::finish)
        .expect_err("too long");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidFilename, "{error}");
}

#[test]
fn a_planted_link_is_replaced_and_not_followed() {
    let folder = folder();
    let victim = folder.path().join("victim");
    fs::write(&victim, "mine").expect("written");
    let path = folder.path().join("result");
    for unfinished in [Unfinished::Keep, Unfinished::Remove] {
        symlink(&victim, partial_name(&path)).expect("planted");
        let _ = fs::remove_file(&path);
        symlink(&victim, &path).expect("planted");
        let mut output = OutFile::create(&path, unfinished).expect("made");
        output.write_all(b"result").expect("written");
        output.finish().expect("renamed");
        assert_eq!(fs::read(&victim).expect("there"), b"mine");
        assert_eq!(fs::read(&path).expect("there"), b"result");
        assert!(fs::symlink_metadata(&path).expect("there").is_file());
        let _ = fs::remove_file(partial_name(&path));
    }
}

#[test]
fn the_mode_of_an_own_file_is_kept() {
    let folder = folder();
    let path = folder.path().join("result");
    fs::write(&path, "secret").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
    outfile::write(&path, b"new").expect("written");
    assert_eq!(fs::metadata(&path).expect("there").mode() & 0o7777, 0o640);
    if is_root() {
        std::os::unix::fs::chown(&path, Some(1234), None).expect("root may");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("changed");
        outfile::write(&path, b"newer").expect("written");
        let found = fs::metadata(&path).expect("there");
        assert_eq!(found.uid(), 0);
        assert_eq!(
            found.mode() & 0o022,
            0,
            "the mode that another user gave it is not kept"
        );
    }
}

#[test]
fn devices_and_fifos_are_written_and_stay() {
    let folder = folder();
    let fifo = folder.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || {
            let mut text = String::new();
            fs::File::open(fifo)
                .and_then(|mut file| file.read_to_string(&mut text))
                .expect("read");
            text
        })
    };
    outfile::write(&fifo, b"through").expect("written");
    assert_eq!(reader.join().expect("it read"), "through");
    assert!(fs::metadata(&fifo).expect("there").file_type().is_fifo());
    if is_root() {
        let null = folder.path().join("null");
        let made = mknodat(
            CWD,
            &null,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            makedev(1, 3),
        );
        made.expect("root may");
        for path in [null.clone(), folder.path().join("link")] {
            let _ = symlink(&null, folder.path().join("link"));
            let output = OutFile::create(&path, Unfinished::Keep).expect("opened");
            assert!(output.is_straight());
            output.finish().expect("nothing to sync");
            assert!(fs::metadata(&null).expect("there").file_type().is_char_device());
        }
        assert!(
            fs::symlink_metadata(folder.path().join("link"))
                .expect("there")
                .is_symlink()
        );
    }
    assert!(
        OutFile::create(Path::new("/dev/null"), Unfinished::Remove)
            .expect("opened")
            .is_straight()
    );
}

#[test]
fn traps_of_other_users_in_a_folder_for_all_are_refused() {
    if !is_root() {
        return;
    }
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).expect("changed");
    let (null, link, fifo) = ("null", "link", "fifo");
    let path = |name: &str| folder.path().join(name);
    let made = mknodat(
        CWD,
        path(null),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(1, 3),
    );
    made.expect("root may");
    symlink(path(null), path(link)).expect("made");
    mknodat(CWD, path(fifo), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    for name in [link, fifo] {
        std::os::unix::fs::lchown(path(name), Some(1234), None).expect("root may");
        let refused = OutFile::create(&path(name), Unfinished::Remove).expect_err("a trap");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
    }
    assert_eq!(names(folder.path()), [fifo, link, null]);
}

#[test]
fn a_folder_and_a_path_without_a_name_are_errors() {
    let folder = folder();
    for path in [
        folder.path().to_owned(),
        folder.path().join(".."),
        folder.path().join("none/file"),
    ] {
        OutFile::create(&path, Unfinished::Remove).expect_err("no file can be made there");
    }
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_log_goes_through_an_own_link_and_no_other() {
    let folder = folder();
    let (log, link) = (folder.path().join("log"), folder.path().join("link"));
    let add = |path: &Path, text: &str| {
        outfile::append(path, Readers::Owner).and_then(|mut file| file.write_all(text.as_bytes()))
    };
    add(&log, "one ").expect("made");
    assert_eq!(fs::metadata(&log).expect("there").mode() & 0o7777, 0o600);
    symlink(&log, &link).expect("made");
    add(&link, "two").expect("the link is the caller's");
    assert_eq!(fs::read(&log).expect("there"), b"one two");
    if is_root() {
        std::os::unix::fs::lchown(&link, Some(1234), None).expect("root may");
        let refused = add(&link, "three").expect_err("another user's");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read(&log).expect("there"), b"one two");
        outfile::change(&link).expect_err("another user's");
    }
    let made = outfile::change(&folder.path().join("store")).expect("made");
    assert_eq!(made.metadata().expect("it is open").mode() & 0o111, 0);
}

#[test]
fn a_log_goes_through_links_to_other_folders_and_to_open_files() {
    let folder = folder();
    let below = folder.path().join("below");
    fs::create_dir(&below).expect("made");
    symlink("../log", below.join("second")).expect("made");
    symlink("below/second", folder.path().join("first")).expect("made");
    let add =
        |path: &Path| outfile::append(path, Readers::Owner).and_then(|mut file| file.write_all(b"line"));
    add(&folder.path().join("first")).expect("the links are the caller's");
    assert_eq!(fs::read(folder.path().join("log")).expect("there"), b"line");
    symlink("loop", folder.path().join("loop")).expect("made");
    add(&folder.path().join("loop")).expect_err("it leads nowhere");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
    symlink(format!("/proc/self/fd/{number}"), folder.path().join("out")).expect("made");
    add(&folder.path().join("out")).expect("an open file");
    drop(writer);
    let mut written = String::new();
    reader.read_to_string(&mut written).expect("read");
    assert_eq!(written, "line");
}

#[test]
fn a_log_is_not_written_to_what_another_user_may_have_planted() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let everybody = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(folder.path(), everybody).expect("it is ours");
    fs::write(path("secret"), "of root").expect("written");
    fs::hard_link(path("secret"), path("name")).expect("made");
    for name in ["fifo", "read-fifo"] {
        mknodat(CWD, path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("made");
        std::os::unix::fs::chown(path(name), Some(1234), None).expect("root may");
    }
    let _reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path("read-fifo"))
        .expect("opened");
    for name in ["fifo", "read-fifo", "name"] {
        outfile::append(&path(name), Readers::Owner).expect_err(name);
    }
    outfile::change(&path("name")).expect_err("another name of a file");
    assert_eq!(fs::read(path("secret")).expect("there"), b"of root");
    let own = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), own).expect("it is ours");
    outfile::append(&path("name"), Readers::Owner).expect("nobody else could make it");
}
